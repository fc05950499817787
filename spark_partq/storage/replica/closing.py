"""Ends the following of a table: from then on the copy is a table of its own (S7)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from spark_partq.storage.files import FileAlreadyExists
from spark_partq.storage.log import DeltaLog, retrying
from spark_partq.storage.log.checkpoints import encode_checkpoint
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.replica.table_copy import put_same
from spark_partq.storage.rows import version_of
from spark_partq.storage.store import Store


def close(store: Store, folder: str, jumps: Iterable[int]) -> None:
    """End the following of a table: nothing that is still on its way can be put any more.

    A commit without content takes the next number. Of each announced jump that has not been made, a checkpoint of what the copy is
    now takes the place.
    """
    log = LogFolder(store, folder)
    table = DeltaLog(store, folder, f"the table {folder}")
    for version in sorted(jumps):
        if version <= log.names().last:
            continue
        with table.explained():
            snapshot = log.load(tombstones=True)
        snapshot.version = version
        with contextlib.suppress(FileAlreadyExists):  # the jump was made
            put_same(store.files, log.checkpoint_path(version), encode_checkpoint(snapshot)[0])

    def end() -> None:
        table.refresh()
        table.commit(operation="CLOSE REPLICA")

    retrying(store.runtime, end, f"the end of a replica's table {folder}")


def drop_ahead(store: Store, folder: str) -> None:
    """Delete files of commits that were not put any more, after `close`: they look as if the log had been cut off (`storage.rows`)."""
    last = LogFolder(store, folder).names().last
    for info in store.files.list_files(folder):
        version = version_of(info.name)
        if version is not None and version > last:
            store.files.delete(f"{folder}/{info.name}")
