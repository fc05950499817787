"""What the table beside a queue's copies says of the replica that the queue is: the kinds of facts and their bodies (S7)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """What a queue in this store is to its primary."""

    UNKNOWN = "Unknown"  # no replica
    FOLLOWING = "Following"  # passes bring it up to date
    REMOVED = "Removed"  # its primary has given it up; what is there stays
    PROMOTING = "Promoting"  # it is taking over, and no pass begins any more
    PROMOTED = "Promoted"  # it is the queue that is used


class Kind(StrEnum):
    """Of a fact; behind each what its body has."""

    REPLICA_OF = "ReplicaOf"  # replica_id, primary, location, queue_id, and the format
    OTHER_REPLICA = "OtherReplica"  # location; of another replica, which is being promoted
    JUMPING = "Jumping"  # folder, version; the copy of that table is about to skip to that version
    REMOVED = "Removed"
    # incarnation: of the queue, once it is promoted; others: locations of other replicas, which are asked. Nothing is copied any more
    PROMOTING = "Promoting"
    PROMOTION_CANCELLED = "PromotionCancelled"  # another replica takes over, or is being promoted at the same time
    PROMOTED = "Promoted"
    FORMAT_RAISED = "FormatRaised"  # the format; older programs may not read it, or not write it, from here on


@dataclass(frozen=True)
class ReplicaFact:
    """One row of a replica's table."""

    kind: str
    body: dict[str, Any]
