"""Consumer groups of real applications: a driver process and a JVM each (R1-R8, H1-H6, W1-W3, K6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from spark_partq.testing.checker import missed
from tests.applications import Pool, Scenario
from tests.helpers import eventually


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Three applications, started at once."""
    pool = Pool(tmp_path_factory.mktemp("applications"), 3)
    yield pool
    pool.close()


class NewScenario(Protocol):
    def __call__(self, partitions: int, **settings: Any) -> Scenario: ...


@pytest.fixture
def scenario(pool: Pool, tmp_path: Path) -> Iterator[NewScenario]:
    """Makes the queue; afterwards every query is stopped."""
    made: list[Scenario] = []

    def new(partitions: int, **settings: Any) -> Scenario:
        made.append(Scenario(pool, tmp_path, partitions, **settings))
        return made[-1]

    yield new
    for s in made:
        s.let_go()
    pool.clear()


def flow_loads(s: Scenario) -> list[int]:
    flows = list(s.owners().values())
    return sorted((flows.count(flow) for flow in set(flows)), reverse=True)


# ---- balance
def test_seven_partitions_three_flows_and_a_fourth(scenario: NewScenario, pool: Pool) -> None:
    """R1, R2, R6, R7: 7 partitions, 3 → 4 flows ends 2,2,2,1; one partition moves to the new flow, nothing else moves."""
    a, b = pool.take(2)
    s = scenario(7, rebalance_delay_ms=200)
    s.send_all(3)
    s.start(a, "a", flows=3)()
    s.settled({"a": 7})
    assert flow_loads(s) == [3, 2, 2]
    before, since = s.owners(), s.seq
    with s.sending():
        s.start(b, "b", flows=1)()
        s.settled({"a": 6, "b": 1})
        (mine,) = s.loads()["b"]
        s.delivered("b", places=[(mine, len(s.sent["q", mine]))])
    assert flow_loads(s) == [2, 2, 2, 1]
    after = s.owners()
    assert [p for p in before if before[p] != after[p]] == [mine]
    assert [f["status"] for f in s.history("StatusChanged", since=since)] == ["Holddown", "Rebalancing", "Ready"]
    report = s.check()
    assert not report.again


def test_worker_joins_and_leaves(scenario: NewScenario, pool: Pool) -> None:
    """W3, H2: worker 2 takes half, worker 1 misses no micro-batch on its half, leaves in peace, and worker 2 takes the rest."""
    a, b = pool.take(2)
    s = scenario(8, rebalance_delay_ms=200, max_handoff_time_ms=20_000)
    s.start(a, "a")()
    s.settled({"a": 8})
    s.send_all(2)
    s.delivered("a")
    with s.sending():
        s.start(b, "b")()
        s.settled({"a": 4, "b": 4})
        kept, moved = s.loads()["a"], s.loads()["b"]
        s.delivered("b", places=[(p, len(s.sent["q", p])) for p in moved])
        left = s.leave("a")
        s.settled({"b": 8})
        left()
        s.delivered("b", places=[(p, len(s.sent["q", p])) for p in kept])
    assert missed(s.records("a"), s.sent_at, [("q", p) for p in kept], s.instance("a")) == []
    assert not any(f["forced"] for f in s.history("Granted"))
    report = s.check()
    assert not report.again


# ---- handoff
def test_example_of_a_handoff(scenario: NewScenario, pool: Pool) -> None:
    """H1, H2, H3, H5: B1 and B2 are delivered to flow 1 and acknowledged in time, B3 to B5 go to flow 2, partition 0 goes on."""
    a, b = pool.take(2)
    s = scenario(2, rebalance_delay_ms=0, max_handoff_time_ms=30_000)
    s.start(a, "a", ack="manual")()
    s.settled({"a": 2})
    s.send(1, "B", "B")
    s.send(0, "A")
    s.delivered("a")
    s.start(b, "b", ack="manual")()
    eventually(lambda: s.history("HandoffStarted"), "the handoff")
    s.send(1, "B", "B")
    for n in range(2, 5):  # partition 0 goes on meanwhile, partition 1 does not
        s.send(0, "A")
        s.delivered("a", places=[(0, n - 1)])
    assert s.rows("b") == [] and not s.history("Released")
    s.acknowledge("a", {0: 4, 1: 2})
    s.settled({"a": 1, "b": 1})
    s.send(1, "B")
    s.send(0, "A")
    s.delivered("b", places=[(1, n) for n in (2, 3, 4)])
    s.delivered("a", places=[(0, 4)])
    s.acknowledge("a", {0: 5})
    s.acknowledge("b", {1: 5})
    assert sorted(s.places("a")) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1)]
    assert s.places("b") == [(1, 2), (1, 3), (1, 4)]
    assert not any(r["redelivered"] for r in s.rows())
    report = s.check(manual=True)
    assert not report.again
