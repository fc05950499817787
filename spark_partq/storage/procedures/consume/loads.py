"""Measures the load of each partition, for assignors that use it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from spark_partq.core.group.acks import Acks
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId

# The load is the number of waiting messages plus the number that will come within this time at the recent rate.
_HORIZON_S = 60.0
_SAMPLE_EVERY_S = 5.0


class LoadMeter:
    """Measures how partitions grow. One thread measures, any thread may ask for the loads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, Mapping[PartitionId, int]]] = deque()

    def measure(self, ends: Mapping[PartitionId, int]) -> None:
        """Record the next offset of each partition."""
        now = self._clock()
        if not self._samples or now - self._samples[-1][0] >= _SAMPLE_EVERY_S:
            self._samples.append((now, dict(ends)))
            while now - self._samples[0][0] > _HORIZON_S:
                self._samples.popleft()

    def loads(self, state: GroupState, acks: Acks) -> dict[PartitionId, float]:
        """Messages of each partition that its owner will have to process within a minute.

        A partition that this process does not read gets the average of those that it reads.
        """
        samples = list(self._samples)
        if not samples:
            return {}
        (began, before), (ended, now) = samples[0], samples[-1]
        times = _HORIZON_S / (ended - began) if ended > began else 0.0
        loads = {
            partition_id: max(0, end - (state.position(partition_id, acks) or 0))
            + times * (end - before.get(partition_id, end))
            for partition_id, end in now.items()
        }
        mean = sum(loads.values()) / len(loads) if loads else 1.0
        return {partition_id: loads.get(partition_id, mean) for partition_id in state.partitions}
