"""A machine whose clocks stand still, as a virtual machine's do while its host pauses it, between writing files and committing them.

Meanwhile maintenance elsewhere deletes the files. Then nobody may commit them: the queue would name files that do not exist.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.files.memory import MemoryFiles
from spark_partq.storage.procedures.batch import Batch
from spark_partq.storage.procedures.prepared import Result
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.messages import MessageFile
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.runtime import SystemRuntime
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.relays import Relay
from tests.rewrites import before_the_commit
from tests.scaled import Crash, Sink, make, stored, write_files

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

    def stand_still(self, time_s: float) -> None:
        self.now_s[0] += time_s + 1
        self._paused.behind_s += time_s

    def pause(self) -> None:
        """For longer than the grace, with maintenance elsewhere."""
        self.stand_still(30 * HOUR_S)
        assert partq.maintain(self.elsewhere, "q")[0].vacuumed_files > 0

    @property
    def rows(self) -> list[tuple[str, int]]:
        return sorted(row for rows in stored(self.elsewhere).values() for row in rows)


BEFORE, MORE = [("a", 0), ("a", 2), ("b", 1)], [("a", 8), ("b", 9)]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def set_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time server sets the wall clock right after a pause."""
    monkeypatch.setattr(Machine, "time_ns", lambda machine: int(machine.now_s[0] * 1e9))


@pytest.mark.usefixtures("set_right")
def test_a_sink(world: World) -> None:
    """Q5: it writes the files again."""
    pauses = [world.pause]
    assert Sink(world.here, "s").write(0, MORE, lambda: pauses.pop()() if pauses else None) == 2
    assert world.rows == sorted(BEFORE + MORE)


def test_a_sink_whose_clock_is_wrong_then(world: World) -> None:
    """Q8: it says that, and nothing is in."""
    pauses = [world.pause]
    with pytest.raises(partq.ClockSkewError, match="no more messages are committed"):
        Sink(world.here, "s").write(0, MORE, lambda: pauses.pop()() if pauses else None)
    assert world.rows == BEFORE


def test_a_sink_whose_machine_stands_still_each_time(world: World) -> None:
    """Q5: it says that nothing is in, and writes it when it is started again."""
    with pytest.raises(partq.CommitFailedError, match=r"or the machine stood still.*the files were written 4 times"):
        Sink(world.here, "s").write(0, MORE, world.pause)
    assert world.rows == BEFORE
    Sink(world.elsewhere, "s").write(0, MORE)
    assert world.rows == sorted(BEFORE + MORE)


def test_a_sink_without_an_identity(world: World) -> None:
    """It says that nothing is in."""
    with pytest.raises(
        partq.CommitFailedError,
        match=r"so old that maintenance may have deleted them.*The rows of partitions 0, 1 are not in it",
    ):
        Sink(world.here, None).write(0, MORE, world.pause)
    assert world.rows == BEFORE


@contextlib.contextmanager
def paused_after_the_first_file(world: World, time_s: float | None) -> Iterator[None]:
    """For so long, or, if that is None, until maintenance has deleted the file."""
    close, waits = MessageFile.close, [True]

    def later(file: MessageFile) -> NewFile:
        closed = close(file)
        if waits and waits.pop():
            world.pause() if time_s is None else world.stand_still(time_s)
        return closed

    with mock.patch.object(MessageFile, "close", later):
        yield


@pytest.mark.usefixtures("set_right")
@pytest.mark.parametrize("time_s", [None, 23 * HOUR_S])
def test_between_two_files_of_a_batch(world: World, time_s: float | None) -> None:
    """Q5: the second file is young, and is not committed without the first one; the batch would lack that for ever."""
    sink = Sink(world.here, "s")
    with paused_after_the_first_file(world, time_s):
        assert sink.write(0, MORE) == 2
    world.pause()
    Sink(world.elsewhere, "s").write(1, [("c", 10)])
    assert world.rows == sorted([*BEFORE, *MORE, ("c", 10)])


@pytest.mark.usefixtures("set_right")
@pytest.mark.parametrize("time_s", [None, 23 * HOUR_S])
def test_between_two_files_of_a_sink_that_keeps_positions(world: World, time_s: float | None) -> None:
    relay = Relay(world.here)
    with paused_after_the_first_file(world, time_s):
        relay.deliver({0: (100, 110)})
    world.pause()
    Relay(world.elsewhere).deliver({0: (110, 120)})
    assert placed(world) == [*range(100, 120)]


def test_a_sink_that_keeps_positions(world: World) -> None:
    """Its manifest is late by the store's times, so it does not place the batch, and writes the files again."""
    queue = opened(world.here)
    producer = Producer(queue)
    producer.refresh()
    prepared = producer.prepare(lambda: write_files(queue, MORE), None)
    world.pause()
    assert not producer.is_stale(prepared)
    record = BatchRecord("_group.g", 0)
    assert not producer.add(record, prepared, {"partq:g/i/0": 2})
    assert producer.is_stale(prepared)
    another = Producer(opened(world.elsewhere))
    another.refresh()
    assert another.finish(record) is None
    assert world.rows == BEFORE


def placed_again_in_a_pause(world: World) -> int:
    """The map changes before a batch is placed, and the machine stands still while it writes the batch's files again."""
    commit, waits = Producer._commit, [True]
    with contextlib.ExitStack() as stack:

        def later(producer: Producer, *arguments: Any) -> list[Result]:
            if waits and waits.pop():
                partq.scale(world.elsewhere, "q", 3)
                stack.enter_context(paused_after_the_first_file(world, None))
            return commit(producer, *arguments)

        stack.enter_context(mock.patch.object(Producer, "_commit", later))
        return Sink(world.here, "s").write(0, MORE)


@pytest.mark.usefixtures("set_right")
def test_while_a_batch_is_placed_again(world: World) -> None:
    """Q5: it writes the files once more."""
    assert placed_again_in_a_pause(world) == 2
    assert world.rows == sorted(BEFORE + MORE)


def test_while_a_batch_is_placed_again_by_a_clock_that_is_wrong_then(world: World) -> None:
    """Q8: no message is dated by it; another process goes on."""
    with pytest.raises(partq.ClockSkewError, match="no more messages are committed"):
        placed_again_in_a_pause(world)
    assert world.rows == BEFORE
    assert Sink(world.elsewhere, "s").write(0, MORE) == 2
    assert world.rows == sorted(BEFORE + MORE)


@pytest.mark.usefixtures("set_right")
def test_logs_that_were_cleaned_up_after_a_resize(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """S5: a sink that has not read that its partitions were sealed does not wait for a later map than the one in force."""
    monkeypatch.setattr(world.here.files, "is_local", False)  # a disk tells at once that the last entry is gone
    sink = Sink(world.here, "s")
    sink.write(0, MORE)
    partq.scale(world.elsewhere, "q", 3)
    others, more = ([(key, n) for key in "cdefgh"] for n in (10, 11))
    Sink(world.elsewhere, "other").write(0, others)
    world.stand_still(30 * HOUR_S)
    partq.maintain(world.elsewhere, "q")
    with mock.patch.object(Machine, "sleep", side_effect=Crash):
        assert sink.write(1, more) == len(more)
    assert world.rows == sorted([*BEFORE, *MORE, *others, *more])


def placed(world: World) -> list[int]:
    return sorted(value for _, value in world.rows if value >= 100)


def test_a_late_manifest_of_its_own(world: World) -> None:
    """Q5: it is void for its writer, too, though no maintenance told of the pause: another consumer may have put one with other messages."""
    commit, others = Producer._commit, [Relay(world.elsewhere)]

    def later(producer: Producer, *arguments: Any) -> list[Result]:
        if others:
            others.pop().deliver({0: (100, 120)})
        return commit(producer, *arguments)

    relay = Relay(world.here, meanwhile=lambda: len(relay.written) > 1 or world.stand_still(20 * HOUR_S))
    with mock.patch.object(Producer, "_commit", later):
        relay.deliver({0: (100, 110)})
    assert relay.written == [{0: (100, 110)}] * 2
    assert placed(world) == [*range(100, 120)]


@pytest.mark.usefixtures("set_right")
def test_tables_of_which_the_logs_were_cleaned_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q5: a manifest is not void because this process stood still since it read the tables, while retention removed what they had recorded."""
    monkeypatch.setattr(world.elsewhere.files, "is_local", False)
    partq.alter_queue(world.elsewhere, "q", retention_ms=3_600_000)
    relay, other = Relay(world.here), Relay(world.elsewhere)
    relay.target.refresh()
    with mock.patch.object(Producer, "_commit", side_effect=Crash), pytest.raises(Crash):
        other.deliver({0: (100, 110)})
    recorded, waits = Batch.recorded, [True]

    def later(batch: Batch, sure: bool = False) -> dict[int, set[int]]:
        if waits and waits.pop():
            Relay(world.elsewhere).target.refresh()  # places the batch
            for _ in range(4):
                world.stand_still(30 * HOUR_S)
                partq.maintain(world.elsewhere, "q")
        return recorded(batch, sure)

    with mock.patch.object(Batch, "recorded", later):
        relay.deliver({0: (100, 120)})
    assert placed(world) == [*range(110, 120)]


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


def test_a_batch_that_another_process_placed_by_a_later_map(world: World) -> None:
    """What it wrote was placed again, and deleted: it says that it is to be started again, and names no damage."""
    commit, waits = Producer._commit, [True]

    def later(producer: Producer, *arguments: Any) -> list[Result]:
        if waits and waits.pop():
            partq.scale(world.elsewhere, "q", 3)
            assert Sink(world.elsewhere, "s").write(0, MORE) == 2
            world.pause()
        return commit(producer, *arguments)

    told = pytest.raises(
        partq.CommitFailedError, match=r"another process went on with batch 0 of sink 's'.* start the query again"
    )
    with mock.patch.object(Producer, "_commit", later), told:
        Sink(world.here, "s").write(0, MORE)
    assert Sink(world.here, "s").write(0, MORE) == 0
    assert world.rows == sorted(BEFORE + MORE)


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
