"""Assignors and protocols of real applications: driver processes, with Spark or without (K1, K4, K5, K7)."""

from __future__ import annotations

import json

from tests.processes import Pool
from tests.spark.scenarios import PLAIN, NewScenario


@PLAIN
def test_upgrade_by_two_rolling_restarts(scenario: NewScenario, pool: Pool) -> None:
    """K4, K5, K7: three applications go from eager to cooperative while messages flow, and one goes back. Nothing is lost or comes
    twice, and the history says under which protocol each assignment was computed."""
    applications = dict(zip("abc", pool.take(3), strict=True))
    s = scenario(6, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    s.listen(applications["a"], "a")

    def start(name: str, assignor: str) -> None:
        s.start(applications[name], name, assignor=assignor)()
        s.settled({n: 6 // len(running) for n in running})

    running: list[str] = []
    for name in applications:
        running.append(name)
        start(name, "range")
    with s.sending(every_s=1.0):  # an application that starts needs the processors too
        for listed in ("cooperative-sticky,range", "cooperative-sticky"):
            for name in applications:
                s.leave(name)()
                running.remove(name)
                s.settled(dict.fromkeys(running, 3))
                running.append(name)
                start(name, listed)
        s.leave("c")()
        s.settled({"a": 3, "b": 3})
        s.start(applications["c"], "c", assignor="cooperative-sticky,range")()
        s.settled(dict.fromkeys("abc", 2))
    computed = [json.loads(f["body"]) for f in s.history("AssignmentComputed")]
    protocols = [body["protocol"] for body in computed]
    first = protocols.index("cooperative")
    assert set(protocols[:first]) == {"eager"} and len(protocols[:first]) > 8
    assert computed[first]["assignor"] == "cooperative-sticky"
    assert protocols[-1] == "eager", "a member lists an eager assignor again"
    listener_calls = [(what, len(partitions)) for what, partitions, _ in s.listener_calls("a") if what != "active"]
    assert listener_calls[:3] == [("assigned", 6), ("revoked", 6), ("assigned", 3)], "eager: everything, in one call"
    report = s.check()
    assert not report.again


@PLAIN
def test_an_assignor_of_the_users(scenario: NewScenario, pool: Pool) -> None:
    """K1: an installed package's assignor is used; when it gives a partition twice, every query that meets that stops with a clear
    error, nothing is assigned wrongly, and with the assignor mended the group goes on where it was."""
    a, b = pool.take(2)
    s = scenario(4, rebalance_delay_ms=0)
    s.start(a, "a", static=True, assignor="contrary")()
    s.settled({"a": 4})
    s.send_all(2)
    s.start(b, "b", static=True, assignor="contrary")()
    s.settled({"b": 4})
    s.send_all(2)
    s.delivered()
    s.acknowledged()
    pool.twice.touch()
    s.start(b, "b2", static=True, assignor="contrary")
    error = s.failed("b2")
    assert "[ASSIGNOR_FAILED]" in error and "'contrary' gave it to" in error
    pool.twice.unlink()
    s.start(b, "b3", static=True, assignor="contrary")()
    s.send_all(1)
    s.check()
