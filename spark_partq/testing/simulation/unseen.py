"""The stores of a simulated world, looked at without being seen: nothing goes wrong, and nobody else goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from spark_partq.core.errors import PartqError
from spark_partq.storage.group.handle import Group
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.store import Store
from spark_partq.testing.simulation.process import Process, World

A = TypeVar("A")
B = TypeVar("B")


def unseen(world: World, uri: str) -> Store:
    """A store as nobody in the world reaches it."""
    return Store.over(_Watched(world, uri), _Nobody(world, "nobody", fallible=False), uri)


class _Nobody(Process):
    """Whoever looks does nothing at once."""

    def map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        return [function(item) for item in items]


class Watch:
    """Asks again and again whether everything has come to its end; it looks only if the stores have changed since it asked last."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked = "", -1  # of which store, and how many changes the world had seen then
        self._view: _View | None = None

    def is_at_end(self, uri: str, groups: Collection[str], scaling: bool) -> bool:
        """Whether the queue in that store is ready, and these groups have acknowledged all that is in it.

        Parameters
        ----------
        scaling : bool
            A change of its count need not have ended.
        """
        world = self._world
        if self._asked == (uri, world.changes):
            return False
        self._asked = uri, world.changes
        if self._view is None or (self._view.uri, self._view.deletions) != (uri, world.deletions):
            self._view = _View(world, uri)
        # Whoever is new must see it, too, not only one who has followed all commits.
        return self._view.is_at_end(groups, scaling) and _View(world, uri).is_at_end(groups, scaling)

    def told(self, uri: str, groups: Collection[str]) -> str:
        """For people: what the queue and the groups are."""
        try:
            return _View(self._world, uri).told(groups)
        except PartqError as error:  # nothing can be read any more: that is what is wrong
            return str(error)


class _View:
    """Handles on a store's queue and groups, of between two deletions."""

    def __init__(self, world: World, uri: str) -> None:
        self.uri, self.deletions = uri, world.deletions
        self._store = unseen(world, uri)
        self._queue: Queue | None = None
        self._groups: dict[str, Group] = {}

    def is_at_end(self, groups: Collection[str], scaling: bool) -> bool:
        queue = self._refreshed()
        is_ready = queue.state.status == "Ready" or (scaling and queue.state.scaling is not None)
        if groups and (not is_ready or queue.state.stuck):
            return False
        return all(self._has_read(name, queue) for name in groups)

    def _has_read(self, name: str, queue: Queue) -> bool:
        group = self._groups.setdefault(name, Group(self._store, name))
        if not group.exists():
            return False
        group.refresh()
        if queue.state.queue_id not in group.state.queues:
            return False
        for table in queue.partitions:
            position = group.position((queue.state.queue_id, table.partition)) or 0
            if max(position, table.first_offset) < table.next_offset:  # what was too old is gone
                return False
        return True

    def told(self, groups: Collection[str]) -> str:
        queue = self._refreshed()
        parts = [f"queue {queue.state.status}"]
        for name in groups:
            group = Group(self._store, name)
            if not group.exists():
                parts.append(f"there is no group {name}")
                continue
            group.refresh()
            at = {
                n: (group.position((queue.state.queue_id, n)), queue.table(n).next_offset)
                for n in queue.state.partition_numbers
            }
            parts.append(f"group {name} {group.state.status}: position and end by partition {at}")
        return "; ".join(parts)

    def _refreshed(self) -> Queue:
        if self._queue is None:
            self._queue = open_queue(self._store, "q")
        else:
            self._queue.control.refresh()
        self._queue.refresh()
        return self._queue


class _Watched:
    """The files of a store, without the scheduler."""

    def __init__(self, world: World, uri: str) -> None:
        self._files, self._world, self._uri = world.files(uri), world, uri
        self.is_local = True

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._files.put_if_absent(path, data)
        self._world.changed(self._uri, path, data)

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        return getattr(self._files, name)
