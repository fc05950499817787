"""The load of a partition: what waits, and what will come within a minute at the recent rate."""

from __future__ import annotations

import pytest

from spark_partq.core.group.acks import AckRow
from spark_partq.storage.procedures.consume.loads import LoadMeter
from tests.core.group.groups import Decided, at

A, B, C = at(0), at(1), at(2)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_waits_and_what_comes(clock: Clock) -> None:
    """10 messages in 20 s are 30 in a minute; a partition that is measured no more has the average of the others."""
    group, meter = Decided(3), LoadMeter(clock)
    group.join("a")
    assert meter.loads(group.state, group.acks) == {}
    meter.measure({A: 100, B: 7})
    assert meter.loads(group.state, group.acks) == {A: 100.0, B: 7.0, C: 53.5}
    own = group.state.partitions[A]
    group.acks.add(AckRow(own.incarnation, 1, *A, own.epoch, 40, 40))
    clock.now_s += 20
    meter.measure({A: 110, B: 7})
    assert meter.loads(group.state, group.acks) == {A: 70.0 + 30.0, B: 7.0, C: 53.5}


def test_only_the_last_minute_counts(clock: Clock) -> None:
    """And measurements that follow each other closely are one."""
    group, meter = Decided(1), LoadMeter(clock)
    group.join("a")
    meter.measure({A: 0})
    clock.now_s += 4.9
    meter.measure({A: 1_000})
    assert meter.loads(group.state, group.acks) == {A: 0.0}
    clock.now_s += 0.1
    meter.measure({A: 1_000})
    assert meter.loads(group.state, group.acks) == {A: 1_000 + 12 * 1_000}
    clock.now_s += 60
    meter.measure({A: 1_000})
    assert meter.loads(group.state, group.acks) == {A: 1_000.0}
    clock.now_s += 1
    meter.measure({A: 2_000})
    assert meter.loads(group.state, group.acks) == {A: 1_000.0}


def test_a_partition_that_is_new_has_no_rate_yet(clock: Clock) -> None:
    group, meter = Decided(2), LoadMeter(clock)
    group.join("a")
    meter.measure({A: 10})
    clock.now_s += 30
    meter.measure({A: 10, B: 50})
    assert meter.loads(group.state, group.acks) == {A: 10.0, B: 50.0}


def test_where_no_partition_was_measured_all_are_alike(clock: Clock) -> None:
    group, meter = Decided(2), LoadMeter(clock)
    group.join("a")
    meter.measure({})
    assert meter.loads(group.state, group.acks) == {A: 1.0, B: 1.0}
