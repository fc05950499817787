"""Checks a store from the beginning: nothing of what a table says is taken on trust.

A group's history is replayed from fact 0, and every snapshot must say what the facts before it say. A table whose newest log files
are gone looks whole, only older; what gives that away are the files that its later commits left in the folder, and the
acknowledgements of the processes that these commits had let in.
"""

from __future__ import annotations

from spark_partq.core.errors import GroupNotFoundError
from spark_partq.storage.inspect.doctor.check import RESTORE, RESTORE_GROUP
from spark_partq.storage.inspect.doctor.findings import Diagnosis, Finding
from spark_partq.storage.inspect.doctor.groups import GroupCheck
from spark_partq.storage.inspect.doctor.queues import QueueCheck
from spark_partq.storage.inspect.doctor.replicas import ReplicaCheck
from spark_partq.storage.store import Store, queue_folder

__all__ = ["Diagnosis", "Finding", "diagnose"]


def diagnose(store: Store, group: str | None = None) -> Diagnosis:
    """Check one group, or every queue and group of the store. Changes nothing, and may run while the store is in use.

    Raises
    ------
    NotAStoreError, StoreUnavailableError
        If there is no store to check.
    GroupNotFoundError
        If `group` is not there.
    """
    store.check_exists()
    found = Diagnosis(store.uri)
    if group is None:
        for name in store.named("queues"):
            if store.names(f"queues/{name}"):
                check = QueueCheck(store, name, found)
                check.guarded(check.check, RESTORE.format(queue_folder(name)))
                ReplicaCheck(store, name, found).check()
    groups = [name for name in store.named("groups") if store.names(f"groups/{name}")]
    if group is not None and group not in groups:
        raise GroupNotFoundError(
            f"there is no group {group!r} in {store.uri}; its groups: {', '.join(groups) or 'none'}", group=group
        )
    for name in groups if group is None else [group]:
        one = GroupCheck(store, name, found)
        one.guarded(one.check, RESTORE_GROUP)
    return found
