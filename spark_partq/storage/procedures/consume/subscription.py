"""The queues that a query reads, as they are now: the queues that it names, or all queues whose names match its pattern (K3).

A member that finds a queue adds it to the group. Every other member whose pattern matches finds the queue there.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping

from spark_partq.core.delivery.offsets import Range, StreamOffset
from spark_partq.core.errors import (
    CheckpointMismatchError,
    PartqError,
    SchemaMismatchError,
)
from spark_partq.core.group.events import QueuesChanged
from spark_partq.core.group.facts import QueueInGroup
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId
from spark_partq.core.payload.schema import is_readable_as
from spark_partq.core.queue.partition_map import Barrier, drained
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.attached import attach, detach_deleted, is_attached
from spark_partq.storage.procedures.consume.deleted import created_again, deleted_queues, is_deleted, none_left
from spark_partq.storage.procedures.consume.first_starts import first_starts
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.primary import check_not_fenced, check_primary
from spark_partq.storage.queue.handle import (
    Queue,
    barrier_of,
    first_left,
    in_group,
    open_queue,
    queue_state,
    same_payload,
)
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.group_copies import check_not_copied
from spark_partq.storage.replica.table import is_replica

_CHECK_S = 1.0

_log = logging.getLogger("spark_partq")


class Subscription:
    """Open queues by name. Used by one thread.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError, InvalidArgumentError
        At once, if a queue does not exist, no queue matches, or the queues have different columns.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings, self._store = settings, settings.store
        self._queues = {queue.name: queue for queue in settings.open_queues()}
        for queue in self._queues.values():
            check_primary(queue, opening=True)
        self._payload = settings.payload or same_payload(list(self._queues.values()))
        self._refused: set[str] = set()  # ids of queues that match and cannot be read
        if settings.queue_pattern is not None:  # a queue may have appeared since the payload was found
            self._queues = {queue.name: queue for queue in self._alike(self._queues.values())}
        self._opened = tuple(self._queues)
        self._checked_s = self._store.runtime.monotonic_s()
        self._found: list[Queue] = []  # that were new to the group when they were last listed
        self._deleted: set[str] = set()  # ids of queues that the query names, and without which it goes on
        self._first_open: dict[str, int] = {}  # by queue id: the group has finished all generations before this one
        self._incarnations: dict[str, str] = {}  # by queue id: the one that this query began to read

    @property
    def queue_ids(self) -> dict[str, str]:
        return {name: queue.state.queue_id for name, queue in self._queues.items()}

    @property
    def in_group(self) -> dict[str, QueueInGroup]:
        """Each queue as the group keeps it, by id."""
        return {queue.state.queue_id: in_group(queue.state) for queue in self._queues.values()}

    @property
    def queues(self) -> dict[str, Queue]:
        """The queues by id."""
        return {queue.state.queue_id: queue for queue in self._queues.values()}

    def tables(self) -> Iterator[tuple[PartitionId, PartitionTable]]:
        for queue in self._queues.values():
            for table in queue.partitions:
                yield (queue.state.queue_id, table.partition), table

    def offset(self, group: str, instance: str, ranges: Mapping[PartitionId, Range]) -> StreamOffset:
        """The offset of a plan that Spark keeps: the ranges by the queues' names, and the queues' ids."""
        ids = self.queue_ids
        names = {queue_id: name for name, queue_id in ids.items()}
        planned = {(names[queue_id], p): r for (queue_id, p), r in ranges.items()}
        incarnations = {name: queue.state.incarnation for name, queue in self._queues.items()}
        former = {name: queue.state.former for name, queue in self._queues.items() if queue.state.former}
        return StreamOffset(group, instance, ids, planned, incarnations, former, self._settings.manual_acknowledgement)

    # ---- changes
    def is_attached(self, group: Group) -> bool:
        return all(is_attached(queue, group) for queue in self._queues.values())

    def attach(self, group: Group) -> None:
        """Attach the group to every queue, so that no message at or above the group's start is removed; then refresh the queues.

        Raises
        ------
        ReplicaError
            If the group, as of its last refresh, is a copy; nothing was changed.
        QueueFencedError
        """
        check_not_copied(group)
        for queue in self._queues.values():
            attach(queue, group)

    def detach_deleted(self, group: Group) -> None:
        """Detach the group, which was deleted, from every queue to which this query may have attached it."""
        detach_deleted([*self._queues.values(), *self._found], group)

    def refresh(self) -> None:
        """Refresh the partitions, and after that the queues. Then, for every message above a cut, the later map is known.

        Raises
        ------
        CheckpointMismatchError
            A queue is another incarnation than the one that this query began to read.
        """
        with contextlib.ExitStack() as stack:
            for queue in self._queues.values():
                stack.enter_context(queue.explained())
            changed = [table for _, table in self.tables() if table.may_have_changed()]
            self._store.map(lambda table: table.refresh(), changed)
        for queue in self._queues.values():
            while queue.control.refresh():
                queue.refresh()
        self._check_incarnations()

    def check(self) -> tuple[str, ...]:
        """The ids of queues that the query names and that were deleted. With a pattern they are found only together with new ones (`listed`).

        Raises
        ------
        CheckpointMismatchError, QueueNotFoundError, QueueFencedError, ReplicaError
            As `deleted_queues`.
        """
        return () if self._settings.queue_pattern is not None else deleted_queues(self._queues)

    def check_is_due(self) -> bool:
        """Whether it is time to list the queues again."""
        return self._store.runtime.monotonic_s() - self._checked_s > _CHECK_S

    def queue_changes(self, group: Group, is_member: bool) -> list[QueuesChanged]:
        """List the queues, attach the group to the new ones, and return what has changed; empty without changes.

        If the query is no member, no queue is new: perhaps no member reads it. Raises as `listed`.
        """
        deleted, new = self.listed(group.state)
        self._found = new if is_member else []
        for queue in self._found:
            attach(queue, group)
        return [_changes(self._found, deleted)] if deleted or self._found else []

    def listed(self, state: GroupState) -> tuple[tuple[str, ...], list[Queue]]:
        """List the queues. Returns the ids of the group's queues that were deleted, and the queues that match the pattern and are new to the group.

        Raises
        ------
        CheckpointMismatchError, QueueNotFoundError
            As `check`, of queues that the query names.
        QueueFencedError
            The replica of a queue has taken over.
        """
        self._checked_s = self._store.runtime.monotonic_s()
        gone_now = self.check()
        if self._settings.queue_pattern is None:
            # The group may have a queue still, or again, without which this query goes on. It is there again if a backup was put back.
            dropped = [
                i for i in self._deleted if i in state.queues and is_deleted(self._store, state.queues[i].name, i)
            ]
            return tuple(sorted(i for i in {*gone_now, *dropped} if i in state.queues)), []
        found = {queue.state.queue_id: queue for queue in self._readable()}
        known = {queue_id: queue.name for queue_id, queue in state.queues.items() if self._settings.matches(queue.name)}
        gone = sorted(i for i, name in known.items() if i not in found and is_deleted(self._store, name, i))
        return tuple(gone), [queue for queue_id, queue in found.items() if queue_id not in state.queues]

    def partition_changes(self, state: GroupState) -> QueuesChanged | None:
        """Partitions and settings of the group's queues that the group does not know yet, as of the last refresh (R2)."""
        new = [
            queue
            for queue in self._queues.values()
            if (known := state.queues.get(queue.state.queue_id)) is not None and in_group(queue.state).replaces(known)
        ]
        return _changes(new, ()) if new else None

    # ---- the barrier (S5)
    def barriers(self, state: GroupState) -> dict[str, Barrier]:
        """The barriers of the queues that were ever scaled, by id."""
        barriers = {}
        for queue in self._queues.values():
            queue_id = queue.state.queue_id
            first = self._first_open.get(queue_id, 0)
            if first == queue.state.generation:
                continue
            barriers[queue_id] = barrier_of(queue, state.committed_floors(queue_id), first)
            self._first_open[queue_id] = barriers[queue_id].first_open
        return barriers

    def drained(self, state: GroupState) -> list[str]:
        """Names of queues where the group has drained all partitions that shall be removed and that still hold messages (S2)."""
        found = []
        for queue in self._queues.values():
            going = [queue.table(number) for number in queue.state.removing]
            ends = {table.partition: table.next_offset for table in going if table.first_offset < table.next_offset}
            keeps = queue.state.settings.min_retention_ms > 0  # then removal must wait, and maintenance does it
            if going and not keeps and drained(ends, [state.committed_floors(queue.state.queue_id)]):
                found.append(queue.name)
        return found

    def follow_group(self, state: GroupState) -> None:
        """Open the queues that the group has found, and drop those that it has removed.

        Raises
        ------
        SchemaMismatchError
            The group reads a queue that matches the pattern and has other columns, and this query may get its partitions.
        CheckpointMismatchError
            The group reads a queue that this query names, and that was created again.
        QueueNotFoundError
            All queues that this query names were deleted.
        """
        if self._settings.queue_pattern is None:
            known = {name: queue for name, queue in self._queues.items() if queue.state.queue_id in state.queues}
            read = {q.name for i, q in state.queues.items() if i not in self._deleted} & set(self._settings.queues)
            for name in sorted(read - known.keys()):
                raise created_again(name)
            if not known:
                raise none_left(self._queues.values())
            self._go_on_with(known)
            return
        ids = {q.name: queue_id for queue_id, q in state.queues.items() if self._settings.matches(q.name)}
        self._queues = {name: queue for name, queue in self._queues.items() if ids.get(name) == queue.state.queue_id}
        for name in sorted(ids.keys() - self._queues.keys()):
            queue = self._open(name)
            if queue is None or queue.state.queue_id != ids[name]:
                continue  # the group learns of its deletion at the next check; a replica is read once it is promoted
            if not self._can_read(queue):
                raise SchemaMismatchError(
                    f"the group reads queue {name!r}, which matches queuePattern={self._settings.queue_pattern!r} and has other "
                    "columns than the queues that this query reads; use a narrower pattern, or another group",
                    queue=name,
                )
            self._queues[name] = queue

    def _go_on_with(self, queues: dict[str, Queue]) -> None:
        for name in self._queues.keys() - queues.keys():
            _log.warning("queue %s was deleted; group and query go on with their other queues", name)
            self._deleted.add(self._queues[name].state.queue_id)
        self._queues = queues

    def reopen(self) -> None:
        """Open the queues that exist now, before the query joins its group again.

        Raises
        ------
        CheckpointMismatchError, QueueNotFoundError
            As `check`.
        """
        gone = self.check()
        self._go_on_with({name: queue for name, queue in self._queues.items() if queue.state.queue_id not in gone})
        self._first_open.clear()  # while this process was no member, the group may have been set back
        if self._settings.queue_pattern is not None:
            self._queues = {queue.name: queue for queue in self._readable()}

    def _readable(self) -> list[Queue]:
        """The queues that match now and have the same columns as the queues that were opened first.

        Raises
        ------
        QueueFencedError
            The replica of a queue has taken over. If the query went on without this queue, no query would read its remaining messages.
        """
        queues = [queue for queue in map(self._open, self._settings.matching()) if queue is not None]
        for queue in queues:
            check_not_fenced(queue)
        return self._alike(queues)

    def _alike(self, queues: Collection[Queue]) -> list[Queue]:
        """The queues that have the columns that are read. A warning names each other queue once."""
        for queue in queues:
            if not self._can_read(queue) and queue.state.queue_id not in self._refused:
                self._refused.add(queue.state.queue_id)
                what = f"matches the pattern {self._settings.queue_pattern}, but has other columns than the queues that are read"
                _log.warning("queue %s %s; it is left out", queue.name, what)
        return [queue for queue in queues if self._can_read(queue)]

    def _can_read(self, queue: Queue) -> bool:
        return is_readable_as(queue.state.schema, queue.state.added, self._payload)

    def _open(self, name: str) -> Queue | None:
        """A queue as it is now; None while it cannot be read, as when it is being made or deleted, or is a replica."""
        known = self._queues.get(name)
        try:
            state = queue_state(self._store, name)
            if known is not None and known.state.queue_id == state.queue_id and state.usable:
                return known
            if is_replica(self._store, name):
                return None
            queue = open_queue(self._store, name)
            queue.refresh()
        except PartqError:
            return None
        return queue

    # ---- where the group starts
    def first_starts(self, state: GroupState, is_back: bool = False) -> dict[PartitionId, int]:
        """The first offset of each partition that the group has never had.

        Raises
        ------
        OffsetOutOfRangeError, InvalidArgumentError
            `starting_offsets` or `starting_timestamp_ms` name no message.
        """
        return first_starts(self._settings, self._queues.values(), state, self._opened, is_back)

    def check_checkpoint(self, planned: StreamOffset, group: str) -> None:
        """Refuse a checkpoint of another group or queue, or from before a promotion. With a pattern, queues may have been added and deleted.

        Raises
        ------
        CheckpointMismatchError
        """
        if planned.group not in ("", group):
            raise CheckpointMismatchError(
                f"the checkpoint belongs to group {planned.group!r}, this query to {group!r}; use that group or another checkpointLocation",
                group=planned.group,
            )
        if self._settings.queue_pattern is None:
            self._check_queues(planned)
        self._incarnations = {queue_id: planned.incarnations[name] for name, queue_id in planned.queue_ids.items()}
        self._check_incarnations(group)

    def _check_queues(self, planned: StreamOffset) -> None:
        """Refuse a checkpoint of another queue, or of an earlier queue of that name."""
        for name, queue_id in planned.queue_ids.items():
            if name not in self._queues and is_deleted(self._store, name, queue_id):
                continue
            if name not in self._queues:
                raise CheckpointMismatchError(
                    f"the checkpoint belongs to queue {name!r}, this query reads {', '.join(self._queues)}; "
                    "read that queue or use another checkpointLocation",
                    queue=name,
                )
            if queue_id != self._queues[name].state.queue_id:
                raise CheckpointMismatchError(
                    f"the checkpoint belongs to an earlier queue {name!r} that was deleted since; use another checkpointLocation",
                    queue=name,
                )

    def _check_incarnations(self, group: str = "") -> None:
        """Refuse a queue whose replica took over since this query, or its checkpoint, began: its offsets may name other messages."""
        for queue in self._queues.values():
            state = queue.state
            if self._incarnations.setdefault(state.queue_id, state.incarnation) != state.incarnation:
                named = f" {group!r} (option group)" if group else ""
                raise CheckpointMismatchError(
                    f"the replica of queue {queue.name!r} in {self._store.uri} was promoted after this query's checkpoint was written: "
                    f"the checkpoint's offsets may name other messages there. Start the query with a new checkpointLocation and the "
                    f"same group{named}; it goes on at the positions that the group had acknowledged, and skips nothing. If its sink skips batches "
                    "by their ids (sink_id, txnAppId), give the sink another id",
                    queue=queue.name,
                    incarnation=state.incarnation,
                )


def _changes(new: Iterable[Queue], gone: tuple[str, ...]) -> QueuesChanged:
    # As in Kafka: a queue or partition that is added while a group reads is read from its beginning.
    starts = {(queue.state.queue_id, t.partition): first_left(queue, t) for queue in new for t in queue.partitions}
    return QueuesChanged({queue.state.queue_id: in_group(queue.state) for queue in new}, starts, gone)
