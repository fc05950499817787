"""The doctor finds what of a group is over time because nobody is there who ends it, and nothing before that."""

from __future__ import annotations

import datetime as dt

import pytest

import spark_partq as partq
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures.rebalance import Rebalancer
from spark_partq.storage.queue.handle import attach_group
from spark_partq.storage.store import Store
from tests.cli.queues import queue_of
from tests.clocks import monotonic_clock, wall_clock
from tests.groups import Consumer
from tests.helpers import opened
from tests.scaled import make

BEGAN = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
DELAY_S, HANDOFF_S, SESSION_S = 30, 60, 20


def member(store: str, name: str, **options: object) -> Consumer:
    return Consumer(store, name, session_timeout_ms=SESSION_S * 1000, **options)  # type: ignore[arg-type]


def findings(store: str, after_s: float) -> list[str]:
    """Of the doctor, so long after all began."""
    with wall_clock(BEGAN + dt.timedelta(seconds=after_s)):
        return [str(finding) for finding in diagnose(Store(store)).findings]


def begun(store: str, partitions: int = 2, rebalance_delay_ms: int = 0) -> Consumer:
    """Member a has all partitions, and was given messages of each; b has joined. Nothing is heard of either any more."""
    with wall_clock(BEGAN):
        queue_of(store, partitions, each=5, rebalance_delay_ms=rebalance_delay_ms, max_handoff_time_ms=HANDOFF_S * 1000)
        a = member(store, "a")
        for number in range(partitions):
            a.ack(number, 0, delivered=5)
        b = member(store, "b")
        b.beat()
    return a


def test_a_handoff_that_nobody_ends(store: str) -> None:
    begun(store)
    assert findings(store, HANDOFF_S + SESSION_S - 0.01) == []
    (told,) = findings(store, HANDOFF_S + SESSION_S)
    assert told == (
        "warning: group g: a handoff should have ended (max_handoff_time_ms) and no query ends it: q/1, which a/0 gives up since "
        "2026-05-01T00:00:00+00:00; start a query of the group, or end it by spark-partq rebalance --group g"
    )


def test_of_many_three_are_named(store: str) -> None:
    begun(store, partitions=10)
    (told,) = findings(store, 1_000)
    assert told.count("which a/0 gives up since") == 3 and ", and 2 more" in told


def test_a_holddown_that_nobody_ends(store: str) -> None:
    """From the fact on with which it began, by its own limit."""
    begun(store, rebalance_delay_ms=DELAY_S * 1000)
    assert findings(store, DELAY_S + SESSION_S - 0.01) == []
    (told,) = findings(store, DELAY_S + SESSION_S)
    assert told.startswith("warning: group g: it is in Holddown since 2026-05-01T00:00:00+00:00, because b joined")
    assert "and no query ends that: 30,000 ms should have been enough; start a query" in told


def test_a_rebalance_that_nobody_ends(store: str) -> None:
    """Nothing drains any more, and whoever was to assign has died."""
    with wall_clock(BEGAN):
        queue_of(store, 2, each=5, rebalance_delay_ms=0, max_handoff_time_ms=HANDOFF_S * 1000)
        a = member(store, "a", assignors=("range",))
        a.ack(0, 0, delivered=5)
        member(store, "b", assignors=("range",)).beat()
    with wall_clock(BEGAN + dt.timedelta(seconds=50)), pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_partq.core.group.steps.rebalancing.advance", lambda _: None)
        a.release()
    assert findings(store, HANDOFF_S + SESSION_S - 0.01) == []
    (told,) = findings(store, HANDOFF_S + SESSION_S)
    assert told.startswith("warning: group g: it is in Rebalancing since 2026-05-01T00:00:00+00:00, because b joined")


def test_a_group_that_nobody_is_in_rests(store: str) -> None:
    """Its last query has ended in order: nobody waits, though the group is in holddown."""
    begun(store, partitions=1, rebalance_delay_ms=DELAY_S * 1000)
    with wall_clock(BEGAN):
        for name in ("a", "b"):
            member(store, name).leave()
    assert partq.describe_group(store, "g").status == "Holddown"
    assert findings(store, 100_000) == []


def test_the_copy_of_a_group_is_the_primarys_matter(store: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    there = str(tmp_path_factory.mktemp("there") / "store")
    begun(store)
    partq.replicate(store, "q", there)
    assert len(findings(store, 1_000)) == 1 and findings(there, 1_000) == []


def test_the_advice_helps(store: str) -> None:
    """What ``spark-partq rebalance`` decides ends the handoff, and the warning with it."""
    begun(store)
    assert len(findings(store, 1_000)) == 1
    rebalancer = Rebalancer(Store(store), "g")
    with wall_clock(BEGAN + dt.timedelta(seconds=1_000)):
        for second in range(0, 200, 2):
            with monotonic_clock(second * 1_000):
                list(rebalancer.step())
    assert findings(store, 1_001) == []


@pytest.mark.parametrize(
    ("limit", "told"), [({}, "no message"), ({"max_bytes": 1_000}, "only messages that are too old or too many")]
)
def test_a_group_that_has_not_joined(store: str, limit: dict[str, int], told: str) -> None:
    make(store, 1, **limit)
    attach_group(opened(store), "g", 0)
    (finding,) = diagnose(Store.at(store)).findings
    assert f"group g is attached and has not joined, so {told}" in finding.what
