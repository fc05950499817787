"""Messages per second, from the metrics at two looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from spark_partq.metrics import names
from spark_partq.metrics.values import values
from spark_partq.storage.inspect.watch import Sample

# A rate is taken over this time: acknowledgements come at the ends of micro-batches, and the rate shall not jump with each of them.
WINDOW_S = 20.0

In = tuple[str, int]  # queue, partition
Out = tuple[str, str, int]  # group, queue, partition


class Rates:
    """How many messages were appended and acknowledged in the last seconds, by partition."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[In | Out, float]]] = deque()

    def add(self, at_s: float, sample: Sample) -> None:
        """Add a look. `at_s` is from a clock that does not go back."""
        counters: dict[In | Out, float] = {}
        for metric, labels, value in values(sample):
            if metric in (names.APPENDED, names.POSITION):
                *of, partition = labels
                counters[(*of, int(partition))] = value  # type: ignore[index]
        self._seen.append((at_s, counters))
        while len(self._seen) > 2 and self._seen[1][0] <= at_s - WINDOW_S:
            self._seen.popleft()

    def of(self, key: In | Out) -> float | None:
        """Messages per second that were appended to a partition of a queue, or that a group acknowledged in it.

        None if only one look knows the partition, or if its number went back: a reset set the position, or the queue is another one.
        """
        (began_s, before), (ended_s, now) = self._seen[0], self._seen[-1]
        if ended_s <= began_s or key not in before or key not in now or now[key] < before[key]:
            return None
        return (now[key] - before[key]) / (ended_s - began_s)


def total(rates: Iterable[float | None]) -> float | None:
    """The sum of the rates that are known; None if no rate is."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
