"""Real applications: driver processes, each with a JVM of its own, that are told on their standard input what to run.

``python -m tests.applications`` is the driver; `Application` starts it and talks to it, one JSON object a line. Everything that its
queries are given goes to a file as soon as it is there, so the record survives a SIGKILL.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from spark_partq.core.group.facts import Status
from spark_partq.core.ids import instance_of
from spark_partq.storage.group.handle import Group
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store
from spark_partq.testing.checker import Report, check
from tests.helpers import ROOT, eventually, new_file, opened

SMALL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "768m",
    # Half the time to start and to warm up: such a short life repays no optimisation.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.pollingDelay": "10ms",
}
# A micro-batch that was told to wait gives up after this, so that nothing hangs for ever.
_HOLD_S = 120.0
_GRACE_S = 20.0
# Where a package with an assignor of a user's is installed.
PLUGINS = ROOT / "tests" / "plugins"


def twice(folder: Path) -> Path:
    """While this file is there, that assignor gives a partition twice."""
    return folder / "twice"


# ---- in the driver
class Recorder:
    """A function for ``foreachBatch`` that writes down each row, and holds the batch while the file `hold` is there."""

    def __init__(self, record: str, instance: str, hold: str | None) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.stopping = threading.Event()
        self.finished = -1
        self._instance, self._hold = instance, hold
        self._file = os.fdopen(os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), "w", encoding="utf-8")

    def __call__(self, df: Any, batch_id: int) -> None:
        if self.stopping.is_set():
            raise InterruptedError(f"micro-batch {batch_id} is left to the next start")
        about = {"run": self.run, "batch": batch_id}
        began = time.monotonic()
        rows = df.collect()
        at = time.monotonic()
        self._write(
            {"kind": "start", **about, "at": began},
            *(
                {
                    "kind": "row", **about, "at": at, "instance": instance_of(r._flow), "queue": r._queue,
                    "partition": r._partition, "offset": r._offset, "epoch": r._epoch, "flow": r._flow,
                    "redelivered": r._redelivered, "key": r.k, "value": r.v,
                }
                for r in rows
            ),
        )  # fmt: skip
        until = at + _HOLD_S
        # Spark begins with a micro-batch without rows when there is nothing yet; that one need not be held.
        while rows and self._hold and os.path.exists(self._hold) and time.monotonic() < until:
            time.sleep(0.02)
        self._write({"kind": "end", **about, "at": time.monotonic()})
        self.finished = batch_id

    def _write(self, *records: Mapping[str, Any]) -> None:
        self._file.write("".join(json.dumps(r) + "\n" for r in records))
        self._file.flush()


class Sender:
    """A function for ``foreachBatch`` that writes into the queue, and writes down each micro-batch that is in."""

    def __init__(self, sink: Callable[[Any, int], None], record: str) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.stopping = threading.Event()
        self.finished = -1
        self._sink, self._record = sink, record

    def __call__(self, df: Any, batch_id: int) -> None:
        if self.stopping.is_set():
            raise InterruptedError(f"micro-batch {batch_id} is left to the next start")
        began = time.monotonic()
        self._sink(df, batch_id)
        with open(self._record, "a", encoding="utf-8") as file:
            file.write(json.dumps([batch_id, began, time.monotonic()]) + "\n")
        self.finished = batch_id


class Listener:
    """Writes down each call, with the time."""

    def __init__(self, record: str) -> None:
        self._record = record

    def _write(self, what: str, *about: Any) -> None:
        with open(self._record, "a", encoding="utf-8") as file:
            file.write(json.dumps([what, *about, time.monotonic()]) + "\n")

    def on_partitions_assigned(self, partitions: list[tuple[str, int]]) -> None:
        self._write("assigned", [number for _, number in partitions])

    def on_partitions_revoked(self, partitions: list[tuple[str, int]]) -> None:
        self._write("revoked", [number for _, number in partitions])

    def on_partitions_lost(self, partitions: list[tuple[str, int]]) -> None:
        self._write("lost", [number for _, number in partitions])

    def on_active_changed(self, flow: str, active: bool) -> None:
        self._write("active", active)


class Driver:
    """Obeys; each command in a thread of its own, for a query may take its time to stop."""

    def __init__(self) -> None:
        import spark_partq

        self._partq = spark_partq
        self._spark = spark_partq.session("application", "local[1]", SMALL)
        self._spark.sparkContext.setLogLevel("ERROR")
        self._queries: dict[str, tuple[Any, Recorder | Sender]] = {}

    def start(
        self,
        name: str,
        store: str,
        checkpoint: str,
        record: str,
        options: dict[str, Any],
        trigger: str | None,
        hold: str | None,
    ) -> str:
        reader = self._spark.readStream.format("partq").option("path", store).options(**options)
        recorder = Recorder(record, name, hold)
        writer = reader.load().writeStream.foreachBatch(recorder).option("checkpointLocation", checkpoint)
        query = (writer.trigger(processingTime=trigger) if trigger else writer).start()
        self._queries[name] = (query, recorder)
        return recorder.run

    def produce(self, name: str, store: str, checkpoint: str, record: str, rows: int, keys: int, every: str) -> str:
        """So many messages in each micro-batch: values 0, 1, 2…, and `keys` keys of its own in turn."""
        source = (
            self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 1)
        )
        messages = source.load().selectExpr(f"concat('{name}-', value % {keys}) as k", "value as v")
        sender = Sender(self._partq.queue_sink(store, "q", order_by="v"), record)
        writer = messages.writeStream.foreachBatch(sender).option("checkpointLocation", checkpoint)
        self._queries[name] = (writer.trigger(processingTime=every).start(), sender)
        return sender.run

    def stop(self, name: str) -> None:
        """At once, whatever runs."""
        self._queries[name][0].stop()

    def leave(self, name: str) -> None:
        """Politely: the running micro-batch is finished, none is begun (W3)."""
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

    def status(self, name: str) -> dict[str, Any]:
        query, recorder = self._queries[name]
        error = query.exception()
        return {"active": query.isActive, "error": None if error is None else str(error), "finished": recorder.finished}

    def acknowledge(
        self, store: str, group: str, offsets: list[tuple[str, int, int]], epochs: list[tuple[str, int, int]]
    ) -> list[list[Any]]:
        wanted = {(queue, partition): offset for queue, partition, offset in offsets}
        under = {(queue, partition): epoch for queue, partition, epoch in epochs}
        return [list(p) for p in self._partq.acknowledge(store, group, wanted, epochs=under or None)]

    def listen(self, group: str, record: str) -> None:
        """Write down what the group tells this application (H6)."""
        self._partq.add_listener(self._spark, group, Listener(record))

    def clear(self) -> None:
        for query, _ in self._queries.values():
            query.stop()
        self._queries.clear()


def main() -> None:
    # Standard output is for answers alone; what Spark and the JVM print goes where errors go.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()
    driver = Driver()

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


# ---- in the test
class Application:
    """One driver process. It starts while the test goes on; the first answer waits for it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / f"application-{uuid.uuid4().hex[:6]}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.applications"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": str(PLUGINS),
                    "CONTRARY_TWICE": str(twice(folder)),
                },
                start_new_session=True,
            )
        self._numbers = itertools.count()
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self.killed = False
        self._ended = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._arrived:
                self._answers[answer["id"]] = answer
                self._arrived.notify_all()
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()

    def tell(self, command: str, **arguments: Any) -> Callable[[], Any]:
        """Send a command; the result waits for its answer."""
        assert self._process.stdin is not None
        number = next(self._numbers)
        self._process.stdin.write(json.dumps({"id": number, "command": command, "arguments": arguments}) + "\n")
        self._process.stdin.flush()

        def answer() -> Any:
            with self._arrived:
                there = self._arrived.wait_for(lambda: number in self._answers or self._ended, 120)
                assert there and number in self._answers, f"no answer to {command}:\n{self.log()}"
                found = self._answers.pop(number)
            assert "error" not in found, f"{command}: {found['error']}\n{self.log()}"
            return found["value"]

        return answer

    def ask(self, command: str, **arguments: Any) -> Any:
        return self.tell(command, **arguments)()

    def log(self) -> str:
        """What it wrote since its JVM was up."""
        return self._log.read_text().rpartition("statically registered data source.")[2][-6000:]

    def _signal(self, number: signal.Signals) -> None:
        """To the driver, its JVM, the planners and the workers: all that belong to the session that it began."""
        for process in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, psutil.Error):
                if os.getsid(process.pid) == self._process.pid:
                    os.kill(process.pid, number)

    def kill(self) -> None:
        """SIGKILL to everything at once."""
        self.killed = True
        self._signal(signal.SIGSTOP)  # so that nobody notices the end of another
        self._signal(signal.SIGKILL)
        self._process.wait()

    def stop_signals(self) -> None:
        """SIGSTOP: what lives on is a zombie until `cont`."""
        self._signal(signal.SIGSTOP)

    def cont(self) -> None:
        self._signal(signal.SIGCONT)


class Pool:
    """Applications that scenarios share, for each takes many seconds to start. Killed ones are replaced when they are wanted."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder, self.twice = folder, twice(folder)
        self._applications = [Application(folder) for _ in range(size)]

    def take(self, count: int) -> list[Application]:
        self._applications.sort(key=lambda a: a.killed)
        for i, application in enumerate(self._applications):
            if application.killed and i < count:
                self._applications[i] = Application(self._folder)
        return self._applications[:count]

    def clear(self) -> None:
        """Stop every query, also of those that were stopped by a signal."""
        alive = [a for a in self._applications if not a.killed]
        for application in alive:
            application.cont()
        for answer in [a.tell("clear") for a in alive]:
            answer()

    def close(self) -> None:
        for application in self._applications:
            if not application.killed:
                application.kill()


class Scenario:
    """One queue `q`, one group, and the applications that consume it."""

    def __init__(self, pool: Pool, folder: Path, partitions: int, group: str = "g", **settings: Any) -> None:
        import spark_partq as partq

        self.pool, self.folder, self.store = pool, folder, str(folder / "store")
        partq.create_queue(self.store, "q", "k string, v bigint", key="k", partitions=partitions, **settings)
        self._tables: list[PartitionTable] = opened(self.store).partitions
        self.sent: dict[tuple[str, int], list[str]] = {("q", p): [] for p in range(partitions)}
        self.sent_at: dict[tuple[str, int], list[float]] = {("q", p): [] for p in range(partitions)}
        self._group = Group(Store.at(self.store), group)
        self._where: dict[str, Application] = {}
        self._started: dict[str, Callable[[], Any]] = {}
        self.names: dict[str, str] = {}  # by instance

    # ---- messages
    def send(self, partition: int, *keys: str) -> None:
        """One message of each key, in one commit."""
        place = ("q", partition)
        first = len(self.sent[place])
        columns: dict[str, Sequence[Any]] = {"k": keys, "v": range(first, first + len(keys))}
        self._tables[partition].append([new_file(self.store, "q", partition, columns)], None)
        self.sent[place] += keys
        self.sent_at[place] += [time.monotonic()] * len(keys)

    def send_all(self, count: int = 1) -> None:
        for _, partition in self.sent:
            self.send(partition, *[f"key-{partition}"] * count)

    @contextlib.contextmanager
    def sending(self, every_s: float = 0.15) -> Iterator[None]:
        """Messages to all partitions, again and again."""
        over = threading.Event()
        failed: list[BaseException] = []

        def run() -> None:
            try:
                while not over.wait(every_s):
                    self.send_all()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        assert not failed, failed

    # ---- consumers
    def hold(self, name: str) -> Path:
        """While this file is there, no micro-batch of the query ends."""
        return self.folder / f"{name}.hold"

    def start(
        self,
        application: Application,
        name: str,
        *,
        static: bool = False,
        trigger: str | None = None,
        checkpoint: str = "",
        **options: Any,
    ) -> Callable[[], None]:
        """Start a query that is called `name` here; what it returns waits until it has joined.

        Only a `static` one has an instance id of ours. Those of the others are learnt when they join, so wait for each before the
        next is started.
        """
        self._where[name] = application
        options = {"queue": "q", "group": self._group.name, "instanceId": name if static else None, **options}
        since = self.seq
        self._started[name] = application.tell(
            "start", name=name, store=self.store, checkpoint=str(self.folder / (checkpoint or f"cp-{name}")),
            record=str(self.folder / f"{name}.jsonl"), trigger=trigger, hold=str(self.hold(name)),
            options={o: str(v) for o, v in options.items() if v is not None},
        )  # fmt: skip

        def joined() -> None:
            self._is_started(name)
            try:
                facts = eventually(lambda: self.history("MemberJoined", since=since), f"the join of {name}")
            except AssertionError:
                raise AssertionError(f"{name} did not join:\n{self.explain()}") from None
            if not static:
                name_of = next(f["instance"] for f in facts if self.names.get(f["instance"], name) == name)
                self.names[name_of] = name

        return joined

    def _is_started(self, name: str) -> None:
        answer = self._started.pop(name, None)
        if answer is not None:
            answer()

    def instance(self, name: str) -> str:
        """Its instance id."""
        return next((i for i, n in self.names.items() if n == name), name)

    def let_go(self) -> None:
        """Hold no micro-batch any longer."""
        for path in self.folder.glob("*.hold"):
            path.unlink()

    def acknowledge(self, name: str, offsets: Mapping[int, int], epochs: Mapping[int, int] | None = None) -> list[Any]:
        """What the application of this query acknowledges by hand; the partitions that were refused."""
        refused: list[Any] = self._where[name].ask(
            "acknowledge", store=self.store, group=self._group.name, offsets=[("q", *x) for x in offsets.items()],
            epochs=[("q", *x) for x in (epochs or {}).items()],
        )  # fmt: skip
        return refused

    def listen(self, application: Application, name: str) -> None:
        application.ask("listen", group=self._group.name, record=str(self.folder / f"{name}.listener"))

    def listener_calls(self, name: str) -> list[list[Any]]:
        """What was said, to whom it was said, when: ``["revoked", [1, 2], 17.0]``."""
        return [json.loads(line) for line in (self.folder / f"{name}.listener").read_text().splitlines()]

    def stop(self, name: str) -> None:
        self._where[name].ask("stop", name=name)

    def leave(self, name: str) -> Callable[[], None]:
        return self._where[name].tell("leave", name=name)

    def failed(self, name: str) -> str:
        """The error with which the query ends."""
        self._is_started(name)
        return str(eventually(lambda: self._where[name].ask("status", name=name)["error"], f"the end of {name}"))

    # ---- what is there
    def records(self, *names: str) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.folder.glob("*.jsonl")):
            if not names or path.stem in names:
                # Whoever is killed may leave half a line.
                found += [
                    json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")
                ]
        return found

    def rows(self, *names: str) -> list[dict[str, Any]]:
        return [r for r in self.records(*names) if r["kind"] == "row"]

    def places(self, *names: str) -> list[tuple[int, int]]:
        """(partition, offset) of each row, in the order of delivery."""
        return [(r["partition"], r["offset"]) for r in self.rows(*names)]

    @property
    def group(self) -> Group:
        if self._group.exists():
            self._group.refresh()
        return self._group

    def owners(self) -> dict[int, str | None]:
        return {p: own.flow for (_, p), own in sorted(self.group.state.partitions.items())}

    def loads(self) -> dict[str, list[int]]:
        """Partitions of each query, by our names."""
        found: dict[str, list[int]] = {}
        for partition, flow in self.owners().items():
            instance = instance_of(flow or "/")
            found.setdefault(self.names.get(instance, instance), []).append(partition)
        return found

    def counts(self) -> dict[str, int]:
        return {instance: len(mine) for instance, mine in self.loads().items()}

    def history(self, *kinds: str, since: int = 0) -> list[dict[str, Any]]:
        facts = self.group.history() if self._group.exists() else []
        return [f for f in facts if f["seq"] >= since and (not kinds or f["kind"] in kinds)]

    @property
    def seq(self) -> int:
        return self.group.state.seq

    def is_ready(self) -> bool:
        state = self.group.state
        return state.status is Status.READY and bool(state.members)

    def settled(self, expected: Mapping[str, int], timeout_s: float = 60.0) -> None:
        """Wait until the group is Ready with so many partitions per instance."""
        try:
            eventually(lambda: self.is_ready() and self.counts() == expected, "", timeout_s)
        except AssertionError:
            raise AssertionError(
                f"{self.counts()} instead of {expected}, {self.group.state.status}:\n{self.explain()}"
            ) from None

    def explain(self) -> str:
        """The last facts and the logs of the applications, for an error message."""
        shown = ("seq", "kind", "partition", "offset", "epoch", "flow", "to_flow", "instance", "status", "cause", "by")
        facts = [" ".join(str(f[c]) for c in shown if f[c] is not None) for f in self.history()[-60:]]
        logs = [f"--- {name}\n{a.log()[-1500:]}" for name, a in self._where.items()]
        with contextlib.suppress(AssertionError):
            logs += [f"--- {name}: {a.ask('status', name=name)}" for name, a in self._where.items() if not a.killed]
        return "\n".join([*facts, *logs])

    def delivered(self, *names: str, places: Iterable[tuple[int, int]] | None = None) -> None:
        """Wait until these consumers together have had these messages, or all that were sent."""
        wanted = set(places) if places is not None else self._all()
        try:
            eventually(lambda: wanted <= set(self.places(*names)), "")
        except AssertionError:
            missing = sorted(wanted - set(self.places(*names)))
            raise AssertionError(f"not delivered to {names or 'anybody'}: {missing[:20]}\n{self.explain()}") from None

    def _all(self) -> set[tuple[int, int]]:
        return {(p, offset) for (_, p), keys in self.sent.items() for offset in range(len(keys))}

    def acknowledged(self) -> None:
        """Wait until the group wants nothing any more."""
        wanted = {p: len(keys) for (_, p), keys in self.sent.items()}
        try:
            eventually(lambda: self.positions() == wanted, "")
        except AssertionError:
            raise AssertionError(f"{self.positions()} acknowledged of {wanted}\n{self.explain()}") from None

    def positions(self) -> dict[int, int]:
        group = self.group
        return {partition_id[1]: group.position(partition_id) or 0 for partition_id in group.state.partitions}

    def check(self, *, manual: bool = False, acknowledged: bool = True) -> Report:
        """Wait for the end of the work and check all that was delivered: nothing lost, order kept, nothing twice unless allowed."""
        self.delivered()
        if acknowledged:
            self.acknowledged()
        positions = {("q", p): offset for p, offset in self.positions().items()}
        report = check(self.records(), self.history(), self.sent, positions, manual=manual)
        assert report.ok, f"{report}\n{self.explain()}"
        return report


if __name__ == "__main__":
    main()
