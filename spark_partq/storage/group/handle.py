"""A consumer group on disk: decisions in its control table, acknowledgements and heartbeats in its ack table."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from spark_partq.core.errors import CorruptTableError, GroupNotFoundError, NewerStoreError, StoreUnavailableError
from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.decide import decide
from spark_partq.core.group.events import Event, RaiseFloors
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps.decision import Loads
from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.group import assignors
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.log import retrying
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.rows import Row
from spark_partq.storage.store import Store, acks_folder

T = TypeVar("T")


class Group:
    """One process's view of a group, as of its last refresh. Not safe for use by several threads at once.

    Attributes
    ----------
    lost_races : int
        How often it tried a commit again, as somebody else had committed first.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name = store, name
        self.lost_races = 0
        self._control = ControlTable(store, name)
        self._acks = AckTable(store, name, 0)
        self._read: set[str] = set()  # ids of the queues that it was ever seen to read

    @property
    def state(self) -> GroupState:
        return self._control.state

    @property
    def acks(self) -> Acks:
        return self._acks.acks

    @property
    def acks_folder(self) -> str:
        return self._acks.folder

    def heard_at(self) -> dict[str, dt.datetime]:
        """When each incarnation wrote its last heartbeat, by the clock of its machine, as of the last refresh."""
        return self._acks.heard_at()

    def has_table(self) -> bool:
        """Whether its control table is there, which outlives the group."""
        return self._control.exists()

    def exists(self) -> bool:
        """Whether there is the group now, and it is not deleted."""
        if self.has_table():
            self.refresh_control()
        return self.state.exists

    def refresh(self) -> bool:
        """Read what is new in both tables; True if the control table has changed."""
        changed = self.refresh_control()
        try:
            if self._acks.exists():
                self._acks.refresh()
        except CorruptTableError:
            if not self._was_deleted():
                raise
            return self.refresh()
        return changed

    def refresh_if_there(self) -> None:
        """The same of a group that may have no table yet, or no more than acknowledgements: those of a promotion (S7)."""
        if self.has_table():
            self.refresh()
        elif self._acks.exists():
            self._acks.refresh()

    def refresh_control(self) -> bool:
        """Read what is new in the control table alone; True if it has changed."""
        changed = self._control.refresh()
        self._follow_deletion()
        self._read |= self.state.queues.keys()
        return changed

    def _follow_deletion(self) -> None:
        folder = acks_folder(self.name, self.state.deletions)
        if self._acks.folder != folder:
            self._acks = AckTable(self.store, self.name, self.state.deletions)
            self._read = set()  # it may read the same queues again

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
        QueueNotFoundError
            If a queue would take the place of another of its name, and was itself deleted since it was opened.
        """

        def attempt() -> list[GroupFact]:
            self.refresh_if_there()
            facts = decide(self.state, self.acks, events(), by, assignor=assignors.find, loads=loads)
            if facts:
                self._check_replacements(facts)
                self._control.commit(facts)
                self._follow_deletion()
            return facts

        return retrying(self.store.runtime, self._counted(attempt), f"a decision of group {self.name!r}")

    def check(self, events: Sequence[Event]) -> None:
        """Raise what `decide` would, as of the last refresh; nothing is committed."""
        decide(self.state, self.acks, events, assignor=assignors.find)

    def _counted(self, attempt: Callable[[], T]) -> Callable[[], T]:
        """The attempt, of which each one but the first means that the race before it was lost."""
        calls = itertools.count()

        def counted() -> T:
            self.lost_races += next(calls) > 0
            return attempt()

        return counted

    def _check_replacements(self, facts: Sequence[GroupFact]) -> None:
        """A queue takes the place of another of its name only if it is the one that is there.

        That is read after the group's state, and the facts are committed only on that state: so the other queue was there before this one.
        """
        known = {queue.name: queue_id for queue_id, queue in self.state.queues.items()}
        for fact in facts:
            name = fact.queue or ""
            if fact.kind == Kind.QUEUE_ADDED and known.get(name, fact.queue_id) != fact.queue_id:
                control = open_control(self.store, name)
                if control.state.queue_id != fact.queue_id:
                    raise control.created_again()

    def forget_acks(self, partitions: Collection[PartitionId], before: Callable[[], None]) -> None:
        """Remove what the acknowledgements say about partitions; `before` as `acknowledge` has it."""
        self._acks.forget(partitions, before)

    def acknowledge(self, rows: Sequence[AckRow], before: Callable[[], None] = lambda: None) -> None:
        """Commit acknowledgements and a heartbeat.

        Parameters
        ----------
        before : function
            Called with each attempt, when `acks` are what lies in front of the rows.

        Raises
        ------
        GroupNotFoundError
            If the group was deleted since its last refresh.
        """
        self._control.check_writable()
        try:
            live = {member.incarnation for member in self.state.members.values()}
            gone = self._read - self.state.queues.keys()  # an id does not come back
            self._acks.append(rows, live, gone, self._counted(before))
        except CorruptTableError:
            if not self._was_deleted():
                raise
            raise self.deleted() from None

    def deleted(self) -> GroupNotFoundError:
        """Tells a process whose group was deleted."""
        return GroupNotFoundError(
            f"group {self.name!r} in {self.store.uri} was deleted while this program used it. Start the program again to create the group again: "
            "the group then reads from startingOffsets on",
            group=self.name,
            store=self.store.uri,
        )

    def _was_deleted(self) -> bool:
        """Whether the acknowledgements that this handle knows are those of a deleted group."""
        before = self._acks.folder
        self.refresh_control()
        return self._acks.folder != before

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
        if self.has_table():
            self._control.check_writable()
            self._control.vacuum(grace_ms)
        try:
            self._acks.vacuum(grace_ms)
        except CorruptTableError:
            if not self._was_deleted():
                raise

    def recent_facts(self, count: int) -> list[Row]:
        """The last `count` facts as of the last refresh, in order; reads no more files than that needs."""
        return self._control.recent(count)

    def history(self) -> list[Row]:
        """Every fact ever, in order."""
        rows: list[Row] = self.history_table().to_pylist()
        return rows

    def history_table(self) -> pa.Table:
        """The same as a table of Arrow, which takes a tenth of the memory."""
        return self._control.history()


def list_groups(store: Store) -> list[str]:
    """Names of the groups in the store, sorted; also of those that cannot be read or looked at, which may be groups.

    Raises
    ------
    NotAStoreError, StoreUnavailableError
        If there is no store, or its groups cannot be listed.
    """
    store.check_exists()
    return [name for name in store.named("groups") if _may_be_there(Group(store, name))]


def _may_be_there(group: Group) -> bool:
    try:
        return group.exists()
    except (CorruptTableError, NewerStoreError, StoreUnavailableError):  # who opens it is told so
        return True


def open_group(store: Store, name: str, *, deleted: bool = False) -> Group:
    """The group as it is now.

    Parameters
    ----------
    deleted : bool
        Also one that was deleted: its history is still there.

    Raises
    ------
    NotAStoreError, GroupNotFoundError
    """
    store.check_exists()
    group = Group(store, name)
    if group.has_table():
        group.refresh()
    if not group.state.exists and not (deleted and group.state.deletions):
        known = ", ".join(list_groups(store)) or "none"
        raise GroupNotFoundError(
            f"there is no group {name!r} in {store.uri}; its groups: {known}", group=name, store=store.uri
        )
    return group


def groups_of(store: Store, queue: QueueState) -> list[Group]:
    """The groups that are attached to the queue, by name. One that has not joined yet has no positions."""
    groups = [Group(store, name) for name in sorted(queue.groups)]
    for group in groups:
        group.refresh_if_there()
    return groups
