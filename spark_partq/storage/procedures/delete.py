"""Delete queues and groups."""

from __future__ import annotations

import contextlib

from spark_partq.core.errors import QueueNotReadyError
from spark_partq.core.names import check_name
from spark_partq.core.queue import decide
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.store import Store, group_folder, queue_folder


def delete_queue(store: Store, name: str) -> None:
    """Remove a queue and all its messages. An interrupted deletion is finished by deleting again.

    Raises
    ------
    NotAStoreError, QueueNotFoundError
    """
    with contextlib.suppress(QueueNotReadyError):  # only a part of the control table is left
        open_control(store, check_name("queue", name)).decide(decide.delete)
    folder = queue_folder(name)
    for part in ("replica", "partitions", "control"):
        _remove_tree(store, f"{folder}/{part}")
    store.files.delete_folder(folder)


def _remove_tree(store: Store, folder: str) -> None:
    """The log last, and of it the newest files first: as long as anything is left, the table is still seen to be there."""
    files = store.files
    for name in files.list_folders(folder):
        if name != "_delta_log":
            _remove_tree(store, f"{folder}/{name}")
    for part in (folder, f"{folder}/_delta_log"):
        for info in reversed(files.list_files(part)):
            files.delete(f"{part}/{info.name}")
    files.delete_folder(folder)


def delete_group(store: Store, name: str) -> None:
    """Forget a group and its positions, so that retention no longer waits for it.

    Raises
    ------
    NotAStoreError, GroupNotFoundError
    """
    open_group(store, name)
    store.files.delete_folder(group_folder(name))
