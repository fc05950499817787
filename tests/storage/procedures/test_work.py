"""What a query counts of its own work, and tells with its heartbeats."""

from __future__ import annotations

import pytest

from spark_partq.core.delivery.offsets import Range
from spark_partq.core.group.acks import AckRow, Work, heartbeat
from spark_partq.storage.procedures.consume.work import WorkMeter
from spark_partq.storage.runtime import SystemRuntime
from spark_partq.storage.store import Store


class Clock(SystemRuntime):
    now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s


def test_rows() -> None:
    """Each has the next number; calls and their time add up, a call that fails does not count, and each view adds its lost races."""
    clock = Clock()
    meter = WorkMeter(Store("nowhere", runtime=clock), "g")
    assert meter.rows("x") == [AckRow("x", 1)]
    for _ in range(2):
        with meter.planning():
            clock.now_s += 0.0256
        clock.now_s += 10
    with pytest.raises(ZeroDivisionError), meter.planning():
        _ = 1 / 0
    meter.view().lost_races, meter.view().lost_races = 2, 1
    done = Work(3, 2, 51)
    assert meter.rows("x") == [heartbeat("x", 2, done)]
    planned = {("q", 0): Range(1, 5, 9)}
    assert meter.rows("x", [], planned) == [AckRow("x", 3, "q", 0, 1, 0, 9, 5), heartbeat("x", 3, done)]
