"""K3: queues that come and go, and members that read different ones."""

from __future__ import annotations

import pytest

from spark_partq.core.group.events import QueuesChanged, RaiseFloors
from spark_partq.core.group.facts import Kind, PartitionState, Status
from tests.core.group.groups import Decided, at
from tests.core.group.protocols import COMPUTED, RANGE, eager, revoking, two_queues


def test_each_gets_only_what_it_reads() -> None:
    """K1: and as even as that allows."""
    group = two_queues()
    held = group.holds()
    assert set(held["a/0"]) == {"orders"} and set(held["c/0"]) == {"returns"}
    assert sorted(sum(map(len, queues.values())) for queues in held.values()) == [2, 2, 2]


def test_a_queue_that_nobody_reads_any_more() -> None:
    """K3: its positions are kept, nobody owns it, and who reads it again goes on there."""
    group = Decided(2)
    group.queue_named("returns", 1)
    partition_id = ("returns", 0)
    group.join("a", queues=("orders", "returns"))
    own = group.state.partitions[partition_id]
    group.acks.rows[partition_id, own.epoch, own.incarnation] = 7
    group.join("a", queues=("orders",))
    assert group.holds() == {"a/0": {"orders": [0, 1]}, "-": {"returns": [0]}}
    assert group.state.status is Status.READY and partition_id not in group.state.subscribed_partitions
    group.do(RaiseFloors("returns"))
    assert group.state.floors[partition_id] == 7
    group.first = 100
    group.join("a", queues=("orders", "returns"))
    assert group.holds() == {"a/0": {"orders": [0, 1], "returns": [0]}}
    assert group.state.partitions[partition_id].start == 7
    # Its lineage ended with the return without it.
    assert group.state.partitions[partition_id].lineage_epoch > own.epoch


def test_a_pattern_finds_queues() -> None:
    """K3: created, grown, deleted; each at once, also in a holddown."""
    group = Decided(2, 1_000)
    group.join("a", queues=(), pattern="o.*|r.*")
    group.queue_named("returns", 1)
    group.queue_named("others", 1)
    group.queue_named("xyz", 1)
    group.changed()
    assert group.holds() == {"a/0": {"orders": [0, 1], "returns": [0], "others": [0]}, "-": {"xyz": [0]}}
    assert group.state.status is Status.READY
    assert {f.cause for f in group.facts if f.kind == COMPUTED} == {"the partitions of others, returns changed"}
    group.join("b", queues=(), pattern="o.*|r.*")
    assert group.state.status is Status.HOLDDOWN
    group.queue_named("returns", 3)
    group.changed()
    assert group.state.status is Status.REBALANCING
    group.release()
    assert group.counts() == [3, 3]
    del group.more["others"]
    group.changed("others")
    assert [f.queue for f in group.facts if f.kind == Kind.QUEUE_REMOVED] == ["others"]
    assert group.state.status is not Status.HOLDDOWN
    assert group.changed("others") == []


def test_queues_come_to_a_group_that_has_none() -> None:
    """K3: whose members have been waiting for them."""
    group = Decided(1)
    queue = group.queue
    group.join("a", queues=(), pattern="none-.*")
    assert group.state.status is Status.READY
    group.queue_named("none-1", 2)
    group.queue = queue
    group.changed()
    assert group.holds()["a/0"] == {"none-1": [0, 1]}
    del group.more["none-1"]
    group.changed("none-1")
    group.queue_named("none-2", 1)
    group.changed()
    assert group.holds()["a/0"] == {"none-2": [0]}


def test_a_queue_that_nobody_reads_stops_nobody() -> None:
    """K3: whether it comes, grows or goes."""
    group = eager("a", "b")
    group.queue_named("others", 1)
    assert group.changed() and group.state.status is Status.READY
    group.queue_named("others", 2)
    assert group.changed() and group.state.status is Status.READY
    del group.more["others"]
    group.changed("others")
    assert group.kinds() == ["QueueRemoved"]


def test_new_settings_of_a_queue_move_nothing() -> None:
    group = eager("a", "b")
    group.queue_named("others", 1)
    group.queue = Decided(6, 7_000, 8_000).queue
    group.changed()
    assert group.times(Kind.STATUS_CHANGED) == 0
    assert group.state.rebalance_delay_ms == 7_000


@pytest.mark.parametrize("assignors", [RANGE, ("balanced",)])
def test_a_queue_is_deleted_while_it_drains(assignors: tuple[str, ...]) -> None:
    """K3: the rebalance ends without it."""
    group = Decided(2)
    group.queue_named("returns", 2)
    group.join("a", queues=("orders", "returns"), assignors=assignors)
    group.join("b", queues=("orders", "returns"), assignors=assignors)
    for partition in set(group.draining()):
        if group.state.partitions[at(partition)].state is PartitionState.DRAINING:
            group.release(partition)
    assert group.state.draining
    del group.more["returns"]
    group.changed("returns")
    if group.state.draining:
        group.release()
    assert group.state.status is Status.READY
    assert group.holds() == {"a/0": {"orders": [0]}, "b/0": {"orders": [1]}}


def test_a_queue_is_created_again_in_an_eager_revocation() -> None:
    """K3: its partitions are others, of which nothing has to be given up."""
    group = revoking("a", "b")
    group.do(QueuesChanged({"again": group.queue}, {("again", p): 0 for p in range(6)}, ("id",)))
    assert group.state.status is Status.READY
    assert {w[0] for w in group.state.partitions} == {"again"}
    assert group.holds() == {"a/0": {"orders": [0, 1, 2]}, "b/0": {"orders": [3, 4, 5]}}
