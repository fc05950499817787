"""H1, H4, K6: handoffs and restarts, event by event."""

from __future__ import annotations

from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.events import DeadlinePassed, Drained, Join, Leave
from spark_partq.core.group.facts import Kind, Status
from tests.core.group.groups import Decided, at


# ---- handoffs
def test_a_handoff_carries_the_acknowledged_offset() -> None:
    """H1: position and mark of the new owner."""
    group = Decided(2)
    group.join("a")
    group.ack(1, 4, 9)
    group.join("b")
    assert group.do(group.drained(1))
    granted = group.facts[1]
    assert (granted.flow, granted.offset, granted.delivered, granted.forced) == ("b/0", 4, 9, False)
    assert (granted.epoch_before, granted.epoch, granted.lineage_epoch) == (1, 2, 2)


def test_a_release_of_more_than_is_acknowledged_is_refused() -> None:
    """H1: it waits."""
    group = Decided(2)
    group.join("a")
    group.join("b")
    own = group.state.partitions[at(1)]
    assert group.do(Drained(at(1), own.incarnation, own.epoch, 3)) == []
    group.ack(1, 3)
    assert group.do(Drained(at(1), own.incarnation, own.epoch, 3))


def test_the_deadline() -> None:
    """H4: forced, from the acknowledged offset; late acknowledgements change nothing."""
    group = Decided(2)
    group.join("a")
    group.ack(1, 2, 6)
    group.join("b")
    group.deadline(1)
    granted = group.facts[0]
    assert (granted.kind, granted.flow, granted.offset, granted.delivered, granted.forced) == (
        Kind.GRANTED, "b/0", 2, 6, True
    )  # fmt: skip
    assert group.state.status is Status.READY
    group.acks.add(AckRow("a1", 2, *at(1), 1, 6, 6))
    assert group.position(1) == 2


def test_a_deadline_of_an_earlier_handoff() -> None:
    """It is over for nobody."""
    group = Decided(2)
    group.join("a")
    group.join("b")
    first = group.state.partitions[at(1)].handoff
    group.leave("b")
    group.join("c")
    assert group.state.partitions[at(1)].handoff > first
    assert group.do(DeadlinePassed(at(1), first)) == []


def test_no_handoff_time_moves_at_once() -> None:
    """H4: max_handoff_time 0."""
    group = Decided(4, handoff_ms=0)
    group.join("a")
    group.join("b")
    assert group.owned() == {"a/0": [0, 1], "b/0": [2, 3]}
    assert group.state.status is Status.READY
    assert [f.forced for f in group.facts if f.kind == Kind.GRANTED] == [True, True]


def test_the_receiver_leaves() -> None:
    """The partition stays where it is, and nothing else happens."""
    group = Decided(2)
    group.join("a")
    group.join("b")
    group.leave("b")
    assert group.kinds() == [
        "MemberLeft", "HandoffCancelled", "StatusChanged", "AssignmentComputed", "StatusChanged",
    ]  # fmt: skip
    assert group.draining() == []
    assert group.owned() == {"a/0": [0, 1]}
    assert group.state.status is Status.READY


def test_the_giver_leaves() -> None:
    """What it was about to give is vacant like the rest, and goes where balance needs it."""
    group = Decided(2)
    group.join("a")
    group.join("b")
    group.leave("a")
    assert group.owned() == {"b/0": [0, 1]}


# ---- restarts
def test_a_restart_in_time_triggers_nothing() -> None:
    """K6: the same partitions under a new epoch of the same lineage, whatever the status."""
    group = Decided(4, 5_000)
    group.join("a")
    group.join("b")
    group.over()
    group.release()
    group.ack(2, 3, 5)
    group.join("b")
    assert group.kinds() == ["MemberJoined", "Granted", "Granted"]
    own = group.state.partitions[at(2)]
    assert (own.flow, own.start, own.delivered, own.epoch, own.lineage_epoch) == ("b/0", 3, 5, 3, 2)
    assert group.state.status is Status.READY


def test_a_restart_hands_over_what_was_draining() -> None:
    """Nobody works on it any more, so there is nothing to wait for."""
    group = Decided(2)
    group.join("a")
    group.ack(1, 0, 4)
    group.join("b")
    group.join("a")
    own = group.state.partitions[at(1)]
    assert (own.flow, own.start, own.delivered) == ("b/0", 0, 4)
    assert group.state.status is Status.READY


def test_a_restart_with_fewer_flows() -> None:
    """The flows that are missing have left; the rest goes on."""
    group = Decided(6)
    group.join("a", flows=3)
    group.join("b", flows=3)
    group.release()
    group.join("a", flows=1)
    assert group.times(Kind.HANDOFF_STARTED) == 0
    assert group.counts() == [2, 2, 1, 1]


def test_a_restart_with_more_flows() -> None:
    """The new ones join, which triggers."""
    group = Decided(4)
    group.join("a")
    group.join("a", flows=2)
    assert group.draining() == [2, 3]
    group.release()
    assert group.owned() == {"a/0": [0, 1], "a/1": [2, 3]}
    assert group.state.partitions[at(2)].lineage_epoch == 1  # within one instance the lineage goes on


def test_the_same_join_twice() -> None:
    """Events may come more than once."""
    group = Decided(2)
    join = Join(group.member("a"), {"id": group.queue}, group.starts)
    assert group.do(join)
    assert group.do(join) == []
    assert group.do(Leave("a", "somebody else")) == []
