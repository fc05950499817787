"""Decisions about a queue: what follows from its state and from what was measured, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_partq.core.errors import InvalidArgumentError, ReplicaError, ScalingInProgressError
from spark_partq.core.invariants import InvariantError
from spark_partq.core.queue import decide, replicas, stuck
from spark_partq.core.queue.decide import Facts
from spark_partq.core.queue.facts import Phase
from spark_partq.core.queue.resetting import announce_reset
from spark_partq.core.queue.scaling import Remainder
from spark_partq.core.queue.state import QueueState
from tests.core.queue.queues import create, cuts, follow, kinds, open_, ready, scale, start


# ---- its life
def test_a_queue_is_created_once() -> None:
    """Q1: whoever comes second finds it ready, or deleted."""
    state = create(4)
    made = follow(state, decide.finish_creation(state))
    assert (made.phase, made.partition_count, made.key_types) == (Phase.STABLE, 4, ["string"])
    assert decide.finish_creation(made) == ()
    deleted = follow(state, decide.delete(state))
    assert decide.finish_creation(deleted) == decide.delete(deleted) == ()


def test_nothing_follows_a_deletion() -> None:
    state = scale(ready(0), 4, at=3)
    state = follow(state, replicas.add_replica(state, "r"))
    deleted = follow(state, decide.delete(state))
    assert decide.start_scaling(deleted, 9, "live") == ()
    assert decide.cancel_scaling(deleted) == decide.end_scaling(deleted, deleted) == ()
    assert decide.set_ingress(deleted, False) == ()
    assert stuck.start_copying(deleted, 0) == stuck.close_parent(deleted, deleted, 3) == ()
    assert replicas.add_replica(deleted, "x") == replicas.remove_replica(deleted, "r") == ()
    assert replicas.fence(deleted, "r") == replicas.become_primary(deleted, "again", {}, deleted.incarnation) == ()


# ---- its partition count
def test_a_change_is_started_and_gone_on_with() -> None:
    """S1: the same again changes nothing."""
    state = start(ready(), 6)
    assert (state.phase, state.configured_partitions) == (Phase.SCALING, 6)
    assert decide.start_scaling(state, 6, "live") == ()
    with pytest.raises(ScalingInProgressError, match=r"scaled to 6 partitions \(mode live\).*interrupted$"):
        decide.start_scaling(state, 7, "live")
    with pytest.raises(ScalingInProgressError):
        decide.start_scaling(state, 6, "drain")
    with pytest.raises(ScalingInProgressError):
        decide.start_scaling(state, 4, "live")  # its tables may be sealed


def test_the_count_that_there_is_is_refused_when_nothing_is_left() -> None:
    with pytest.raises(InvalidArgumentError, match="has 4 partitions already"):
        decide.start_scaling(ready(), 4, "live")
    assert decide.start_scaling(ready(), 4, "live", finished=True) == ()
    assert decide.start_scaling(scale(ready(), 2), 2, "live") == ()  # it waits until 2 and 3 are drained


def test_a_drain_is_taken_back() -> None:
    """S4: by scaling to the count that the queue has, before it has drained."""
    before = ready()
    state = start(before, 2, "drain")
    assert (state.phase, state.ingress) == (Phase.DRAINING, False)
    with pytest.raises(ScalingInProgressError, match="or scale it to 4 to take the change back"):
        decide.start_scaling(state, 7, "live")
    back = follow(state, decide.start_scaling(state, 4, "live"))
    assert replace(back, revision=before.revision) == before
    drained = follow(state, decide.finish_draining(state, state))
    assert decide.cancel_scaling(drained) == ()
    with pytest.raises(ScalingInProgressError):
        decide.start_scaling(drained, 4, "drain")


def test_a_queue_has_drained_only_as_it_was_measured() -> None:
    """S4: what was measured before something else was decided counts no more."""
    state = start(ready(), 2, "drain")
    later = follow(state, replicas.add_replica(state, "r"))
    assert decide.finish_draining(later, state) == ()
    drained = follow(later, decide.finish_draining(later, later))
    assert drained.phase is Phase.DRAINED
    assert decide.finish_draining(drained, drained) == decide.finish_draining(ready(), ready()) == ()


def test_a_drain_ends_with_the_ingress_that_was() -> None:
    """S4."""
    before = ready()
    before = follow(before, decide.set_ingress(before, False))
    opened = scale(before, 6, "drain", at=5)
    assert (opened.phase, opened.ingress, opened.partition_count) == (Phase.REBALANCING, False, 6)
    ended = follow(opened, decide.end_scaling(opened, opened))
    assert (ended.phase, ended.ingress) == (Phase.STABLE, False)
    started, another = start(ready(), 5, "drain"), scale(ended, 7, "drain", at=9)
    assert decide.end_scaling(ended, opened) == decide.end_scaling(started, started) == ()
    assert decide.end_scaling(another, opened) == (), "the groups have not rebalanced to the next map yet"


def test_a_map_comes_into_force_once() -> None:
    """S5: whoever has sealed under another generation than that in force is late."""
    state = start(ready(), 6)
    sealed = cuts(state, 7)
    opened = follow(state, decide.open_generation(state, 0, sealed))
    assert opened.generations[0].cuts == dict.fromkeys(range(6), 7)
    assert decide.open_generation(opened, 0, sealed) == ()
    again = start(opened, 8)
    assert decide.open_generation(again, 0, sealed) == ()
    assert decide.open_generation(start(ready(), 6, "drain"), 0, sealed) == ()


def test_a_fenced_queue_gets_no_other_map() -> None:
    """S7: whoever goes on at the replica would not know of it."""
    state = ready()
    state = follow(state, replicas.add_replica(state, "r"))
    scaling = start(state, 6)
    fenced = follow(scaling, replicas.fence(scaling, "r"))
    assert not decide.may_open_generation(fenced)
    assert decide.open_generation(fenced, 0, cuts(fenced)) == ()
    assert decide.start_scaling(follow(state, replicas.fence(state, "r")), 6, "live") == ()
    back = follow(fenced, replicas.remove_replica(fenced, "r", unfenced=fenced.last_fence))
    assert open_(back).partition_count == 6


def test_delete_takes_no_more_than_was_confirmed() -> None:
    """S2: neither when it is asked for, nor when the new map is in force."""
    held = Remainder({2: 5, 3: 6}, unread=4)
    for confirmed, why in ((None, "nothing was confirmed"), (3, "only 3 were confirmed")):
        with pytest.raises(InvalidArgumentError, match=f"would lose 4 messages.*{why}.*confirm_lost=4"):
            decide.start_scaling(ready(), 2, "delete", held, confirmed)
    (fact,) = decide.start_scaling(ready(), 2, "delete")
    assert fact.body == {"partitions": 2, "mode": "delete", "confirmed": 0}
    state = follow(ready(), decide.start_scaling(ready(), 2, "delete", held, 4))
    assert state.scaling is not None and state.scaling.confirmed == 4
    removed = open_(state, 5, Remainder({2: 5, 3: 6}, unread=4))
    assert (removed.removed_ends, removed.removing) == ({2: 5, 3: 6}, [])
    drained_later = open_(state, 5, Remainder({2: 5, 3: 6}, unread=5))
    assert (drained_later.removed_ends, drained_later.removing) == ({}, [2, 3])


def test_what_is_being_drained_can_be_deleted_after_all() -> None:
    """S2: mode delete, with the count that the queue has."""
    state = scale(ready(), 2)
    with pytest.raises(InvalidArgumentError, match="would lose 4"):
        decide.start_scaling(state, 2, "delete", Remainder({2: 5, 3: 6}, unread=4), 3)
    facts = decide.start_scaling(state, 2, "delete", Remainder({2: 5, 3: 6}, unread=4), 4)
    assert [(str(fact.kind), fact.body) for fact in facts] == [("PartitionsRemoved", {"ends": {2: 5, 3: 6}, "lost": 4})]
    assert follow(state, facts).removed_ends == {2: 5, 3: 6}


def test_partitions_that_came_back_are_not_removed() -> None:
    """S2: what was found drained under another map, or of other partitions, counts no more."""
    state = scale(ready(), 2)
    ends = {2: 5, 3: 6}
    back = scale(state, 3)
    assert decide.remove_drained(back, state, ends) == decide.remove_drained(back, back, ends) == ()
    assert kinds(decide.remove_drained(back, back, {3: 6})) == ["PartitionsRemoved"]
    removed = follow(state, decide.remove_drained(state, state, ends))
    assert removed.removed_ends == ends
    assert decide.remove_drained(removed, state, ends) == decide.remove_drained(ready(), ready(), {}) == ()


def test_a_drain_that_is_over_removes_nothing() -> None:
    """Q8, S4: while it was under way, `min_retention_ms` kept nothing; what was found so counts no more."""
    left = scale(ready(), 2)
    draining, ends = start(left, 1, "drain"), {2: 5, 3: 6}
    assert kinds(decide.remove_drained(draining, draining, ends)) == ["PartitionsRemoved"]
    over = follow(draining, decide.cancel_scaling(draining))
    for later in (over, start(over, 1)):
        assert decide.remove_drained(later, draining, ends) == ()


# ---- the groups that read it
def test_a_group_that_attached_meanwhile_is_waited_for() -> None:
    """S2, Q8: what was found drained without it counts no more."""
    state = scale(ready(), 2)
    joined = follow(state, decide.attach_group(state, "g", 0))
    assert decide.remove_drained(joined, state, {2: 5, 3: 6}) == ()
    assert kinds(decide.remove_drained(joined, joined, {2: 5, 3: 6})) == ["PartitionsRemoved"]


def test_a_group_is_attached_once_and_again_after_its_deletion() -> None:
    """Q8: who deletes a group does not detach the one that was created again meanwhile."""
    state = follow(ready(), decide.attach_group(ready(), "g", 0))
    assert state.groups == {"g": 0} and decide.attach_group(state, "g", 0) == ()
    assert decide.detach_group(state, "g", 0) == decide.detach_group(state, "other", 1) == ()
    anew = follow(state, decide.attach_group(state, "g", 1))
    assert anew.groups == {"g": 1} and decide.attach_group(anew, "g", 0) == ()
    assert decide.detach_group(anew, "g", 1) == ()
    assert follow(state, decide.detach_group(state, "g", 1)).groups == {}
    assert follow(anew, decide.detach_group(anew, "g", 2)).groups == {}


# ---- its ingress
def test_ingress_is_toggled_unless_the_queue_is_drained() -> None:
    """S3, S4: what is so already stays so."""
    assert decide.set_ingress(ready(), True) == ()
    off = follow(ready(), decide.set_ingress(ready(), False))
    assert not off.ingress and decide.set_ingress(off, False) == ()
    assert follow(off, decide.set_ingress(off, True)).ingress
    assert not follow(start(ready(), 6), decide.set_ingress(start(ready(), 6), False)).ingress
    draining = start(ready(), 6, "drain")
    for state in (draining, follow(draining, decide.finish_draining(draining, draining)), scale(ready(), 6, "drain")):
        with pytest.raises(ScalingInProgressError, match="being drained to change its partition count to 6"):
            decide.set_ingress(state, True)


# ---- its replicas
def replicated() -> QueueState:
    state = ready()
    for location in ("a", "b"):
        state = follow(state, replicas.add_replica(state, location))
    return state


def test_replicas_come_and_go() -> None:
    """S7."""
    state = replicated()
    assert state.replicas == ("a", "b") and replicas.add_replica(state, "a") == ()
    state = follow(state, replicas.remove_replica(state, "a"))
    assert state.replicas == ("b",) and replicas.remove_replica(state, "a") == ()


def test_one_replica_takes_over() -> None:
    """S7: of two promotions at once one is refused, and so is one of what is no replica any more."""
    state = replicated()
    fenced = follow(state, replicas.fence(state, "a"))
    assert fenced.fenced_by == "a" and replicas.fence(fenced, "a") == ()
    with pytest.raises(ReplicaError, match="another replica of queue 'orders', a, has taken over"):
        replicas.fence(fenced, "b")
    with pytest.raises(ReplicaError, match="does not know the replica in c any more"):
        replicas.fence(state, "c")


def test_a_replica_that_takes_over_is_removed_only_to_take_that_back() -> None:
    """S7."""
    state = replicated()
    fenced = follow(state, replicas.fence(state, "a"))
    with pytest.raises(ReplicaError, match="a was promoted and took over from queue 'orders'"):
        replicas.remove_replica(fenced, "a")
    back = follow(fenced, replicas.remove_replica(fenced, "a", unfenced=fenced.last_fence))
    assert (back.fenced_by, back.replicas) == (None, ("b",))
    other = follow(fenced, replicas.remove_replica(fenced, "b", unfenced=fenced.last_fence))
    assert (other.fenced_by, other.replicas) == ("a", ("a",))


def test_no_group_attaches_to_a_fenced_queue() -> None:
    """S7, H4: the replica that takes over must know every group that may have been given something."""
    state = follow(ready(), replicas.add_replica(ready(), "a"))
    fenced = follow(state, replicas.fence(state, "a"))
    assert decide.attach_group(fenced, "g", 0) == ()
    with pytest.raises(InvariantError, match="GroupAttached, although a has taken over"):
        follow(fenced, decide.attach_group(state, "g", 0))
    back = follow(fenced, replicas.become_primary(fenced, "i", {}, fenced.incarnation))
    assert follow(back, decide.attach_group(back, "g", 0)).groups == {"g": 0}


def test_a_reset_is_announced_to_a_queue_that_the_group_is_attached_to() -> None:
    """Q8, H4: each once; not to a fenced queue, whose replica would not learn of it. Who goes takes it along."""
    state = ready()
    assert announce_reset(state, "g", 1) == ()
    attached = follow(state, decide.attach_group(state, "g", 0))
    told = follow(attached, announce_reset(attached, "g", 1))
    assert told.resets == {"g": 1} and announce_reset(told, "g", 1) == ()
    assert follow(told, announce_reset(told, "g", 3)).resets == {"g": 3}
    with pytest.raises(ValueError, match="number: reset 1 of group 'g' was announced before"):
        follow(told, announce_reset(attached, "g", 1))
    assert follow(told, decide.detach_group(told, "g", 1)).resets == {}
    replicated_ = follow(attached, replicas.add_replica(attached, "a"))
    fenced = follow(replicated_, replicas.fence(replicated_, "a"))
    assert announce_reset(fenced, "g", 1) == ()
    with pytest.raises(InvariantError, match="GroupResetting, although a has taken over"):
        follow(fenced, announce_reset(replicated_, "g", 1))


def test_partitions_are_not_removed_that_a_group_goes_back_to() -> None:
    """S2: what was measured before the reset was announced does not count."""
    state = scale(follow(ready(), decide.attach_group(ready(), "g", 0)), 2, at=5)
    ends = dict.fromkeys(state.removing, 5)
    assert decide.remove_drained(state, state, ends)
    told = follow(state, announce_reset(state, "g", 1))
    assert decide.remove_drained(told, state, ends) == ()


@pytest.mark.parametrize("fence", [True, False])
def test_what_was_a_replica_becomes_a_primary(fence: bool) -> None:
    """S7: it forgets the primary's replicas, and that this was fenced, and has the incarnation of the promotion, once."""
    state = replicated()
    if fence:
        state = follow(state, replicas.fence(state, "a"))
    assert state.incarnation == state.queue_id
    primary = follow(state, replicas.become_primary(state, "second", {0: 8, 1: 3}, state.incarnation))
    assert (primary.replicas, primary.fenced_by, primary.incarnation) == ((), None, "second")
    assert follow(primary, replicas.become_primary(primary, "third", {0: 9}, "second")).incarnation == "third"


def test_who_slept_through_a_promotion_makes_no_primary() -> None:
    """S7: another process has ended it, or a later one; what fences the queue since is no fence of its former primary."""
    state = follow(replicated(), replicas.fence(replicated(), "a"))
    ended = follow(state, replicas.become_primary(state, "second", {0: 8}, state.incarnation))
    again = follow(ended, replicas.add_replica(ended, "c"))
    fenced = follow(again, replicas.fence(again, "c"))
    for incarnation, before in (("second", state.incarnation), ("second", "second"), ("late", state.incarnation)):
        assert replicas.become_primary(fenced, incarnation, {0: 9}, before) == ()


def test_a_fence_that_came_since_is_not_taken_back() -> None:
    """S7: whoever removes a replica first takes back the partitions' fences, up to the one that he knows."""
    fenced = follow(replicated(), replicas.fence(replicated(), "a"))
    assert fenced.last_fence == fenced.revision - 1
    assert replicas.remove_replica(fenced, "a", unfenced=fenced.last_fence - 1) == ()
    back = follow(fenced, replicas.remove_replica(fenced, "a", unfenced=fenced.last_fence))
    assert (back.fenced_by, back.last_fence) == (None, fenced.last_fence)
    again = follow(back, replicas.fence(back, "b"))
    assert again.last_fence > fenced.last_fence


def test_another_replica_is_followed_at_the_same_place() -> None:
    """S7: who gave up the first one takes back no fence of the second, nor removes it."""
    first = follow(ready(), replicas.add_replica(ready(), "a", "one"))
    assert first.replica_ids == {"a": "one"} and replicas.add_replica(first, "a", "one") == ()
    second = follow(first, replicas.add_replica(first, "a", "two"))
    assert (second.replicas, second.replica_ids) == (("a",), {"a": "two"})
    assert replicas.remove_replica(second, "a", ["one"]) == ()
    fenced = follow(second, replicas.fence(second, "a", "two"))
    assert replicas.remove_replica(fenced, "a", ["one"], unfenced=fenced.last_fence) == ()
    with pytest.raises(ReplicaError, match="does not know the replica in a any more"):
        replicas.fence(second, "a", "one")
    back = follow(fenced, replicas.remove_replica(fenced, "a", ["one", "two"], unfenced=fenced.last_fence))
    assert (back.fenced_by, back.replicas, back.replica_ids) == (None, (), {})


def test_a_fence_says_which_replica_an_older_program_added() -> None:
    """S7: and while the queue is fenced for it, no other one is followed there."""
    fenced = follow(replicated(), replicas.fence(replicated(), "a", "one"))
    assert (fenced.fenced_by, fenced.replicas, fenced.replica_ids) == ("a", ("b", "a"), {"a": "one"})
    assert replicas.add_replica(fenced, "a", "two") == () and replicas.remove_replica(fenced, "a", ["two"]) == ()


LATE: dict[str, Callable[[QueueState], Facts]] = {
    "drained": lambda state: decide.finish_draining(state, state),
    "opened": lambda state: decide.open_generation(state, state.generation, {}),
    "cancelled": decide.cancel_scaling,
    "ended": lambda state: decide.end_scaling(state, state),
    "removed": lambda state: decide.remove_drained(state, state, {3: 1}),
    "copied": lambda state: stuck.finish_copying(state, state, 0),
    "closed": lambda state: stuck.close_parent(state, state, 0),
    "created": decide.finish_creation,
}


@pytest.mark.parametrize("late", LATE)
def test_what_comes_late_changes_nothing(late: str) -> None:
    assert LATE[late](ready()) == ()
