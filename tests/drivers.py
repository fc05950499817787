"""What an application of the tests runs: a driver that is told on its standard input what to do, one JSON object a line.

``python -m tests.drivers spark`` has a session, and so a JVM; ``python -m tests.drivers plain`` has none, starts at once, and runs its queries
as `tests.queries` does. Everything that its queries are given goes to a file as soon as it is there, so the record survives a SIGKILL.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from unittest import mock

import spark_partq as partq
from spark_partq.storage.procedures import rebalance as rebalancer
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store
from tests import delivering, queries
from tests.clocks import grace, skew
from tests.committing import Commits
from tests.delivering import Delivery
from tests.jvm import QUICK
from tests.processes import MASTER
from tests.recording import Listener, Messages, Recorder, Sender
from tests.scaled import Sink, scale

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.driver.memory": "768m",
}
# What an executor needs beside that, with a master that has any.
EXECUTOR = {"spark.executor.memory": "600m", "spark.executor.extraJavaOptions": QUICK}
_GRACE_S = 20.0


def _maintain(store: str, grace_ms: int) -> list[Any]:
    """With a grace that no queue may have: files are deleted so soon after no log names them."""
    with grace(grace_ms):
        return partq.maintain(store)


def _promote(store: str, queue: str) -> str:
    """As somebody does who does not know whether the process that did it before has died: it may be done."""
    try:
        return str(partq.promote(store, queue))
    except partq.ReplicaError as error:
        if "already" not in str(error):
            raise
        return "promoted before"


def _rebalance(store: str, group: str) -> None:
    rebalancer.run(rebalancer.Rebalancer(Store.at(store), group), 0.2, threading.Event().wait, lambda *_: None, None)


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "maintain": _maintain,
    "promote": _promote,
    "rebalance": _rebalance,
    "replicate": partq.replicate,
    "reset_offsets": partq.reset_offsets,
    "scale": scale,
}


class Driver(ABC):
    """Obeys; each command in a thread of its own, for a query may take its time to stop."""

    _sinks: ClassVar[Mapping[str, Callable[[str], Any]]]
    _planned: Callable[[Any], Any]

    def __init__(self) -> None:
        self._queries: dict[str, tuple[Any, Recorder | Sender | Delivery]] = {}

    def start(
        self,
        name: str,
        store: str,
        checkpoint: str,
        record: str,
        options: dict[str, Any],
        every_s: float,
        hold: str | None,
    ) -> str:
        """A query that writes down what it is given."""
        recorder = Recorder(record, name, hold)
        self._queries[name] = (self._consume(store, checkpoint, recorder, every_s, options), recorder)
        return recorder.run

    def produce(
        self,
        name: str,
        store: str,
        checkpoint: str,
        record: str,
        rows: int,
        keys: int,
        every_s: float,
        prefix: str | None = None,
        values: tuple[int, int] = (0, 1),
        hold: str | None = None,
    ) -> str:
        """So many messages in each micro-batch: values from the first of `values` in steps of the second, and `keys` keys in turn.

        The keys begin with its name, or with `prefix`, which several producers may share. `hold` is a file that holds it up (`Sender`).
        """
        messages = Messages(prefix or name, rows, keys, *values)
        sender = Sender(self._sink(name, store, messages), record, hold)
        self._queries[name] = (self._produce(checkpoint, messages, sender, every_s), sender)
        return sender.run

    def deliver(
        self,
        name: str,
        store: str,
        checkpoint: str,
        folder: str,
        targets: dict[str, str],
        options: Any,
        record: str | None = None,
    ) -> str:
        """A query that gives each micro-batch to sinks: of each kind the target. `folder` has its record and what holds it.

        With `record` it also writes down each row, as `start` does.
        """
        recorder = None if record is None else Recorder(record, name, None)
        sinks = [self._sinks[kind](target) for kind, target in targets.items()]
        delivery = Delivery(folder, name, sinks, self._planned, recorder)
        self._queries[name] = (self._consume(store, checkpoint, delivery, 0.0, options), delivery)
        return delivery.run

    def stop(self, name: str) -> None:
        """At once, whatever runs."""
        self._queries[name][0].stop()

    def status(self, name: str) -> dict[str, Any]:
        query, recorder = self._queries[name]
        error = query.exception()
        return {"active": query.isActive, "error": None if error is None else str(error), "finished": recorder.finished}

    def acknowledge(
        self, store: str, group: str, offsets: list[tuple[str, int, int]], epochs: list[tuple[str, int, int]]
    ) -> list[list[Any]]:
        wanted = {(queue, partition): offset for queue, partition, offset in offsets}
        under = {(queue, partition): epoch for queue, partition, epoch in epochs}
        return [list(p) for p in partq.acknowledge(store, group, wanted, epochs=under or None)]

    def run(self, function: str, arguments: dict[str, Any]) -> str:
        """Do what an operator does, and say what came of it."""
        return str(_OPERATIONS[function](**arguments))

    def clear(self) -> None:
        for query, _ in self._queries.values():
            query.stop()
        self._queries.clear()

    @abstractmethod
    def leave(self, name: str) -> None:
        """Politely: the running micro-batch is finished, none is begun (W3)."""

    @abstractmethod
    def listen(self, group: str, record: str) -> None:
        """Write down what the group tells this application (H6)."""

    @abstractmethod
    def _consume(
        self, store: str, checkpoint: str, take: Recorder | Delivery, every_s: float, options: dict[str, Any]
    ) -> Any: ...

    @abstractmethod
    def _sink(self, name: str, store: str, messages: Messages) -> Callable[[Any, int], None]:
        """What writes a micro-batch of these into queue `q`."""

    @abstractmethod
    def _produce(self, checkpoint: str, messages: Messages, sender: Sender, every_s: float) -> Any: ...


class SparkDriver(Driver):
    """With a session."""

    _sinks, _planned = delivering.SINKS, staticmethod(delivering.planned)

    def __init__(self) -> None:
        super().__init__()
        self._spark = partq.session("application", os.environ.get(MASTER, "local[1]"), {**SMALL, **EXECUTOR})
        self._spark.sparkContext.setLogLevel("ERROR")

    def leave(self, name: str) -> None:
        query, recorder = self._queries[name]
        recorder.stopping.set()  # first, so that the only micro-batch that can go on is the one that is waited for
        last = query.lastProgress
        before = -1 if last is None else last["batchId"]
        until = time.monotonic() + _GRACE_S
        while query.isActive and time.monotonic() < until:
            done = -1 if query.lastProgress is None else query.lastProgress["batchId"]
            status = query.status
            if done > before or not (status["isTriggerActive"] and status["isDataAvailable"]):
                break
            time.sleep(0.02)
        query.stop()

    def listen(self, group: str, record: str) -> None:
        partq.add_listener(self._spark, group, Listener(record))

    def _consume(
        self, store: str, checkpoint: str, take: Recorder | Delivery, every_s: float, options: dict[str, Any]
    ) -> Any:
        reader = self._spark.readStream.format("partq").option("path", store).options(**options)
        writer = reader.load().writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime=f"{1000 * every_s:.0f} milliseconds").start()

    def _sink(self, name: str, store: str, messages: Messages) -> Callable[[Any, int], None]:
        return partq.queue_sink(store, "q", order_by="v")

    def _produce(self, checkpoint: str, messages: Messages, sender: Sender, every_s: float) -> Any:
        source = self._spark.readStream.format("rate-micro-batch").option("numPartitions", 1)
        numbers = source.option("rowsPerBatch", messages.rows).load()
        made = numbers.selectExpr(
            f"concat('{messages.prefix}-', value % {messages.keys}) as k",
            f"{messages.first} + {messages.step} * value as v",
        )
        writer = made.writeStream.foreachBatch(sender).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime=f"{1000 * every_s:.0f} milliseconds").start()

    def append(self, store: str, sink_id: str, batches: int, rows: int) -> None:
        """Batch after batch, each with so many messages of 11 keys and the sink's name."""
        for batch in range(batches):
            numbers = self._spark.range(batch * rows, (batch + 1) * rows, 1, 1)
            messages = numbers.selectExpr("concat('k', id % 11) k", "id n", f"'{sink_id}' producer")
            partq.append(messages, store, "q", sink_id=sink_id, batch_id=batch)

    def copy(self, store: str, source: str, checkpoint: str, commits: int) -> None:
        """Stream files of messages into the queue, and die with SIGKILL when so many partitions' commits are made."""
        append, done, lock = PartitionTable.append, [], threading.Lock()

        def last(self: PartitionTable, *arguments: Any) -> int | None:
            with lock:
                if len(done) == commits:
                    os.kill(os.getpid(), signal.SIGKILL)
                done.append(self.partition)
                return append(self, *arguments)

        with mock.patch.object(PartitionTable, "append", last):
            files = self._spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1).json(source)
            writer = files.writeStream.foreachBatch(partq.queue_sink(store, "q"))
            writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


class PlainDriver(Driver):
    """Without a session, and without a JVM."""

    _sinks, _planned = delivering.PLAIN_SINKS, staticmethod(delivering.planned_without_spark)

    def leave(self, name: str) -> None:
        self._queries[name][0].leave()

    def listen(self, group: str, record: str) -> None:
        queries.driver().add_listener(group, Listener(record))

    def _consume(
        self, store: str, checkpoint: str, take: Recorder | Delivery, every_s: float, options: dict[str, Any]
    ) -> Any:
        return queries.Query(store, checkpoint, take, every_s=every_s, **options)

    def _sink(self, name: str, store: str, messages: Messages) -> Callable[[Any, int], None]:
        sink = Sink(store, name)
        return lambda _, batch: sink.write(batch, messages.of(batch))

    def _produce(self, checkpoint: str, messages: Messages, sender: Sender, every_s: float) -> Any:
        return queries.Generator(checkpoint, sender, every_s)


def main() -> None:
    # Standard output is for answers alone; what Spark and the JVM print goes where errors go.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()
    skew()
    Commits()
    driver = {"spark": SparkDriver, "plain": PlainDriver}[sys.argv[1]]()

    def obey(number: int, command: str, arguments: dict[str, Any]) -> None:
        try:
            answer = {"id": number, "value": getattr(driver, command)(**arguments)}
        except Exception as error:
            answer = {"id": number, "error": f"{type(error).__name__}: {error}"}
        with lock:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()

    for line in sys.stdin:
        request = json.loads(line)
        threading.Thread(
            target=obey, args=(request["id"], request["command"], request["arguments"]), daemon=True
        ).start()
    os._exit(0)  # the end of standard input; the JVM follows


if __name__ == "__main__":
    main()
