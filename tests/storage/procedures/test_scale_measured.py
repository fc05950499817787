"""Somebody measures a queue, stands still, and decides when the queue is another one, though it may look the same (S2, S4, S6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.procedures import copy_stuck, drain, reset_offsets, scale
from spark_partq.storage.procedures.partition_map import open_generation
from spark_partq.storage.queue.handle import attach_group
from tests.groups import Lasting
from tests.helpers import opened
from tests.planners import Query
from tests.scaled import Reader, Sink, assert_in_order, known, make, messages, stored
from tests.scaled import scale as scaled


def once(owner: Any, name: str, meanwhile: Callable[[], object], *, call: int = 1, after: bool = False) -> Any:
    """Let whoever calls this function for that time stand still before it, or after it."""
    real, calls = getattr(owner, name), []

    def sleeps(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) != call:
            return real(*arguments)
        found = real(*arguments) if after else None
        meanwhile()
        return found if after else real(*arguments)

    return mock.patch.object(owner, name, sleeps)


def test_what_is_stuck_of_a_later_map_is_not_given_up(store: str) -> None:
    """S6: the queue became exclusive and partitioned again. A group that wanted nothing of the parent wants its new messages."""
    make(store, 0)
    sink, early = Sink(store), Reader(store, "e", group="early")
    sink.write(0, messages(0, 9))
    early.all()
    with mock.patch.object(scale, "close_parent", return_value=False):  # who scaled died before that
        scaled(store, 4)
    attach_group(opened(store), "late", 0)

    def meanwhile() -> None:
        scaled(store, 0)
        sink.write(1, messages(9, 20))
        early.all()
        scaled(store, 4)

    with once(copy_stuck, "settled_groups", meanwhile):
        partq.maintain(store)
    assert partq.copy_stuck(store, "q") == 11
    assert_in_order(Reader(store, "l", group="late").all(), messages(9, 20))


def test_a_confirmation_is_used_once(store: str) -> None:
    """S2: others changed the count twice, and the second change leaves messages to be drained."""
    make(store, 4)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 40, 20))
    lost = sum(len(rows) for number, rows in stored(store).items() if number >= 2)

    def meanwhile() -> None:
        open_generation(opened(store))  # as a producer does
        scaled(store, 4)
        sink.write(1, messages(40, 80, 20))
        other = opened(store)
        scale.start(other, 2, "live")
        open_generation(other)

    with (
        once(scale, "start", meanwhile, after=True),
        pytest.raises(partq.ScalingInProgressError, match="changed again since"),
    ):
        partq.scale(store, "q", 2, "delete", confirm_lost=lost)
    assert len(reader.all()) == 80 - lost


def test_a_drain_ends_when_the_groups_know_its_own_map(store: str) -> None:
    """S4: the groups followed an earlier map when it was looked."""
    make(store, 2)
    member = Lasting(store, "a")

    def meanwhile() -> None:
        other = opened(store)
        scale.step(other)
        scale.start(other, 8, "drain")
        drain.decide_drained(other)
        open_generation(other)

    with (
        once(scale, "update_groups", meanwhile, call=2, after=True),
        pytest.raises(partq.ScalingInProgressError),
    ):
        partq.scale(store, "q", 4, "drain", timeout_s=3)
    assert known(store) == [0, 1, 2, 3] and not opened(store).state.ingress
    member.leave()
    scaled(store, 8, "drain")
    assert opened(store).state.ingress


def test_a_group_that_began_again_is_waited_for(store: str) -> None:
    """S2: the group that had settled everything was deleted. No fact could say so, as its history could not be read; so both look the same."""
    make(store, 4)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 40, 20))
    queue = opened(store)
    scale.start(queue, 2, "live")
    open_generation(queue)
    reader.all()
    reader.leave()
    begun: list[Reader] = []

    def meanwhile() -> None:
        for path in Path(store, "groups/g/control").glob("*.parquet"):
            path.write_bytes(b"")
        partq.delete_group(store, "g")
        begun.append(Reader(store, "b"))

    with once(drain, "next_offsets", meanwhile):
        drain.remove_drained(opened(store))
    assert_in_order(begun[0].all(), messages(0, 40, 20))


@pytest.mark.parametrize("copied", [False, True])
def test_a_group_joins_on_a_former_map(store: str, copied: bool) -> None:
    """S2, S6: what was copied, or lost as confirmed, since the join was decided is not missing. The numbers of the partitions are the same again."""
    make(store, 0 if copied else 4)
    sink, other = Sink(store), Reader(store, "h", group="h")
    sink.write(0, messages(0, 20, 20))
    other.all()

    def meanwhile() -> None:
        if copied:
            scaled(store, 4)
            partq.copy_stuck(store, "q")
            other.all()
            scaled(store, 0)
        else:
            lost = sum(len(rows) for number, rows in stored(store).items() if number >= 2)
            partq.scale(store, "q", 2, "delete", confirm_lost=lost)
            partq.scale(store, "q", 4)
        sink.write(1, messages(20, 30, 20))
        other.all()

    query, given = Query(store, "a", starting_offsets="earliest"), 0
    with once(ControlTable, "commit", meanwhile):
        for _ in range(6):
            given += sum(end - start for start, end in query.next().values())
    kept = sum(len(rows) for rows in stored(store).values())
    assert given == (30 if copied else kept)
    query.leave()


def test_a_reset_attaches_no_deleted_group(store: str) -> None:
    """Q8: it is about to attach the group, which is deleted, begins again, and is deleted again."""
    make(store, 2)
    Sink(store).write(0, messages(0, 10))
    Reader(store).leave()

    def begin_again() -> None:
        partq.delete_group(store, "g")
        Reader(store, "c").leave()

    with (
        once(reset_offsets, "open_group", begin_again, call=2),
        once(reset_offsets, "attach_group", lambda: partq.delete_group(store, "g")),
        pytest.raises(partq.GroupNotFoundError),
    ):
        partq.reset_offsets(store, "g", "earliest")
    assert opened(store).state.groups == {}
