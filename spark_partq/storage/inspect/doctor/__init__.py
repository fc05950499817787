"""Checks a store from the beginning: nothing that a table says is taken on trust.

A group's history is replayed from fact 0, and every snapshot must agree with the facts before it. A table whose newest log files are gone looks
complete, only older. It is found by the files that its later commits left in the folder, and by the acknowledgements of members that joined by
these commits.

What it does not check:

- The content of message files. It checks only that they exist, and their sizes. So it does not notice that this process, or a consumer, is not
  allowed to read one of them.
- Whether the clock of this machine, by which it finds overdue steps, is ahead of the store's. It finds a clock that is behind, by the time of the
  newest commit to a queue. Only processes that write can ask the store for its time, and doctor writes nothing.
"""

from __future__ import annotations

from spark_partq.core.errors import GroupNotFoundError, StoreUnavailableError
from spark_partq.core.names import is_name
from spark_partq.storage.group.handle import list_groups
from spark_partq.storage.inspect.doctor.check import RESTORE, Check
from spark_partq.storage.inspect.doctor.findings import Diagnosis, Finding
from spark_partq.storage.inspect.doctor.groups import GroupCheck
from spark_partq.storage.inspect.doctor.queues import QueueCheck
from spark_partq.storage.inspect.doctor.replicas import ReplicaCheck
from spark_partq.storage.store import Store, group_folder, queue_folder

__all__ = ["Diagnosis", "Finding", "diagnose"]


def diagnose(store: Store, group: str | None = None) -> Diagnosis:
    """Check one group, or every queue and group of the store. Changes nothing, and may run while the store is in use.

    What cannot be read is a finding, and everything else is checked.

    Raises
    ------
    NotAStoreError, StoreUnavailableError
        If there is no store to check, or if it is not known whether there is one.
    GroupNotFoundError
        If `group` does not exist.
    """
    store.check_exists()
    found = Diagnosis(store.uri)
    if group is None:
        for name in _named(store, "queues", found):
            check = QueueCheck(store, name, found)
            check.guarded(check.check, RESTORE.format(queue_folder(name)))
            ReplicaCheck(store, name, found).check()
    elif not _may_be_there(store, group):
        known = ", ".join(list_groups(store)) or "none"
        raise GroupNotFoundError(f"there is no group {group!r} in {store.uri}; its groups: {known}", group=group)
    for name in _named(store, "groups", found) if group is None else [group]:
        one = GroupCheck(store, name, found)
        one.guarded(one.check, RESTORE.format(group_folder(name)))
    return found


def _named(store: Store, folder: str, found: Diagnosis) -> list[str]:
    """The names in a folder of the store. Empty if the folder cannot be listed, which is a finding."""
    names: list[str] = []
    check = Check(store, f"folder {folder}", found)
    check.guarded(lambda: names.extend(store.named(folder)), RESTORE.format(folder))
    return names


def _may_be_there(store: Store, group: str) -> bool:
    try:
        return is_name(group) and bool(store.names(group_folder(group)))
    except StoreUnavailableError:  # its own check reports it
        return True
