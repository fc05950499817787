"""Micro-batches into a table, each message once, whatever the consumers do to each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.delivery.positions import Position
from spark_partq.core.errors import TargetAheadError
from spark_partq.core.ids import PartitionId
from spark_partq.core.stored import MOST
from spark_partq.storage.log import Conflict
from spark_partq.storage.procedures.deliver_once import Written, deliver_once
from spark_partq.storage.runtime import SYSTEM

Q = "id"
Message = tuple[int, int]  # partition, offset


class Table:
    """What all handles see."""

    def __init__(self) -> None:
        self.version = 0
        self.rows: list[Message] = []
        self.transactions: dict[str, int] = {}
        self.columns = "v"


class Handle:
    """One process's view of the table; a file is a list of messages."""

    def __init__(self, table: Table, meanwhile: Sequence[Callable[[], object]] = ()) -> None:
        self.what = "the table"
        self._table, self._meanwhile = table, list(meanwhile)
        self.discarded: list[list[Message]] = []
        self.answer_is_lost = False
        self.refresh()
        self.begin_files()

    def refresh(self) -> None:
        self._version, self._transactions = self._table.version, dict(self._table.transactions)
        self._columns = self._table.columns

    def recorded(self, app: str) -> int | None:
        return self._transactions.get(app)

    def begin_files(self) -> None:
        self.written_by = self._columns

    def are_fit(self, files: Sequence[list[Message]]) -> bool:
        return not files or self.written_by == self._columns

    def commit(self, files: Sequence[list[Message]], transactions: Mapping[str, int]) -> None:
        if self._meanwhile:
            self._meanwhile.pop(0)()
        if self._version != self._table.version:
            raise Conflict
        self._table.version += 1
        self._table.rows += [row for file in files for row in file]
        self._table.transactions |= transactions
        if self.answer_is_lost:  # an object store that is asked again says that there is an entry of that version
            self.answer_is_lost = False
            raise Conflict

    def discard(self, files: Sequence[list[Message]]) -> None:
        self.discarded += files


def of(ranges: Mapping[int, tuple[int, int]]) -> dict[PartitionId, Position]:
    return {(Q, number): Position(start, end, 1, Q, ((Q, MOST),)) for number, (start, end) in ranges.items()}


def deliver(
    handle: Handle, ranges: Mapping[int, tuple[int, int]], group: str = "g", during: Callable[[], object] | None = None
) -> bool:
    """Deliver a micro-batch; `during` happens while its files are written."""

    def write(left: Mapping[PartitionId, int]) -> Written[list[Message]]:
        handle.begin_files()
        if during is not None:
            during()
        ends = {place: ranges[place[1]][1] for place in left}
        return Written([[(place[1], i) for i in range(left[place], end)] for place, end in ends.items()], ends)

    return deliver_once(handle, SYSTEM, group, None, of(ranges), write)


def test_a_micro_batch_that_comes_again_adds_nothing() -> None:
    table = Table()
    assert deliver(Handle(table), {0: (0, 10), 1: (0, 5)})
    assert not deliver(Handle(table), {0: (0, 10), 1: (0, 5)})
    assert deliver(Handle(table), {0: (5, 15), 1: (0, 5)})
    assert sorted(table.rows) == [(0, i) for i in range(15)] + [(1, i) for i in range(5)]


def test_a_zombie_adds_nothing_while_its_successor_commits() -> None:
    table = Table()
    zombie = Handle(table, [lambda: deliver(Handle(table), {0: (0, 20)})])
    assert not deliver(zombie, {0: (0, 10)})
    assert sorted(table.rows) == [(0, i) for i in range(20)]
    assert zombie.discarded == []  # nobody knows whether a commit that was tried has landed


def test_a_successor_writes_what_the_former_owner_has_not() -> None:
    table = Table()
    successor = Handle(table)
    assert deliver(
        successor, {0: (0, 20)}, during=lambda: deliver(Handle(table), {0: (0, 8)}) if not table.rows else None
    )
    assert sorted(table.rows) == [(0, i) for i in range(20)]
    assert successor.discarded == [[(0, i) for i in range(20)]]


def test_a_commit_of_another_group_costs_another_try_and_no_other_file() -> None:
    table = Table()
    other = Handle(table, [lambda: deliver(Handle(table), {0: (0, 3)}, "h")])
    written: list[int] = []
    assert deliver(other, {0: (0, 10)}, during=lambda: written.append(1))
    assert len(written) == 1 and len(table.rows) == 13


def test_files_of_another_layout_are_written_anew() -> None:
    """Somebody else adds a constraint or a column between the files and their commit."""
    table = Table()

    def changed() -> None:
        table.version, table.columns = table.version + 1, table.columns + "w"

    written: list[int] = []
    assert deliver(Handle(table, [changed]), {0: (0, 10)}, during=lambda: written.append(1))
    assert len(written) == 2 and table.rows == [(0, i) for i in range(10)]


def test_a_table_that_is_ahead_of_the_queue() -> None:
    """The queue was put back. A consumer that is only behind another is no matter, and nobody asks for the queue's end in vain."""
    table, asked = Table(), list[PartitionId]()

    def next_offsets(end: int) -> Callable[[Collection[PartitionId]], Mapping[PartitionId, int]]:
        return lambda places: asked.extend(places) or dict.fromkeys(places, end)

    def write(left: Mapping[PartitionId, int]) -> Written[list[Message]]:
        return Written([[(0, first) for first in left.values()]], {(Q, 0): 10} if left else {})

    planned = of({0: (0, 10), 1: (0, 0)})
    assert deliver_once(Handle(table), SYSTEM, "g", None, planned, write, next_offsets(10)) and not asked
    behind = of({0: (0, 6)})
    assert not deliver_once(Handle(table), SYSTEM, "g", None, behind, write, next_offsets(10)) and asked == [(Q, 0)]
    before = table.version
    with pytest.raises(
        TargetAheadError,
        match="the table has the messages of partition 0 of queue id up to 10, but that partition ends at 8",
    ):
        deliver_once(Handle(table), SYSTEM, "g", None, behind, write, next_offsets(8))
    assert deliver_once(Handle(table), SYSTEM, "h", None, behind, write, next_offsets(8))
    assert table.version == before + 1


def test_a_commit_whose_answer_is_lost_is_found() -> None:
    table = Table()
    handle = Handle(table)
    handle.answer_is_lost = True
    assert not deliver(handle, {0: (0, 10)})
    assert sorted(table.rows) == [(0, i) for i in range(10)] and handle.discarded == []


def test_a_position_moves_no_further_than_there_are_rows() -> None:
    """A query that comes back replays less than it had planned: it has lost the partition, whose next owner is given all of it."""
    table = Table()
    planned = of({0: (0, 10), 1: (0, 10)})
    assert deliver_once(Handle(table), SYSTEM, "g", None, planned, lambda _: Written([[(1, 0), (1, 3)]], {(Q, 1): 4}))
    assert not deliver_once(Handle(table), SYSTEM, "g", None, planned, lambda _: Written([], {}))
    assert table.transactions == {"partq:g/id/1": 4} and table.version == 1
    deliver(Handle(table), {0: (0, 10), 1: (0, 10)})
    assert sorted(table.rows) == [(0, i) for i in range(10)] + [(1, 0), (1, 3)] + [(1, i) for i in range(4, 10)]


def test_across_a_promotion_that_loses_messages() -> None:
    """The replica had 8 of 12 messages; the old primary's consumer still delivers while the new one's does."""
    table = Table()
    deliver(Handle(table), {0: (0, 6)})
    after = {(Q, 0): Position(4, 10, 2, Q, (("new", MOST), (Q, 8)))}

    def write(left: Mapping[PartitionId, int]) -> Written[list[Message]]:
        return Written(
            [[(100, offset) for offset in range(first, 10)] for first in left.values()], dict.fromkeys(left, 10)
        )

    late = Handle(table, [lambda: deliver_once(Handle(table), SYSTEM, "g", None, after, write)])
    assert deliver(late, {0: (6, 12)})
    assert table.rows == [(0, i) for i in range(6)] + [(100, i) for i in range(6, 10)] + [(0, i) for i in range(8, 12)]
    assert not deliver_once(Handle(table), SYSTEM, "g", None, after, write)


STEPS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6), st.integers(0, 9), st.booleans()), max_size=12)


@given(STEPS)
def test_each_message_once_in_any_order(steps: list[tuple[int, int, int, bool]]) -> None:
    """Consumers begin anywhere at or below what the table has, as a group's position never lies above what is finished."""
    table, ends = Table(), {0: 0, 1: 0}
    for number, back, length, nested in steps:
        start = max(0, ends[number] - back)
        ranges = {number: (start, start + length)}
        other = {number: (start, start + length // 2 + 1)}
        meanwhile = [lambda other=other: deliver(Handle(table), other)] if nested else []
        deliver(Handle(table, meanwhile), ranges)
        reached = [start + length, *([start + length // 2 + 1] if nested and length else [])]
        ends[number] = max(ends[number], *reached) if length else ends[number]
    assert sorted(table.rows) == [(number, offset) for number, end in sorted(ends.items()) for offset in range(end)]
