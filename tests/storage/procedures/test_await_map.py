"""Producers that wait: for the next map, for a fence to be taken back, for themselves. None does so for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue import replicas
from spark_partq.storage.procedures import await_map
from spark_partq.storage.procedures import scale as scaling
from spark_partq.storage.procedures.partition_map import open_generation
from spark_partq.storage.procedures.primary import fence
from spark_partq.storage.procedures.remainder import ScaleProgress
from spark_partq.storage.procedures.rewrites import MAX_REWRITES
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.scaled import Sink, make, messages, stored

BUSY = ScaleProgress("every group to acknowledge what is left", 3)
HOUR_MS = 3_600_000


class Clock:
    """Time passes only where somebody sleeps, or when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.pauses.append(seconds)
        self.meanwhile()


@pytest.fixture
def clock() -> Iterator[Clock]:
    found = Clock()
    with mock.patch.multiple(SYSTEM, monotonic_s=found.monotonic_s, sleep=found.sleep):
        yield found


def in_queue(store: str) -> int:
    return sum(map(len, stored(store).values()))


def test_a_map_that_does_not_come(
    store: str, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S5: a producer warns, asks less and less often, gives up, and says who holds it up; the batch is written later."""
    make(store, 2)
    sink, queue = Sink(store), opened(store)
    with mock.patch("spark_partq.storage.queue.control.user_and_host", return_value="ann@north"):
        scaling.start(queue, 3, "live")
    queue.table(0).seal(0)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "spark_partq"):
        patch.setattr(await_map, "open_generation", lambda _: BUSY)
        with pytest.raises(partq.ScalingInProgressError) as caught:
            sink.write(0, messages(0, 20))
    text = str(caught.value)
    for part in (
        "queue 'q'", "generation 0", "ann@north scales it to 3 partitions (mode live) since 20", "waited 300 s",
        f"the change waits for {BUSY.what} (3 left)", "spark-partq scale q 3", "Of a single append some rows may be in", "Nothing of its batch is lost",
    ):  # fmt: skip
        assert part in text
    assert text.endswith("spark-partq scale q 3")
    (warning,) = caplog.messages
    assert "ann@north" in warning and BUSY.what in warning
    assert clock.pauses[:8] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0] and max(clock.pauses) == 1.0
    assert sink.write(0, messages(0, 20)) + in_queue(store) >= 20
    assert sink.write(0, messages(0, 20)) == 0 and in_queue(store) == 20


def test_a_map_that_comes_late(store: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """S5: the producer goes on by itself."""
    make(store, 2)
    sink, queue = Sink(store), opened(store)
    scaling.start(queue, 3, "live")
    queue.table(0).seal(0)

    def meanwhile() -> None:
        if clock.now_s > 200.0:
            open_generation(queue)

    clock.meanwhile = meanwhile
    monkeypatch.setattr(await_map, "open_generation", lambda _: BUSY)
    assert sink.write(0, messages(0, 20)) == 20
    assert 200.0 < clock.now_s < 202.0 and in_queue(store) == 20


def test_a_seal_that_nothing_explains(store: str, clock: Clock) -> None:
    """S5: no change is under way, so nobody will open a map."""
    make(store, 2)
    sink = Sink(store)
    opened(store).table(0).seal(0)
    with pytest.raises(partq.ScalingInProgressError, match=r"no change of the partition count is under way.*doctor"):
        sink.write(0, messages(0, 20))


def test_a_fence_that_is_taken_back(store: str, clock: Clock) -> None:
    """S7: a producer meets a fenced table, and nobody has taken over: it goes on when the table is open again."""
    make(store, 2)
    sink, table = Sink(store), opened(store).table(0)
    table.fence(1)
    clock.meanwhile = lambda: table.unfence(1) if clock.now_s > 3.0 else None
    assert sink.write(0, messages(0, 20)) == 20
    assert in_queue(store) == 20 and clock.now_s < 5.0


def test_a_fence_that_stays(store: str, clock: Clock) -> None:
    make(store, 2)
    sink = Sink(store)
    opened(store).table(0).fence(1)
    with pytest.raises(partq.QueueFencedError, match=r"partitions \[0\] of queue 'q' .*doctor"):
        sink.write(0, messages(0, 20))
    assert clock.now_s > await_map.MAX_WAIT_S


def test_a_fence_beside_a_resize(store: str, clock: Clock) -> None:
    """S5, S7: neither the one who scales nor a producer waits for a queue that was taken over."""
    make(store, 2)
    sink, queue = Sink(store), opened(store)
    sink.producer.refresh()
    scaling.start(queue, 3, "live")
    queue.table(0).seal(0)
    queue.table(1).fence(1)
    waiting = scaling.step(queue)
    assert waiting is not None and "fence" in waiting.what
    queue.table(1).unfence(1)
    queue.control.decide(lambda state: replicas.add_replica(state, "/replica"))

    def taken_over() -> None:
        fence(Store.at(store), opened(store).state, "/replica", "its-id")

    with pytest.raises(partq.QueueFencedError):
        sink.write(0, messages(0, 20), begun=taken_over)
    assert clock.now_s == 0.0 and in_queue(store) == 0
    assert queue.table(1).sealed == -1
    with pytest.raises(partq.QueueFencedError):
        scaling.step(queue)


@pytest.mark.parametrize(("slow", "succeeds"), [(MAX_REWRITES, True), (MAX_REWRITES + 1, False)])
def test_files_that_take_too_long(
    store: str, clock: Clock, caplog: pytest.LogCaptureFixture, slow: int, succeeds: bool
) -> None:
    """Q5: files that maintenance may delete are written again, but not again and again."""
    make(store, 2, vacuum_grace_ms=HOUR_MS)
    sink, attempts = Sink(store), []

    def begun() -> None:
        attempts.append(clock.now_s)
        clock.now_s += 1_801.0 if len(attempts) <= slow else 1.0

    if succeeds:
        assert sink.write(0, messages(0, 20), begun) == 20
    else:
        with pytest.raises(partq.CommitFailedError, match=r"took 1801 s.*vacuum_grace_ms=3600000.*written 4 times"):
            sink.write(0, messages(0, 20), begun)
    assert len(attempts) == MAX_REWRITES + 1
    assert len([text for text in caplog.messages if "written again" in text]) == MAX_REWRITES
    assert in_queue(store) == (20 if succeeds else 0)
