"""How much there is to do of each partition, for assignors that heed it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from spark_partq.core.group.acks import Acks
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId

# The load is the messages that wait, and those that this time will bring at the rate of late.
_HORIZON_S = 60.0
_SAMPLE_EVERY_S = 5.0


class LoadMeter:
    """Watches where partitions end. One thread measures, any may ask for the loads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, Mapping[PartitionId, int]]] = deque()

    def measure(self, ends: Mapping[PartitionId, int]) -> None:
        """Take note of the offset that the next message of each partition will get."""
        now = self._clock()
        if not self._samples or now - self._samples[-1][0] >= _SAMPLE_EVERY_S:
            self._samples.append((now, dict(ends)))
            while now - self._samples[0][0] > _HORIZON_S:
                self._samples.popleft()

    def loads(self, state: GroupState, acks: Acks) -> dict[PartitionId, float]:
        """Messages per partition that its reader will have to handle within a minute; partitions that this process does not read
        count as much as those that it does on average."""
        samples = list(self._samples)
        if not samples:
            return {}
        (began, before), (ended, now) = samples[0], samples[-1]
        times = _HORIZON_S / (ended - began) if ended > began else 0.0
        loads = {
            where: max(0, end - (state.position(where, acks) or 0)) + times * (end - before.get(where, end))
            for where, end in now.items()
        }
        mean = sum(loads.values()) / len(loads) if loads else 1.0
        return {where: loads.get(where, mean) for where in state.partitions}
