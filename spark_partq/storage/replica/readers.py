"""The groups that read a queue: a pass copies them with it (S7)."""

from __future__ import annotations

from collections.abc import Iterator

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.group.state import GroupState
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.group.handle import Group
from spark_partq.storage.store import Store


class Readers:
    """Groups of one store, and their copies in another store. Remembers how far each was read."""

    def __init__(self, store: Store, target: Store) -> None:
        self._store, self._target = store, target
        self._groups: dict[str, Group] = {}

    def of(self, state: QueueState) -> Iterator[tuple[Group, dict[str, str]]]:
        """The groups that read the queue, each with all queues that it reads (id to name). Also deleted groups whose copies still read it."""
        for name in sorted({*state.groups, *self._target.named("groups")}):
            group = self._groups.setdefault(name, Group(self._store, name))
            try:
                exists = group.exists()
            except CorruptTableError:  # it may have been restored to an older state
                group = self._groups[name] = Group(self._store, name)
                exists = group.exists()
            read = group.state if exists else self._copied_state(group)
            if state.queue_id in read.queues:
                yield group, {id_: known.name for id_, known in read.queues.items()}

    def _copied_state(self, group: Group) -> GroupState:
        """The state of the copy of a deleted group."""
        copy = Group(self._target, group.name)
        if group.has_table() and copy.has_table():
            copy.refresh_control()
        return copy.state
