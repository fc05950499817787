"""Which fact may come when in the life of a queue, and to which phase it leads. The documents show it as a diagram."""

from __future__ import annotations

from spark_partq.core.queue.facts import Kind, Phase, Status

# In which phase each fact may come, and to which phase it leads. Anything else is refused on replay.
_USABLE = (Phase.STABLE, Phase.SCALING, Phase.DRAINING, Phase.DRAINED, Phase.REBALANCING)
_IN_ANY_USABLE_PHASE = tuple((phase, phase) for phase in _USABLE)
_UNLESS_DRAINING = ((Phase.STABLE, Phase.STABLE), (Phase.SCALING, Phase.SCALING))  # draining sets ingress itself
TRANSITIONS: dict[Kind, tuple[tuple[Phase, Phase], ...]] = {
    Kind.QUEUE_CREATED: ((Phase.UNKNOWN, Phase.CREATING),),
    Kind.PARTITIONS_CREATED: ((Phase.CREATING, Phase.STABLE),),
    Kind.SCALING_STARTED: (
        (Phase.STABLE, Phase.SCALING),  # modes live and delete
        (Phase.STABLE, Phase.DRAINING),  # mode drain
    ),
    Kind.QUEUE_DRAINED: ((Phase.DRAINING, Phase.DRAINED),),
    Kind.SCALING_CANCELLED: ((Phase.DRAINING, Phase.STABLE),),
    Kind.GENERATION_OPENED: ((Phase.SCALING, Phase.STABLE), (Phase.DRAINED, Phase.REBALANCING)),
    Kind.SCALING_ENDED: ((Phase.REBALANCING, Phase.STABLE),),
    Kind.PARTITIONS_REMOVED: _IN_ANY_USABLE_PHASE,
    Kind.INGRESS_DISABLED: _UNLESS_DRAINING,
    Kind.INGRESS_ENABLED: _UNLESS_DRAINING,
    Kind.STUCK_COPY_STARTED: _IN_ANY_USABLE_PHASE,
    Kind.STUCK_COPIED: _IN_ANY_USABLE_PHASE,
    Kind.GROUP_ATTACHED: _IN_ANY_USABLE_PHASE,
    Kind.GROUP_DETACHED: _IN_ANY_USABLE_PHASE,
    Kind.GROUP_RESETTING: _IN_ANY_USABLE_PHASE,
    Kind.REPLICA_ADDED: _IN_ANY_USABLE_PHASE,
    Kind.REPLICA_REMOVED: _IN_ANY_USABLE_PHASE,
    Kind.QUEUE_FENCED: _IN_ANY_USABLE_PHASE,
    Kind.PROMOTED: _IN_ANY_USABLE_PHASE,
    Kind.QUEUE_ALTERED: _IN_ANY_USABLE_PHASE,
    Kind.COLUMNS_ADDED: _IN_ANY_USABLE_PHASE,
    Kind.MESSAGES_DELETED: _IN_ANY_USABLE_PHASE,
    Kind.FORMAT_RAISED: _IN_ANY_USABLE_PHASE,
    Kind.QUEUE_DELETED: tuple((phase, Phase.DELETED) for phase in Phase if phase is not Phase.UNKNOWN),
}
# Which facts change the status that users see (S8). The status follows from the state; `core.queue.invariants` checks
# that both agree.
STATUS_TRANSITIONS: dict[Kind, tuple[tuple[Status, Status], ...]] = {
    Kind.QUEUE_CREATED: ((Status.UNKNOWN, Status.SCALING_UP),),
    Kind.PARTITIONS_CREATED: ((Status.SCALING_UP, Status.READY),),
    Kind.SCALING_STARTED: (
        (Status.READY, Status.SCALING_UP),
        (Status.READY, Status.SCALING_DOWN),
        (Status.SCALING_DOWN, Status.SCALING_UP),  # partitions are added while others are still removed
    ),
    Kind.SCALING_CANCELLED: (
        (Status.SCALING_UP, Status.READY),
        (Status.SCALING_UP, Status.SCALING_DOWN),
        (Status.SCALING_DOWN, Status.READY),
    ),
    Kind.GENERATION_OPENED: (
        (Status.SCALING_UP, Status.READY),
        (Status.SCALING_UP, Status.SCALING_DOWN),  # others are still to be removed
    ),
    Kind.PARTITIONS_REMOVED: ((Status.SCALING_DOWN, Status.READY),),
    Kind.QUEUE_DELETED: tuple(
        (status, Status.DELETING) for status in (Status.SCALING_UP, Status.SCALING_DOWN, Status.READY)
    ),
}
