"""What a query has done since its process began. Its heartbeats report this to monitors."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping

from spark_partq.core.delivery.member import ack_rows
from spark_partq.core.delivery.offsets import Range
from spark_partq.core.group.acks import AckRow, Work
from spark_partq.core.ids import PartitionId
from spark_partq.storage.group.handle import Group
from spark_partq.storage.store import Store


class WorkMeter:
    """Counts a query's work, and makes the rows that report it. One thread plans; any thread may ask for rows."""

    def __init__(self, store: Store, group: str) -> None:
        self._store, self._group = store, group
        self._beats = itertools.count(1)
        self._views: list[Group] = []
        self._planner_calls, self._planner_s = 0, 0.0

    def view(self) -> Group:
        """A view of the group for one thread. The view's lost races are counted."""
        view = Group(self._store, self._group)
        self._views.append(view)
        return view

    @contextlib.contextmanager
    def planning(self) -> Iterator[None]:
        """Measure a call of the planner."""
        began_s = self._store.runtime.monotonic_s()
        yield
        self._planner_s += self._store.runtime.monotonic_s() - began_s
        self._planner_calls += 1

    def rows(
        self,
        incarnation: str,
        finished: Iterable[tuple[PartitionId, int, int]] = (),
        planned: Mapping[PartitionId, Range] | None = None,
        attempts: Mapping[PartitionId, int] | None = None,
    ) -> list[AckRow]:
        """The rows of the next commit; see `core.delivery.member.ack_rows`."""
        done = Work(sum(view.lost_races for view in self._views), self._planner_calls, int(self._planner_s * 1000))
        return ack_rows(incarnation, next(self._beats), finished, planned or {}, attempts or {}, done)
