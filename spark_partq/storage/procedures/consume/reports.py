"""What a query's application is told of the group: which partitions the query owns, and what each of its flows gained and lost (H6)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence

from spark_partq.core.delivery.member import by_flow, owned
from spark_partq.core.errors import ListenerError
from spark_partq.core.group.advice import state_stays_behind
from spark_partq.core.group.facts import Member
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId
from spark_partq.storage.procedures.consume.application import Application, Message, NullApplication

# By partition, the epoch and the end of the range that was planned last.
Planned = Mapping[PartitionId, tuple[int, int]]

_log = logging.getLogger("spark_partq")


class Reports:
    """What was reported, and what is to be. Used under the membership's lock.

    Attributes
    ----------
    application : Application
        To whom it is reported.
    stateful : bool
        Whether the query keeps state by key, as the driver said.
    names : dict
        By id, the names of all queues that the group has had since this process joined it.
    """

    def __init__(self, group: str, me: Member) -> None:
        self._group, self._me = group, me
        self.application: Application = NullApplication()
        self.stateful = False
        self.names: dict[str, str] = {}
        self._owned: dict[PartitionId, int] = {}  # with their lineage epochs
        self._active: dict[str, bool] = {}
        self._batch: Message = {}

    def know(self, state: GroupState) -> None:
        """Take the names of the group's queues, as of a refresh or a decision: partitions of these may be reported."""
        self.names |= {queue_id: queue.name for queue_id, queue in state.queues.items()}

    def changes(self, state: GroupState, incarnation: str, planned: Planned) -> None:
        """Report what the last decisions took and gave, before a micro-batch that has the new partitions."""
        self.lost(state, incarnation, planned)
        self.gained(state, incarnation)

    def lost(self, state: GroupState, incarnation: str, planned: Planned) -> None:
        """Report partitions that were taken, or that this process has lost and got again."""
        mine = owned(state, incarnation)
        lost = [p for p, base in self._owned.items() if p not in mine or mine[p].lineage_epoch != base]
        if not lost:
            return
        self._warn_of_state(lost)
        for partition_id in lost:
            del self._owned[partition_id]
        done = [p for p in lost if _is_finished(state, p, planned.get(p, (-1, 0))[1])]
        rest = [partition_id for partition_id in lost if partition_id not in done]
        self._report({"revoked": self._named(done), "lost": self._named(rest)})

    def gained(self, state: GroupState, incarnation: str) -> None:
        """Report newly owned partitions, and flows that became active or standbys."""
        mine = owned(state, incarnation)
        new = [partition_id for partition_id in mine if partition_id not in self._owned]
        owners = {own.flow for own in mine.values()}
        active = {flow: flow in owners for flow in self._me.flow_names}
        changed = {flow: is_active for flow, is_active in active.items() if self._active.get(flow) is not is_active}
        if new or changed:
            self._owned.update({partition_id: mine[partition_id].lineage_epoch for partition_id in new})
            self._active = active
            self._warn_of_state(new)
            self._report({"assigned": self._named(new), "active": changed})

    def revoked(self, partitions: Sequence[PartitionId]) -> None:
        """Report partitions that are about to be released."""
        self._warn_of_state(partitions)
        self._report({"revoked": self._named(partitions)})
        for partition_id in partitions:
            self._owned.pop(partition_id, None)

    def all_revoked(self, timeout_s: float) -> None:
        """Report that the query has ended."""
        self._report({"revoked": self._named(self._owned)}, timeout_s)

    def all_lost(self) -> None:
        """Report that a newer process has taken this one's place. It stops, whatever a listener says to that."""
        with contextlib.suppress(ListenerError):
            self._report({"lost": self._named(self._owned)})
        self._owned = {}

    def batch(self, state: GroupState, incarnation: str) -> None:
        """Report what each flow owns in the micro-batch that begins, and what it gained and lost since the last micro-batch."""
        now = {flow: self._named(partitions) for flow, partitions in by_flow(state, incarnation).items()}
        before = self._batch.get("owned", {})
        flows = {
            flow: {
                "gained": [p for p in now.get(flow, []) if p not in before.get(flow, [])],
                "lost": [p for p in before.get(flow, []) if p not in now.get(flow, [])],
            }
            for flow in self._me.flow_names
        }
        epochs = [[*self._named([p])[0], *p, own.epoch] for p, own in sorted(owned(state, incarnation).items())]
        message = {"owned": now, "changes": flows, "epochs": epochs, "incarnation": incarnation}
        if message != self._batch:
            self._batch = message
            self._report({"batch": message})

    def _report(self, message: Message, timeout_s: float | None = None) -> None:
        self.application.request({"group": self._group, **message}, timeout_s)

    def _named(self, partitions: Collection[PartitionId]) -> list[list[str | int]]:
        return [[self.names[queue_id], number] for queue_id, number in sorted(partitions)]

    def _warn_of_state(self, moved: Sequence[PartitionId]) -> None:
        if self.stateful and moved:
            partitions = [(self.names[queue_id], number) for queue_id, number in moved]
            _log.warning("group %s: %s", self._group, state_stays_behind(self._me.instance, partitions))


def _is_finished(state: GroupState, partition_id: PartitionId, planned: int) -> bool:
    """Whether the partition was removed from its queue, and all of its planned messages are acknowledged (S2)."""
    removed = state.removed.get(partition_id)
    return removed is not None and removed[1] >= planned
