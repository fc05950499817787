"""Putting an entry so that it counts once, or not at all."""

from __future__ import annotations

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.storage.files import FileAlreadyExists, FileMissing
from spark_partq.storage.log.entries import Entry, encode
from spark_partq.storage.log.folder import DamagedLog, LogFolder
from spark_partq.storage.log.retry import Conflict

# Where the answer to a put was lost, it is put so often.
_PUTS = 3


class NotCommitted(Exception):
    """The store refused the commit; the text says why, and what is known of it."""


class LeftBehind(Conflict):
    """The log has gone on and been cleaned up, so that the next entry is not behind the last one that was read."""


def put_entry(log: LogFolder, version: int, entry: Entry) -> None:
    """Let the entry be that version of the log.

    Raises
    ------
    Conflict
        If another one is.
    NotCommitted
    """
    _put(log, version, entry)
    if version == 0:
        is_in = log.hint() is None  # else the table is old, and its first entry was cleaned up
    else:
        is_in = log.of_version(version - 1) is not None or _is_in(log, version, entry)
    if not is_in:
        log.files.delete(log.entry_path(version))
        raise LeftBehind


def _put(log: LogFolder, version: int, entry: Entry) -> None:
    """Put the entry if there is none of that version; an outcome that is unknown is settled by the entry's token."""
    path, data = log.entry_path(version), encode(entry)
    problem: StoreUnavailableError | None = None
    outcome = "nothing was changed"
    for _ in range(_PUTS):
        try:
            log.files.put_if_absent(path, data)
            return
        except FileAlreadyExists:
            pass
        except FileMissing:
            raise LeftBehind from None  # the folder is gone; the next look says so
        except StoreUnavailableError as error:
            problem = error
        try:
            if log.read(version).token == entry.token:
                return
            raise Conflict
        except FileMissing:
            outcome = "nothing was changed"
        except DamagedLog:
            raise Conflict from None  # the next look says what is wrong
        except StoreUnavailableError as error:
            problem, outcome = error, "whether it went through is not known; what is read next says so"
    reason = str(problem).partition("] ")[2] or "the log vanishes while it is written"
    raise NotCommitted(f"the store refused a commit ({reason}); {outcome}") from problem


def _is_in(log: LogFolder, version: int, entry: Entry) -> bool:
    """The entry before the one that was just put is gone, as a clean-up behind a checkpoint removed it. Is this entry part of the log?

    If not, the log had gone on while this process slept, and its next name was free only because it had been cleaned up. As entries
    are removed in the order of their versions, an entry of the log is never there without the one behind it.
    """
    newest = max(log.names().checkpoints, default=-1)
    after = _read_if_there(log, version + 1)
    if after is not None:
        is_in = after.previous_token == entry.token
    else:
        is_in = newest == version and log.load().token == entry.token
    mine = _read_if_there(log, version)
    if mine is None or mine.token != entry.token:
        raise NotCommitted(
            "this process slept while it committed, and the log was cleaned up meanwhile; whether the commit went through is not "
            "known; what is read next says so"
        )
    return is_in


def _read_if_there(log: LogFolder, version: int) -> Entry | None:
    try:
        return log.read(version)
    except (FileMissing, DamagedLog):
        return None
