"""Consumer groups of real applications: driver processes, with Spark or without (R1-R8, H1-H6, W1-W3, K6)."""

from __future__ import annotations

import datetime

import pytest

from spark_partq.testing.checker import missed
from tests.applications import Scenario
from tests.helpers import eventually
from tests.processes import Pool
from tests.spark.scenarios import PLAIN, NewScenario


def flow_loads(s: Scenario) -> list[int]:
    flows = list(s.owners().values())
    return sorted((flows.count(flow) for flow in set(flows)), reverse=True)


# ---- balance
@PLAIN
def test_seven_partitions_three_flows_and_a_fourth(scenario: NewScenario, pool: Pool) -> None:
    """R1, R2, R6, R7: 7 partitions, 3 → 4 flows ends 2,2,2,1; one partition moves to the new flow, nothing else moves."""
    a, b = pool.take(2)
    s = scenario(7, rebalance_delay_ms=200, max_handoff_time_ms=60_000)
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


@PLAIN
def test_worker_joins_and_leaves(scenario: NewScenario, pool: Pool) -> None:
    """W3, H2, H6: worker 2 takes half, worker 1 misses no micro-batch on its half, leaves in peace, and worker 2 takes the rest, and
    misses no micro-batch on what it had. Both are told, the one that gives before the one that gets."""
    a, b = pool.take(2)
    # The delay is long enough for a busy machine: worker 2 is told that it stands by before it gets a partition.
    s = scenario(8, group="workers", rebalance_delay_ms=2_000, max_handoff_time_ms=60_000)
    s.listen(a, "a")
    s.listen(b, "b")
    s.start(a, "a")()
    s.settled({"a": 8})
    s.send_all(2)
    s.delivered("a")
    with s.sending():
        s.start(b, "b")()
        s.settled({"a": 4, "b": 4})
        kept, moved = s.loads()["a"], s.loads()["b"]
        s.delivered("b", places=[(p, len(s.sent["q", p])) for p in moved])
        since = {p: len(s.sent["q", p]) for p in moved}
        left = s.leave("a")
        s.settled({"b": 8})
        left()
        s.delivered("b", places=[(p, len(s.sent["q", p])) for p in kept])
    assert missed(s.records("a"), s.sent_at, [("q", p) for p in kept], s.instance("a")) == []
    later = [r for r in s.records("b") if r["kind"] != "row" or r["offset"] >= since.get(r["partition"], 0)]
    assert missed(later, s.sent_at, [("q", p) for p in moved], s.instance("b")) == []
    assert not any(f["forced"] for f in s.history("Granted"))
    assert [f["cause"] for f in s.history("MemberLeft")] == [f"{s.instance('a')} left"]
    report = s.check()
    assert not report.again

    def listener_calls(name: str, what: str) -> dict[int, float]:
        return {p: at for said, partitions, at in s.listener_calls(name) if said == what for p in partitions}

    assert (
        set(listener_calls("a", "assigned")) == set(range(8))
        and not listener_calls("a", "lost")
        and not listener_calls("b", "lost")
    )
    revoked, assigned = listener_calls("a", "revoked"), listener_calls("b", "assigned")
    assert set(revoked) == set(assigned) == set(range(8))
    assert all(revoked[p] < assigned[p] for p in range(8))
    assert [active for what, active, _ in s.listener_calls("a") if what == "active"] == [True]
    assert [active for what, active, _ in s.listener_calls("b") if what == "active"] == [False, True]


# ---- handoff
@PLAIN
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
    assert s.acknowledge("a", {0: 5, 1: 5}) == [["q", 1]], "an acknowledgement of what was given up was taken"
    assert s.acknowledge("b", {1: 5}) == []
    assert sorted(s.places("a")) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1)]
    assert s.places("b") == [(1, 2), (1, 3), (1, 4)]
    assert not any(r["redelivered"] for r in s.rows())
    report = s.check(manual=True)
    assert not report.again


@pytest.mark.parametrize("max_handoff_time_ms", [0, 700])
@PLAIN
def test_handoff_without_time(scenario: NewScenario, pool: Pool, max_handoff_time_ms: int) -> None:
    """H4: a consumer that is busy with its first micro-batch all the time loses the partition; the next one gets it all again,
    in order and marked, and the late acknowledgement changes nothing. The partition that stays is not delivered twice."""
    a, b = pool.take(2)
    s = scenario(2, rebalance_delay_ms=0, max_handoff_time_ms=max_handoff_time_ms)
    s.hold("a").touch()
    s.hold("b").touch()
    s.send_all(3)
    s.start(a, "a")()
    s.delivered("a")
    s.start(b, "b")()
    s.settled({"a": 1, "b": 1})
    (moved,), (kept,) = s.loads()["b"], s.loads()["a"]
    s.delivered("b", places=[(moved, n) for n in range(3)])
    assert [f["forced"] for f in s.history("Granted") if f["partition"] == moved] == [False, True]
    s.hold("a").unlink()
    eventually(lambda: s.positions()[kept] == 3, "the acknowledgement of what stayed")
    assert s.positions()[moved] == 0, "the late acknowledgement was taken"
    s.hold("b").unlink()
    s.send_all(2)
    report = s.check()
    assert report.again == [("q", moved, n) for n in range(3)]
    assert [(r["offset"], r["redelivered"]) for r in s.rows("b")] == [
        *[(n, True) for n in range(3)],
        (3, False),
        (4, False),
    ]


@PLAIN
def test_consumer_that_never_begins_hands_over(scenario: NewScenario, pool: Pool) -> None:
    """H1, W2: a query that waits an hour for its next trigger gives up a partition at once, and all of them when it is stopped."""
    a, b = pool.take(2)
    s = scenario(2, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    s.start(a, "a", every_s=3_600)()
    s.settled({"a": 2})
    s.start(b, "b")()
    s.settled({"a": 1, "b": 1})
    s.send_all(3)
    (mine,) = s.loads()["b"]
    s.delivered("b", places=[(mine, n) for n in range(3)])
    s.stop("a")
    s.settled({"b": 2})
    report = s.check()
    assert not report.again and s.rows("a") == []


# ---- coming and going
@PLAIN
def test_standby_takes_over_at_once(scenario: NewScenario, pool: Pool) -> None:
    """R3, H6: a consumer too many triggers nothing and is told that it is a standby; when an active one goes it takes over exactly its
    load, without a holddown."""
    a, b = pool.take(2)
    s = scenario(2, group="standbys", rebalance_delay_ms=600_000)
    s.listen(b, "b")
    s.start(a, "a", flows=2)()
    s.settled({"a": 2})
    since = s.seq
    s.send_all(2)
    s.start(b, "b", flows=2)()
    s.delivered("a")
    eventually(lambda: [what for what, *_ in s.listener_calls("b")].count("active") == 2, "that b is told what it is")
    assert {f["kind"] for f in s.history(since=since)} == {"MemberJoined"} and s.rows("b") == []
    before = s.owners()
    s.leave("a")()
    s.settled({"b": 2})
    s.send_all(2)
    s.delivered("b", places=[(p, n) for p in range(2) for n in (2, 3)])
    assert len(set(before.values())) == len(set(s.owners().values())) == 2
    assert [f["kind"] for f in s.history("StatusChanged", "HandoffStarted", since=since)] == []
    report = s.check()
    assert not report.again
    assert [active for what, active, _ in s.listener_calls("b") if what == "active"] == [False, False, True, True]


@PLAIN
def test_changes_within_a_holddown(scenario: NewScenario, pool: Pool) -> None:
    """R2, R4, R5: while one consumer leaves and another comes, the group waits, and the new one then has exactly what the other left: no
    handoff. Of two that leave one after the other, the second does not restart the delay."""
    a, b, c = pool.take(3)
    delay_s = 20.0 if pool.pace == 1.0 else 2.5  # a query with Spark may take that long to start
    s = scenario(6, rebalance_delay_ms=round(1_000 * delay_s), max_handoff_time_ms=60_000)
    for name, application in (("a", a), ("b", b), ("c", c)):
        s.start(application, name)()
    s.settled({"a": 2, "b": 2, "c": 2})
    before, since = s.owners(), s.seq
    with s.sending():
        s.leave("b")()
        eventually(lambda: s.group.state.status == "Holddown", "what the group decides when b leaves")
        assert len(s.loads()[""]) == 2
        s.start(b, "d")()
        s.settled({"a": 2, "c": 2, "d": 2})
    assert [p for p, flow in s.owners().items() if flow != before[p]] == s.loads()["d"]
    assert [f["status"] for f in s.history("StatusChanged", since=since)] == ["Holddown", "Ready"]
    assert not s.history("HandoffStarted", since=since)

    since = s.seq
    s.leave("c")()
    (held,) = eventually(lambda: s.history("StatusChanged", since=since), "what it decides when c leaves")
    waited = datetime.timedelta(seconds=0.6 * delay_s)
    eventually(lambda: datetime.datetime.now(datetime.UTC) >= held["at"] + waited, "a part of the delay")
    s.leave("d")()
    assert s.group.state.status == "Holddown"
    s.settled({"a": 6})
    changes = s.history("StatusChanged", since=since)
    assert [f["status"] for f in changes] == ["Holddown", "Rebalancing", "Ready"]
    assert delay_s <= (changes[1]["at"] - changes[0]["at"]).total_seconds() + 0.05 < 1.5 * delay_s
    s.send_all(1)
    report = s.check()
    assert not report.again


@PLAIN
def test_static_member_restarts(scenario: NewScenario, pool: Pool) -> None:
    """K6, R4, R5: a restart within the session timeout triggers nothing. After a longer one the group is in Holddown, nobody gets
    the partitions meanwhile, and the member that returns in time takes exactly those: no handoff in either case."""
    a, b = pool.take(2)
    s = scenario(4, rebalance_delay_ms=round(10_000 * pool.pace))
    session = {"sessionTimeoutMs": round(8_000 * pool.pace)}
    s.start(a, "a", **session)()
    s.settled({"a": 4})
    s.start(b, "b", static=True, **session)()
    s.settled({"a": 2, "b": 2})
    owners, since = s.owners(), s.seq
    s.hold("b").touch()
    (busy, _) = s.loads()["b"]
    s.send(busy, "key", "key")
    s.delivered("b")
    s.send_all(1)
    stopped = b.tell("stop", name="b")
    s.hold("b").unlink()
    stopped()
    s.send_all(1)
    s.start(b, "b", static=True, **session)()
    s.delivered("b", places=[(p, n) for p in s.loads()["b"] for n in range(len(s.sent["q", p]))])
    assert s.owners() == owners and s.is_ready()
    assert {f["kind"] for f in s.history(since=since)} <= {"MemberJoined", "Granted"}

    since = s.seq
    mine = s.loads()["b"]
    s.stop("b")
    eventually(lambda: s.history("MemberLeft", since=since), "the end of the session")
    assert s.loads()[""] == mine and s.group.state.status == "Holddown"
    s.send_all(2)
    s.start(b, "b", static=True, **session)()
    s.settled({"a": 2, "b": 2})
    assert s.owners() == owners
    assert [f["status"] for f in s.history("StatusChanged", since=since)] == ["Holddown", "Ready"]
    assert not s.history("HandoffStarted", since=since)
    s.check()


@PLAIN
def test_zombie(scenario: NewScenario, pool: Pool) -> None:
    """R4, H4, H6, W2: who was stopped for longer than its session is too late with its acknowledgement, is told what it lost, and simply
    joins again."""
    a, b = pool.take(2)
    s = scenario(4, group="zombies", rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    s.listen(a, "a")
    session = {"sessionTimeoutMs": round(3_000 * pool.pace)}
    s.start(a, "a", **session)()
    s.start(b, "b", **session)()
    s.settled({"a": 2, "b": 2})
    (busy, idle), since = s.loads()["a"], s.seq
    s.hold("a").touch()
    s.send(busy, "x", "y", "x")
    s.delivered("a")
    s.send_all(2)  # these a is not given: it is busy
    eventually(lambda: all(s.positions()[p] == 2 for p in s.loads()["b"]), "the acknowledgement of the other half")
    s.hold("b").touch()
    a.stop_signals()
    s.settled({"b": 4})
    s.delivered("b", places=[(busy, n) for n in range(3)])
    a.cont()
    s.hold("a").unlink()
    eventually(lambda: s.history("MemberJoined", since=since), "the return of the zombie")
    assert a.ask("status", name="a") == {"active": True, "error": None, "finished": s.rows("a")[-1]["batch"]}
    assert (s.positions()[busy], s.positions()[idle]) == (0, 0), "the late acknowledgement was taken"
    s.hold("b").unlink()
    s.settled({"a": 2, "b": 2})
    s.send_all(2)
    report = s.check()
    assert report.again == [("q", busy, n) for n in range(3)]
    lost = [sorted(partitions) for what, partitions, _ in s.listener_calls("a") if what == "lost"]
    assert lost == [sorted([busy, idle])]


@PLAIN
def test_one_instance_twice_and_options_that_disagree(scenario: NewScenario, pool: Pool) -> None:
    """W2, K6: of two live queries with one instance id the newer goes on and the older stops. Who disagrees with the group does
    not get in."""
    a, b = pool.take(2)
    s = scenario(2, rebalance_delay_ms=0)
    s.start(a, "x", static=True)()
    s.settled({"x": 2})
    s.send_all(2)
    s.delivered("x")
    s.start(b, "newer", instanceId="x")()
    error = s.failed("x")
    assert "[FENCED]" in error and "'x'" in error
    s.send_all(2)
    s.delivered("newer", places=[(p, n) for p in range(2) for n in (2, 3)])
    s.start(a, "other", sessionTimeoutMs=4_000)
    error = s.failed("other")
    assert "[GROUP_MISMATCH]" in error and "sessionTimeoutMs=4000" in error
    assert list(s.group.state.members) == ["x"]
    s.check()


@PLAIN
def test_killed(scenario: NewScenario, pool: Pool) -> None:
    """R2, R4, W1: SIGKILL of a consumer in its work, and then of the one that decided what follows from that. The one that is left takes
    everything, and one of the killed comes back with its checkpoint."""
    applications = dict(zip("abc", pool.take(3), strict=True))
    s = scenario(6, rebalance_delay_ms=1_000, max_handoff_time_ms=60_000)
    session = {"sessionTimeoutMs": round(4_000 * pool.pace)}
    for name, application in applications.items():
        s.start(application, name, **session)()
    s.settled({"a": 2, "b": 2, "c": 2})
    since = s.seq
    s.hold("a").touch()
    busy = s.loads()["a"][0]
    s.send(busy, "x", "y")
    s.delivered("a")
    with s.sending():
        applications["a"].kill()
        (held, *_) = eventually(lambda: s.history("StatusChanged", since=since), "the holddown")
        assert held["status"] == "Holddown"
        decider = s.names[held["by"]]
        applications[decider].kill()
        (left,) = {"b", "c"} - {decider}
        s.settled({left: 6})
        s.hold("a").unlink()
        s.start(applications[left], "a", **session)()
        s.settled({left: 3, "a": 3})
    report = s.check()
    assert {("q", busy, 0), ("q", busy, 1)} <= set(report.again)
