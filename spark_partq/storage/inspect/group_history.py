"""The history of a group, read for people and for programs that analyse it."""

from __future__ import annotations

import pyarrow as pa

from spark_partq.storage.group import ack_table as ackrows
from spark_partq.storage.group import control
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.rows import Row, RowFiles, RowTable
from spark_partq.storage.store import Store, group_folder


def history(store: Store, group: str) -> pa.Table:
    """Every fact of the group, in order, also of a deleted group.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    """
    return open_group(store, group, deleted=True).history_table()


def acknowledgements(store: Store, group: str) -> pa.Table:
    """The rows that are left in the ack table, with the times when they were written."""
    folder = open_group(store, group).acks_folder
    about = store, folder, f"the acknowledgements of group {group!r}", ackrows.COLUMNS, ackrows.MOST_ROWS
    table = RowTable(*about)
    rows: list[Row] = []
    if table.exists():
        table.refresh()
        rows = table.rows()
    return pa.Table.from_pylist(rows, RowFiles(*about).arrow)


def control_log(store: Store, group: str) -> DeltaLog:
    return DeltaLog(store, *_about(group))


def control_files(store: Store, group: str) -> RowFiles:
    return RowFiles(store, *_about(group), control.COLUMNS, control.MOST_FACTS)


def _about(group: str) -> tuple[str, str]:
    return f"{group_folder(group)}/control", f"the control table of group {group!r}"
