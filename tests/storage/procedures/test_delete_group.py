"""A group is deleted while others make it again, and delete it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.group.ack_table import COMPACT_AFTER
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures import delete
from spark_partq.storage.queue.control import QueueControl
from spark_partq.storage.queue.handle import attach_group, open_queue, queue_state
from spark_partq.storage.rows import Row, RowFiles
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.planners import Query

Decide = Callable[[QueueState], Sequence[QueueFact]]


def test_a_deletion_that_slept_removes_no_later_acknowledgements(store: str) -> None:
    """Q8: it ended the first group of the name; its folder goes, that of the third stays."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    Consumer(store, "a").leave()
    decide = QueueControl.decide
    third: list[Consumer] = []

    def wakes(self: QueueControl, facts: Decide) -> QueueState:
        with mock.patch.object(QueueControl, "decide", decide):
            Consumer(store, "b").leave()
            partq.delete_group(store, "g")
            third.append(Consumer(store, "c"))
            third[0].ack(0, 9, delivered=12)
        return decide(self, facts)

    with mock.patch.object(QueueControl, "decide", wakes):
        partq.delete_group(store, "g")
    (consumer,) = third
    first, group = consumer.partition_id(0), Group(Store.at(store), "g")
    group.refresh()
    assert (group.position(first), group.delivered(first)) == (9, 12)
    consumer.ack(0, 10)
    assert {path.name for path in Path(store, "groups/g").iterdir()} == {"control", "acks-2"}


def test_a_queue_that_is_attached_meanwhile_waits_for_nobody(store: str) -> None:
    """Q8: a query that attaches it while the deletion waits for a session, and then dies."""
    for name in ("q", "p"):
        partq.create_queue(store, name, "v bigint", partitions=1, rebalance_delay_ms=0)
    Consumer(store, "dead", session_timeout_ms=1_000)
    wait = delete.await_inactive

    def waits(*arguments: Any, **named: Any) -> None:
        attach_group(open_queue(Store.at(store), "p"), "g", 0)
        wait(*arguments, **named)

    with mock.patch.object(delete, "await_inactive", waits):
        partq.delete_group(store, "g")
    assert [queue_state(Store.at(store), name).groups for name in ("q", "p")] == [{}, {}]


def test_a_member_that_is_refused_attaches_the_group_to_nothing(store: str) -> None:
    """Q8: else the queue would wait for a group that never reads it."""
    for name in ("q", "p"):
        partq.create_queue(store, name, "v bigint", partitions=1, rebalance_delay_ms=0)
    Consumer(store, "a", session_timeout_ms=60_000)
    with pytest.raises(partq.GroupMismatchError):
        Query(store, "b", queues=("p",), session_timeout_ms=30_000).next()
    assert queue_state(Store.at(store), "p").groups == {}


@pytest.mark.parametrize("damaged", ["*.parquet", "_delta_log/*.json"])
def test_acknowledgements_that_nobody_can_read_are_no_reason_to_forget_the_history(store: str, damaged: str) -> None:
    """Q8: it is waited for members as ever, and a later group of the name knows what this one did."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    Consumer(store, "a", session_timeout_ms=500).ack(0, 0)
    for path in Path(store, "groups/g/acks").glob(damaged):
        path.write_bytes(b"damaged")
    waits: list[partq.SessionWait] = []
    partq.delete_group(store, "g", report=waits.append)
    assert [wait.instances for wait in waits] == [("a",)]
    group = Group(Store.at(store), "g")
    assert not group.exists() and group.state.deletions == 1
    assert {path.name for path in Path(store, "groups/g").iterdir()} == {"control"}


def test_a_deletion_that_died_before_its_last_step_is_finished(store: str) -> None:
    """Q8: the group is deleted, and what it had acknowledged is there still."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    consumer = Consumer(store, "a")
    consumer.ack(0, 0)
    consumer.leave()
    with mock.patch.object(delete, "_remove_tree", side_effect=InterruptedError), pytest.raises(InterruptedError):
        partq.delete_group(store, "g")
    partq.delete_group(store, "g")
    assert {path.name for path in Path(store, "groups/g").iterdir()} == {"control"}
    with pytest.raises(partq.GroupNotFoundError):
        partq.delete_group(store, "g")


def test_files_that_were_compacted_meanwhile_are_no_damage(store: str) -> None:
    """Q8: the deletion stands still after it read the log of the acknowledgements; a member is alive, so nothing is deleted."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    consumer = Consumer(store, "a")
    consumer.ack(0, 0, delivered=60)
    read, slept = RowFiles.read, []

    def sleeps(self: RowFiles, path: str, *args: Any) -> list[Row]:
        if not slept and Path(store, "groups/g/acks", path).exists():
            slept.append(path)
            for offset in range(1, COMPACT_AFTER + 1):
                consumer.ack(0, offset, delivered=60)
            consumer.group.vacuum(0)
            assert not Path(store, "groups/g/acks", path).exists()
        return read(self, path, *args)

    with mock.patch.object(RowFiles, "read", sleeps), pytest.raises(partq.GroupActiveError):
        partq.delete_group(store, "g", report=lambda _: consumer.ack(0, 59, delivered=60))
    assert slept
    group = Group(Store.at(store), "g")
    group.refresh()
    assert group.position(consumer.partition_id(0)) == 59


def test_a_deletion_that_slept_leaves_the_group_alone_that_began_after_it(store: str) -> None:
    """Q8: the history of the first group of the name cannot be read, so it has no number by which to tell it from the next one."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    Consumer(store, "a").leave()
    for path in Path(store, "groups/g/control").glob("*.parquet"):
        path.write_bytes(b"")
    remove, begun = delete._remove_tree, []

    def wakes(place: Store, folder: str) -> None:
        remove(place, folder)
        if folder == "groups/g":
            begun.append(Consumer(store, "b"))
            begun[0].ack(0, 2, delivered=3)

    with mock.patch.object(delete, "_remove_tree", wakes):
        partq.delete_group(store, "g")
    group = Group(Store.at(store), "g")
    group.refresh()
    assert group.position(begun[0].partition_id(0)) == 2
    assert queue_state(Store.at(store), "q").groups == {"g": 0}
