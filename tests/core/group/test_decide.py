"""R1-R8: what is decided when members join and leave, and when queues change, event by event."""

from __future__ import annotations

import pytest

from spark_partq.core.errors import GroupMismatchError
from spark_partq.core.group.events import DeadlinePassed, HolddownOver, Join, Promoted, RaiseFloors
from spark_partq.core.group.facts import Kind, QueueInGroup, Status
from spark_partq.core.group.invariants import check
from spark_partq.core.group.steps.promotion import delivered_here
from spark_partq.core.invariants import InvariantError
from tests.core.group.groups import Decided, at


# ---- joining
@pytest.mark.parametrize("delay_ms", [0, 5_000])
def test_the_first_member_gets_all_at_once(delay_ms: int) -> None:
    """R2: nothing can be spared by waiting, so there is no holddown."""
    group = Decided(4, delay_ms)
    group.join("a", flows=2)
    assert group.owned() == {"a/0": [0, 2], "a/1": [1, 3]}
    assert [f.status for f in group.facts if f.kind == Kind.STATUS_CHANGED] == [Status.REBALANCING, Status.READY]
    assert {(f.offset, f.epoch_before, f.epoch, f.lineage_epoch) for f in group.facts if f.kind == Kind.GRANTED} == {
        (0, 0, 1, 1)
    }


def test_the_example_of_the_seed() -> None:
    """R6: 7 partitions, 3 → 4 flows ends 2, 2, 2, 1, by one handoff."""
    group = Decided(7)
    group.join("a", flows=3)
    assert group.counts() == [3, 2, 2]
    group.join("b")
    assert group.times(Kind.HANDOFF_STARTED) == 1
    assert group.state.status is Status.REBALANCING
    group.release()
    assert group.counts() == [2, 2, 2, 1]
    assert group.state.status is Status.READY


def test_all_handoffs_run_at_the_same_time() -> None:
    """R6: the steps compute the target, nothing waits for anything else."""
    group = Decided(8)
    group.join("a")
    group.join("b")
    assert group.draining() == [4, 5, 6, 7]
    group.release(6)
    assert group.state.status is Status.REBALANCING
    group.release()
    assert group.owned() == {"a/0": [0, 1, 2, 3], "b/0": [4, 5, 6, 7]}
    assert group.state.status is Status.READY


def test_a_join_with_a_delay() -> None:
    """R5, R7: Holddown first, then the rebalance that the first change caused."""
    group = Decided(4, 5_000)
    group.join("a")
    group.join("b")
    assert group.kinds() == ["MemberJoined", "StatusChanged"]
    assert group.state.status is Status.HOLDDOWN
    group.over()
    assert group.draining() == [2, 3]
    assert "b joined with 1 flow" in group.facts[0].cause


def test_an_excess_consumer_is_a_standby() -> None:
    """R3: its bind triggers nothing."""
    group = Decided(2)
    group.join("a", flows=2)
    group.join("b", flows=3)
    assert group.kinds() == ["MemberJoined"]
    assert group.state.status is Status.READY


@pytest.mark.parametrize("delay_ms", [0, 5_000])
def test_a_standby_takes_exactly_the_load(delay_ms: int) -> None:
    """R3: at once, and whatever the delay."""
    group = Decided(4, delay_ms)
    for name in "abcde":
        group.join(name)
    group.over()
    while group.draining():
        group.release()
    had = group.owned()["b/0"]
    group.leave("b", expired=True)
    assert group.kinds() == ["MemberLeft", "Unassigned", "Granted"]
    assert group.owned()["e/0"] == had
    assert group.state.status is Status.READY


def test_a_standby_that_leaves_triggers_nothing() -> None:
    """R2: there are excess consumers."""
    group = Decided(2)
    group.join("a", flows=2)
    group.join("b")
    group.leave("b")
    assert group.kinds() == ["MemberLeft"]


# ---- leaving
def test_leaving_and_expiring_are_the_same() -> None:
    """R4."""
    outcomes = []
    for expired in (False, True):
        group = Decided(4)
        group.join("a")
        group.join("b")
        group.release()
        group.leave("a", expired)
        outcomes.append((group.kinds(), group.owned()))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1] == {"b/0": [0, 1, 2, 3]}


def test_the_last_member_leaves() -> None:
    """Its partitions have nobody, under an epoch in which nobody acknowledges; the group is Ready for the next."""
    group = Decided(2)
    group.join("a")
    group.ack(0, 5, 7)
    old = group.state.members["a"].incarnation
    group.leave("a")
    assert group.owned() == {"-": [0, 1]}
    assert group.state.status is Status.READY
    assert group.state.partitions[at(0)].epoch == 2
    group.join("b")
    own = group.state.partitions[at(0)]
    assert (own.start, own.delivered, own.lineage_epoch, own.last_flow) == (5, 7, own.epoch, "b/0")
    assert own.incarnation != old


def test_nothing_is_handed_off_by_a_flow_that_is_gone() -> None:
    """All flows of a member go at once, so none of them is asked for a handoff."""
    group = Decided(7)
    group.join("a")
    group.join("b", flows=2)
    group.release()
    group.leave("b")
    assert group.times(Kind.HANDOFF_STARTED) == 0
    assert group.owned() == {"a/0": list(range(7))}


# ---- holddown
def two_and_a_holddown() -> Decided:
    group = Decided(4, 5_000)
    group.join("a")
    group.join("b")
    group.over()
    group.release()
    assert group.owned() == {"a/0": [0, 1], "b/0": [2, 3]}
    group.leave("b", expired=True)
    assert group.state.status is Status.HOLDDOWN
    assert group.owned() == {"a/0": [0, 1], "-": [2, 3]}
    return group


def test_the_flow_that_returns_takes_exactly_what_it_had() -> None:
    """R5: no handoff at all, and the lineage goes on: what it had planned is its own."""
    group = two_and_a_holddown()
    group.join("b")
    assert group.kinds() == ["MemberJoined", "Granted", "Granted", "StatusChanged"]
    assert group.owned() == {"a/0": [0, 1], "b/0": [2, 3]}
    assert group.state.status is Status.READY
    own = group.state.partitions[at(2)]
    assert (own.epoch, own.lineage_epoch) == (4, 2)


@pytest.mark.parametrize("manual", [True, False])
def test_a_forced_move_within_an_instance(manual: bool) -> None:
    """H5: an application that acknowledged as it was decided has no reason to do so again; so the messages come again."""
    group = Decided(2, 5_000)
    group.join("a", manual=manual)
    group.join("a", flows=2, manual=manual)
    group.over()
    (moving,) = (p for p, own in group.state.partitions.items() if own.handoff >= 0)
    group.do(DeadlinePassed(moving, group.state.partitions[moving].handoff))
    own = group.state.partitions[moving]
    assert own.flow == "a/1" and (own.lineage_epoch == own.epoch) == manual


def test_another_flow_takes_exactly_what_was_left() -> None:
    """R5: and it begins a line of its own."""
    group = two_and_a_holddown()
    group.join("c")
    assert group.owned() == {"a/0": [0, 1], "c/0": [2, 3]}
    assert group.state.status is Status.READY
    assert group.state.partitions[at(2)].lineage_epoch == group.state.partitions[at(2)].epoch


def test_a_return_to_the_count_needs_no_exact_number_of_standbys() -> None:
    """R3, R5: excess flows are standbys, so they do not keep the holddown going."""
    group = Decided(2, 5_000)
    group.join("a", flows=2)
    group.leave("a")
    group.join("b", flows=4)
    assert group.counts() == [1, 1]
    assert group.state.status is Status.READY


def test_later_changes_do_not_restart_the_holddown() -> None:
    """R5: its number is that of the first change."""
    group = two_and_a_holddown()
    began = group.state.status_seq
    group.leave("a")
    group.join("c", flows=3)
    assert (group.state.status, group.state.status_seq) == (Status.HOLDDOWN, began)
    group.do(HolddownOver(began))
    assert group.counts() == [2, 1, 1]
    assert group.state.status is Status.READY


def test_an_old_holddown_is_over_for_nobody() -> None:
    """Events may come late."""
    group = two_and_a_holddown()
    assert group.do(HolddownOver(group.state.status_seq - 1)) == []
    group.over()
    assert group.owned() == {"a/0": [0, 1, 2, 3]}
    assert group.over() == []


def test_a_return_without_its_partitions_ends_their_lineage() -> None:
    """What the instance leaves out of its replay now must never count as its own again."""
    group = two_and_a_holddown()
    group.join("b", flows=2)
    assert group.state.status is Status.HOLDDOWN
    assert group.times(Kind.UNASSIGNED) == 2
    planned = 2
    group.over()
    for partition_id in (2, 3):
        own = group.state.partitions[at(partition_id)]
        assert own.flow in ("b/0", "b/1")
        assert own.lineage_epoch > planned


def test_a_change_while_rebalancing() -> None:
    """R7: Rebalancing → Holddown; handoffs go on meanwhile, no new one starts."""
    group = Decided(4, 5_000)
    group.join("a")
    group.join("b")
    group.over()
    group.join("c")
    assert group.state.status is Status.HOLDDOWN
    group.release(2)
    assert group.state.status is Status.HOLDDOWN
    group.over()
    group.release()
    assert group.counts() == [2, 1, 1]
    assert group.state.status is Status.READY


# ---- queues
def test_new_partitions_wait_for_nobody() -> None:
    """R2: at once, without a delay; R8: they go to the flows with the fewest."""
    group = Decided(3, 5_000)
    group.join("a", flows=2)
    group.queue = QueueInGroup("orders", 5, 5_000, 1_000)
    group.first = 7
    group.join("c")
    assert Status.HOLDDOWN not in [f.status for f in group.facts]
    assert group.state.status is Status.READY
    assert group.counts() == [2, 2, 1]
    assert group.draining() == []
    assert group.position(4) == 7


def test_a_queue_that_was_created_again() -> None:
    """Old positions are not inherited."""
    group = Decided(2)
    group.join("a")
    group.ack(0, 5)
    member = group.member("a")
    group.do(Join(member, {"new": group.queue}, {("new", 0): 0, ("new", 1): 0}))
    assert set(group.state.partitions) == {("new", 0), ("new", 1)}
    assert group.state.position(("new", 0), group.acks) == 0
    assert group.state.status is Status.READY


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"session_timeout_ms": 5_000}, "sessionTimeoutMs"),
        ({"assignors": ("range",)}, "assignor"),
    ],
)
def test_members_must_agree(options: dict[str, object], named: str) -> None:
    """A member that disagrees is refused, and told with whom."""
    group = Decided()
    group.join("a")
    with pytest.raises(GroupMismatchError, match=f"GROUP_MISMATCH.*{named}") as caught:
        group.join("b", **options)
    assert caught.value.params["instance"] == "b"
    group.join("a", **options)  # alone it may change its mind


# ---- floors, and messages that are gone
def test_floors() -> None:
    """Q8: positions become floors, which only rise, and hold whatever happens to acknowledgements."""
    group = Decided(2)
    group.join("a")
    group.ack(0, 5)
    assert group.do(RaiseFloors("another")) == group.do(RaiseFloors("id", (1, 2))) == []
    assert group.do(RaiseFloors("id", ends={0: 4})) == []  # nobody can have finished what is not there
    assert [(f.partition, f.offset) for f in group.floors()] == [(0, 5)]
    assert group.floors() == []
    group.acks.rows.clear()
    assert group.position(0) == 5
    group.join("a")
    assert group.position(0) == 5


def test_positions_below_what_is_there_go_on_to_that() -> None:
    """Q8, S7: a promoted replica lacks the last acknowledgements of what its primary has removed."""
    group = Decided()
    group.join("a")
    group.ack(0, 5)
    group.ack(1, 5)
    facts = group.promoted({0: 7, 1: 5, 2: 3, 9: 4}, {})
    floors = [(fact.partition, fact.offset) for fact in facts if fact.kind == Kind.FLOOR]
    assert floors == [(0, 7), (2, 3)]
    assert [group.position(p) for p in range(4)] == [7, 5, 3, 0]
    assert group.promoted({0: 7, 1: 5, 2: 3}, {}) == []


def test_what_a_promoted_replica_has_may_have_been_delivered() -> None:
    """H4, S7: nobody knows what the primary's members were given after the last pass; they bind again."""
    group = Decided()
    group.join("a")
    group.ack(0, 5)
    before = {p: own.epoch for p, own in group.state.partitions.items()}
    facts = group.promoted({}, {0: 9, 1: 4, 2: 0})
    told = [fact for fact in facts if fact.kind == Kind.UNASSIGNED and "may have been delivered" in fact.cause]
    assert [
        (fact.partition, fact.epoch_before, fact.epoch, fact.lineage_epoch, fact.flow, fact.instance) for fact in told
    ] == [(p, before["id", p] + 1, before["id", p] + 2, before["id", p] + 2, "a/0", "a") for p in (0, 1)]
    assert [fact.forced for fact in facts if fact.kind == Kind.MEMBER_LEFT] == [True]
    assert group.state.members == {} and all(own.flow is None for own in group.state.partitions.values())
    assert [group.state.delivered(("id", p), group.acks) for p in range(4)] == [9, 4, 0, 0]
    assert group.promoted({}, {0: 9, 1: 4, 2: 0}) == []
    facts = group.join("a")
    granted = {fact.partition: (fact.offset, fact.delivered) for fact in facts if fact.kind == Kind.GRANTED}
    assert granted == {0: (5, 9), 1: (0, 4), 2: (0, 0), 3: (0, 0)}
    assert all(group.state.partitions["id", p].lineage_epoch > before["id", p] for p in (0, 1))


def test_what_a_promoted_replica_has_may_have_been_delivered_to_a_group_of_which_it_has_not_heard() -> None:
    """H4, S7: one that had only attached may have joined the primary since; then it is told when it joins."""
    group = Decided()
    promoted = Promoted("id", {}, {-1: 0, 0: 9, 1: 4, 2: 0})
    rows = delivered_here(group.acks, promoted)
    assert [(row.partition_id, row.offset, row.delivered) for row in rows] == [(("id", 0), 0, 9), (("id", 1), 0, 4)]
    for row in rows:
        group.acks.add(row)
    assert delivered_here(group.acks, promoted) == []
    facts = group.join("a")
    granted = {fact.partition: (fact.offset, fact.delivered) for fact in facts if fact.kind == Kind.GRANTED}
    assert granted == {0: (0, 9), 1: (0, 4), 2: (0, 0), 3: (0, 0)}
    later = Promoted("id", {}, dict.fromkeys(range(5), 20))
    assert [(row.partition, row.delivered) for row in delivered_here(group.acks, later)] == [(n, 20) for n in range(5)]


def test_only_messages_that_are_gone_are_skipped() -> None:
    """Q8: a floor past the position is refused, but where the messages are gone."""
    group = Decided()
    group.join("a")
    before = group.state
    facts = group.promoted({0: 7}, {})
    with pytest.raises(InvariantError, match="the floor of partition 0 of id lies past its position 6"):
        check(before, group.state, facts, group.acks, [Promoted("id", {0: 6}, {})])


@pytest.mark.parametrize(("acked", "given"), [(20, 20), (6, 20), (9, 20)])
def test_a_promoted_replica_sets_nobody_beyond_its_end(acked: int, given: int) -> None:
    """S7: its messages from there on are others; of a partition that has all that was read nothing changes."""
    group = Decided(2)
    group.join("a")
    group.ack(0, acked, delivered=given)
    group.floors()
    epoch = group.state.partitions[at(0)].epoch
    facts = group.promoted({}, {0: 9, 1: 0})
    assert group.state.members == {} and group.state.unbound == {"a"}
    (moved,) = [fact for fact in facts if fact.kind == Kind.POSITION_RESET]
    assert (moved.partition, moved.offset, moved.delivered) == (0, min(acked, 9), 9) and "promoted" in moved.cause
    own = group.state.partitions[at(0)]
    assert group.position(0) == group.state.committed_floor(at(0)) == min(acked, 9)
    assert own.epoch == own.lineage_epoch > epoch and own.delivered == 9


def test_who_reads_another_queue_is_unbound_too_when_a_position_is_set_back() -> None:
    """No fact may set a position back beside members; they bind again at once."""
    group = Decided(2)
    group.join("a")
    group.ack(0, 20)
    group.leave("a")
    group.join("b", queues=["other"])
    assert group.promoted({}, {0: 20, 1: 0}) == [] and set(group.state.members) == {"b"}
    group.promoted({}, {0: 9, 1: 0})
    assert group.state.members == {} and group.state.unbound == {"b"} and group.position(0) == 9
