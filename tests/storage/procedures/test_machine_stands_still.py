"""A machine whose clocks stand still, as a virtual machine's do while its host pauses it, between writing files and committing them.

Meanwhile maintenance elsewhere deletes the files. Then nobody may commit them: the queue would name files that do not exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.files.memory import MemoryFiles
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.messages import MessageFile
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.runtime import SystemRuntime
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.rewrites import before_the_commit
from tests.scaled import Sink, make, stored, write_files

HOUR_S = 3_600.0


@dataclass
class Machine(SystemRuntime):
    """One with clocks of its own, in a world of which the time is that of the stores."""

    now_s: list[float]
    behind_s: float = 0.0

    def time_ns(self) -> int:
        return int(self.monotonic_s() * 1e9)

    def monotonic_s(self) -> float:
        return self.now_s[0] - self.behind_s

    def map(self, function: Callable[[Any], Any], items: Any) -> list[Any]:
        return [function(item) for item in items]

    def request_upkeep(self, name: str, job: Callable[[], object]) -> None:
        job()


@dataclass
class World:
    """A queue of two partitions, opened on a machine that may be paused and on another one."""

    now_s: list[float] = field(default_factory=lambda: [time.time()])

    def __post_init__(self) -> None:
        files = MemoryFiles(lambda: int(self.now_s[0] * 1e9))
        self._paused = Machine(self.now_s)
        self.here, self.elsewhere = (
            Store.over(files, machine, uri="/memory") for machine in (self._paused, Machine(self.now_s))
        )
        make(self.elsewhere, 2, segment_ms=None)
        Sink(self.elsewhere, "before").write(0, [("a", 0), ("b", 1), ("a", 2)])
        self.now_s[0] += HOUR_S

    def pause(self) -> None:
        """For longer than the grace, with maintenance elsewhere."""
        self.now_s[0] += 30 * HOUR_S + 1
        self._paused.behind_s += 30 * HOUR_S
        assert partq.maintain(self.elsewhere, "q")[0].vacuumed_files > 0

    @property
    def rows(self) -> list[tuple[str, int]]:
        return sorted(row for rows in stored(self.elsewhere).values() for row in rows)


BEFORE, MORE = [("a", 0), ("a", 2), ("b", 1)], [("a", 8), ("b", 9)]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("sink_id", ["s", None])
def test_a_sink(world: World, sink_id: str | None) -> None:
    """Q5: it says that nothing is in, and writes it when it is started again."""
    with pytest.raises(partq.CommitFailedError, match="so old that maintenance may have deleted them"):
        Sink(world.here, sink_id).write(0, MORE, world.pause)
    assert world.rows == BEFORE
    Sink(world.elsewhere, sink_id).write(0, MORE)
    assert world.rows == sorted(BEFORE + MORE)


def test_a_sink_that_keeps_positions(world: World) -> None:
    """Also if it dies in the middle: nothing of the batch is in, so the next process writes it."""
    queue = opened(world.here)
    producer = Producer(queue)
    producer.refresh()
    prepared = producer.prepare(lambda: write_files(queue, MORE), None)
    world.pause()
    assert not producer.is_stale(prepared)
    record = BatchRecord("_group.g", 0)
    with pytest.raises(partq.CommitFailedError, match="Nothing of the batch is in"):
        producer.add(record, prepared, {"partq:g/i/0": 2})
    another = Producer(opened(world.elsewhere))
    another.refresh()
    assert another.finish(record) is None
    assert world.rows == BEFORE


def test_a_deletion(world: World) -> None:
    """It writes the file again."""
    with before_the_commit(world.pause):
        assert partq.delete_messages(world.here, "q", {"k": "b"}) == 1
    assert world.rows == [("a", 0), ("a", 2)]


def test_files_that_a_manifest_names_in_time_stay(world: World) -> None:
    """Q5: what is durable is placed, however long the machine stands still before that."""
    append, left = PartitionTable.append, [world.pause]
    other = Sink(world.elsewhere, None)

    def later(*arguments: Any) -> int | None:
        if left:
            write_files(opened(world.elsewhere), MORE)  # what a process leaves that dies now is deleted
            left.pop()()
        return append(*arguments)

    with mock.patch.object(PartitionTable, "append", later):
        assert Sink(world.here, "s").write(0, MORE) == 2
    other.write(0, [("c", 10)])
    assert world.rows == sorted([*BEFORE, *MORE, ("c", 10)])


@pytest.mark.parametrize("act", ["write", "delete"])
def test_an_unfinished_file_that_maintenance_deleted(tmp_path: Path, act: str) -> None:
    """On a disk. The queue is whole, so no error says that its folder is gone."""
    make(tmp_path, 2)
    sink = Sink(tmp_path, "s")
    sink.write(0, MORE)
    close = MessageFile.close

    def later(file: MessageFile) -> NewFile:
        for unfinished in tmp_path.rglob(".*.tmp"):
            unfinished.unlink()
        return close(file)

    told = pytest.raises(partq.CommitFailedError, match="stood still until maintenance deleted the unfinished file")
    with mock.patch.object(MessageFile, "close", later), told:
        sink.write(1, BEFORE) if act == "write" else partq.delete_messages(tmp_path, "q", {"k": "a"})
    assert sorted(row for rows in stored(tmp_path).values() for row in rows) == MORE
