"""The history of a group, read for people and for programs that look at it."""

from __future__ import annotations

import pyarrow as pa

from spark_partq.storage import ackrows, control
from spark_partq.storage.delta import CasTable
from spark_partq.storage.groups import open_group
from spark_partq.storage.rows import Row, RowFiles, RowTable
from spark_partq.storage.store import Store, group_folder


def history(store: Store, group: str) -> pa.Table:
    """Every fact of the group, in order.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    """
    rows = open_group(store, group).history()
    return pa.Table.from_pylist(rows, _schema(control_files(store, group)))


def recent(store: Store, group: str, count: int) -> list[Row]:
    """The last `count` facts, in order. Reads no more files than that needs, however long the history is."""
    table, disk = control_table(store, group), control_files(store, group)
    table.refresh()
    rows: list[Row] = []
    # A file is named by the version that brought it in, and holds what was committed up to then.
    for path in reversed([path for path in table.paths() if control.kind_of(path) != control.SNAPSHOT]):
        if len(rows) >= count:
            break
        rows += disk.read(path)
    return sorted(rows, key=lambda row: int(row["seq"]))[-count:] if count > 0 else []


def acknowledgements(store: Store, group: str) -> pa.Table:
    """The rows that are left in the ack table, with the times at which they were written."""
    about = f"{group_folder(group)}/acks", f"the acknowledgements of group {group!r}", ackrows.COLUMNS
    table = RowTable(store, *about)
    rows: list[Row] = []
    if table.exists():
        table.refresh()
        rows = table.rows()
    return pa.Table.from_pylist(rows, _schema(RowFiles(store, *about)))


def control_table(store: Store, group: str) -> CasTable:
    return CasTable(store, *_about(group))


def control_files(store: Store, group: str) -> RowFiles:
    return RowFiles(store, *_about(group), control.COLUMNS)


def _about(group: str) -> tuple[str, str]:
    return f"{group_folder(group)}/control", f"the control table of group {group!r}"


def _schema(files: RowFiles) -> pa.Schema:
    return pa.schema(files.created.delta_schema.to_arrow())
