"""Delete queues and groups."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterable

from spark_partq.core.errors import (
    CorruptTableError,
    NewerStoreError,
    QueueNotFoundError,
    QueueNotReadyError,
    ReplicaError,
)
from spark_partq.core.group.events import Delete
from spark_partq.core.names import check_name
from spark_partq.core.queue import decide
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.group.handle import Group, open_group
from spark_partq.storage.log import Conflict, LogFolder
from spark_partq.storage.procedures.inactive import Report, await_inactive
from spark_partq.storage.queue.control import QueueControl, list_queues, open_control, user_and_host
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import is_replica, replica_state
from spark_partq.storage.store import Store, deletions_before, group_folder, queue_folder

_log = logging.getLogger("spark_partq")


def delete_queue(store: Store, name: str) -> None:
    """Remove a queue and all its messages. After an interruption, deleting again finishes the deletion.

    Also remove a replica whose first pass has not made the control table.

    Raises
    ------
    NotAStoreError, QueueNotFoundError
    """
    try:
        _control_to_delete(store, check_name("queue", name)).decide(decide.delete)
    except QueueNotReadyError:  # only a part of the control table is left; its settings may have forced writes
        store.force_writes()
    folder = queue_folder(name)
    for part in ("replica", "manifests", "partitions", "control"):
        _remove_tree(store, f"{folder}/{part}")
    store.files.delete_folder(folder)


def state_to_delete(store: Store, name: str) -> QueueState | None:
    """The state of a queue that `delete_queue` removes; None if only a part of it is there.

    Raises
    ------
    NotAStoreError, QueueNotFoundError
    """
    try:
        return queue_state(store, name)
    except QueueNotReadyError:
        return None
    except QueueNotFoundError:
        if _half_made(store, name) is None:
            raise
        return None


def _control_to_delete(store: Store, name: str) -> QueueControl:
    """The control table of a queue; that of a half-made replica is made here, and says that the queue is deleted.

    A pass that is under way cannot make it any more, and deleting again finds it.
    """
    try:
        return open_control(store, name)
    except QueueNotFoundError:
        replica = _half_made(store, name)
        if replica is None:
            raise
    store.force_writes()  # nobody can tell whether the queue asks for it
    with contextlib.suppress(Conflict):  # a pass, or another deletion, was first
        QueueControl(store, name).create(decide.begin_deleted(replica.queue_id))
    return open_control(store, name)


def _half_made(store: Store, name: str) -> ReplicaState | None:
    """The replica of that name, if it takes over from no queue. For a queue without a control table."""
    replica = replica_state(store, name)
    return None if replica is None or replica.takes_over else replica


def _remove_tree(store: Store, folder: str) -> None:
    """Delete a table, its log last, and the log's beginning last of all: so the table is found as long as anything of it is left."""
    files, log = store.files, LogFolder(store, folder)
    for name in files.list_folders(folder):
        if name != "_delta_log":
            _remove_tree(store, f"{folder}/{name}")
    for info in reversed(files.list_files(folder)):
        files.delete(f"{folder}/{info.name}")
    for name in log.in_order_of_deletion():
        files.delete(f"{log.path}/{name}")
    files.delete_folder(folder)


def delete_group(store: Store, name: str, report: Report = lambda _: None) -> None:
    """Forget a group and its positions, so that retention no longer waits for the group. Its history stays.

    If a member has died, this waits until the member's session is over. After an interruption, deleting again finishes the deletion. Members
    show by the group's acknowledgements that they are alive. If these cannot be read, all members count as dead, and a member that is alive
    stops with an error.

    Raises
    ------
    NotAStoreError, GroupNotFoundError
    GroupActiveError, ReplicaError, NewerStoreError
        If a member is alive, the group reads a replica, or only a newer program may write the group; nothing was changed.
    """
    store.check_exists()
    attached = _attached(store, check_name("group", name))
    if not _is_readable(store, name):
        return _delete_unreadable(store, name, attached)
    _remove_damaged_acks(store, name)
    group = Group(store, name)
    if group.exists() or attached:
        await_inactive(store, group, report=report)
        group.decide(lambda: [Delete()], user_and_host())
    elif not _acks_before(store, name, group.state.deletions):
        open_group(store, name)  # raises that there is none
    deletions = group.state.deletions
    for control in _attached(store, name):  # also queues to which a query has attached it meanwhile
        control.decide(lambda state: decide.detach_group(state, name, deletions))
    for folder in _acks_before(store, name, deletions):
        _remove_tree(store, folder)


def _is_readable(store: Store, name: str) -> bool:
    try:
        Group(store, name).exists()
    except CorruptTableError:
        return False
    return True


def _delete_unreadable(store: Store, name: str, attached: Iterable[QueueControl]) -> None:
    """Remove a group whose history cannot be read, so that no fact can say that it is deleted.

    Its tables go last. As soon as they are gone a query may begin the group again, which this deletion must leave alone.
    """
    for control in attached:
        control.decide(lambda state: decide.detach_group(state, name, sys.maxsize))
    if not _is_readable(store, name):
        _remove_tree(store, group_folder(name))


def _acks_before(store: Store, name: str, deletions: int) -> list[str]:
    """The folders of the group's acknowledgements from before its deletion of that number. This deletion must not remove later ones."""
    return [
        f"{group_folder(name)}/{folder}"
        for folder in store.names(group_folder(name))
        if (before := deletions_before(folder)) is not None and before < deletions
    ]


def _remove_damaged_acks(store: Store, name: str) -> None:
    """Delete the group's acknowledgements if they cannot be read: they must not prevent the deletion of the group."""
    group = Group(store, name)
    try:
        group.refresh_if_there()
    except CorruptTableError as error:
        _log.warning("the acknowledgements of group %s cannot be read, and are removed: %s", name, error)
        _remove_tree(store, group.acks_folder)


def _attached(store: Store, group: str) -> list[QueueControl]:
    """The queues that the group is attached to. Queues that are damaged, incomplete, or of a newer program are left out."""
    found = []
    for name in list_queues(store):
        try:
            control = open_control(store, name)
        except (CorruptTableError, NewerStoreError, QueueNotFoundError, QueueNotReadyError) as error:
            _log.warning("queue %s cannot be read, so group %s stays attached to it: %s", name, group, error)
            continue
        if group in control.state.groups:
            if is_replica(store, name):
                raise ReplicaError(
                    f"group {group!r} reads queue {name!r}, which is a replica in {store.uri}; delete the group where the primary is, "
                    "or promote the replica first",
                    queue=name,
                    group=group,
                )
            control.check_writable()
            found.append(control)
    return found
