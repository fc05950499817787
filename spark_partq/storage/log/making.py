"""Making a table where another one may have been."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from spark_partq.core.errors import CorruptTableError
from spark_partq.storage.files import FileMissing
from spark_partq.storage.log import strangers
from spark_partq.storage.log.entries import Entry
from spark_partq.storage.log.folder import LogFolder, LogMissing
from spark_partq.storage.log.retry import Conflict, retrying
from spark_partq.storage.log.spec import TableSpec
from spark_partq.storage.log.table import DeltaLog


def make(table: DeltaLog, table_id: str, spec: TableSpec, check: Callable[[], object]) -> bool:
    """Make the table with that id unless it is there, and return whether it was made here.

    A process that makes tables for an owner that is deleted meanwhile may leave one without files. It is no table of the present owner, and is
    removed.

    Parameters
    ----------
    table_id : str
        Empty: any.
    check : function
        Raises if the owner is not there any more. Asked before another table is removed: only a present owner may know that it is none of a later
        owner.

    Raises
    ------
    CommitFailedError
    CorruptTableError
        If another table with files lies there.
    """

    def attempt() -> bool:
        first = _first(table.log)
        if first is None and not table.log.names().checkpoints:
            table.create(spec)
            return True
        if first is None or _is(first, table_id):  # if entries were cleaned up, its reader says whose it is
            return False
        check()
        with contextlib.suppress(LogMissing):  # another process has removed it
            if table.log.load().files:
                raise CorruptTableError(
                    f"{table.what} cannot be made at {table.uri}: files of another table lie there. Move that folder to another place, and run "
                    "this again",
                    path=table.uri,
                )
            strangers.remove(table.log, 0, first)
        raise Conflict

    with table.explained():
        return retrying(table.store.runtime, attempt, table.what)


def take_back(log: LogFolder, table_id: str) -> None:
    """Remove a table with that id that was just made, as its owner is not there any more."""
    first = _first(log)
    if first is not None and _is(first, table_id):
        strangers.remove(log, 0, first)


def _first(log: LogFolder) -> Entry | None:
    try:
        return log.read(0)
    except FileMissing:
        return None


def _is(first: Entry, table_id: str) -> bool:
    return first.metadata is not None and table_id in ("", first.metadata.id)
