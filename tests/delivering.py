"""What an application of a campaign runs for each micro-batch: its sinks, held up where the campaign wants it."""

from __future__ import annotations

import json
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
from spark_partq.spark.micro_batch import micro_batch
from spark_partq.storage.procedures.deliver_once import Written, deliver_once
from spark_partq.storage.store import Store
from spark_partq.target.files import TableFile
from spark_partq.target.table import DeltaTarget
from spark_partq.target.task import RESULT, taken, write_task

Sink = Callable[[Any, int], None]

# A micro-batch that is held gives up after this, so that nothing hangs for ever.
_HOLD_S = 120.0


def before_commit(folder: Path, name: str) -> Path:
    """While this file is there, the query commits nothing to a table."""
    return folder / f"{name}.before"


def after_commit(folder: Path, name: str) -> Path:
    """While this file is there, no micro-batch of the query ends whose results are in."""
    return folder / f"{name}.after"


class Delivery:
    """A function for ``foreachBatch`` that gives each micro-batch to sinks, and writes down how far it is.

    It writes JSON lines: ``["planned", messages]``, ``["written", messages]`` behind the last sink, and ``["held", "before" or "after"]``.
    """

    def __init__(
        self, folder: str, name: str, sinks: Sequence[Sink], planned: Callable[[Any], Mapping[QueuePartition, Position]]
    ) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.stopping = threading.Event()
        self.finished = -1
        self._folder, self._name, self._sinks, self._planned = Path(folder), name, sinks, planned

    def __call__(self, batch: Any, batch_id: int) -> None:
        count = sum(position.end - position.start for position in self._planned(batch).values())
        self._write("planned", count)
        with mock.patch.object(DeltaTarget, "commit", self._held(DeltaTarget.commit)):
            for sink in self._sinks:
                sink(batch, batch_id)
        self._write("written", count)
        self._hold(after_commit(self._folder, self._name))
        self.finished = batch_id

    def _held(self, commit: Callable[..., None]) -> Callable[..., None]:
        def held(target: DeltaTarget, *arguments: Any) -> None:
            self._hold(before_commit(self._folder, self._name))
            commit(target, *arguments)

        return held

    def _hold(self, file: Path) -> None:
        until = time.monotonic() + _HOLD_S
        if file.exists():
            self._write("held", file.suffix[1:])
        while file.exists() and time.monotonic() < until:
            time.sleep(0.01)

    def _write(self, *what: Any) -> None:
        with (self._folder / f"{self._name}.delivery").open("a") as file:
            file.write(json.dumps(what) + "\n")


# ---- with Spark
SINKS: dict[str, Callable[[str], Sink]] = {"delta": partq.delta_sink}  # by kind, of the target


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
        offset = StreamOffset.from_json(dict(batch.end))
        by_name = positions_of(offset)
        by_id = {(position.queue_id, number): position for (_, number), position in by_name.items()}
        names = {position.queue_id: queue for (queue, _), position in by_name.items()}

        def write(left: Mapping[PartitionId, int]) -> Written[TableFile]:
            wanted = {
                (names[queue_id], number): (p.start, p.end, left.get((queue_id, number), p.end))
                for (queue_id, number), p in by_id.items()
            }
            self._target.begin_files()
            task = write_task(self._place, self._columns, [], 0, wanted)
            results = [result for found in task(_with_places(batch)) for result in found.column(RESULT).to_pylist()]
            files, ends, problem = taken(results)
            assert problem is None, problem
            return Written(files, {(by_name[place].queue_id, place[1]): end for place, end in ends.items()})

        deliver_once(self._target, self._place.runtime, offset.group, None, by_id, write)


def _with_places(batch: Any) -> Iterator[pa.RecordBatch]:
    """The rows, with queue, partition and offset behind them, as `write_task` wants them."""
    for rows in batch.arrow():
        places = rows.column("_queue"), pc.cast(rows.column("_partition"), pa.int64()), rows.column("_offset")
        yield pa.RecordBatch.from_arrays([*rows.columns, *places], [*rows.schema.names, "queue", "partition", "offset"])


def planned_without_spark(batch: Any) -> Mapping[QueuePartition, Position]:
    return positions_of(StreamOffset.from_json(dict(batch.end)))


PLAIN_SINKS: dict[str, Callable[[str], Sink]] = {"delta": PlainDelta}
