"""Groups whose copies a promotion has closed, so that no pass can copy them any more (S7)."""

from __future__ import annotations

from collections.abc import Collection

from spark_partq.core.errors import OtherHistoryError, ReplicaError
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.replica.closing import ends_with_mark, was_closed, was_closed_by
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.store import Store, group_folder


def closed(store: Store, target: Store, copies: Collection[TableCopy]) -> list[str]:
    """The folders of those of a group's tables that a promotion there has closed.

    Raises
    ------
    OtherHistoryError
        If the history of a copy differs for another reason.
    """
    return [copy.folder for copy in copies if _is_closed(store, target, copy)]


def _is_closed(store: Store, target: Store, copy: TableCopy) -> bool:
    try:
        has_version = copy.check_history()
    except OtherHistoryError:
        if not was_closed(store, target, copy.folder):
            raise
        return True
    except ReplicaError:  # the group was created again; the error comes after the others are copied
        return False
    return not has_version and was_closed(store, target, copy.folder)


def is_used(target: Store, folders: Collection[str]) -> bool:
    """Whether a group was used there after its tables were closed, or the queue is there with whose promotion they were.

    It is not if the promotion died, or was cancelled.
    """
    queues = [ReplicaTable(target, queue).refresh() for queue in target.named("queues")]
    promoted = [queue.incarnation for queue in queues if queue is not None and queue.promoted]
    tables = [DeltaLog(target, folder, f"the table {folder}") for folder in folders]
    return any(was_closed_by(table, promoted) or not ends_with_mark(table) for table in tables)


def unused_error(target: Store, group: str) -> ReplicaError:
    return ReplicaError(
        f"group {group!r} is not copied: a promotion in {target.uri} closed its copy, and did not end, or its queue was deleted there. Nothing has used "
        f"the group there since. If nobody is to use it there, move the folder {group_folder(group)} of that store to another place; the next "
        "pass then copies the group",
        group=group,
        location=target.uri,
    )
