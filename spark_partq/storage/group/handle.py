"""A consumer group on disk: decisions in its control table, acknowledgements and heartbeats in its ack table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from spark_partq.core.errors import GroupNotFoundError
from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.decide import decide
from spark_partq.core.group.events import Event, RaiseFloors
from spark_partq.core.group.facts import GroupFact
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps.decision import Loads
from spark_partq.core.ids import PartitionId
from spark_partq.core.names import is_name
from spark_partq.storage.group import assignors
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.log import retrying
from spark_partq.storage.rows import Row
from spark_partq.storage.store import Store


class Group:
    """One process's view of a group, as of its last refresh. Not safe for use by several threads at once."""

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name = store, name
        self._control = ControlTable(store, name)
        self._acks = AckTable(store, name)

    @property
    def state(self) -> GroupState:
        return self._control.state

    @property
    def acks(self) -> Acks:
        return self._acks.acks

    def exists(self) -> bool:
        return self._control.exists()

    def refresh(self) -> bool:
        """Read what is new in both tables; True if the control table has changed."""
        changed = self._control.refresh()
        if self._acks.exists():
            self._acks.refresh()
        return changed

    def refresh_control(self) -> bool:
        """Read what is new in the control table alone; True if it has changed."""
        return self._control.refresh()

    def position(self, partition_id: PartitionId) -> int | None:
        """The offset of the next message that the group reads; of a removed partition its last; None if the group never had it."""
        position = self.state.position(partition_id, self.acks)
        return (
            self.state.removed[partition_id][1] if position is None and partition_id in self.state.removed else position
        )

    def delivered(self, partition_id: PartitionId) -> int:
        """Exclusive end of the messages that any process may have delivered, as of the last refresh."""
        return self.state.delivered(partition_id, self.acks)

    def commit_floors(self, queue_id: str, offsets: Mapping[int, int]) -> None:
        """Commit positions as floors, if that brings the floor of a partition to its offset in `offsets` (S5)."""
        partition_id = {number: (queue_id, number) for number in offsets}
        reached = tuple(
            number
            for number, offset in offsets.items()
            if self.state.committed_floor(partition_id[number])
            < offset
            <= (self.state.position(partition_id[number], self.acks) or 0)
        )
        if reached:
            self.decide(lambda: [RaiseFloors(queue_id, reached)], "scaling")

    def decide(
        self, events: Callable[[], Sequence[Event]], by: str = "", loads: Loads | None = None
    ) -> list[GroupFact]:
        """Commit what follows from `events`; if another process commits first, refresh and compute both again.

        Raises
        ------
        GroupMismatchError, AssignorError, UnknownAssignorError
            See `core.group.decide.decide`.
        """

        def attempt() -> list[GroupFact]:
            if self.exists():
                self.refresh()
            facts = decide(self.state, self.acks, events(), by, assignor=assignors.find, loads=loads)
            if facts:
                self._control.commit(facts)
            return facts

        return retrying(self.store.runtime, attempt, f"a decision of group {self.name!r}")

    def acknowledge(self, rows: Sequence[AckRow]) -> None:
        """Commit acknowledgements and a heartbeat."""
        self._acks.append(rows, {member.incarnation for member in self.state.members.values()})

    def raise_floors(self, queue_id: str, ends: Callable[[], Mapping[int, int]] = dict) -> dict[int, int]:
        """Commit the group's positions as floors and return them per partition (Q8).

        Parameters
        ----------
        ends : function
            Reads the partitions' next offsets, beyond which no position counts; those that it leaves out are not asked.
        """
        self.decide(lambda: [RaiseFloors(queue_id, ends=ends())], "maintenance")
        return {p: offset for (q, p), offset in self.state.floors.items() if q == queue_id}

    def vacuum(self, grace_ms: int) -> None:
        """Delete files of both tables that have not been live for `grace_ms`."""
        self._control.vacuum(grace_ms)
        self._acks.vacuum(grace_ms)

    def history(self) -> list[Row]:
        """Every fact ever, in order."""
        return self._control.history()


def list_groups(store: Store) -> list[str]:
    """Names of the groups in the store, sorted."""
    store.check_exists()
    return [name for name in store.names("groups") if is_name(name) and Group(store, name).exists()]


def open_group(store: Store, name: str) -> Group:
    """The group as it is now.

    Raises
    ------
    NotAStoreError, GroupNotFoundError
    """
    store.check_exists()
    group = Group(store, name)
    if not group.exists():
        known = ", ".join(list_groups(store)) or "none"
        raise GroupNotFoundError(
            f"there is no group {name!r} in {store.uri}; its groups: {known}", group=name, store=store.uri
        )
    group.refresh()
    return group


def groups_of(store: Store, queue_id: str) -> list[Group]:
    """The groups that have ever read this queue."""
    groups = [open_group(store, name) for name in list_groups(store)]
    return [g for g in groups if queue_id in g.state.queues]
