"""Files of a table that no version names: what a process that died has left, and what was removed or replaced long ago."""

from __future__ import annotations

from collections.abc import Collection

from spark_partq.storage.files import is_litter, is_temporary
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.log.retry import retrying
from spark_partq.storage.log.table import VACUUMED, DeltaLog


def unnamed_files(
    log: LogFolder, grace_ms: int, kept: Collection[str] = (), as_of_ms: int | None = None
) -> tuple[int, list[str]]:
    """The newest version, and the files that none has named for `grace_ms`.

    Parameters
    ----------
    kept : collection of str
        Names of files that are about to be committed, however old they are.
    as_of_ms : int, optional
        The moment, by the store's clock, at which `kept` was begun to be gathered; now, if it is not given.

    Raises
    ------
    LogMissing, DamagedLog
    """
    # In this order: a file that is committed in between is live.
    there = log.files.list_files(log.folder)
    snapshot = log.load(tombstones=True)
    now, tombstones = log.store_ms() if as_of_ms is None else as_of_ms, snapshot.tombstones or {}
    found = []
    for info in there:
        removed_ms = tombstones[info.name].deleted_ms if info.name in tombstones else 0
        unnamed_ms = now - max(removed_ms, info.modified_ns // 1_000_000)
        being_written = is_temporary(info.name) and not is_litter(info, now)
        is_named = info.name in snapshot.files or info.name in kept
        if not is_named and unnamed_ms >= grace_ms and not being_written:
            found.append(info.name)
    return snapshot.version, found


def vacuum(log: DeltaLog, grace_ms: int, kept: Collection[str] = (), as_of_ms: int | None = None) -> int:
    """Delete files that no version has named for `grace_ms` (whole hours, rounded up), as far as the log remembers; return how many."""

    def attempt() -> list[str]:
        version, unnamed = unnamed_files(log.log, -(-grace_ms // 3_600_000) * 3_600_000, kept, as_of_ms)
        if unnamed:  # whoever is about to commit such a file loses the race against this commit
            log.refresh()
            log.commit(operation=VACUUMED, onto=version)
        return unnamed

    with log.explained():
        return log.log.delete(retrying(log.store.runtime, attempt, log.what))
