"""The facts in the table of a replica, which lies beside the copies of the queue's tables: their kinds and their bodies (S7)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """The phase of a replica: what a queue in this store is to its primary."""

    UNKNOWN = "Unknown"  # no replica
    FOLLOWING = "Following"  # passes bring it up to date
    REMOVED = "Removed"  # its primary has given it up; its files stay
    PROMOTING = "Promoting"  # it is taking over, and no pass begins any more
    PROMOTED = "Promoted"  # it is now the queue that is used


class Kind(StrEnum):
    """Kind of a fact. The comment behind each says what its body has."""

    REPLICA_OF = "ReplicaOf"  # replica_id, primary, location, queue_id, and the format
    OTHER_REPLICA = "OtherReplica"  # location of another replica, which is being promoted
    JUMPING = "Jumping"  # folder, version; the copy of that table is about to skip to that version
    REMOVED = "Removed"
    # incarnation: of the queue once it is promoted; others: locations of other replicas, which are asked. Nothing is copied
    # any more
    PROMOTING = "Promoting"
    PROMOTION_CANCELLED = "PromotionCancelled"  # another replica takes over, or is being promoted at the same time
    PROMOTED = "Promoted"
    FORMAT_RAISED = "FormatRaised"  # the format; from here on older programs may not read the replica, or not write it


@dataclass(frozen=True)
class ReplicaFact:
    """One row of a replica's table."""

    kind: str
    body: dict[str, Any]
