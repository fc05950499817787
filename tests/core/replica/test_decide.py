"""Decisions about a replica, in every order: replay refuses no fact, no invariant is broken, and no transition is left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from spark_partq.core import format
from spark_partq.core.errors import ReplicaError
from spark_partq.core.invariants import InvariantError
from spark_partq.core.replica import decide, invariants
from spark_partq.core.replica.decide import Facts
from spark_partq.core.replica.facts import Kind, Phase, ReplicaFact
from spark_partq.core.replica.invariants import check, check_state
from spark_partq.core.replica.state import TRANSITIONS, ReplicaState, after, replay

JUMP = "queues/q/control", 7


def follow(state: ReplicaState | None, facts: Facts) -> ReplicaState:
    """The state after these facts, as they are read back; no invariant is broken."""
    stored = [ReplicaFact(str(fact.kind), json.loads(json.dumps(fact.body))) for fact in facts]
    found = replay("q", stored, state)
    assert found is not None
    check(state, found, facts)
    return found


def following() -> ReplicaState:
    return follow(None, decide.follow(None, "r1", "/primary", "/standby", "id"))


def removed() -> ReplicaState:
    return follow(following(), decide.remove(following(), "id"))


def begin(state: ReplicaState, incarnation: str = "second", force: bool = False) -> Facts:
    return decide.start_promotion(state, state, incarnation, ["/other"], force)


def promoting() -> ReplicaState:
    return follow(following(), begin(following()))


def promoted() -> ReplicaState:
    return follow(promoting(), decide.finish_promotion(promoting(), promoting()))


STATES: dict[str, Callable[[], ReplicaState | None]] = {
    "unknown": lambda: None,
    "following": following,
    "removed": removed,
    "promoting": promoting,
    "promoted": promoted,
}


# ---- one decision
def test_a_replica_is_followed_once() -> None:
    """S7: of two that make it one does; once it was removed it can be followed again, as another one."""
    state = following()
    assert (state.phase, state.queue, state.primary, state.location) == (Phase.FOLLOWING, "q", "/primary", "/standby")
    assert decide.follow(state, "r2", "/primary", "/standby", "id") == ()
    again = follow(removed(), decide.follow(removed(), "r2", "/primary", "/standby", "id"))
    assert (again.phase, again.replica_id) == (Phase.FOLLOWING, "r2")


@pytest.mark.parametrize("state", [following, removed])
def test_a_replica_follows_one_queue(state: Callable[[], ReplicaState]) -> None:
    """S7: one that was created again under the same name, or that of another store, finds the place taken."""
    with pytest.raises(ReplicaError, match=r"/standby holds the replica of another queue 'q' \(of /primary"):
        decide.follow(state(), "r2", "/other", "/standby", "another")
    assert decide.remove(state(), "another") == ()


def test_a_promotion_that_is_given_up_by_force() -> None:
    """S7: it is cancelled, and the replica removed; one that has ended stays."""
    given_up = decide.remove(promoting(), "id", force=True)
    assert [fact.kind for fact in given_up] == [Kind.PROMOTION_CANCELLED, Kind.REMOVED]
    left = follow(promoting(), given_up)
    assert left.removed and decide.remove(left, "id", force=True) == ()
    with pytest.raises(ReplicaError, match="use that store"):
        decide.remove(promoted(), "id", force=True)


@pytest.mark.parametrize("state", [promoting, promoted])
def test_nothing_is_copied_to_what_takes_over(state: Callable[[], ReplicaState]) -> None:
    """S7: no pass begins, no jump is announced, and its primary cannot give it up."""
    with pytest.raises(ReplicaError, match="was promoted; nothing is copied there any more"):
        decide.follow(state(), "r2", "/primary", "/standby", "id")
    with pytest.raises(ReplicaError, match="nothing is copied"):
        decide.announce_jump(state(), *JUMP)
    with pytest.raises(
        ReplicaError, match=r"took over from queue 'q'; use that store|pass force to cancel its promotion"
    ):
        decide.remove(state(), "id")


def test_a_jump_that_was_announced_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the replay forgot it."""
    state, forgetful = follow(following(), decide.announce_jump(following(), *JUMP)), following()
    monkeypatch.setattr(invariants, "replay", lambda *_: forgetful)
    with pytest.raises(InvariantError, match=r"jumps of \['queues/q/control'\] that were announced are forgotten"):
        check(state, forgetful, [ReplicaFact("FormatRaised", {})])


def test_who_follows_again_keeps_what_it_knows() -> None:
    """Of its format, too, which may be above that of who wrote the fact."""
    raised = ReplicaFact(
        Kind.FORMAT_RAISED, {"min_reader": 1, "min_writer": 1, "features": [], "made_by": "spark_partq 9"}
    )
    cancelled = follow(promoting(), decide.cancel_promotion(promoting(), "second"))
    known = after("q", follow(cancelled, decide.remove(cancelled, "id")), raised)
    assert known.incarnation == "second"
    again = follow(known, decide.follow(known, "r", "/primary", "/here", "id"))
    assert (again.format, again.jumps, again.others, again.incarnation) == (
        known.format, known.jumps, known.others, known.incarnation,
    )  # fmt: skip


def test_a_jump_is_announced_once() -> None:
    """S7: also by a pass that was under way when the replica was removed."""
    for state in (following(), removed()):
        jumped = follow(state, decide.announce_jump(state, *JUMP))
        assert jumped.jumps == dict([JUMP]) and decide.announce_jump(jumped, *JUMP) == ()
        assert decide.announce_jump(jumped, "queues/q/control", 6) == ()
        assert decide.announce_jump(jumped, "queues/q/control", 8)
    again = follow(removed(), decide.announce_jump(removed(), *JUMP))
    assert follow(again, decide.follow(again, "r2", "/primary", "/standby", "id")).jumps == dict([JUMP])


def test_of_the_jumps_of_a_table_the_highest_is_needed() -> None:
    """S7: the state keeps no more, in whatever order they were announced, and neither need the table."""
    others = [*decide.follow(None, "r1", "/primary", "/standby", "id"), ReplicaFact("FormatRaised", FORMAT)]
    jumps = [ReplicaFact(Kind.JUMPING, {"folder": f, "version": n}) for n in (7, 9, 8) for f in ("acks", "control")]
    state = replay("q", [*others, *jumps])
    assert state is not None and state.jumps == {"acks": 9, "control": 9}
    assert [fact for fact in (*others, *jumps) if decide.still_needed(state, fact)] == [*others, *jumps[2:4]]


def test_a_promotion_goes_on_where_it_was_interrupted() -> None:
    """S7."""
    assert begin(promoting(), "third") == ()
    assert (promoting().incarnation, promoting().others) == ("second", ("/other",))
    for decision in (begin, lambda state: decide.finish_promotion(state, state)):
        with pytest.raises(ReplicaError, match="the replica of queue 'q' in /standby is already promoted; use it"):
            decision(promoted())


def test_a_promotion_is_cancelled() -> None:
    """S7: it can be promoted again, under another incarnation; who slept meanwhile does not finish the promotion of somebody else."""
    assert decide.cancel_promotion(promoting(), "another") == decide.cancel_promotion(promoted(), "second") == ()
    for before, force in ((following(), False), (removed(), True)):
        begun = follow(before, begin(before, force=force))
        cancelled = follow(begun, decide.cancel_promotion(begun, "second"))
        assert cancelled.phase is before.phase and cancelled.others == ("/other",)
        again = follow(cancelled, begin(cancelled, "third", force))
        for late in (cancelled, again, None):
            with pytest.raises(ReplicaError, match="was cancelled, as another replica was being promoted"):
                decide.finish_promotion(late, begun)
        assert follow(again, decide.finish_promotion(again, again)).incarnation == "third"


def test_another_replica_is_known_once() -> None:
    """S7: in any phase; but not one of another queue, or itself."""
    other = replace(following(), location="/other")
    for state in (following(), removed(), promoted()):
        before = replace(state, others=())
        known = replay("q", decide.know(before, other), before)
        assert known is not None and known.others == ("/other",) and decide.know(known, other) == ()
    assert decide.know(following(), following()) == decide.know(None, other) == ()
    assert decide.know(following(), replace(other, queue_id="another")) == ()


def test_a_replica_that_is_removed_meanwhile_is_not_promoted() -> None:
    """S7: whoever promotes saw it followed, and fenced its primary; then it was removed, and perhaps is followed once more."""
    again = follow(removed(), decide.follow(removed(), "r2", "/primary", "/standby", "id"))
    for now in (removed(), again, None):
        for force in (True, False):
            with pytest.raises(
                ReplicaError, match="was removed while it was being promoted: its primary /primary goes on"
            ):
                decide.start_promotion(now, following(), "second", [], force)


def test_what_was_removed_is_promoted_only_if_that_is_forced() -> None:
    """S7: once that has begun, it is gone on with."""
    with pytest.raises(
        ReplicaError, match=r"was removed as a replica of /primary.*if that store is lost, pass force to promote"
    ):
        begin(removed())
    forced = follow(removed(), begin(removed(), force=True))
    assert forced.phase is Phase.PROMOTING
    decide.check_can_be_promoted(forced, force=False)


# ---- all of them
def decisions(state: ReplicaState | None) -> Iterator[Callable[[], Facts]]:
    for queue_id in ("id", "another"):
        yield partial(decide.follow, state, f"r{1 if state is None else 2}", "/primary", "/standby", queue_id)
        yield partial(decide.remove, state, queue_id)
    for version in (7, 8):
        yield partial(decide.announce_jump, state, "queues/q/control", version)
    if state is None:
        return
    for force in (True, False):
        yield partial(begin, state, f"after {state.incarnation[:5]}", force)
    yield partial(decide.cancel_promotion, state, state.incarnation)
    for location in ("/other", "/third", "/standby"):
        yield partial(decide.know, state, replace(state, location=location))
    yield partial(decide.finish_promotion, state, state)


def test_every_order_of_decisions() -> None:
    """S7: all states that there are. Every arrow of the diagram is gone along, and no other."""
    seen: set[ReplicaState | None] = {None}
    arrows: set[Any] = set()
    layer: list[ReplicaState | None] = [None]
    while layer:
        state = layer.pop()
        for decision in decisions(state):
            try:
                facts = decision()
            except ReplicaError:
                continue
            if not facts:
                continue
            after = follow(state, facts)
            arrows |= {(fact.kind, Phase.UNKNOWN if state is None else state.phase, after.phase) for fact in facts}
            shape = replace(after, replica_id="", incarnation="")
            if shape not in seen:
                seen.add(shape)
                layer.append(after)
    late = {(Kind.JUMPING, phase, phase) for phase in (Phase.PROMOTING, Phase.PROMOTED)}  # nobody decides it any more
    # A later release raises the format, when it is told to.
    assert arrows | late == {
        (k, *pair) for k, pairs in TRANSITIONS.items() for pair in pairs if k is not Kind.FORMAT_RAISED
    }
    assert len(seen) > 15


# ---- what cannot be
FORMAT = format.of_new_tables().body()
FACTS: dict[str, dict[str, Any]] = {
    "ReplicaOf": {"replica_id": "r2", "primary": "/primary", "location": "/standby", "queue_id": "id", **FORMAT},
    "Jumping": {"folder": JUMP[0], "version": JUMP[1]},
    "Removed": {},
    "OtherReplica": {"location": "/third"},
    "Promoting": {"incarnation": "second", "others": []},
    "PromotionCancelled": {},
    "Promoted": {},
    "FormatRaised": FORMAT,
    "Nonsense": {},
}
ALLOWED = {
    "unknown": {"ReplicaOf"},
    "following": {"OtherReplica", "Jumping", "Removed", "Promoting", "FormatRaised"},
    "removed": {"OtherReplica", "ReplicaOf", "Jumping", "Promoting", "FormatRaised"},
    "promoting": {"OtherReplica", "Jumping", "PromotionCancelled", "Promoted", "FormatRaised"},
    "promoted": {"OtherReplica", "Jumping", "FormatRaised"},
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("kind", FACTS)
def test_where_a_fact_may_stand(kind: str, name: str) -> None:
    fact = ReplicaFact(kind, FACTS[kind])
    if kind in ALLOWED[name]:
        assert replay("q", [fact], STATES[name]())
    else:
        with pytest.raises(ValueError):
            replay("q", [fact], STATES[name]())


def test_bodies_that_cannot_be() -> None:
    assert replay("q", []) is None
    with pytest.raises(ValueError, match="another queue than before"):
        replay("q", [ReplicaFact("ReplicaOf", {**FACTS["ReplicaOf"], "queue_id": "another"})], removed())
    with pytest.raises(KeyError):
        replay("q", [ReplicaFact("ReplicaOf", {})])


@pytest.mark.parametrize(
    ("why", "state"),
    [
        ("follows itself", lambda: replace(following(), location="/primary")),
        ("another replica is known twice", lambda: replace(following(), others=("/other", "/other"))),
    ],
)
def test_a_state_that_must_not_be(why: str, state: Callable[[], ReplicaState]) -> None:
    with pytest.raises(InvariantError, match=why):
        check_state(state())


@pytest.mark.parametrize(
    ("why", "before", "after", "facts"),
    [
        ("Jumping although it takes over", promoting, promoting, [ReplicaFact("Jumping", FACTS["Jumping"])]),
        ("not what its facts say", following, removed, []),
        ("another id", removed, lambda: replace(following(), replica_id="r1"), [
            ReplicaFact("ReplicaOf", {**FACTS["ReplicaOf"], "replica_id": "r1"})
        ]),
    ],
)  # fmt: skip
def test_a_step_that_must_not_be(
    why: str, before: Callable[[], ReplicaState], after: Callable[[], ReplicaState], facts: Sequence[ReplicaFact]
) -> None:
    with pytest.raises(InvariantError, match=why):
        check(before(), after(), facts)
