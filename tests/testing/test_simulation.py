"""The simulation of everything at once: it finds nothing new, is the same each time, and finds what is planted."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from spark_partq.testing.simulation import known as findings
from spark_partq.testing.simulation.__main__ import execute
from spark_partq.testing.simulation.draws import draw
from spark_partq.testing.simulation.known import FINDINGS, Finding, known
from spark_partq.testing.simulation.scheduler import Killed, Scheduler, SimulatedEvent, SimulatedLock, in_parallel
from spark_partq.testing.simulation.setup import Blow, Faults, ProducerSetup, QuerySetup, Reset, Scaling, Setup
from spark_partq.testing.simulation.shorten import shortened
from tests.helpers import ROOT

SEEDS, DISK_SEEDS = 60, 10


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spark_partq.testing.simulation", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False
    )


# ---- runs
@pytest.mark.parametrize(("seeds", "arguments"), [(SEEDS, []), (DISK_SEEDS, ["--disk"])], ids=["memory", "disk"])
def test_nothing_new_goes_wrong(seeds: int, arguments: list[str]) -> None:
    """Q4, Q5, S5, H4, W2: nothing is lost, doubled, out of order or stuck, whatever fails; the seed of what is is printed."""
    done = simulate("--seeds", str(seeds), "--jobs", "2", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    totals = json.loads(done.stdout.splitlines()[-1])
    assert (totals["runs"], totals["wrong"]) == (seeds, 0)
    assert totals["operations"] > 500 * seeds and totals["faults"] > seeds


def test_a_seed_is_one_run() -> None:
    """The same seed gives the same trace."""
    first, second = (simulate("--seed", "31").stdout for _ in range(2))
    assert first == second and "operations" in first


def test_what_is_known_is_told_from_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a problem of the kind, in a setup in which it can be, is the known one."""
    waits = Finding("waits", "two wait for each other", 1, lambda s, kind, _: kind == "STUCK" and bool(s.scalings))
    monkeypatch.setattr(findings, "FINDINGS", (waits,))
    resized = Setup(1, scalings=(Scaling(1.0, 3),))
    assert known(resized, "STUCK: everybody waits") == "waits"
    assert known(resized, "LOST: p0:1") == "" == known(Setup(1), "STUCK: everybody waits")
    monkeypatch.setattr(findings, "FINDINGS", ())
    assert known(resized, "STUCK: everybody waits") == ""


def test_known_findings_are_still_there() -> None:
    """What is mended goes from the list."""
    for finding in FINDINGS:
        problem = execute(draw(finding.seed)).problem
        assert known(draw(finding.seed), problem) == finding.name, f"{finding.name} does not show any more"
    seeds = [finding.seed for finding in FINDINGS]
    assert len(set(seeds)) == len(seeds)


_BATCHES = (ProducerSetup("s", "query", 4, pause_s=0.0),)
_RIGHT = {
    "a group is deleted while one of its members attaches, which then begins another of that name": Setup(
        0,
        producers=_BATCHES,
        queries=(QuerySetup("g", "g-0"), QuerySetup("g", "g-1")),
        delete_group_s=("g", 1.0),
        blows=(Blow("g-1", 0.0, 0, "commits", "stall"),),
        faults=Faults(stall_s=8.0),
    ),
    "a group begins behind what maintenance has said it removes, and whose files are still there": Setup(
        0,
        producers=_BATCHES,
        queries=(QuerySetup("g", "g-0"), QuerySetup("h", "h-0", begins_s=2.0)),
        maintain_every_s=1.0,
        blows=(Blow("maintain", 1.0, 2, "commits", "stall"),),
        faults=Faults(stall_s=3.0),
    ),
    "a group begins in the middle of sequences whose first messages every other group has acknowledged": Setup(
        6,
        partitions=1,
        keys=2,
        producers=_BATCHES,
        queries=(
            QuerySetup("g", "g-0", max_rows=3, sequence=3, work_s=0.3),
            QuerySetup("h", "h-0", begins_s=1.5, sequence=3),
        ),
        maintain_every_s=1.0,
    ),
}


@pytest.mark.parametrize("setup", _RIGHT.values(), ids=_RIGHT)
def test_what_is_right_is_no_violation(setup: Setup) -> None:
    """H4, Q8, H5: what looks like a message that comes again, or never, and is as the protocol says."""
    assert execute(setup).problem == ""


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("to", ["earliest", "latest", "some", "by:PT1S"])
def test_positions_are_set(to: str, disk: bool) -> None:
    """H4, S5: beside maintenance, and across a resize, by queries that are killed; what comes again is marked, and nothing below comes."""
    query = QuerySetup("g", "g-0", work_s=1.0, max_rows=3)
    setup = Setup(
        5,
        producers=(ProducerSetup("s", "query", 8, pause_s=0.4),),
        queries=(query, replace(query, instance="g-1")),
        scalings=(Scaling(1.0, 4),),
        reset=Reset("g", 2.5, to),
        maintain_every_s=0.5,
        faults=Faults(slow=0.1, kill=0.003),
    )
    outcome = execute(setup, disk)
    assert outcome.problem == "" and any("PositionReset" in what for _, _, what in outcome.trace)


def test_a_run_that_goes_wrong_is_made_smaller() -> None:
    """What the problem does not need is left out; the problem stays the same."""
    setup = Setup(
        1,
        producers=(ProducerSetup("s", "query", 5), ProducerSetup("t", "other", 3)),
        queries=(QuerySetup("g", "g-0", 2), QuerySetup("g", "g-1")),
        scalings=(Scaling(1.0, 3), Scaling(2.0, 4)),
        maintain_every_s=1.0,
        drops=(10, 20, 30),
    )

    def problem(s: Setup) -> str:
        return (
            "LOST: x"
            if len(s.scalings) >= 1 and len(s.queries) >= 1 and s.producers
            else "STUCK: y"
            if s.queries
            else ""
        )

    smaller, found = shortened(setup, "LOST: z", problem)
    assert found == "LOST: x"
    assert [len(part) for part in (smaller.producers, smaller.queries, smaller.scalings, smaller.drops)] == [1, 1, 1, 0]
    assert smaller.maintain_every_s is None and smaller.queries[0].flows == 1 and smaller.producers[0].batches == 1


def test_everything_ends_without_faults() -> None:
    """A quiet world: a producer, two consumers of a group, a resize."""
    setup = Setup(
        7, queries=(QuerySetup("g", "g-0"), QuerySetup("g", "g-1", begins_s=1.0)), scalings=(Scaling(1.5, 3),)
    )
    outcome = execute(setup)
    assert outcome.problem == "" and outcome.injected == 0
    assert any("GenerationOpened" in what for _, _, what in outcome.trace)
    assert execute(replace(setup, local=False)).problem == ""


# ---- the scheduler
def scheduler(*drops: int) -> Scheduler:
    return Scheduler(random.Random(1), set(drops))


def alive() -> bool:
    return False


def test_one_actor_runs_at_a_time_and_time_passes_only_when_all_wait() -> None:
    world, seen = scheduler(), []

    def sleeper(name: str, seconds: float) -> None:
        for _ in range(2):
            world.wait(seconds)
            seen.append((name, world.now_s))

    for name, seconds in (("a", 1.0), ("b", 0.4)):
        world.spawn(name, lambda name=name, seconds=seconds: sleeper(name, seconds), alive)  # type: ignore[misc]
    assert world.run(lambda: len(seen) == 4, 10, 100)
    assert seen == [("b", 0.4), ("b", 0.8), ("a", 1.0), ("a", 2.0)]


def test_a_priority_that_drops_lets_another_actor_go_on() -> None:
    def order(*drops: int) -> list[str]:
        world, seen = scheduler(*drops), []

        def actor(name: str) -> None:
            for _ in range(3):
                world.point()
                seen.append(name)

        for name in "ab":
            world.spawn(name, lambda name=name: actor(name), alive)  # type: ignore[misc]
        world.run(lambda: len(seen) == 6, 1, 100)
        return seen

    assert order() in (list("aaabbb"), list("bbbaaa"))
    assert order(2) not in (list("aaabbb"), list("bbbaaa"))


def test_a_job_that_drops_goes_on_when_the_others_have_ended() -> None:
    """It drops at its first commit, whatever the seed."""
    for seed in range(5):
        producers = ProducerSetup("s", "query", 1), ProducerSetup("t", "other", 1)
        setup = Setup(seed, producers=producers, blows=(Blow("othera", 0.0, 0, "commits"),))
        outcome = execute(setup)
        drop = next(n for n, (_, _, what) in enumerate(outcome.trace) if what.startswith("drops"))
        after = [who for _, who, what in outcome.trace[drop:] if " has p" in what]
        assert outcome.problem == "" and after[-1] == "othera#1"


def test_locks_events_and_work_in_parallel() -> None:
    world = scheduler()
    lock, event, seen = SimulatedLock(world), SimulatedEvent(world), []

    def first() -> None:
        with lock, lock:
            world.wait(1.0)
            seen.append("first")
        event.set()

    def second() -> None:
        world.wait(0.5)
        assert not lock.acquire(blocking=False)
        with lock:
            seen.append("second")
        assert event.wait(5.0) and not SimulatedEvent(world).wait(0.1)
        seen.extend(in_parallel(world, alive, [lambda i=i: i * i for i in range(3)]))  # type: ignore[misc]

    world.spawn("first", first, alive)
    world.spawn("second", second, alive)
    assert world.run(lambda: len(seen) == 5, 10, 1000)
    assert seen == ["first", "second", 0, 1, 4]


def test_what_waits_for_ever_is_told_and_the_killed_end() -> None:
    world, dead, ended = scheduler(), [False], []

    def waiter() -> None:
        try:
            world.wait(None)
        except Killed:
            ended.append("killed")
            raise

    world.spawn("waiter", waiter, lambda: dead[0])
    assert not world.run(lambda: False, 10, 100)
    assert world.stopped == "everybody waits for somebody else"
    dead[0] = True
    world.notify()
    world.run(lambda: True, 0, 100)
    assert ended == ["killed"]
