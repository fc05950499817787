"""A decision while it is being made: the facts so far, and the state after them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from spark_partq.core import format
from spark_partq.core.assignors import Assignor
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.facts import GroupFact, Kind, Ownership, Status
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId

Loads = Mapping[PartitionId, float]


class Decision:
    """What the steps share.

    Attributes
    ----------
    state : GroupState
        The state after the facts so far.
    acks : Acks
        The acknowledgements on which the decision is made.
    by : str
        The process that decides, for the history.
    assignor : function
        Finds an assignor by its name.
    loads : dict or None
        The load of each partition, for assignors that use it.
    facts : list of GroupFact
    handoffs_ended : bool
        Handoffs have ended, and the rebalance was not advanced since.
    """

    def __init__(
        self, state: GroupState, acks: Acks, by: str, assignor: Callable[[str], Assignor], loads: Loads | None
    ) -> None:
        self.state, self.acks, self.by, self.assignor, self.loads = state, acks, by, assignor, loads
        self.facts: list[GroupFact] = []
        self.handoffs_ended = False

    @property
    def begins_the_group(self) -> bool:
        """Whether no decision was made in the group before."""
        return self.state.seq == len(self.facts)

    def emit(self, fact: GroupFact) -> None:
        """Add a fact, and apply it to the state. The very first fact says the format of the table."""
        if not self.state.seq and fact.kind != Kind.GROUP_CREATED:
            body = as_json(**format.of_new_tables().body())
            self.emit(GroupFact(Kind.GROUP_CREATED, body=body, cause="it is used for the first time", by=self.by))
        self.state.replay(fact)
        self.facts.append(fact)

    def require_feature(self, feature: str, cause: str) -> None:
        """Keep programs away that do not know this feature of the format. No fact if they are kept away already."""
        raised = self.state.format.with_features(feature)
        if raised != self.state.format:
            self.emit(GroupFact(Kind.FORMAT_RAISED, body=as_json(**raised.body()), cause=cause, by=self.by))

    def emit_partition(self, kind: Kind, partition_id: PartitionId, cause: str, **columns: object) -> None:
        """Add a fact about a partition; epochs that are not in `columns` stay as they are."""
        own = self.state.partitions.get(partition_id) or Ownership(None, None, "", 0, 0, 0, 0)
        known = {"epoch_before": own.epoch, "epoch": own.epoch, "lineage_epoch": own.lineage_epoch, "cause": cause}
        queue = self.state.queues[partition_id[0]].name
        self.emit(GroupFact(kind, queue, *partition_id, **{**known, "by": self.by, **columns}))  # type: ignore[arg-type]

    def change_status(self, status: Status, cause: str, flows: int | None = None) -> None:
        """Change the group's status, or begin its rebalance again."""
        if self.state.status is not status or (status is Status.REBALANCING and not self.state.assignment_due):
            self.emit(GroupFact(Kind.STATUS_CHANGED, status=status, flows=flows, cause=cause, by=self.by))


def in_words(flows: int) -> str:
    """``1 flow``, ``2 flows``."""
    return f"{flows} flow" if flows == 1 else f"{flows} flows"


def as_json(**values: object) -> str:
    """The body of a fact."""
    return json.dumps(values, sort_keys=True)
