"""Machines whose clocks are wrong: they date no messages and remove none (Q8)."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures.maintain import maintain
from spark_partq.storage.queue.clock import differ
from spark_partq.storage.queue.file_index import enqueued_at
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from tests.helpers import opened, put
from tests.s3server import S3Server
from tests.scaled import Sink, make, messages, stored

YEAR_S, HOUR_S = 365 * 86_400, 3_600


@contextlib.contextmanager
def wrong_by(seconds: float, monotonic_s: float = 0.0) -> Iterator[None]:
    """Let this machine's clock be wrong, and that which does not go back be later."""
    wall, monotonic = SYSTEM.time_ns, SYSTEM.monotonic_s
    with (
        mock.patch.object(SYSTEM, "time_ns", side_effect=lambda: wall() + int(seconds * 1e9)),
        mock.patch.object(SYSTEM, "monotonic_s", side_effect=lambda: monotonic() + monotonic_s),
    ):
        yield


def test_how_much_clocks_differ_is_said_in_seconds() -> None:
    told = differ(Store("/s"), "q", skew_ms=3_600_000, max_skew_ms=600_000)
    assert "clock and that of /s differ by 3,600 s, and queue 'q' allows 600 s (max_clock_skew_ms)" in told


@pytest.mark.parametrize("by_s", [-YEAR_S, -2 * HOUR_S, 2 * HOUR_S, YEAR_S])
def test_producer_whose_clock_is_wrong(store: str, by_s: float) -> None:
    """It commits nothing, and the time of the partition stays what it is; when the clock is right it goes on."""
    make(store, 1)
    sink = Sink(store)
    with (
        wrong_by(by_s),
        pytest.raises(partq.ClockSkewError, match=r"differ by [\d,]+ s, .*'q' allows 600 s.*time server"),
    ):
        sink.write(0, messages(0, 2))
    assert stored(store) == {0: []}
    assert sink.write(0, messages(0, 2)) == 2
    with wrong_by(by_s), pytest.raises(partq.ClockSkewError):  # it jumped since it was compared
        sink.write(1, messages(2, 4))
    (at_us,) = opened(store).table(0).index.enqueued_us
    assert abs(enqueued_at(int(at_us)) - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)


@pytest.mark.parametrize("by_s", [-300, 300])
def test_clocks_that_differ_a_little(store: str, by_s: float) -> None:
    make(store, 1)
    with wrong_by(by_s):
        assert Sink(store).write(0, messages(0, 2)) == 2


def test_how_far_they_may_differ_is_a_setting(store: str) -> None:
    make(store, 1, max_clock_skew_ms=60_000)
    with wrong_by(300), pytest.raises(partq.ClockSkewError, match="allows 60 s"):
        Sink(store).write(0, messages(0, 2))
    with pytest.raises(partq.InvalidArgumentError, match=r"max_clock_skew_ms: .* 60000"):
        partq.create_queue(store, "other", "v bigint", partitions=1, max_clock_skew_ms=59_999)


def test_retention_goes_on_after_a_wrong_clock(store: str) -> None:
    """One machine whose clock was years ahead does not keep the queue from removing what is old."""
    make(store, 1, retention_ms=60_000)
    with wrong_by(10 * YEAR_S), pytest.raises(partq.ClockSkewError):
        Sink(store, sink_id="wrong").write(0, messages(0, 1))
    with wrong_by(-300):
        for batch in range(5):
            Sink(store).write(batch, messages(batch, batch + 1))
    assert maintain(opened(store)).removed_messages == 5


@pytest.mark.parametrize("by_s", [-YEAR_S, YEAR_S])
def test_maintenance_with_a_wrong_clock(store: str, by_s: float) -> None:
    """It removes nothing that is young, and dates nothing."""
    make(store, 1, retention_ms=60_000)
    Sink(store).write(0, messages(0, 3))
    with wrong_by(by_s), pytest.raises(partq.ClockSkewError, match="nothing is removed"):
        maintain(opened(store))
    assert maintain(opened(store)).removed_messages == 0
    assert stored(store) == {0: messages(0, 3)}


def test_what_a_wrong_clock_has_left_is_told(store: str) -> None:
    make(store, 1)
    put_at = dt.datetime.now(dt.UTC) + dt.timedelta(days=365)
    partq.create_queue(store, "v", "v bigint", partitions=1)
    put(store, 0, [1], queue="v", at=put_at)
    (finding,) = diagnose(Store.at(store)).findings
    assert finding.about == "partition 0 of queue v" and "31,5" in finding.what and "time server" in finding.remedy


@pytest.mark.parametrize(("by_s", "told"), [(-2 * HOUR_S, True), (-660, True), (-540, False), (0, False)])
def test_the_doctor_s_own_clock(store: str, by_s: float, told: bool) -> None:
    """Who looks by a clock that is behind the store's is told so, once for a queue, and nothing is written for that."""
    make(store, 3)
    Sink(store).write(0, messages(0, 30))
    files = sorted(Path(store).rglob("*"))
    with wrong_by(by_s):
        findings = diagnose(Store.at(store)).findings
    assert sorted(Path(store).rglob("*")) == files
    assert [finding.severity for finding in findings] == ["warning"] * told
    for finding in findings:
        assert re.search(r"this machine's clock .* differ by [\d,]+ s, and queue 'q' allows 600 s", finding.what)
        assert finding.about == "queue q" and "time server" in finding.remedy


def test_requests(s3: S3Server, prefix: str) -> None:
    """The store is asked once in ten minutes, by one request, and once more when the clock has jumped."""
    store = Store(prefix, s3.options)
    make(store, 1)
    sink = Sink(store)

    def asked(batch: int) -> int:
        """How often it was asked when a data file was written."""
        s3.asked()
        sink.write(batch, messages(batch, batch + 1))
        return sum(asked.startswith("HEAD") and "/part-" in asked for asked in s3.asked())

    assert [asked(batch) for batch in range(4)] == [1, 0, 0, 0]
    with wrong_by(0, monotonic_s=601):
        assert [asked(batch) for batch in range(4, 6)] == [1, 0]
