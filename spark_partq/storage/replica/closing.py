"""Ends the following of a table: from then on the copy is a table of its own (S7).

A table is closed once, by the promotion whose mark it takes first: after the mark nothing of a pass can be put any more, and whoever comes later,
in the same promotion or in that of another queue of a group, only finishes what the mark says. So who slept changes nothing of a table that is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable

from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.files import FileAlreadyExists
from spark_partq.storage.log import Conflict, DeltaLog, retrying
from spark_partq.storage.log.checkpoints import encode_checkpoint
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.replica.table_copy import put_same
from spark_partq.storage.rows import version_of
from spark_partq.storage.store import Store

# The version up to which nothing can be put any more, with the incarnation of each promotion.
CLOSED = "partq:closed"

TakingOver = Callable[[], Collection[ReplicaState]]


def _nobody() -> Collection[ReplicaState]:
    return ()


def close(store: Store, folder: str, incarnation: str, jumps: Iterable[int], taking_over: TakingOver = _nobody) -> None:
    """End the following of a table, unless another promotion has.

    A commit with a mark takes the next number. If a jump was announced beyond it, or files of later commits were copied, which would look as if
    the log had been cut off (`storage.rows`), a checkpoint of what the copy is now brings the log behind them.

    Parameters
    ----------
    incarnation : str
        Of the promotion.
    jumps : iterable of int
        Versions of all jumps that were announced before the promotion began.
    taking_over : function
        The replicas here that take over, of all queues to which the table belongs; asked after the table was read.
    """
    mine, announced = f"{CLOSED}/{incarnation}", tuple(jumps)

    def attempt() -> None:
        ahead = [version_of(info.name) or 0 for info in store.files.list_files(folder)]
        table = DeltaLog(store, folder, f"the table {folder}")
        table.refresh()
        if table.recorded(mine) < 0:
            replicas = taking_over()
            if any(replica.promoted for replica in replicas):
                return  # it is used
            apps = {f"{CLOSED}/{replica.incarnation}" for replica in replicas}
            marks = {app: txn.version for app, txn in table.snapshot.transactions.items() if app.startswith(CLOSED)}
            theirs = [version for app, version in marks.items() if app in apps]
            until = max(theirs) if theirs else max((*announced, *ahead, *marks.values()), default=0)
            table.commit(transactions={mine: until}, operation="CLOSE REPLICA")
        if table.version < table.recorded(mine):
            _skip_to(table, table.recorded(mine), mine)
            raise Conflict  # a jump may have been made there, which knows nothing of the mark

    retrying(store.runtime, attempt, f"the end of a replica's table {folder}")


def was_closed(store: Store, target: Store, folder: str) -> bool:
    """Whether a promotion there has ended the following of a table's copy: it has a mark that the original has not.

    Not one that was cancelled: then nobody uses the table.
    """
    original, copy = (_marks(DeltaLog(of, folder, f"the table {folder}")) for of in (store, target))
    if copy <= original:
        return False
    replicas = [ReplicaTable(target, queue).refresh() for queue in target.named("queues")]
    not_ended = {f"{CLOSED}/{replica.incarnation}" for replica in replicas if replica and not replica.promoted}
    return not copy <= original | not_ended


def _marks(table: DeltaLog) -> set[str]:
    if not table.exists():
        return set()
    table.refresh()
    return {app for app in table.snapshot.transactions if app.startswith(CLOSED)}


def _skip_to(table: DeltaLog, version: int, mark: str) -> None:
    """Put a checkpoint of what the table is, unless there is one of that version.

    The first with the mark puts it, before the table is used. So who sleeps here, and knows less by then, finds that version taken.
    """
    with table.explained():
        snapshot = table.log.load(tombstones=True)
    if mark not in snapshot.transactions or snapshot.version >= version:
        return
    snapshot.version = version
    with contextlib.suppress(FileAlreadyExists):
        put_same(table.files, table.log.checkpoint_path(version), encode_checkpoint(snapshot)[0])
