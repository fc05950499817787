"""What the control table of a queue says: the kinds of facts and their bodies, and the status and phases of a queue."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Mode = Literal["live", "drain", "delete"]
MODES: tuple[Mode, ...] = ("live", "drain", "delete")


class Status(StrEnum):
    """Status of a queue, as users see it (S8)."""

    UNKNOWN = "Unknown"  # there is no queue
    SCALING_UP = "ScalingUp"
    SCALING_DOWN = "ScalingDown"
    READY = "Ready"
    DELETING = "Deleting"


class Phase(StrEnum):
    """How far the creation of a queue, or a change of its partition count, has come."""

    UNKNOWN = "Unknown"  # there is no queue
    CREATING = "Creating"  # the tables of the first map are being made
    STABLE = "Stable"  # no change is under way. Partitions that an earlier one left may still be draining
    DRAINING = "Draining"  # mode drain: ingress is disabled until every group has acknowledged everything
    DRAINED = "Drained"  # mode drain: the tables are being sealed
    SCALING = "Scaling"  # modes live and delete: the tables are being sealed
    REBALANCING = (
        "Rebalancing"  # mode drain: the new map is in force, and ingress disabled until the groups have rebalanced
    )
    DELETED = "Deleted"  # what remains of the queue is being removed


class Kind(StrEnum):
    """Kind of a fact. The comment behind each says what its body has."""

    QUEUE_CREATED = "QueueCreated"  # queue_id, schema, key, partitions, settings, and the format
    PARTITIONS_CREATED = "PartitionsCreated"  # partitions; all tables of the first map exist
    SCALING_STARTED = "ScalingStarted"  # partitions, mode; with mode delete also confirmed. Mode drain ends ingress
    QUEUE_DRAINED = "QueueDrained"  # mode drain: everything was acknowledged, and the count may change
    SCALING_CANCELLED = "ScalingCancelled"  # mode drain: the change was taken back before it had drained
    GENERATION_OPENED = "GenerationOpened"  # partitions, cuts; the next map is in force
    PARTITIONS_REMOVED = "PartitionsRemoved"  # ends, lost; partitions that left the map were drained, or lost
    SCALING_ENDED = "ScalingEnded"  # mode drain: ingress is as it was before
    INGRESS_DISABLED = "IngressDisabled"
    INGRESS_ENABLED = "IngressEnabled"
    STUCK_COPY_STARTED = (
        "StuckCopyStarted"  # start; the parent's messages from here on are being copied into the partitions
    )
    STUCK_COPIED = (
        "StuckCopied"  # end; the parent's messages below are in the partitions, or no group wants them any more
    )
    GROUP_ATTACHED = "GroupAttached"  # group, deletions; messages that it has not acknowledged are kept from now on
    GROUP_DETACHED = "GroupDetached"  # group, deletions; it was deleted
    GROUP_RESETTING = "GroupResetting"  # group, number; its positions are about to be set, for the 1st, 2nd, 3rd… time
    REPLICA_ADDED = "ReplicaAdded"  # location, replica_id
    REPLICA_REMOVED = "ReplicaRemoved"  # location
    QUEUE_FENCED = "QueueFenced"  # location of the replica that took over; null takes the fence back
    PROMOTED = "Promoted"  # incarnation, ends; the queue was a replica here, and took over
    QUEUE_ALTERED = "QueueAltered"  # settings, those that changed; with a lowered vacuum_grace_ms also grace_until_ms, until when the former one counts
    COLUMNS_ADDED = "ColumnsAdded"  # columns, in Spark's JSON form; messages from before have null there
    MESSAGES_DELETED = "MessagesDeleted"  # messages; this many of a key were deleted, and their offsets stay unused
    FORMAT_RAISED = "FormatRaised"  # the format; from here on older programs may not read the queue, or not write it
    QUEUE_DELETED = "QueueDeleted"  # what remains of the queue is being removed


@dataclass(frozen=True)
class QueueFact:
    """One row of a queue's control table."""

    kind: str
    body: dict[str, Any]
