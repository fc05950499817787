"""State of a replica, replayed from the facts of its table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_partq.core import format, stored
from spark_partq.core.format import Format
from spark_partq.core.replica.facts import Kind, Phase, ReplicaFact

# In which phase each fact may come, and to which phase it leads. Anything else is refused on replay.
TRANSITIONS: dict[Kind, tuple[tuple[Phase, Phase], ...]] = {
    Kind.REPLICA_OF: (
        (Phase.UNKNOWN, Phase.FOLLOWING),
        (Phase.REMOVED, Phase.FOLLOWING),  # it follows once more
    ),
    # A pass that is under way goes on while the replica is removed. A pass that slept during a promotion may announce a jump,
    # but then finds that it must not make it.
    Kind.JUMPING: tuple((phase, phase) for phase in Phase if phase is not Phase.UNKNOWN),
    Kind.OTHER_REPLICA: tuple((phase, phase) for phase in Phase if phase is not Phase.UNKNOWN),
    Kind.REMOVED: ((Phase.FOLLOWING, Phase.REMOVED),),
    Kind.PROMOTING: (
        (Phase.FOLLOWING, Phase.PROMOTING),
        (Phase.REMOVED, Phase.PROMOTING),  # only if that is forced
    ),
    Kind.PROMOTION_CANCELLED: (  # it is again what it was
        (Phase.PROMOTING, Phase.FOLLOWING),
        (Phase.PROMOTING, Phase.REMOVED),
    ),
    Kind.PROMOTED: ((Phase.PROMOTING, Phase.PROMOTED),),
    Kind.FORMAT_RAISED: tuple((phase, phase) for phase in Phase if phase is not Phase.UNKNOWN),
}


@dataclass(frozen=True)
class ReplicaState:
    """What a replica is.

    Attributes
    ----------
    queue : str
        Name of the queue, here as at its primary.
    replica_id : str
        UUID; a replica that was removed and follows once more has another one.
    primary, location : str
        URIs of both stores.
    queue_id : str
        Of the queue that it follows.
    jumps : dict
        By the folder of a table, the highest version to which a jump of its copy was announced.
    incarnation : str
        UUID of the queue's incarnation here, once it is promoted. Each promotion has another one. Empty before the first
        promotion began.
    others : tuple of str
        Locations of other replicas of the primary: those that were known when a promotion began, and those that are being
        promoted since.
    was_removed : bool
        Its promotion was forced, although the primary had removed it.
    """

    queue: str
    replica_id: str
    primary: str
    location: str
    queue_id: str
    jumps: Mapping[str, int] = field(default_factory=dict, hash=False)
    phase: Phase = Phase.FOLLOWING
    incarnation: str = ""
    others: tuple[str, ...] = ()
    was_removed: bool = False
    format: Format = field(default_factory=format.of_new_tables)

    @property
    def removed(self) -> bool:
        return self.phase is Phase.REMOVED

    @property
    def promoted(self) -> bool:
        return self.phase is Phase.PROMOTED

    @property
    def takes_over(self) -> bool:
        """Whether the replica was promoted, or is being promoted: no pass may copy anything any more."""
        return self.phase in (Phase.PROMOTING, Phase.PROMOTED)


def replay(queue: str, facts: Iterable[ReplicaFact], state: ReplicaState | None = None) -> ReplicaState | None:
    """The state after these facts, which follow `state` or begin the replica; None if there are none.

    Raises
    ------
    ValueError
        If one of the facts cannot follow.
    """
    for fact in facts:
        state = after(queue, state, fact)
    return state


def after(queue: str, state: ReplicaState | None, fact: ReplicaFact) -> ReplicaState:
    """The state after one more fact.

    Raises
    ------
    ValueError
        If the fact cannot follow.
    """
    kind, before = stored.one_of(Kind, fact.kind, "kind"), Phase.UNKNOWN if state is None else state.phase
    phases = [phase for earlier, phase in TRANSITIONS[kind] if earlier is before]
    if not phases:
        raise ValueError(f"kind {kind} cannot follow {before}")
    if kind is Kind.REPLICA_OF:
        return _following(queue, state, fact.body)
    if state is None:
        raise ValueError(f"kind {kind} cannot follow nothing")
    if kind is Kind.JUMPING:
        folder, version = stored.text(fact.body["folder"], "folder"), stored.whole(fact.body["version"], "version")
        return replace(state, jumps={**state.jumps, folder: max(version, state.jumps.get(folder, version))})
    if kind is Kind.FORMAT_RAISED:
        return replace(state, format=state.format.raised(fact.body))
    if kind is Kind.OTHER_REPLICA:
        return replace(state, others=(*state.others, stored.text(fact.body["location"], "location")))
    if kind is Kind.PROMOTING:
        incarnation, others = (
            stored.text(fact.body["incarnation"], "incarnation"),
            stored.texts(fact.body["others"], "others"),
        )
        known = (*state.others, *(location for location in others if location not in state.others))
        was_removed = before is Phase.REMOVED
        return replace(state, phase=Phase.PROMOTING, incarnation=incarnation, others=known, was_removed=was_removed)
    if kind is Kind.PROMOTION_CANCELLED:
        return replace(state, phase=Phase.REMOVED if state.was_removed else Phase.FOLLOWING)
    return replace(state, phase=phases[0])


def _following(queue: str, state: ReplicaState | None, body: dict[str, Any]) -> ReplicaState:
    replica_id, primary, location, queue_id = (
        stored.text(body[name], name) for name in ("replica_id", "primary", "location", "queue_id")
    )
    following = ReplicaState(queue, replica_id, primary, location, queue_id, format=format.parse(body))
    if state is None:
        return following
    if state.queue_id != following.queue_id:
        raise ValueError("queue_id: it follows another queue than before")
    return replace(
        following, jumps=state.jumps, format=state.format, incarnation=state.incarnation, others=state.others
    )
