"""Whether a table and its copy have the same history (S7).

Each commit has its own token. If the history is the same, the table still has the version at which the copy ends, with the same token. Or
it has cleaned that version up and gone on; then its checkpoint must know what the copy holds. Otherwise the table was restored to an older
state, for example from a backup, or another program has written to the copy. To copy more would mix two histories, and data that only the
copy has would be lost.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_partq.core.errors import OtherHistoryError, ReplicaError
from spark_partq.core.queue.records import last_written_ms, may_be_forgotten
from spark_partq.storage.files import FileMissing, FileTooLarge
from spark_partq.storage.group.control import MOST_FACTS
from spark_partq.storage.log.entries import Add, ForeignEntry
from spark_partq.storage.log.folder import DamagedLog, LogFolder, LogMissing
from spark_partq.storage.log.snapshot import Snapshot
from spark_partq.storage.parquet import read_columns, read_within
from spark_partq.storage.queue.file_index import SINCE, Ints, IrregularFiles, offsets_of, times_of
from spark_partq.storage.rows import MAX_BYTES, most_of
from spark_partq.storage.store import Store, partition_folder, partition_numbers, queue_folder

_FACT_COLUMNS = ("seq", "kind", "body", "by", "at")
# Offsets, and when each one's message was enqueued: microseconds since 1970
_Times = tuple[Ints, Ints]
_NONE: _Times = (np.empty(0, np.int64), np.empty(0, np.int64))


def check_same_history(source: LogFolder, target: LogFolder, at: int, token: str | None) -> bool:
    """Refuse a copy that ends at version `at` with that token, if its original has another token at that version.

    Returns
    -------
    bool
        False if the original no longer has that version, or does not have it yet.

    Raises
    ------
    OtherHistoryError, DamagedLog
    ReplicaError
        If the original is another table.
    """
    theirs = token_at(source, at)
    if token == theirs:
        return theirs is not None
    ids = [_table_id(log) for log in (source, target)]
    unknown = None in ids
    if (unknown and theirs is not None) or (not unknown and ids[0] != ids[1]):
        raise ReplicaError(
            f"{target.store.uri_of(target.folder)} is no copy of {source.store.uri_of(source.folder)}, or has been "
            "written since; choose another location",
            folder=source.folder,
        )
    if theirs is not None:
        raise other_history(source, target, f"has another version {at} than")
    return False


def check_has_version(source: LogFolder, target: LogFolder, at: int, token: str | None) -> bool:
    """Refuse a copy that ends at version `at` with that token, if its original has another token at that version, or does not have that version yet.

    Returns
    -------
    bool
        False if the original has cleaned that version up.

    Raises
    ------
    OtherHistoryError, ReplicaError, DamagedLog
        As `check_same_history`.
    """
    if check_same_history(source, target, at, token):
        return True
    names = source.names()
    check_not_behind(source, target, names.last, at)
    # A restored older state may have gone on to this version since the version was looked for.
    return at in names.entries and check_same_history(source, target, at, token)


def check_not_behind(source: LogFolder, target: LogFolder, until: int, at: int) -> None:
    """Refuse a copy that ends at version `at`, while its original ends at `until`.

    Raises
    ------
    OtherHistoryError
    ReplicaError
        If the original does not exist any more.
    """
    if until < 0 <= at:
        raise ReplicaError(
            f"{source.store.uri_of(source.folder)} is not there any more, and its copy in {target.store.uri} ends at version {at}. "
            "Nothing was copied or deleted",
            folder=source.folder,
        )
    if until < at:
        raise other_history(source, target, f"ends at version {until} and lacks version {at} of")


def other_history(source: LogFolder, target: LogFolder, how: str) -> OtherHistoryError:
    what = (
        f"{source.store.uri_of(source.folder)} {how} its copy in {target.store.uri}: an older state was put back there, or something "
        "else wrote to the copy"
    )
    return OtherHistoryError(
        f"{what}. Nothing was copied or deleted. To use what the copy has, stop all programs that use the primary and promote the replica by "
        "force; to go on with the primary as it is, remove the replica and replicate to another place",
        what=what,
        folder=source.folder,
    )


def token_at(log: LogFolder, version: int) -> str | None:
    """The token of a version's commit, from its entry, or from the checkpoint to which a copy has jumped. None if neither exists."""
    with contextlib.suppress(FileMissing):
        return log.read(version).token
    with contextlib.suppress(FileMissing):
        return log.checkpoint(version, tombstones=False).token
    return None


def check_leads_on(source: LogFolder, target: LogFolder, newer: Snapshot) -> None:
    """Refuse a checkpoint that does not know what the copy holds. The versions between the two do not exist any more.

    The checkpoint of a partition must name each of the copy's files that the partition has not removed, or a file with the same messages in
    its place. The checkpoint of a control table must have the copy's last fact. No application transaction may go back, except of a sink
    that was forgotten meanwhile.

    Parameters
    ----------
    newer : Snapshot
        The checkpoint, whose files are in the copy's folder by now.

    Raises
    ------
    OtherHistoryError, LogMissing, DamagedLog
    """
    copy = target.load()
    if copy.metadata is not None and newer.metadata is not None and copy.metadata.id != newer.metadata.id:
        raise other_history(source, target, "is another table than")
    forgotten = may_be_forgotten(copy.transactions, last_written_ms(newer.transactions))
    for app, known in copy.transactions.items():
        if app not in forgotten and app in newer.transactions and newer.transactions[app].version < known.version:
            raise other_history(source, target, f"lacks what {app} says in")
    ends = [add.partition_values.get("base_offset") for add in (*copy.files.values(), *newer.files.values())]
    if None not in ends:
        _check_files(source, target, copy, newer)
    elif ends:
        _check_facts(source, target, copy, newer)


def _check_files(source: LogFolder, target: LogFolder, copy: Snapshot, newer: Snapshot) -> None:
    first = min(map(_base, newer.files.values()), default=None)
    # Rewritten files: files without deleted messages, and segments, take the place of others
    rewritten = sorted((add for add in newer.files.values() if add.tags), key=_base)
    bases = list(map(_base, rewritten))
    removed_until = math.inf if first is None else first
    missing = (add for add in copy.files.values() if add.path not in newer.files and _end(add) > removed_until)
    for at, adds in itertools.groupby(
        sorted(missing, key=_base), lambda add: bisect.bisect_right(bases, _base(add)) - 1
    ):
        held = _times(target, rewritten[at]) if at >= 0 else _NONE
        for add in adds:
            if at < 0 or _end(add) > _end(rewritten[at]) or not _agree(_times(target, add), held):
                raise other_history(source, target, f"lacks the messages from {_base(add)} on, as they are in")


def _agree(mine: _Times, theirs: _Times) -> bool:
    """Whether the messages that both have were enqueued at the same moments. In another history they were not."""
    _, here, there = np.intersect1d(mine[0], theirs[0], assume_unique=True, return_indices=True)
    return np.array_equal(mine[1][here], theirs[1][there])


def _times(log: LogFolder, add: Add) -> _Times:
    """The offsets of a file, and when their messages were enqueued.

    For a segment, only the offsets that are left; the segment's file is in the copy.
    """
    base, last_us, is_segment = _base(add), *_time(add)
    if not is_segment:
        offsets = np.arange(base, _end(add))
        return offsets, np.full(len(offsets), last_us)
    try:
        with log.store.files.open_input(f"{log.folder}/{add.path}") as file:
            rows = read_columns(pq.ParquetFile(file), ["_row", "_enqueued_at"])
        numbers, times = (rows[name].cast(pa.int64()).to_numpy() for name in ("_row", "_enqueued_at"))
    except (FileMissing, pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise DamagedLog(f"{add.path} cannot be read ({error})") from error
    return base + numbers, times


def _time(add: Add) -> tuple[int, bool]:
    try:
        last_us, _ = times_of(add)
    except IrregularFiles as error:
        raise DamagedLog(str(error)) from None
    return last_us, SINCE in (add.tags or {})


def _end(add: Add) -> int:
    try:
        return _base(add) + offsets_of(add)
    except IrregularFiles as error:
        raise DamagedLog(str(error)) from None


def _base(add: Add) -> int:
    return int(add.partition_values["base_offset"] or 0)


def _check_facts(source: LogFolder, target: LogFolder, copy: Snapshot, newer: Snapshot) -> None:
    mine, theirs = (_facts(target.store, target.folder, snapshot.files) for snapshot in (copy, newer))
    last = max(mine, default=None)
    if last is not None and mine[last] != theirs.get(last):
        raise other_history(source, target, f"has another fact {last} than")


def _facts(store: Store, folder: str, names: Iterable[str]) -> dict[int, tuple[object, ...]]:
    """The facts in these files, by number; empty if the files hold no facts."""
    found: dict[int, tuple[object, ...]] = {}
    for name in names:
        if "-snapshot-" in name:
            continue
        try:
            data = store.files.read(f"{folder}/{name}", MAX_BYTES)
            file = pq.ParquetFile(pa.BufferReader(data))
            if not {"seq", "kind"} <= set(file.schema_arrow.names):
                return {}
            for batch in read_within(data, file, _FACT_COLUMNS, most_of(MOST_FACTS, len(data))):
                rows = batch.to_pylist()
                found |= {row["seq"]: tuple(row[column] for column in _FACT_COLUMNS[1:]) for row in rows}
        except (FileTooLarge, pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as error:
            raise DamagedLog(f"{name} cannot be read ({error})") from error
    return found


def _table_id(log: LogFolder) -> str | None:
    with contextlib.suppress(DamagedLog, LogMissing, ForeignEntry):
        metadata = log.load().metadata
        return None if metadata is None else metadata.id
    return None


def history_problem(source: Store, target: Store, folder: str) -> str:
    """Why the history of a copy differs from its original's; empty if it does not, or if that cannot be found out."""
    logs = LogFolder(source, folder), LogFolder(target, folder)
    try:
        at = logs[1].names().last
        if at >= 0:
            check_has_version(*logs, at, token_at(logs[1], at))
    except OtherHistoryError as error:
        return error.params["what"]  # without advice
    except ReplicaError as error:
        return error.message
    except DamagedLog:
        return ""
    return ""


def queue_history_problem(source: Store, target: Store, queue: str) -> str:
    """Why the history of a copy differs, for the first of the queue's tables where it does; empty if none does."""
    numbers = partition_numbers(target, queue)
    tables = [f"{queue_folder(queue)}/control", *(partition_folder(queue, number) for number in numbers)]
    problems = (history_problem(source, target, table) for table in tables)
    return next((problem for problem in problems if problem), "")
