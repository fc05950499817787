"""The queues that a query reads, as they are now: those it names, or all whose names match its pattern (K3).

A member that finds a queue tells the group; every other member whose pattern matches finds it there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping

from spark_partq.core.delivery.offsets import EARLIEST, Range, StreamOffset, parse_offsets, resolve
from spark_partq.core.errors import (
    CheckpointMismatchError,
    PartqError,
    QueueNotFoundError,
    QueueNotReadyError,
    SchemaMismatchError,
)
from spark_partq.core.group.events import QueuesChanged
from spark_partq.core.group.state import GroupState, PartitionId, QueueInGroup
from spark_partq.core.queue.partition_map import Barrier, drained
from spark_partq.spark.options import Options
from spark_partq.spark.starting import offset_at_time
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.queue.handle import (
    Queue,
    first_left,
    in_group,
    open_queue,
    queue_state,
    same_payload,
)
from spark_partq.storage.queue.partition_table import PartitionTable

Where = tuple[str, int]  # queue name, partition

_CHECK_S = 1.0

_log = logging.getLogger("spark_partq")


class Subscription:
    """Open queues by name. Used by one thread.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError, InvalidArgumentError
        At once, if a queue is not there, none matches, or they have different columns.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._queues = {name: open_queue(options.store, name) for name in options.subscribed()}
        for queue in self._queues.values():
            check_primary(queue, opening=True)
        self._payload = same_payload(list(self._queues.values()))
        self._refused: set[str] = set()  # ids of queues that match and cannot be read
        self._checked_s = time.monotonic()
        numbers = {name: queue.state.numbers for name, queue in self._queues.items()}
        self._wanted = parse_offsets("startingOffsets", options.startingOffsets, numbers)
        self._settled: dict[str, int] = {}  # by queue id: generations before this one are settled for the group

    @property
    def ids(self) -> dict[str, str]:
        return {name: queue.state.queue_id for name, queue in self._queues.items()}

    @property
    def in_group(self) -> dict[str, QueueInGroup]:
        """What the group shall know of each queue, by id."""
        return {queue.state.queue_id: in_group(queue) for queue in self._queues.values()}

    def tables(self) -> Iterator[tuple[Where, PartitionTable]]:
        for name, queue in self._queues.items():
            for table in queue.partitions:
                yield (name, table.partition), table

    def table(self, where: Where) -> PartitionTable:
        return self._queues[where[0]].table(where[1])

    # ---- names and ids
    def id(self, where: Where) -> PartitionId:
        return self._queues[where[0]].state.queue_id, where[1]

    def by_name(self, ranges: Mapping[PartitionId, Range]) -> dict[Where, Range]:
        names = {queue_id: name for name, queue_id in self.ids.items()}
        return {(names[queue_id], p): r for (queue_id, p), r in ranges.items() if queue_id in names}

    # ---- as they change
    def refresh(self) -> None:
        """Look at the partitions, and after that at the queues: what lies above a cut is then known to be of a later map."""
        changed = [table for _, table in self.tables() if table.may_have_changed()]
        self._options.store.map(lambda table: table.refresh(), changed)
        for queue in self._queues.values():
            while queue.control.refresh():
                queue.refresh()

    def check(self) -> None:
        """Refuse to go on with a queue that the query names and that was deleted or made anew.

        Raises
        ------
        CheckpointMismatchError, QueueNotFoundError
        """
        if self._options.queuePattern is not None:
            return
        for name, queue_id in self.ids.items():
            check_primary(self._queues[name])
            if queue_state(self._options.store, name).queue_id != queue_id:
                raise CheckpointMismatchError(
                    f"queue {name!r} was deleted and made anew while this query ran; start it with a new checkpointLocation",
                    queue=name,
                )

    def due(self) -> bool:
        """Whether it is time again to look what queues there are."""
        return time.monotonic() - self._checked_s > _CHECK_S

    def changes(self, state: GroupState) -> QueuesChanged | None:
        """Look what queues there are: what the group does not know of yet, of those that match the pattern.

        Raises
        ------
        CheckpointMismatchError, QueueNotFoundError
            As `check`, of queues that the query names.
        """
        self._checked_s = time.monotonic()
        self.check()
        if self._options.queuePattern is None:
            return None
        found = {queue.state.queue_id: queue for queue in self._readable()}
        new = {queue_id: queue for queue_id, queue in found.items() if queue_id not in state.queues}
        known = {queue_id: queue.name for queue_id, queue in state.queues.items() if self._options.matches(queue.name)}
        gone = tuple(sorted(i for i, name in known.items() if i not in found and self._is_gone(name, i)))
        return _changes(new, gone) if new or gone else None

    def scaled(self, state: GroupState) -> QueuesChanged | None:
        """What the group does not know of the partitions of the queues that it reads, as of the last look (R2)."""
        new = {
            queue.state.queue_id: queue
            for queue in self._queues.values()
            if (known := state.queues.get(queue.state.queue_id)) is not None
            and known.revision < queue.state.revision
            and known.numbers != queue.state.numbers
        }
        return _changes(new, ()) if new else None

    # ---- the barrier (S5)
    def barriers(self, state: GroupState) -> dict[str, Barrier]:
        """By name of each queue that was ever scaled, how far the group may be given its partitions."""
        barriers = {}
        for name, queue in self._queues.items():
            queue_id = queue.state.queue_id
            first = self._settled.get(queue_id, 0)
            if first == queue.state.generation:
                continue
            settled = state.settled_in(queue_id)
            barriers[name] = Barrier(queue.state.generations, settled, queue.state.gone, first)
            self._settled[queue_id] = barriers[name].first_open
        return barriers

    def drained(self, state: GroupState) -> list[Queue]:
        """Queues with partitions that go and that the group has settled, so that they may perhaps be removed (S2)."""
        found = []
        for queue in self._queues.values():
            ends = {number: queue.table(number).next_offset for number in queue.state.going}
            if ends and drained(ends, [state.settled_in(queue.state.queue_id)]):
                found.append(queue)
        return found

    def follow(self, state: GroupState) -> None:
        """Open what the group has found, and let go what it has given up.

        Raises
        ------
        SchemaMismatchError
            The group reads a queue that matches and has other columns: its partitions may be given to this query.
        """
        if self._options.queuePattern is None:
            return
        wanted = {q.name: queue_id for queue_id, q in state.queues.items() if self._options.matches(q.name)}
        self._queues = {name: queue for name, queue in self._queues.items() if wanted.get(name) == queue.state.queue_id}
        for name in sorted(wanted.keys() - self._queues.keys()):
            queue = self._open(name)
            if queue is None or queue.state.queue_id != wanted[name]:
                continue  # the group will hear that it is gone
            if queue.state.schema != self._payload:
                raise SchemaMismatchError(
                    f"the group reads queue {name!r}, which matches queuePattern={self._options.queuePattern!r} and has other "
                    "columns than the queues that this query reads; use a narrower pattern, or another group",
                    queue=name,
                )
            self._queues[name] = queue

    def renew(self) -> None:
        """Begin again with the queues there are, before the query joins its group again.

        Raises
        ------
        CheckpointMismatchError, QueueNotFoundError
            As `check`.
        """
        self.check()
        if self._options.queuePattern is not None:
            self._queues = {queue.name: queue for queue in self._readable()}

    def _readable(self) -> list[Queue]:
        """The queues that match now and have the columns of those that were there first."""
        queues = [queue for queue in map(self._open, self._options.matching()) if queue is not None]
        for queue in queues:
            if queue.state.schema != self._payload and queue.state.queue_id not in self._refused:
                self._refused.add(queue.state.queue_id)
                _log.warning(
                    "queue %s matches the pattern %s, but has other columns than the queues that are read; it is left out",
                    queue.name, self._options.queuePattern,
                )  # fmt: skip
        return [queue for queue in queues if queue.state.schema == self._payload]

    def _open(self, name: str) -> Queue | None:
        """A queue as it is now; None while it cannot be read, as when it is being made or deleted."""
        known = self._queues.get(name)
        try:
            state = queue_state(self._options.store, name)
            if known is not None and known.state.queue_id == state.queue_id and state.usable:
                return known
            queue = open_queue(self._options.store, name)
            queue.refresh()
        except PartqError:
            return None
        return queue

    def _is_gone(self, name: str, queue_id: str) -> bool:
        """Whether a queue was deleted or is about to be, and not merely cannot be read."""
        try:
            state = queue_state(self._options.store, name)
        except (QueueNotFoundError, QueueNotReadyError):  # what is half there and has an id is half deleted
            return True
        except PartqError:  # it cannot be told now
            return False
        return state.queue_id != queue_id or state.deleted

    # ---- where the group starts
    def first_starts(self, state: GroupState) -> dict[PartitionId, int]:
        """Where each partition starts that the group has never had.

        Raises
        ------
        OffsetOutOfRangeError, InvalidArgumentError
            `startingOffsets` or `startingTimestamp` name no message.
        """
        o = self._options
        first: dict[PartitionId, int] = {}
        for where, table in self.tables():
            if self.id(where) in state.partitions:
                continue
            if o.startingTimestamp is not None:
                start = offset_at_time(table, o.startingTimestamp, o.startingOffsetsByTimestampStrategy)
            else:
                offsets = self._wanted
                wanted = offsets if isinstance(offsets, int) else offsets.get(where[0], {}).get(where[1], EARLIEST)
                bounds = first_left(self._queues[where[0]], table), table.next_offset
                start = resolve("startingOffsets", wanted, *bounds, *where, fail_on_data_loss=o.failOnDataLoss)
            first[self.id(where)] = start
        return first

    def check_checkpoint(self, planned: StreamOffset, group: str) -> None:
        """Refuse a checkpoint of another group or queue. With a pattern queues may have come and gone.

        Raises
        ------
        CheckpointMismatchError
        """
        if planned.group not in ("", group):
            raise CheckpointMismatchError(
                f"the checkpoint belongs to group {planned.group!r}, this query to {group!r}; "
                "use that group or another checkpointLocation",
                group=planned.group,
            )
        if self._options.queuePattern is not None:
            return
        for name, queue_id in planned.queue_ids.items():
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


def by_id(offset: StreamOffset) -> dict[PartitionId, Range]:
    """Its ranges, by the ids that its queues had then."""
    return {(offset.queue_ids[queue], p): r for (queue, p), r in offset.ranges.items()}


def _changes(new: Mapping[str, Queue], gone: tuple[str, ...]) -> QueuesChanged:
    # As in Kafka: what comes while a group reads is read from its beginning.
    starts = {
        (queue_id, t.partition): first_left(queue, t) for queue_id, queue in new.items() for t in queue.partitions
    }
    return QueuesChanged({queue_id: in_group(queue) for queue_id, queue in new.items()}, starts, gone)
