"""What the control table of a queue says: the kinds of facts and their bodies, and the conditions of a queue."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Mode = Literal["live", "drain", "delete"]
MODES: tuple[Mode, ...] = ("live", "drain", "delete")


class Status(StrEnum):
    """Of a queue, as users see it (S8)."""

    UNKNOWN = "Unknown"  # there is no queue
    SCALING_UP = "ScalingUp"
    SCALING_DOWN = "ScalingDown"
    READY = "Ready"
    DELETING = "Deleting"


class Phase(StrEnum):
    """How far the creation of a queue, or a change of its partition count, has come."""

    UNKNOWN = "Unknown"  # there is no queue
    CREATING = "Creating"  # the tables of the first map are being made
    STABLE = "Stable"  # no change is under way. What an earlier one left to be drained may still be there
    DRAINING = "Draining"  # mode drain: ingress is disabled until every group has acknowledged everything
    DRAINED = "Drained"  # mode drain: the tables are being sealed
    SCALING = "Scaling"  # modes live and delete: the tables are being sealed
    REBALANCING = (
        "Rebalancing"  # mode drain: the new map is in force, and ingress disabled until the groups have rebalanced
    )
    DELETED = "Deleted"  # what remains of the queue is being removed


class Kind(StrEnum):
    """Of a fact; behind each what its body has."""

    QUEUE_CREATED = "QueueCreated"  # queue_id, schema, key, partitions, settings, and the format
    PARTITIONS_CREATED = "PartitionsCreated"  # partitions; all tables of the first map exist
    SCALING_STARTED = "ScalingStarted"  # partitions, mode; with mode delete also confirmed. Mode drain ends ingress
    QUEUE_DRAINED = "QueueDrained"  # of mode drain: everything was acknowledged, and the count may change
    SCALING_CANCELLED = "ScalingCancelled"  # of mode drain, before it has drained
    GENERATION_OPENED = "GenerationOpened"  # partitions, cuts; the next map is in force
    PARTITIONS_REMOVED = "PartitionsRemoved"  # ends, lost; what the map no longer names is drained, or lost
    SCALING_ENDED = "ScalingEnded"  # of mode drain: ingress is what it was before
    INGRESS_DISABLED = "IngressDisabled"
    INGRESS_ENABLED = "IngressEnabled"
    STUCK_COPY_STARTED = (
        "StuckCopyStarted"  # start; the parent's messages from here on are being copied into the partitions
    )
    STUCK_COPIED = (
        "StuckCopied"  # end; the parent's messages below are in the partitions, or nobody wants them any more
    )
    GROUP_ATTACHED = "GroupAttached"  # group, deletions; what it has not acknowledged is kept from now on
    GROUP_DETACHED = "GroupDetached"  # group, deletions; it was deleted
    GROUP_RESETTING = "GroupResetting"  # group, number; its positions are about to be set: that is reset 1, 2, 3…
    REPLICA_ADDED = "ReplicaAdded"  # location, replica_id
    REPLICA_REMOVED = "ReplicaRemoved"  # location
    QUEUE_FENCED = "QueueFenced"  # location of the replica that took over; null takes that back
    PROMOTED = "Promoted"  # incarnation, ends; the replica that the queue here was took over
    QUEUE_ALTERED = "QueueAltered"  # settings, those that changed; with a lowered vacuum_grace_ms grace_until_ms, as long as the former one counts
    COLUMNS_ADDED = "ColumnsAdded"  # columns, in Spark's JSON form; messages from before have null there
    MESSAGES_DELETED = "MessagesDeleted"  # messages; so many of a key were deleted, and their offsets are left free
    FORMAT_RAISED = "FormatRaised"  # the format; older programs may not read it, or not write it, from here on
    QUEUE_DELETED = "QueueDeleted"  # what remains of the queue is being removed


@dataclass(frozen=True)
class QueueFact:
    """One row of a queue's control table."""

    kind: str
    body: dict[str, Any]
