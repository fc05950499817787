"""Which fact may come when in a group, and what it leads to. Replay refuses anything else."""

from __future__ import annotations

from spark_partq.core.group.facts import Kind, PartitionState, Status

_UNKNOWN, _UNASSIGNED, _OWNED, _DRAINING = PartitionState

# How each fact about a partition changes its state.
TRANSITIONS: dict[Kind, tuple[tuple[PartitionState, PartitionState], ...]] = {
    Kind.PARTITION_ADDED: ((_UNKNOWN, _UNASSIGNED),),
    Kind.PARTITION_REMOVED: ((_UNASSIGNED, _UNKNOWN),),
    Kind.GRANTED: (
        (_UNASSIGNED, _OWNED),
        (_OWNED, _OWNED),  # the instance restarted
        (_DRAINING, _OWNED),  # the deadline passed, or the instance restarted
    ),
    Kind.HANDOFF_STARTED: ((_OWNED, _DRAINING), (_DRAINING, _DRAINING)),
    Kind.HANDOFF_CANCELLED: ((_DRAINING, _OWNED),),
    Kind.RELEASED: ((_DRAINING, _UNASSIGNED),),
    Kind.UNASSIGNED: (
        (_OWNED, _UNASSIGNED),
        (_DRAINING, _UNASSIGNED),  # its owner has left, or did not give it up in time for an eager rebalance
        (_UNASSIGNED, _UNASSIGNED),  # the lineage ends, e.g. as its last owner is back without it
    ),
    # What was planned does not count, and the owner begins again at the position, e.g. as its messages were
    # delivered too often.
    Kind.ISOLATED: ((_OWNED, _OWNED), (_DRAINING, _DRAINING)),
    Kind.SKIPPED: ((_OWNED, _OWNED),),  # its owner goes on behind messages that are not delivered
    Kind.FLOOR: tuple((state, state) for state in (_UNASSIGNED, _OWNED, _DRAINING)),
    Kind.POSITION_RESET: ((_UNASSIGNED, _UNASSIGNED),),
}
STATUS_TRANSITIONS: tuple[tuple[Status, Status], ...] = (
    (Status.READY, Status.HOLDDOWN),  # a consumer came or went
    (Status.READY, Status.REBALANCING),  # the partitions changed, or the group was empty
    (Status.HOLDDOWN, Status.READY),  # the number of flows is the same as before
    (Status.HOLDDOWN, Status.REBALANCING),  # the rebalance delay is over
    (Status.REBALANCING, Status.HOLDDOWN),  # a consumer came or went meanwhile
    (Status.REBALANCING, Status.REBALANCING),  # the same, without a delay
    (Status.REBALANCING, Status.READY),  # balanced, and every handoff has ended
)
