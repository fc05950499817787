"""One primary among all that can be reached: replicas that are promoted at once, and removals beside a promotion (S7)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.queue.facts import Kind, QueueFact
from spark_partq.core.replica import decide
from spark_partq.core.replica.facts import Phase
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures import primary as primaries
from spark_partq.storage.procedures import promote as promotions
from spark_partq.storage.procedures import remove_replica as removals
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.remove_replica import remove_replica
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import ReplicaTable, replica_role
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.replicas import (
    Crash,
    faults,
    log_names,
    put,
    queue_fixture,  # noqa: F401
    sync,
    table,
    there_fixture,  # noqa: F401
)


@pytest.fixture(name="two")
def two_fixture(queue: str, there: str) -> tuple[str, str]:
    """Two replicas of a queue, whose primary is lost."""
    put(queue, 0, range(3))
    both = there, f"{there}-2"
    for location in (*both, *both):  # so that the copy of each knows the other
        sync(queue, location)
    os.rename(queue, f"{queue}-lost")
    return both


def state_of(store: str) -> ReplicaState:
    state = ReplicaTable(Store.at(store), "q").refresh()
    assert state is not None
    return state


def once_before(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, do: Callable[[], object]) -> None:
    """Do something the first time that a function of a module is called, before it."""
    original = getattr(module, name)

    def call(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(module, name, original)
        do()
        return original(*arguments, **named)

    monkeypatch.setattr(module, name, call)


def once_after(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, do: Callable[[], object]) -> None:
    """The same, after it."""
    original = getattr(module, name)

    def call(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(module, name, original)
        result = original(*arguments, **named)
        do()
        return result

    monkeypatch.setattr(module, name, call)


def test_one_after_the_other(two: tuple[str, str]) -> None:
    """S7: the second finds that the first has taken over, whoever insists."""
    first, second = two
    promote(Store.at(first), "q")
    for force in (False, True):
        with pytest.raises(partq.ReplicaError, match=f"another replica of queue 'q', {first}, has taken over"):
            promote(Store.at(second), "q", force=force)
    assert [replica_role(Store.at(store), "q") for store in two] == ["promoted", "replica"]


def test_one_while_the_other_is_being_promoted(two: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: the one that has begun goes on."""
    first, second = two

    def other() -> None:
        with pytest.raises(partq.ReplicaError, match=f"{first}, is being promoted"):
            promote(Store.at(second), "q")

    once_before(monkeypatch, promotions, "_close", other)
    promote(Store.at(first), "q")
    assert [state_of(store).phase for store in two] == [Phase.PROMOTED, Phase.FOLLOWING]


def test_two_that_begin_at_once(two: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: each has asked the other before either began. The one that finds the other takes that back; promoted again, one goes on."""
    first, second = two

    def begins() -> None:
        seen = state_of(second)
        other = ReplicaTable(Store.at(second), "q")
        other.decide(lambda now: decide.start_promotion(now, seen, "theirs", [first]))

    once_after(monkeypatch, promotions, "_take_over", begins)
    with pytest.raises(partq.ReplicaError, match=f"{second}, is being promoted.*promote one of them again"):
        promote(Store.at(first), "q")
    assert [state_of(store).phase for store in two] == [Phase.FOLLOWING, Phase.PROMOTING]
    promote(Store.at(second), "q")
    with pytest.raises(partq.ReplicaError, match="has taken over"):
        promote(Store.at(first), "q")
    assert put(second, 0, [3]) == 3 and faults(second) == []


def test_force_cancels_a_promotion_that_has_not_ended(two: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: whoever was at it and slept finds that, also after he has made the queue there a primary."""
    first, second = two
    once_after(monkeypatch, promotions, "unfence_partitions", lambda: promote(Store.at(second), "q", force=True))
    with pytest.raises(partq.ReplicaError, match="was cancelled, as another replica was being promoted"):
        promote(Store.at(first), "q")
    assert [replica_role(Store.at(store), "q") for store in two] == ["replica", "promoted"]
    with pytest.raises(partq.ReplicaError, match=f"{second}, has taken over"):
        promote(Store.at(first), "q", force=True)


@pytest.mark.parametrize("step", ["_close", "begin_groups_anew", "unfence_partitions", "open_control"])
def test_a_promotion_that_wakes_up_after_the_next_one(
    queue: str, there: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """S7: it slept before a step. Another process ended it, and a replica of what it made has taken over since: that stays fenced."""
    third = f"{there}-3"
    put(queue, 0, range(3))
    sync(queue, there)
    os.rename(queue, f"{queue}-lost")

    def meanwhile() -> None:
        promote(Store.at(there), "q")
        sync(there, third)
        promote(Store.at(third), "q")

    once_before(monkeypatch, promotions, step, meanwhile)
    with pytest.raises(partq.ReplicaError, match="already promoted"):
        promote(Store.at(there), "q")
    state = queue_state(Store.at(there), "q")
    assert (state.fenced_by, state.replicas) == (third, (third,))
    assert [table(there, n).fenced for n in range(2)] == [True, True]


def test_what_groups_were_given_is_not_written_after_the_promotion(
    queue: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S7: it slept before it wrote that; another process has ended it, and the group is in use."""
    put(queue, 0, range(3))
    Consumer(queue, "a").ack(0, 1)
    sync(queue, there)
    os.rename(queue, f"{queue}-lost")
    written = []

    def meanwhile() -> None:
        promote(Store.at(there), "q")
        written.append(log_names(there, "groups/g/acks"))

    once_before(monkeypatch, Group, "acknowledge", meanwhile)
    with pytest.raises(partq.ReplicaError, match="already promoted"):
        promote(Store.at(there), "q")
    assert written == [log_names(there, "groups/g/acks")]


def test_what_cannot_be_asked_is_promoted_meanwhile(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: it is removed without force: the fence stays, though there is a number up to which it could be taken back."""
    sync(queue, there)
    store, state = Store.at(queue), queue_state(Store.at(queue), "q")
    os.rename(there, f"{there}-away")
    begins = partial(primaries.fence, store, state, there, state.replica_ids[there])
    once_before(monkeypatch, removals, "open_control", begins)
    with pytest.raises(partq.ReplicaError, match="was promoted and took over from queue 'q'"):
        remove_replica(store, "q", there)
    assert queue_state(store, "q").fenced_by == there
    assert [table(queue, n).fenced for n in range(2)] == [True, True]


def test_a_cancelled_promotion_knows_the_others(two: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: the copy has forgotten the primary's replicas when its promotion dies, and another replica is promoted by force."""
    first, second = two

    def die(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(decide, "finish_promotion", die)
        with pytest.raises(Crash):
            promote(Store.at(first), "q")
    assert queue_state(Store.at(first), "q").replicas == () and state_of(first).others == (second,)
    promote(Store.at(second), "q", force=True)
    with pytest.raises(partq.ReplicaError, match=f"{second}, has taken over"):
        promote(Store.at(first), "q")


def test_a_copy_that_does_not_name_the_other_replica(queue: str, there: str) -> None:
    """S7: the primary was lost before its first replica learned of the second, which tells it."""
    both = there, f"{there}-2"
    for location in both:
        sync(queue, location)
    os.rename(queue, f"{queue}-lost")
    assert queue_state(Store.at(there), "q").replicas == (there,)
    promote(Store.at(both[1]), "q")
    with pytest.raises(partq.ReplicaError, match=f"{both[1]}, has taken over"):
        promote(Store.at(there), "q")


def test_a_replica_that_only_the_primary_knows(queue: str, there: str) -> None:
    """S7: it was made after the last pass; the promotion remembers it, and tells it."""
    both = there, f"{there}-2"
    for location in both:
        sync(queue, location)
    assert queue_state(Store.at(there), "q").replicas == (there,)
    assert promote(Store.at(there), "q").fenced
    assert [state_of(store).others for store in both] == [(both[1],), (there,)]


def test_a_replica_that_cannot_be_reached(two: tuple[str, str]) -> None:
    """S7: it cannot be asked, and holds nobody up."""
    first, second = two
    promote(Store.at(first), "q")
    os.rename(first, f"{first}-away")
    promote(Store.at(second), "q")
    assert replica_role(Store.at(second), "q") == "promoted"


# ---- removals
def test_a_replica_that_is_removed_while_it_is_promoted(
    queue: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S7: of a removal and a promotion one wins; here the removal, after the primary was fenced. The primary is used."""
    put(queue, 0, [0])
    sync(queue, there)
    once_after(monkeypatch, promotions, "_take_over", lambda: remove_replica(Store.at(queue), "q", there))
    for _ in range(2):
        with pytest.raises(partq.ReplicaError, match="was removed"):
            promote(Store.at(there), "q")
    assert replica_role(Store.at(there), "q") == "replica"
    assert queue_state(Store.at(queue), "q").fenced_by is None
    assert put(queue, 0, [1]) == 1


def test_a_removal_before_the_partitions_are_fenced(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: the promotion slept between its fact and the partitions. What it does then fences nothing."""
    sync(queue, there)
    once_before(monkeypatch, primaries, "fence_partitions", lambda: remove_replica(Store.at(queue), "q", there))
    with pytest.raises(partq.ReplicaError):
        promote(Store.at(there), "q")
    assert [table(queue, n).fenced for n in range(2)] == [False, False]
    assert put(queue, 0, [1]) == 0
    sync(queue, there)
    assert promote(Store.at(there), "q").fenced  # a later fence counts
    assert [table(queue, n).fenced for n in range(2)] == [True, True]


def test_a_fence_that_comes_while_the_replica_is_removed(
    queue: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S7: the removal has read that nothing is fenced, and has won; it takes back what came since."""
    sync(queue, there)
    original = ReplicaTable.decide

    def fenced_then(*arguments: Any) -> Any:
        monkeypatch.setattr(ReplicaTable, "decide", original)
        primaries.fence(Store.at(queue), queue_state(Store.at(queue), "q"), there, state_of(there).replica_id)
        return original(*arguments)

    monkeypatch.setattr(ReplicaTable, "decide", fenced_then)
    assert remove_replica(Store.at(queue), "q", there).fenced_by is None
    assert [table(queue, n).fenced for n in range(2)] == [False, False]


def test_what_was_removed_and_followed_again_meanwhile(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: the fence that the promotion had put is gone, so it must begin again."""
    sync(queue, there)

    def again() -> None:
        remove_replica(Store.at(queue), "q", there)
        sync(queue, there)

    once_after(monkeypatch, promotions, "_take_over", again)
    with pytest.raises(partq.ReplicaError, match="was removed while it was being promoted"):
        promote(Store.at(there), "q")
    assert put(queue, 0, [0]) == 0
    assert promote(Store.at(there), "q").fenced


@pytest.mark.parametrize("promoted", [True, False])
def test_a_removal_that_slept_while_another_replica_was_followed_there(
    queue: str, there: str, monkeypatch: pytest.MonkeyPatch, promoted: bool
) -> None:
    """S7: what it goes on with concerns the replica that it gave up, and not the one at the same place."""
    sync(queue, there)

    def again() -> None:
        sync(queue, there)
        if promoted:
            promote(Store.at(there), "q")

    once_before(monkeypatch, removals, "open_control", again)
    state = remove_replica(Store.at(queue), "q", there)
    assert (state.fenced_by, state.replicas) == (there if promoted else None, (there,))
    assert [table(queue, n).fenced for n in range(2)] == [promoted, promoted]
    if not promoted:
        assert promote(Store.at(there), "q").fenced


def test_what_an_older_program_follows_is_known_by_its_id(queue: str, there: str) -> None:
    """S7: from the next time that it is followed, or promoted, on."""
    sync(queue, there)
    control = open_control(Store.at(queue), "q")
    control.commit([QueueFact(Kind.REPLICA_REMOVED, {"location": there})])
    control.commit([QueueFact(Kind.REPLICA_ADDED, {"location": there})])
    assert queue_state(Store.at(queue), "q").replica_ids == {}
    sync(queue, there)
    state = queue_state(Store.at(queue), "q")
    assert state.replica_ids == {there: state_of(there).replica_id} and state.replicas == (there,)


def test_nobody_insists_on_a_second_primary(queue: str, there: str) -> None:
    """S7: a replica that was removed is promoted by force only if its primary is lost."""
    put(queue, 0, [0])
    sync(queue, there)
    remove_replica(Store.at(queue), "q", there)
    with pytest.raises(partq.ReplicaError, match=r"does not know the replica in .* any more, and goes on without it"):
        promote(Store.at(there), "q", force=True)
    assert put(queue, 0, [1]) == 1
    os.rename(queue, f"{queue}-lost")
    with pytest.raises(partq.ReplicaError, match="if that store is lost, pass force to promote"):
        promote(Store.at(there), "q")
    promote(Store.at(there), "q", force=True)
    assert put(there, 0, [2]) == 1


def test_a_primary_that_comes_back_finds_what_took_over(queue: str, there: str) -> None:
    """S7: also one whose other replica is removed at that moment."""
    for location in (there, f"{there}-2"):
        sync(queue, location)
    os.rename(queue, f"{queue}-away")
    promote(Store.at(there), "q")
    os.rename(f"{queue}-away", queue)
    remove_replica(Store.at(queue), "q", f"{there}-2")
    with pytest.raises(partq.ReplicaError, match="took over"):
        remove_replica(Store.at(queue), "q", there)
    with contextlib.suppress(partq.QueueFencedError):
        partq.scale(queue, "q", 3)
    assert queue_state(Store.at(queue), "q").fenced_by == there
