"""What must hold for a replica, whatever happens to it: checked on every commit of its table.

The rules are written a second time here, in a different way than in the code that keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_partq.core.invariants import must_hold
from spark_partq.core.replica.facts import Kind, Phase, ReplicaFact
from spark_partq.core.replica.state import ReplicaState, replay

# A replica never goes back to an earlier phase of these, except that a removed replica may follow again, and a
# promotion may be cancelled.
_ORDER = (Phase.FOLLOWING, Phase.REMOVED, Phase.PROMOTING, Phase.PROMOTED)


def check(before: ReplicaState | None, after: ReplicaState, facts: Sequence[ReplicaFact]) -> None:
    """Check that the decided facts may lead from `before` to `after`.

    Raises
    ------
    InvariantError
        With the first rule that is broken.
    """
    state = before
    for fact in facts:
        taking_over = state is not None and state.takes_over
        ends = fact.kind in (Kind.PROMOTED, Kind.PROMOTION_CANCELLED, Kind.OTHER_REPLICA)
        must_hold(not taking_over or ends, f"S7: {fact.kind} although it takes over")
        state = replay(after.queue, [fact], state)
    must_hold(state == after, "the state after the commit is not what its facts say")
    check_state(after)
    if before is not None:
        _check_progress(before, after)


def check_state(state: ReplicaState) -> None:
    """Check one state of a replica.

    Raises
    ------
    InvariantError
        With the first rule that is broken.
    """
    must_hold(state.primary != state.location, f"S7: {state.location} follows itself")
    must_hold(len(set(state.others)) == len(state.others), "S7: another replica is known twice")


def _check_progress(before: ReplicaState, after: ReplicaState) -> None:
    must_hold(before.queue_id == after.queue_id, f"S7: it followed {before.queue_id}, and now {after.queue_id}")
    forgotten = [folder for folder, version in before.jumps.items() if after.jumps.get(folder, -1) < version]
    must_hold(not forgotten, f"S7: jumps of {forgotten} that were announced are forgotten")
    again = before.phase is Phase.REMOVED and after.phase is Phase.FOLLOWING
    onwards = _ORDER.index(after.phase) >= _ORDER.index(before.phase)
    cancelled = before.phase is Phase.PROMOTING and after.phase is not Phase.PROMOTED
    must_hold(onwards or again or cancelled, f"S7: it went from {before.phase} back to {after.phase}")
    must_hold(set(before.others) <= set(after.others), "S7: another replica is forgotten")
    began = after.phase is Phase.PROMOTING and before.phase is not Phase.PROMOTING
    other_life = before.incarnation != after.incarnation
    must_hold(other_life == began, "S7: it has another incarnation exactly when a promotion begins")
    new_id = before.replica_id != after.replica_id
    must_hold(new_id == again, "S7: it has another id exactly when it is followed once more")
