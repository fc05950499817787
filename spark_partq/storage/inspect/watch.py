"""A whole store, as a monitor looks at it repeatedly.

What was read is kept, so the cost of a look does not grow with the age of the queues: three requests to list the store; one for each control
table, one for each partition, and two for each group; and one or two for each commit since the last look. The first look reads each table like
any process that opens it: its checkpoint, and the commits after that. On a local disk a request is an operation on a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from spark_partq.core.errors import PartqError
from spark_partq.core.group.acks import Work
from spark_partq.core.ids import QueuePartition
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.backlog import stuck_messages
from spark_partq.storage.inspect.describe_group import GroupDescription, described
from spark_partq.storage.inspect.describe_queue import PartitionDescription, describe_partitions
from spark_partq.storage.inspect.fact_counts import FactCounts
from spark_partq.storage.queue.handle import Queue, check_usable, open_queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.starting import enqueued_us
from spark_partq.storage.store import Store

H = TypeVar("H", Group, Queue)


@dataclass(frozen=True)
class QueueSample:
    """A queue at one look. `oldest_s`: by partition, the age of the first stored message; 0 if there is none."""

    name: str
    status: str
    configured_partitions: int
    operating_partitions: int
    ingress: bool
    discarded: int
    stuck: int
    partitions: tuple[PartitionDescription, ...]
    oldest_s: Mapping[int, float]


@dataclass(frozen=True)
class GroupSample:
    """A group at one look.

    Attributes
    ----------
    oldest_s : dict
        By queue and partition, the age of the first message that the group has not acknowledged; 0 if there is none.
    counts : FactCounts
        Counters of the facts since the first look at the group.
    work : dict
        By instance, what a member has done since its process began. Members that do not report it are left out.
    """

    description: GroupDescription
    oldest_s: Mapping[QueuePartition, float]
    counts: FactCounts
    work: Mapping[str, Work]


@dataclass(frozen=True)
class Sample:
    """One look. `failed` has the queues and groups that cannot be read: (``queue`` or ``group``, name), with the error."""

    queues: tuple[QueueSample, ...] = ()
    groups: tuple[GroupSample, ...] = ()
    failed: Mapping[tuple[str, str], PartqError] = field(default_factory=dict)


class StoreWatch:
    """Looks at the queues and groups of a store, including those that are made later. Changes nothing. Used by one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queues: dict[str, Queue] = {}
        self._groups: dict[str, Group] = {}
        self._counts: dict[str, FactCounts] = {}

    def look(self) -> Sample:
        """The store as it is now.

        Raises
        ------
        NotAStoreError, StoreUnavailableError
            If the store cannot even be listed.
        """
        self._store.check_exists()
        failed: dict[tuple[str, str], PartqError] = {}
        names = self._store.named("queues")
        attached = {group for queue in self._queues.values() for group in queue.state.groups}
        # Groups are read before queues, so that no position is beyond an end that was read earlier.
        groups = self._refreshed("group", self._groups, sorted({*self._store.named("groups"), *attached}), failed)
        queues = self._refreshed("queue", self._queues, names, failed)
        by_id = {queue.state.queue_id: queue for queue in queues.values()}
        unread_groups = {name: error for (kind, name), error in failed.items() if kind == "group"}
        queue_samples, group_samples = [], []
        for queue in queues.values():
            try:
                queue_samples.append(self._queue(queue, groups, unread_groups))
            except PartqError as error:
                failed["queue", queue.name] = error
        for group in groups.values():
            try:
                if group.state.exists:
                    group_samples.append(self._group(group, by_id, failed))
            except PartqError as error:
                failed["group", group.name] = error
        return Sample(tuple(queue_samples), tuple(group_samples), failed)

    def group(self, name: str) -> Group | None:
        """A group that exists, as of the last look; None if the look could not read it or found no such group."""
        found = self._groups.get(name)
        return found if found is not None and found.state.exists else None

    def queue(self, name: str) -> Queue | None:
        """The same for a queue."""
        return self._queues.get(name)

    def queues_of(self, group: Group) -> dict[str, Queue]:
        """The queues that a group reads and that exist, by id, as of the last look."""
        by_id = {queue.state.queue_id: queue for queue in self._queues.values()}
        return {queue_id: by_id[queue_id] for queue_id in group.state.queues if queue_id in by_id}

    def _refreshed(
        self, kind: str, known: dict[str, H], names: list[str], failed: dict[tuple[str, str], PartqError]
    ) -> dict[str, H]:
        """A refreshed handle for each name.

        A handle that cannot be read any more is opened again, as the thing may have been deleted and created again.
        """
        for gone in known.keys() - set(names):
            del known[gone]
            if kind == "group":
                self._counts.pop(gone, None)

        def refreshed(name: str) -> H | PartqError:
            try:
                return _refresh(known[name])
            except KeyError:
                pass
            except PartqError:
                del known[name]
            try:
                return _refresh(Group(self._store, name) if kind == "group" else open_queue(self._store, name))  # type: ignore[return-value, type-var]
            except PartqError as error:
                return error

        found = dict(zip(names, self._store.map(refreshed, names), strict=True))
        failed |= {(kind, name): error for name, error in found.items() if isinstance(error, PartqError)}
        handles = {name: handle for name, handle in found.items() if not isinstance(handle, PartqError)}
        for name, handle in handles.items():
            if kind == "group" and known.get(name) is not handle:
                self._counts.pop(name, None)
            known[name] = handle
        return handles

    def _group(
        self, group: Group, queues: Mapping[str, Queue], failed: dict[tuple[str, str], PartqError]
    ) -> GroupSample:
        state = group.state
        counts = self._counts.setdefault(group.name, FactCounts.since(state))
        if state.seq > counts.seq:
            counts.add(group.recent_facts(state.seq - counts.seq))
        read = {queue_id: queues[queue_id] for queue_id in state.queues if queue_id in queues}
        oldest_s: dict[QueuePartition, float] = {}
        for queue_id, number in state.partitions:
            queue = read.get(queue_id)
            if queue is not None and number in queue.state.partition_numbers:
                position = group.position((queue_id, number)) or 0
                try:
                    oldest_s[queue.name, number] = self._age_s(queue.table(number), position)
                except PartqError as error:  # the rest of the group is reported nevertheless
                    failed["queue", queue.name] = error
                    del read[queue_id]
        told = group.acks.work
        work = {m.instance: told[m.incarnation] for m in state.members.values() if m.incarnation in told}
        return GroupSample(described(group, read, unread=unread_queues(failed)), oldest_s, counts, work)

    def _queue(self, queue: Queue, groups: Mapping[str, Group], unread: Mapping[str, PartqError]) -> QueueSample:
        """
        Raises
        ------
        PartqError
            If the queue cannot be read; or if one of `unread`, the groups that cannot be read, reads it, so that its depth is not known.
        """
        state = queue.state
        hidden = sorted(unread.keys() & state.groups)
        if hidden:
            raise unread[hidden[0]]
        oldest_s = {table.partition: self._age_s(table, 0) for table in queue.partitions}
        # A group that attached just now is listed at the next look; until then it has read nothing.
        readers = [groups.get(name) or Group(self._store, name) for name in sorted(state.groups)]
        return QueueSample(
            queue.name, state.status, state.configured_partitions, state.operating_partitions, state.ingress,
            queue.control.discarded, stuck_messages(queue, readers), tuple(describe_partitions(queue, readers)), oldest_s,
        )  # fmt: skip

    def _age_s(self, table: PartitionTable, position: int) -> float:
        """The age of the first message from this offset on; 0 if there is none."""
        at_us = enqueued_us(table, position)
        return 0.0 if at_us is None else max(0.0, self._store.now_ms() / 1e3 - at_us / 1e6)


def unread_queues(failed: Iterable[tuple[str, str]]) -> set[str]:
    """The names of the queues that a look could not read, or not completely."""
    return {name for kind, name in failed if kind == "queue"}


def _refresh(handle: H) -> H:
    if isinstance(handle, Group):
        handle.refresh_if_there()
    else:
        handle.control.refresh()
        check_usable(handle.control)
        handle.refresh()
    return handle
