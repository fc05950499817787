"""Putting an entry so that it counts once, or not at all."""

from __future__ import annotations

from collections.abc import Callable

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.storage.files import FileAlreadyExists, FileMissing
from spark_partq.storage.log import strangers
from spark_partq.storage.log.entries import ENGINE, PREVIOUS_TOKEN, TABLE, TOKEN, Entry, Metadata, encode
from spark_partq.storage.log.folder import MAX_ENTRY_BYTES, DamagedLog, LogFolder
from spark_partq.storage.log.retry import Conflict
from spark_partq.storage.store import Store

# Where the answer to a put was lost, it is put so often.
_PUTS = 3
# What takes longer may have been put again by the client library, which does not tell.
_PATIENCE_S = 30.0
_UNKNOWN = "whether the commit went through is not known; what is read next says so"


class NotCommitted(Exception):
    """The store refused the commit; the text says why, and what is known of it."""


class LeftBehind(Conflict):
    """Others went on and cleaned up while this process slept: the log does not end where it had read it to end."""


def commit_info(store: Store, operation: str, table: Metadata | None, previous: str | None) -> dict[str, object]:
    """The first line of a new entry: which commit it is, of which table, and which one it follows."""
    info: dict[str, object] = {"timestamp": store.now_ms(), "operation": operation, "operationParameters": {}}
    info |= {"engineInfo": ENGINE, TOKEN: store.runtime.new_uuid().hex, **({TABLE: table.id} if table else {})}
    return info if previous is None else {**info, PREVIOUS_TOKEN: previous}


def put_entry(log: LogFolder, version: int, entry: Entry, slept: Callable[[], bool]) -> None:
    """Let the entry be that version of the log.

    Parameters
    ----------
    slept : function
        Whether the last refresh is so long ago that the log may have gone on and been cleaned up; asked after the put.

    Raises
    ------
    Conflict
        If another one is.
    NotCommitted
    """
    runtime = log.store.runtime
    began_s = runtime.monotonic_s()
    answered = _put(log, version, entry)
    try:
        is_in = (_follows(log, version, entry) and not slept()) or _is_in(log, version, entry)
        if not is_in:
            _take_back(log, version, entry)
    except StoreUnavailableError as error:
        raise NotCommitted(f"the store did not answer ({error.message}); {_UNKNOWN}") from error
    if not is_in and (not answered or runtime.monotonic_s() - began_s > _PATIENCE_S):
        # The first put may have been the one that counts, and may have been cleaned up since.
        raise NotCommitted(f"the store answered too late; {_UNKNOWN}")
    if not is_in:
        raise LeftBehind


def _take_back(log: LogFolder, version: int, entry: Entry) -> None:
    """Remove the entry that was just put, as it is no part of the log."""
    if max(log.names().checkpoints, default=-1) >= version:  # nobody commits that version again
        log.files.delete(log.entry_path(version))
    else:
        strangers.remove(log, version, entry)


def _follows(log: LogFolder, version: int, entry: Entry) -> bool:
    """Whether the entry before is there, and is the one that this one was decided on. Then nothing after it was ever cleaned up."""
    if version == 0:
        return False
    try:
        return log.read(version - 1).token == entry.previous_token
    except (FileMissing, DamagedLog):
        return False


def _put(log: LogFolder, version: int, entry: Entry) -> bool:
    """Put the entry if there is none of that version; an outcome that is unknown is settled by the entry's token.

    Returns whether every put was answered.
    """
    path, data = log.entry_path(version), encode(entry)
    if len(data) > MAX_ENTRY_BYTES:
        raise NotCommitted(
            f"the commit names {len(entry.adds) + len(entry.removes):,} files, whose entry of {len(data):,} bytes is more than the "
            f"{MAX_ENTRY_BYTES:,} that readers take; nothing was changed. Write fewer files at once"
        )
    problem: StoreUnavailableError | None = None
    # What a store over a network did not answer may still be under way.
    outcome = unchanged = "nothing was changed" if log.files.is_local else _UNKNOWN
    for _ in range(_PUTS):
        try:
            log.files.put_if_absent(path, data)
            return problem is None
        except FileAlreadyExists:
            pass
        except FileMissing:
            raise LeftBehind from None  # the folder is gone; the next refresh says so
        except StoreUnavailableError as error:
            problem = error
        try:
            found = log.read(version)
            if found.token == entry.token:
                log.files.force(path)
                log.files.force(log.path)
                return problem is None
            if entry.is_stranger(found) and _follows(log, version, entry):
                strangers.remove(log, version, found)
            raise Conflict
        except FileMissing:
            outcome = unchanged
        except DamagedLog:
            raise Conflict from None  # the next refresh says what is wrong
        except StoreUnavailableError as error:
            problem, outcome = error, _UNKNOWN
    if problem is None:  # the store says that there is one, and that there is none: somebody is just writing it
        raise Conflict
    raise NotCommitted(f"the store refused a commit ({problem.message}); {outcome}") from problem


def _is_in(log: LogFolder, version: int, entry: Entry) -> bool:
    """Whether the entry that was just put is part of the log.

    It is not, if others went on while this process slept: they put an entry of this version, and cleaned it up, so that its name was
    free again. Then there is a later checkpoint, to which no chain of entries leads from this one. As entries are removed in the
    order of their versions, an entry of the log is never there without those after it.
    """
    newest = max(log.names().checkpoints, default=-1)
    if newest < version:  # nothing of this version was ever cleaned up
        return version == 0 or log.holds(version - 1, entry.previous_token)
    token, is_in = entry.token, True
    for later in range(version + 1, newest + 1):
        after = _read_if_there(log, later)
        is_in = after is not None and after.previous_token == token
        if after is None or not is_in:
            break
        token = after.token
    try:
        is_in = is_in and log.checkpoint(newest, tombstones=False).token == token
    except FileMissing:  # a newer one has taken its place since
        return _is_in(log, version, entry)
    mine = _read_if_there(log, version)
    if mine is None or mine.token != entry.token:
        raise NotCommitted(f"this process slept while it committed, and the log was cleaned up meanwhile; {_UNKNOWN}")
    return is_in


def _read_if_there(log: LogFolder, version: int) -> Entry | None:
    try:
        return log.read(version)
    except FileMissing:
        return None
    except DamagedLog as error:
        raise NotCommitted(f"the log is damaged ({error}); {_UNKNOWN}") from error
