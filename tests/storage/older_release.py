"""A process of an older release, which does what it is told: one JSON object a line, one answer each.

It is run as a script, with the package of that release on PYTHONPATH, and uses only functions that the release has.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict

import spark_partq as partq
from spark_partq.core.format import FEATURES, RELEASE
from spark_partq.core.payload.keys import key_hash
from spark_partq.core.queue.partition_map import target
from spark_partq.spark.source import PartqDataSource
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.queue.messages import MessageWriter
from spark_partq.storage.queue.partition_table import BatchRecord
from spark_partq.storage.store import Store

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


class Sink:
    """What the driver of a sink does."""

    def __init__(self, store: str, queue: str, sink_id: str) -> None:
        self._queue, self._sink_id = open_queue(Store.at(store), queue), sink_id
        self._producer = Producer(self._queue)

    def write(self, batch: int, rows: list[tuple[str, int]]) -> int:
        self._producer.refresh()
        record = BatchRecord(self._sink_id, batch)
        return self._producer.write(record, lambda: _files(self._queue, rows), lambda: len(rows))


def _files(queue: Queue, rows: list[tuple[str, int]]) -> list[Any]:
    writer = MessageWriter(queue.store, queue.name, SCHEMA, ["k"], sorted_input=False)
    places = [target(key_hash([k], ["string"]), queue.state.partition_count) for k, _ in rows]
    batch = pa.RecordBatch.from_pylist([{"k": k, "v": v} for k, v in rows], SCHEMA)
    writer.write(batch, np.array(places), np.arange(len(rows)))
    return writer.finish()


class Query:
    """A streaming query, driven as Spark does it, with a checkpoint as Spark has it; in a thread of its own."""

    def __init__(self, store: str, checkpoint: str, **options: Any) -> None:
        given = {"path": store, **{name: str(value) for name, value in options.items()}}
        source = PartqDataSource(CaseInsensitiveDict(given))
        self._reader = source.streamReader(source.schema())
        self._offsets, self._commits = Path(checkpoint, "offsets"), Path(checkpoint, "commits")
        for folder in (self._offsets, self._commits):
            folder.mkdir(parents=True, exist_ok=True)
        self.seen: list[
            tuple[int, str, int]
        ] = []  # when by the clock of the machine that all processes have, key, value
        self.error: partq.PartqError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            batch = max((int(path.name) for path in self._commits.iterdir()), default=-1)
            done = json.loads((self._offsets / str(batch)).read_text()) if batch >= 0 else self._reader.initialOffset()
            while not self._stopping.is_set():
                end = self._reader.latestOffset(done, self._reader.getDefaultReadLimit())
                if end == done:
                    self._stopping.wait(0.01)
                    continue
                batch += 1
                (self._offsets / str(batch)).write_text(json.dumps(end))
                rows = [
                    row
                    for task in self._reader.partitions(done, end)
                    for part in self._reader.read(task)
                    for row in part.to_pylist()
                ]
                at = time.monotonic_ns()
                self.seen += [(at, row["k"], row["v"]) for row in rows]
                (self._commits / str(batch)).touch()
                done = end
        except partq.PartqError as error:
            self.error = error
        finally:
            self._reader.stop()


class Process:
    """What it can be told; what is not here is a public function of the release, whose first argument is the store."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._sinks: dict[tuple[str, str], Sink] = {}
        self._queries: dict[str, Query] = {}

    def write(self, queue: str, sink_id: str, batch: int, rows: list[tuple[str, int]]) -> int:
        key = queue, sink_id
        if key not in self._sinks:
            self._sinks[key] = Sink(self._store, *key)
        return self._sinks[key].write(batch, rows)

    def start(self, instance: str, checkpoint: str, **options: Any) -> None:
        self._queries[instance] = Query(self._store, checkpoint, instanceId=instance, **options)

    def stop(self, instance: str) -> None:
        self._queries[instance].stop()

    def seen(self, instance: str) -> list[tuple[int, str, int]]:
        return self._queries[instance].seen

    def end(self, instance: str) -> str | None:
        """The error that ended a query; None while it runs."""
        query = self._queries[instance]
        return str(query.error) if query.ended() else None

    def doctor(self) -> list[str]:
        return [str(finding) for finding in diagnose(Store.at(self._store)).findings]

    def told(self, command: str, arguments: list[Any], options: dict[str, Any]) -> Any:
        if command in vars(Process):
            return getattr(self, command)(*arguments, **options)
        getattr(partq, command)(self._store, *arguments, **options)
        return None


def main(store: str) -> None:
    process = Process(store)
    print(json.dumps({"package": partq.__file__, "release": RELEASE, "features": sorted(FEATURES)}), flush=True)
    for line in sys.stdin:
        try:
            answer = {"value": process.told(*json.loads(line))}
        except partq.PartqError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
