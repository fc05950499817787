"""Removing messages and files that are no longer needed (Q8): metadata first, files after a grace period."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from spark_partq.core.errors import (
    CommitFailedError,
    PartqError,
    QueueFencedError,
    QueueNotFoundError,
    QueueNotReadyError,
    ReplicaError,
)
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.removal import removable
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.backlog import stuck_from, waits_for_copies
from spark_partq.storage.procedures.alter import follow_queue
from spark_partq.storage.procedures.begun import BegunBatches
from spark_partq.storage.procedures.copy_stuck import close_parent
from spark_partq.storage.procedures.drain import remove_drained
from spark_partq.storage.procedures.make_segments import make_segments
from spark_partq.storage.procedures.partition_map import update_groups
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.procedures.settled import settled_groups
from spark_partq.storage.queue.clock import checked_ms
from spark_partq.storage.queue.control import list_queues
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store

_log = logging.getLogger("spark_partq")


@dataclass(frozen=True)
class MaintenanceReport:
    """What a run of `maintain` did to one queue.

    Attributes
    ----------
    queue : str
        The name of the queue.
    removed_messages : int
        How many messages were removed from the queue.
    vacuumed_files : int
        How many unused files of the queue were deleted.
    merged_files : int
        How many small files were merged into larger ones.
    waiting_for : tuple of str
        The groups that have not acknowledged messages which could otherwise be removed.
    """

    queue: str
    removed_messages: int
    vacuumed_files: int
    merged_files: int
    waiting_for: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


def maintain(queue: Queue) -> MaintenanceReport:
    """Remove whole files of messages that every group has acknowledged and `min_retention_ms` does not keep, that have outlived
    `retention_ms`, or that exceed `max_bytes`.

    A group's acknowledgements are first fixed as floors in its control table; no later owner starts below a floor. Then the queue's
    control table says which messages are removed, and only then they are removed. So a group that attached before counts, and a group
    that attaches later starts behind the removed messages. With no group, only `retention_ms` and `max_bytes` remove messages. Files
    are deleted once no log has named them for `vacuum_grace_ms`. A batch that is being written gets its manifest sooner than that, or
    its files are written again. Files that a manifest names and that their partition does not hold yet are kept.

    Partitions that a change of the count left to be drained are removed once they are drained (S2). Small files of messages that stay
    are merged, as `segment_ms` says. Ages are by the store's clock.

    Raises
    ------
    ClockSkewError
        If this machine's clock, which dates the removals, differs too much from the store's clock; nothing was changed.
    """
    check_primary(queue, opening=True)
    now_ms = checked_ms(queue.store, queue.name, queue.state.settings.max_clock_skew_ms)
    update_groups(queue, "maintenance")
    remove_drained(queue)
    close_parent(queue)
    begun = BegunBatches(queue)
    tables = [*queue.partitions, *_removed(queue)]
    follow_queue(queue, tables, begun.as_of_ms)
    readers: list[Group] = []  # as of the last measurement

    def measure(state: QueueState) -> dict[int, int]:
        readers[:] = settled_groups(queue)
        return _removable(queue, state, tables, readers, now_ms)

    ends = queue.control.record_removal(measure)
    grace_ms = queue.state.grace_ms(begun.as_of_ms)

    without_checkpoint: list[CommitFailedError] = []

    def clean(table: PartitionTable) -> tuple[int, int]:
        messages = table.remove(lambda index: int(np.searchsorted(index.end, ends[table.partition], side="right")))
        try:
            table.checkpoint()
        except CommitFailedError as error:  # the table may have too many files; segments reduce them
            _log.warning(
                "no checkpoint of partition %d of queue %s was written: %s", table.partition, queue.name, error
            )
            without_checkpoint.append(error)
        left = begun.files_left(table)
        return messages, table.vacuum(grace_ms, left, begun.as_of_ms) if begun.readable else 0

    with queue.explained():
        begun.leave_out_placed_again()
        begun.forget()
        done = queue.store.map(clean, tables)
        queue.control.vacuum(grace_ms)
        for group in readers:
            group.vacuum(grace_ms)
        merged = make_segments(queue, tables, now_ms)
    if without_checkpoint and not merged:
        raise without_checkpoint[0]
    queue.control.refresh()  # a group may have been deleted meanwhile
    waiting = [group.name for group in readers if group.name in queue.state.groups and _behind(queue, group)]
    return MaintenanceReport(
        queue.name, sum(messages for messages, _ in done), sum(files for _, files in done), merged, tuple(waiting)
    )


def maintain_all(store: Store, complain: Callable[[PartqError], None]) -> Iterator[MaintenanceReport]:
    """Maintain every queue that is in use. Replicas, fenced queues, and queues that are just being made or deleted are left out.

    Parameters
    ----------
    complain : function
        Called with the error of each queue that cannot be maintained.
    """
    for name in list_queues(store):
        try:
            yield maintain(open_queue(store, name))
        except (QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError):
            continue
        except PartqError as error:
            complain(error)


def _removable(
    queue: Queue, state: QueueState, tables: Sequence[PartitionTable], readers: Sequence[Group], now_ms: int
) -> dict[int, int]:
    """For each table, the end of the files to remove: every group has acknowledged them, or they are too old or too many. Raises the groups' floors."""

    def next_offsets() -> dict[int, int]:
        queue.refresh()
        return {table.partition: table.next_offset for table in queue.partitions}

    floors = [group.raise_floors(state.queue_id, next_offsets) for group in readers]

    def floor_of(number: int) -> int:
        if number in state.partition_numbers:
            return 0 if state.holds_dead_messages else min((f.get(number, 0) for f in floors), default=0)
        stuck = stuck_from(queue, readers) if number == PARENT else 0
        return max(state.removed_ends.get(number, 0), stuck)

    def end(table: PartitionTable) -> int:
        if table.partition == PARENT and state.copying is not None:
            return 0  # the copy has begun since the tables were listed
        table.refresh()
        index = table.index
        # A floor beyond the partition's end does not count: no group can have finished messages that do not exist yet.
        floor = floor_of(table.partition)
        settled = floor if floor <= table.next_offset else 0
        count = removable(
            index.end, index.size, index.enqueued_us, settled, state.settings, now_ms,
            operating=table.partition in state.partition_numbers,
            stuck=table.partition == PARENT and waits_for_copies(queue, readers),
        )  # fmt: skip
        return int(index.end[count - 1]) if count else 0

    return dict(zip([table.partition for table in tables], queue.store.map(end, tables), strict=True))


def _removed(queue: Queue) -> list[PartitionTable]:
    """The tables that are no longer in use and whose files are not all deleted yet, but not the parent while it is being copied."""
    state = queue.state
    tables = [
        queue.table(n)
        for n in state.all_partitions
        if n not in state.partition_numbers and (n != PARENT or state.copying is None)
    ]

    def holds_files(table: PartitionTable) -> bool:
        return bool(queue.store.files.list_files(table.folder))

    holding = queue.store.map(holds_files, tables)
    return [table for table, holds in zip(tables, holding, strict=True) if holds]


def _behind(queue: Queue, group: Group) -> bool:
    floors = group.state.committed_floors(queue.state.queue_id)
    return any(floors(table.partition) < table.next_offset for table in queue.partitions)
