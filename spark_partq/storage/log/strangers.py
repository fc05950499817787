"""Entries that are no part of a log, and whose versions it needs.

A writer that does not know yet that its table was deleted, and another one made in its place, may put an entry into the new one's log. It
finds that out and removes the entry; if it dies before, the next one who commits there does. A file is deleted by its name alone, and
whoever is late would delete what others have put under that name since. So who deletes an entry has claimed that before, by a file that
only one can put, named by the entry's token. Who claimed asks for the deletion within half a minute. An object store that does not answer may be
asked for some five minutes more, by this package and by the client library. So a claim counts for ten minutes.
"""

from __future__ import annotations

import logging

from spark_partq.storage.files import FileAlreadyExists, FileMissing
from spark_partq.storage.files.port import TEMPORARY
from spark_partq.storage.log.entries import Entry
from spark_partq.storage.log.folder import ACT_S, LogFolder

_CLAIM_S = 600.0

_log = logging.getLogger("spark_partq")


def remove(log: LogFolder, version: int, entry: Entry) -> None:
    """Remove an entry that is no part of the log, unless somebody else is about to.

    Raises
    ------
    StoreUnavailableError
        Then it is still there, or is not.
    """
    began_s = log.store.runtime.monotonic_s()
    name = f".{version:020d}-{entry.token}-"
    try:
        claims = [info for info in log.files.list_files(log.path) if info.name.startswith(name)]
        if claims and log.store_ms() - claims[-1].modified_ns // 1_000_000 < _CLAIM_S * 1000:
            return
        claim = f"{log.path}/{name}{len(claims):03d}{TEMPORARY}"
        log.files.put_if_absent(claim, b"")
        is_there = log.read(version).token == entry.token
    except (FileAlreadyExists, FileMissing):  # another one claims it, or has removed it
        return
    if is_there and log.store.runtime.monotonic_s() - began_s < ACT_S:
        _log.warning(
            "%s is an entry of a table that was here before, or of none; it is removed", log.entry_path(version)
        )
        log.files.delete(log.entry_path(version))
    if log.names().last < 0:  # there is no table for which it matters
        log.files.delete(claim)
