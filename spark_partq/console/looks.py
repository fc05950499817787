"""The newest look at the store, which all browsers share: one look in an interval, and no look while no browser asks."""

from __future__ import annotations

import datetime as dt
import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_partq.console.rates import Rates
from spark_partq.core.errors import PartqError
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.heartbeats import RECENT_FACTS
from spark_partq.storage.inspect.watch import Sample, StoreWatch
from spark_partq.storage.rows import Row
from spark_partq.storage.store import Store

if TYPE_CHECKING:
    from spark_partq.storage.inspect.fact_reader import FactReader

# The history of at most this number of groups is open at once.
_MOST_READERS = 2
# A look that takes longer than this is followed by a pause of the same length.
_LONG_S = 1.0
TREND = 60  # the sums of this number of looks are kept

_log = logging.getLogger("spark_partq")


@dataclass(frozen=True)
class Look:
    """What the look saw, and when by this machine's clock; `took_s` is how long the look took."""

    number: int
    at: dt.datetime
    took_s: float
    sample: Sample


class Looks:
    """Looks at a store when somebody asks and the last look is older than the interval. Used by one thread.

    Attributes
    ----------
    last : Look or None
        The newest look that saw the store.
    error : PartqError or None
        Why the look after `last` did not see the store.
    """

    def __init__(self, store: Store, every_s: float) -> None:
        self.store, self.every_s = store, every_s
        self.watch = StoreWatch(store)
        self.last: Look | None = None
        self.error: PartqError | None = None
        self.rates = Rates()
        self._due_s = 0.0
        self._number = 0
        self._sums: dict[tuple[str, str], deque[int]] = {}
        self._readers: OrderedDict[str, FactReader] = OrderedDict()
        self._recent: OrderedDict[str, tuple[int, Sequence[Row]]] = OrderedDict()

    def refresh(self) -> None:
        """Look at the store, if the interval is over."""
        began_s = self.store.runtime.monotonic_s()
        if self._number and began_s < self._due_s:
            return
        self._number += 1
        try:
            sample = self.watch.look()
        except PartqError as error:
            if str(error) != str(self.error):
                _log.warning("%s cannot be read: %s", self.store.uri, error)
            self.error = error
        else:
            took_s = self.store.runtime.monotonic_s() - began_s
            self.last, self.error = Look(self._number, self.store.now(), took_s, sample), None
            self.rates.add(began_s, sample)
            self._add_sums(sample)
        took_s = self.store.runtime.monotonic_s() - began_s
        self._due_s = began_s + max(self.every_s, 2 * took_s if took_s > _LONG_S else 0.0)

    def checked(self, kind: str, name: str) -> Look:
        """The newest look, if it could read this queue or group.

        Raises
        ------
        PartqError
        """
        self.refresh()
        if self.error is not None or self.last is None:
            raise self.error or RuntimeError("a look leaves a picture or an error")
        if (kind, name) in self.last.sample.failed:
            raise self.last.sample.failed[kind, name]
        return self.last

    def trend(self, kind: str, name: str) -> list[int]:
        """The depth of a queue, or the lag of a group, at each of the last looks; the newest last."""
        return list(self._sums.get((kind, name), ()))

    def facts(self, group: str) -> FactReader:
        """The history of a group, as it is now.

        Raises
        ------
        PartqError
        """
        from spark_partq.storage.inspect.fact_reader import FactReader  # it loads PyArrow's functions: see `app`

        reader = self._readers.pop(group, None) or FactReader(self.store, group)
        reader.refresh()  # a reader that fails is not kept: the store may be another one by now
        self._readers[group] = reader
        while len(self._readers) > _MOST_READERS:
            self._readers.popitem(last=False)
        return reader

    def recent(self, group: Group) -> Sequence[Row]:
        """The last facts of a group, as of the last look."""
        seq, rows = self._recent.pop(group.name, (-1, ()))
        if seq != group.state.seq:
            rows = group.recent_facts(RECENT_FACTS)
        self._recent[group.name] = group.state.seq, rows
        while len(self._recent) > _MOST_READERS:
            self._recent.popitem(last=False)
        return rows

    def _add_sums(self, sample: Sample) -> None:
        now = {("queue", queue.name): sum(p.depth for p in queue.partitions) for queue in sample.queues}
        now |= {("group", group.description.group): group.description.lag for group in sample.groups}
        for gone in self._sums.keys() - now.keys():
            del self._sums[gone]
        for key, value in now.items():
            self._sums.setdefault(key, deque(maxlen=TREND)).append(value)
