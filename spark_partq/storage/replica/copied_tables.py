"""Which tables a pass copies (S7)."""

from __future__ import annotations

from spark_partq.storage.group.handle import Group
from spark_partq.storage.store import Store, group_folder, partition_folder, partition_numbers, queue_folder


def queue_tables(store: Store, queue: str) -> list[str]:
    """The folders of those of a queue's tables that exist in that store."""
    return [
        f"{queue_folder(queue)}/control",
        *(partition_folder(queue, number) for number in partition_numbers(store, queue)),
    ]


def group_tables(group: Group) -> list[str]:
    """The folders of a group's tables, in the order in which they are read, so that no position is newer than the state that it belongs to."""
    return [group.acks_folder, f"{group_folder(group.name)}/control"]
