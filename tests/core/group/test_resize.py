"""A group whose queue changes its partitions: what is added, removed, and comes back (S1, S2, S6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_partq.core.assignors import BUILTIN
from spark_partq.core.errors import CorruptTableError
from spark_partq.core.group import snapshot
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.events import QueuesChanged
from spark_partq.core.group.facts import GroupFact, Kind, PartitionState, QueueInGroup, Status
from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.partition_map import PARENT
from tests.core.group.groups import Decided, at


class Resized(Decided):
    """A group and its queue; each look at the queue is one of a later revision, and can be kept for later."""

    def resize(self, first: int, partitions: int) -> None:
        self.queue = replace(self.queue, first=first, partitions=partitions, revision=self.queue.revision + 1)
        self.changed()

    @property
    def starts(self) -> dict[PartitionId, int]:
        return {("id", p): self.first for p in self.queue.partition_numbers}

    def look(self) -> QueuesChanged:
        return QueuesChanged({"id": self.queue}, self.starts)

    def numbers(self) -> list[int]:
        return sorted(p for _, p in self.state.partitions)


def resized(*members: str, **options: Any) -> Resized:
    group = Resized(4)
    for name in members:
        group.join(name, **options)
    while group.state.draining:
        group.release()
    return group


def settle(group: Decided) -> None:
    while group.state.draining:
        group.release()
    assert group.state.status is Status.READY


def test_partitions_are_added_and_rebalanced_at_once() -> None:
    """S1, R2: without a holddown."""
    group = resized("a", "b")
    group.resize(0, 6)
    assert Kind.PARTITION_ADDED in group.kinds() and Status.HOLDDOWN not in [f.status for f in group.facts]
    settle(group)
    assert group.counts() == [3, 3]


def test_what_is_removed_is_lost_at_once_and_balanced() -> None:
    """R8, S2: the group rebalances what is left."""
    group = resized("a", "b")
    group.ack(3, 5)
    group.resize(0, 2)
    assert group.numbers() == [0, 1]
    assert group.kinds().count(Kind.PARTITION_REMOVED) == 2
    removed = next(f for f in group.facts if f.kind == Kind.PARTITION_REMOVED and f.partition == 3)
    assert removed.offset == 5
    settle(group)
    assert group.counts() == [1, 1]


def test_a_partition_comes_back() -> None:
    """I4, I5: its epochs and its position go on, whatever the look says; late acknowledgements do not count."""
    group = resized("a")
    group.ack(3, 5)
    old = group.state.partitions[at(3)]
    group.resize(0, 3)
    group.resize(0, 4)
    settle(group)
    own = group.state.partitions[at(3)]
    assert own.epoch > old.epoch and own.lineage_epoch > old.epoch
    assert (own.start, group.position(3)) == (5, 5)
    group.acks.add(AckRow(old.incarnation, 9, *at(3), old.epoch, 9, 9))
    assert group.position(3) == 5
    assert group.state.delivered(at(3), group.acks) == 9


def test_a_partition_comes_back_where_the_queue_says() -> None:
    """S2: what was lost by `delete` stays lost."""
    group = resized("a")
    group.ack(3, 5)
    group.resize(0, 3)
    group.first = 8
    group.resize(0, 4)
    assert group.position(3) == 8


def test_it_comes_back_through_a_snapshot() -> None:
    group = resized("a")
    group.ack(3, 5)
    group.resize(0, 3)
    group.state = snapshot.from_json(snapshot.to_json(group.state))
    group.resize(0, 4)
    assert group.position(3) == 5
    assert group.state.partitions[at(3)].epoch > 1


@pytest.mark.parametrize(("epoch", "offset"), [(0, 9), (9, 0)])
def test_a_partition_that_goes_back_is_refused(epoch: int, offset: int) -> None:
    group = resized("a")
    group.ack(3, 5)
    group.resize(0, 3)
    group.state.queues["id"] = replace(group.queue, partitions=4)
    fact = GroupFact(Kind.PARTITION_ADDED, "orders", *at(3), offset=offset, epoch=epoch, lineage_epoch=epoch)
    with pytest.raises(CorruptTableError, match="before it was removed"):
        group.state.replay(fact)


def test_a_partition_that_drains_is_removed() -> None:
    """H1, S2: neither who gives nor who takes is waited for."""
    group = resized("a")
    group.join("b")
    group.over()
    assert group.draining() == [2, 3]
    group.resize(0, 3)
    assert group.numbers() == [0, 1, 2]
    settle(group)
    assert group.counts() == [2, 1]


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("partitions", [2, 4, 6])
def test_a_stale_look_changes_nothing(partitions: int, joins: bool) -> None:
    """S2: neither brings it back what was removed, nor does it take what was added."""
    group = resized("a", "b")
    looks = []
    for n in (2, 6, 4, partitions):
        group.resize(0, n)
        looks.append((group.look(), group.queue))
    settle(group)
    for look, queue in looks[:-1]:
        if joins:
            newest, group.queue = group.queue, queue
            group.join("c")
            group.queue = newest
        else:
            group.do(look)
            assert group.facts == []
        settle(group)
        assert group.numbers() == list(range(partitions))
        assert Kind.PARTITION_ADDED not in group.kinds() and Kind.PARTITION_REMOVED not in group.kinds()


def test_a_look_from_in_between_changes_nothing() -> None:
    """The queue grew and shrank again before the group looked; whoever looked meanwhile comes too late."""
    group = resized("a")
    group.queue = replace(group.queue, partitions=8, revision=5)
    between = group.look()
    group.queue = replace(group.queue, partitions=4, revision=9)
    group.changed()
    assert group.kinds() == [Kind.QUEUE_ADDED]
    group.changed()
    assert group.facts == []
    group.do(between)
    assert group.facts == []


def test_a_join_brings_news_of_the_queue() -> None:
    """S1: whoever looks last tells the group."""
    group = resized("a")
    group.queue = replace(group.queue, partitions=6, revision=3)
    group.join("b")
    settle(group)
    assert group.counts() == [3, 3]


# ---- exclusive and back
@pytest.mark.parametrize(("before", "after"), [((0, 4), (PARENT, 0)), ((PARENT, 0), (0, 4))])
def test_all_clients_bind_again(before: tuple[int, int], after: tuple[int, int]) -> None:
    """S6: nobody goes on by the rules that held before."""
    group = resized("a", "b")
    group.resize(*before)
    for name in ("a", "b"):
        if name not in group.state.members:
            group.join(name)
    settle(group)
    group.resize(*after)
    left = [fact.cause for fact in group.facts if fact.kind == Kind.MEMBER_LEFT]
    became = "became exclusive" if after[1] == 0 else "became partitioned"
    assert len(left) == 2 and all(became in cause for cause in left)
    assert not group.state.members and group.state.status is Status.READY
    assert all(own.state is PartitionState.UNASSIGNED for own in group.state.partitions.values())
    group.join("a")
    group.join("b")
    settle(group)
    assert all(own.state is PartitionState.OWNED for own in group.state.partitions.values())
    assert group.numbers() == list(range(*after))


@pytest.mark.parametrize("after", [(PARENT, 0), (0, 6)])
def test_who_was_unbound_binds_again_without_a_delay(after: tuple[int, int]) -> None:
    """S6, R2: each of them, also the second; who comes besides waits, and so does who comes back another time."""
    group = resized("a", "b")
    group.resize(PARENT if after[0] == 0 else 0, 0 if after[0] == 0 else 4)
    for name in ("a", "b"):
        group.join(name)
    settle(group)
    group.queue = replace(group.queue, rebalance_delay_ms=5_000)
    group.resize(*after)
    assert not group.state.members and group.state.unbound == {"a", "b"}
    assert all(fact.forced for fact in group.facts if fact.kind == Kind.MEMBER_LEFT)
    for name in ("a", "b"):
        group.join(name)
        assert group.state.status is not Status.HOLDDOWN
    settle(group)
    assert group.state.status is Status.READY and not group.state.unbound
    assert len(group.counts()) == min(2, len(group.numbers()))
    if after[0] == 0:
        group.join("c")
        assert group.state.status is Status.HOLDDOWN
        group.leave("c")
        assert group.state.status is Status.READY and not group.state.unbound


def test_a_member_that_joins_unbinds_the_others() -> None:
    """S6: the news may come with a join, also with that of a process that takes its instance over."""
    group = resized("a", "b")
    group.queue = replace(group.queue, first=PARENT, partitions=0, revision=1)
    group.join("a")
    assert list(group.state.members) == ["a"]
    assert group.state.members["a"].order > 1
    assert group.owned() == {"a/0": [PARENT]}


def test_who_does_not_read_the_queue_stays() -> None:
    group = resized("a")
    group.queue_named("bills", 2)
    group.join("b", queues=("bills",))
    group.do(QueuesChanged({"bills": group.more["bills"]}, {("bills", 0): 0, ("bills", 1): 0}))
    settle(group)
    group.resize(PARENT, 0)
    assert list(group.state.members) == ["b"]
    settle(group)
    assert group.holds()["b/0"] == {"bills": [0, 1]}


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_the_parent_is_assigned(name: str) -> None:
    """S6: to exactly one flow, by whatever assignor; also beside the partitions that are still drained."""
    group = Resized(4)
    group.queue = QueueInGroup("orders", 0, 0, 1_000, PARENT)
    group.join("a", assignors=(name,))
    group.join("b", assignors=(name,))
    settle(group)
    assert group.numbers() == [PARENT] and len(group.counts()) == 1
    group.resize(PARENT, 3)
    for name_ in ("a", "b"):
        if name_ not in group.state.members:
            group.join(name_, assignors=(name,))
    settle(group)
    assert group.numbers() == [PARENT, 0, 1, 2] and sum(group.counts()) == 4


def test_floors_and_settled() -> None:
    """S5: only what the control table says is settled; an acknowledgement alone is not."""
    group = resized("a")
    group.ack(1, 4)
    assert (group.position(1), group.state.committed_floor(at(1))) == (4, 0)
    group.floors()
    assert group.state.committed_floor(at(1)) == 4
    group.resize(0, 1)
    assert group.state.committed_floor(at(1)) == 0
    group.resize(0, 2)
    assert group.state.committed_floor(at(1)) == 4
