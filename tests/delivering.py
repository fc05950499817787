"""What an application of a campaign runs for each micro-batch: its sinks, held up where the campaign wants it."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc

import spark_partq as partq
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.delivery.positions import Position, positions_of
from spark_partq.core.ids import PartitionId, QueuePartition
from spark_partq.core.payload.ddl import parse_ddl
from spark_partq.core.payload.schema import message_schema
from spark_partq.core.queue.sink_ids import positions_sink
from spark_partq.spark.micro_batch import MicroBatch, micro_batch
from spark_partq.storage.procedures.deliver_once import Written, deliver_once
from spark_partq.storage.procedures.place import write_rows
from spark_partq.storage.procedures.positions_queue import PositionsQueue
from spark_partq.storage.procedures.prepared import Prepared
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store
from spark_partq.storage.wanted import sorted_out
from spark_partq.target.files import TableFile
from spark_partq.target.table import DeltaTarget
from spark_partq.target.task import RESULT, taken, write_task
from tests.recording import HOLD_S, Recorder

Sink = Callable[[Any, int], None]

RESULTS = "results"  # the queue into which results go


def before_commit(folder: Path, name: str) -> Path:
    """While this file is there, the query commits no results."""
    return folder / f"{name}.before"


def after_commit(folder: Path, name: str) -> Path:
    """While this file is there, no micro-batch of the query ends whose results are in."""
    return folder / f"{name}.after"


class Delivery:
    """A function for ``foreachBatch`` that gives each micro-batch to sinks, and writes down how far it is.

    It writes JSON lines: ``["planned", messages]``, ``["written", messages]`` behind the last sink, and ``["held", "before" or "after"]``.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        sinks: Sequence[Sink],
        planned: Callable[[Any], Mapping[QueuePartition, Position]],
        recorder: Recorder | None = None,
    ) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.stopping = threading.Event()
        self.finished = -1
        self._folder, self._name, self._sinks, self._planned = Path(folder), name, sinks, planned
        self._recorder = recorder

    def __call__(self, batch: Any, batch_id: int) -> None:
        count = sum(position.end - position.start for position in self._planned(batch).values())
        self._write("planned", count)
        if self._recorder is not None:
            self._recorder.begin(batch, batch_id)
        with (
            mock.patch.object(DeltaTarget, "commit", self._held(DeltaTarget.commit)),
            mock.patch.object(PositionsQueue, "commit", self._held(PositionsQueue.commit)),
        ):
            for sink in random.sample(self._sinks, len(self._sinks)):
                sink(batch, batch_id)
        self._write("written", count)
        self._hold(after_commit(self._folder, self._name))
        if self._recorder is not None:
            self._recorder.end(batch_id)
        self.finished = batch_id

    def _held(self, commit: Callable[..., None]) -> Callable[..., None]:
        def held(target: Any, *arguments: Any) -> None:
            self._hold(before_commit(self._folder, self._name))
            commit(target, *arguments)

        return held

    def _hold(self, file: Path) -> None:
        until = time.monotonic() + HOLD_S
        if file.exists():
            self._write("held", file.suffix[1:])
        while file.exists() and time.monotonic() < until:
            time.sleep(0.01)

    def _write(self, *what: Any) -> None:
        with (self._folder / f"{self._name}.delivery").open("a") as file:
            file.write(json.dumps(what) + "\n")


# ---- with Spark
SINKS: dict[str, Callable[[str], Sink]] = {  # by kind, of the target
    "delta": partq.delta_sink,
    "queue": lambda store: partq.queue_sink(store, RESULTS, exactly_once=True),
}


def planned(batch: Any) -> Mapping[QueuePartition, Position]:
    return micro_batch(batch).positions


# ---- without Spark
class PlainDelta:
    """What `DeltaSink` does, its task run here instead of by a Spark job."""

    def __init__(self, table: str) -> None:
        self._place = Store.at(table)
        self._columns = message_schema(parse_ddl("k string, v bigint"))
        DeltaTarget.create(self._place, self._columns, [])
        self._target = DeltaTarget(self._place)

    def __call__(self, batch: Any, batch_id: int) -> None:
        planned = of_plain(batch)

        def write(left: Mapping[PartitionId, int]) -> Written[TableFile]:
            self._target.begin_files()
            task = write_task(self._place, self._columns, [], 0, planned.wanted(left))
            results = [result for found in task(_with_places(batch)) for result in found.column(RESULT).to_pylist()]
            files, ends, problem = taken(results)
            assert problem is None, problem
            return Written(files, planned.with_ids(ends))

        deliver_once(self._target, self._place.runtime, planned.group, None, planned.by_id, write)


class PlainQueue:
    """What `QueueSink` does exactly once, likewise."""

    def __init__(self, store: str) -> None:
        self._queue = open_queue(Store.at(store), RESULTS)
        self._targets: dict[str, PositionsQueue] = {}

    def __call__(self, batch: Any, batch_id: int) -> None:
        planned = of_plain(batch)
        sink_id = positions_sink(planned.group, None)
        target = self._targets.setdefault(sink_id, PositionsQueue(self._queue, sink_id))

        def write(left: Mapping[PartitionId, int]) -> Written[Prepared]:
            ends: dict[QueuePartition, int] = {}
            kept, rows = [], 0
            for found in _with_places(batch):
                keep, foreign = sorted_out(found.columns[-3:], planned.wanted(left), ends)
                assert foreign is None
                if keep.any():
                    kept.append((rows, found.filter(pa.array(keep)).select(["k", "v"])))
                    rows += kept[-1][1].num_rows
            prepared = target.prepare(lambda: write_rows(self._queue, kept), lambda: rows)
            return Written([prepared], planned.with_ids(ends))

        target.begin()
        deliver_once(target, self._queue.store.runtime, planned.group, None, planned.by_id, write)


def _with_places(batch: Any) -> Iterator[pa.RecordBatch]:
    """The rows, with queue, partition and offset behind them, as `write_task` wants them."""
    for rows in batch.arrow():
        places = rows.column("_queue"), pc.cast(rows.column("_partition"), pa.int64()), rows.column("_offset")
        yield pa.RecordBatch.from_arrays([*rows.columns, *places], [*rows.schema.names, "queue", "partition", "offset"])


def of_plain(batch: Any) -> MicroBatch:
    offset = StreamOffset.from_json(dict(batch.end))
    return MicroBatch(offset.group, positions_of(offset))


def planned_without_spark(batch: Any) -> Mapping[QueuePartition, Position]:
    return of_plain(batch).positions


PLAIN_SINKS: dict[str, Callable[[str], Sink]] = {"delta": PlainDelta, "queue": PlainQueue}
