"""Closes the copy of a table: from then on no pass can write to it, and it is a table of its own (S7).

A table is closed once, by the promotion that first puts its mark. After the mark a pass can put nothing any more. A process that comes later, in
the same promotion or in the promotion of another queue of a group, only finishes what the mark says. So a process that slept changes nothing in
a table that is in use.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable

from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.files import FileAlreadyExists
from spark_partq.storage.log import Conflict, DeltaLog, retrying
from spark_partq.storage.log.checkpoints import encode_checkpoint
from spark_partq.storage.replica.copied_files import put_same
from spark_partq.storage.rows import version_of
from spark_partq.storage.store import Store

# Prefix of a mark, which names the promotion's incarnation. Its value is the version up to which nothing can be put any more.
CLOSED = "partq:closed"

TakingOver = Callable[[], Collection[ReplicaState]]


def _nobody() -> Collection[ReplicaState]:
    return ()


def close(store: Store, folder: str, incarnation: str, jumps: Iterable[int], taking_over: TakingOver = _nobody) -> None:
    """Close the copy of a table, unless another promotion has closed it.

    A commit with a mark takes the next number. A jump may have been announced beyond this number, or files of later commits may have been
    copied, which would look as if the log had been cut off (`storage.rows`). Then a checkpoint of the present state moves the log beyond them.

    Parameters
    ----------
    incarnation : str
        The incarnation of the promotion.
    jumps : iterable of int
        Versions of all jumps that were announced before the promotion began.
    taking_over : function
        Returns the replicas here that take over, of all queues to which the table belongs. Called after the table was read.
    """
    mine, announced = f"{CLOSED}/{incarnation}", tuple(jumps)

    def attempt() -> None:
        ahead = [version_of(info.name) or 0 for info in store.files.list_files(folder)]
        table = DeltaLog(store, folder, f"the table {folder}")
        table.refresh()
        if table.recorded(mine) < 0:
            replicas = taking_over()
            if any(replica.promoted for replica in replicas):
                return  # the table is in use
            apps = {f"{CLOSED}/{replica.incarnation}" for replica in replicas}
            marks = {app: txn.version for app, txn in table.snapshot.transactions.items() if app.startswith(CLOSED)}
            theirs = [version for app, version in marks.items() if app in apps]
            until = max(theirs) if theirs else max((*announced, *ahead, *marks.values()), default=0)
            table.commit(transactions={mine: until}, operation="CLOSE REPLICA")
        if table.version < table.recorded(mine):
            _skip_to(table, table.recorded(mine), mine)
            raise Conflict  # a jump may have been made there, which does not have the mark

    retrying(store.runtime, attempt, f"the end of a replica's table {folder}")


def was_closed(store: Store, target: Store, folder: str) -> bool:
    """Whether a promotion there has closed the copy of a table: the copy has a mark that the original lacks."""
    original, copy = (_marks(DeltaLog(of, folder, f"the table {folder}")) for of in (store, target))
    return not copy <= original


def was_closed_by(table: DeltaLog, incarnations: Collection[str]) -> bool:
    """Whether one of these promotions has closed a table."""
    return not _marks(table).isdisjoint(f"{CLOSED}/{incarnation}" for incarnation in incarnations)


def ends_with_mark(table: DeltaLog) -> bool:
    """Whether nothing was committed to a table since it was closed."""
    table.refresh()
    until = {txn.version for app, txn in table.snapshot.transactions.items() if app.startswith(CLOSED)}
    return table.version in until or table.log.read(table.version).operation == "CLOSE REPLICA"


def _marks(table: DeltaLog) -> set[str]:
    if not table.exists():
        return set()
    table.refresh()
    return {app for app in table.snapshot.transactions if app.startswith(CLOSED)}


def _skip_to(table: DeltaLog, version: int, mark: str) -> None:
    """Put a checkpoint of the table's present state under that version, unless there is one.

    The first process that has seen the mark puts it, before the table is used. So a process that sleeps here, and knows an older state, finds
    that version taken.
    """
    with table.explained():
        snapshot = table.log.load(tombstones=True)
    if mark not in snapshot.transactions or snapshot.version >= version:
        return
    snapshot.version = version
    with contextlib.suppress(FileAlreadyExists):
        put_same(table.files, table.log.checkpoint_path(version), encode_checkpoint(snapshot)[0])
