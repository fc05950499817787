"""Removing what nobody needs any more (Q8): metadata first, files after a grace period."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from spark_partq.core.queue.partition_map import PARENT
from spark_partq.storage.group.handle import groups_of
from spark_partq.storage.procedures.copy_stuck import close_parent
from spark_partq.storage.procedures.drain import remove_drained
from spark_partq.storage.procedures.partition_map import update_groups
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.queue.file_index import FileIndex, enqueued_at
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.partition_table import PartitionTable


@dataclass(frozen=True)
class MaintenanceReport:
    """What a run of `maintain` did to one queue."""

    queue: str
    removed_messages: int
    vacuumed_files: int
    waiting_for: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


def maintain(queue: Queue) -> MaintenanceReport:
    """Remove whole files of messages that every group has acknowledged, or that have outlived `retention_ms`.

    A group's acknowledgements are first fixed as floors in its control table, below which no later owner starts; only
    then are messages removed. With no group, only the retention time removes. Files are deleted once no log has named
    them for `vacuum_grace_ms`; a write under way finishes sooner than that or writes its files again.

    Partitions that a change of the count left to be drained are removed if they are (S2).
    """
    check_primary(queue, opening=True)
    update_groups(queue)
    remove_drained(queue)
    close_parent(queue)
    state = queue.state
    groups = groups_of(queue.store, state.queue_id)

    def ends() -> dict[int, int]:
        queue.refresh()
        return {table.partition: table.next_offset for table in queue.partitions}

    floors = [group.raise_floors(state.queue_id, ends) for group in groups]
    oldest = None
    if state.settings.retention_ms is not None:
        oldest = queue.store.now() - dt.timedelta(milliseconds=state.settings.retention_ms)

    def floor_of(number: int) -> int:
        if number in state.partition_numbers:
            return min((f.get(number, 0) for f in floors), default=0)
        left = [
            group.position((state.queue_id, number)) for group in groups
        ]  # removed, or the parent with what is stuck
        return max(state.removed_ends.get(number, 0), min((p for p in left if p is not None), default=0))

    def clean(table: PartitionTable) -> tuple[int, int]:
        floor = floor_of(table.partition)

        def until(index: FileIndex) -> int:
            # A floor beyond the end is none: it says nothing of what is not there yet.
            count = int(np.searchsorted(index.end, floor, side="right")) if floor <= table.next_offset else 0
            while oldest and count < len(index) and enqueued_at(int(index.enqueued_us[count])) < oldest:
                count += 1
            return count

        messages = table.remove(until)
        table.checkpoint()
        return messages, table.vacuum(state.settings.vacuum_grace_ms)

    done = queue.store.map(clean, [*queue.partitions, *_removed(queue)])
    queue.control.vacuum(state.settings.vacuum_grace_ms)
    for group in groups:
        group.vacuum(state.settings.vacuum_grace_ms)
    waiting = [g.name for g, f in zip(groups, floors, strict=True) if _behind(queue, f)]
    return MaintenanceReport(
        queue.name, sum(messages for messages, _ in done), sum(files for _, files in done), tuple(waiting)
    )


def _removed(queue: Queue) -> list[PartitionTable]:
    """The tables that are not operating and whose files are not all deleted yet; of a parent that is being copied none are."""
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


def _behind(queue: Queue, floors: dict[int, int]) -> bool:
    return any(floors.get(table.partition, 0) < table.next_offset for table in queue.partitions)
