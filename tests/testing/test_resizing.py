"""The simulator of resizes itself: seeds that must pass, the same run from the same seed, and what it says of a failure."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from spark_partq.core.group.facts import Kind
from spark_partq.core.queue import partition_map
from spark_partq.testing.resizing import Reader, Town, TownSetup, main, small
from spark_partq.testing.simulator import Setup, describe, run

# Seeds that once failed, each for another reason.
ONCE_FAILED = (193, 548, 708, 1831, 4989)


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_seeds(first: int) -> None:
    """S1-S6, I15-I17: nothing is lost or in disorder, nothing hangs, whatever goes wrong."""
    for seed in range(first, first + 50):
        run(seed, 600, Town)


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_seeds_that_once_failed(seed: int) -> None:
    run(seed, 800, Town)


def test_the_same_seed_is_the_same_run() -> None:
    """A failure can be looked at as often as one likes."""
    assert describe(run(3, 300, Town), 10_000) == describe(run(3, 300, Town), 10_000)
    assert describe(run(3, 300, Town), 10_000) != describe(run(4, 300, Town), 10_000)


def test_much_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in which nothing happens prove nothing."""
    seen: Counter[str] = Counter()
    is_in, limit = partition_map.is_in, Reader.limit

    def counted(*arguments: object) -> bool:
        found = is_in(*arguments)  # type: ignore[arg-type]
        seen["left out of a replay"] += found
        return found

    def held_back(self: Reader, where: tuple[str, int], first: int) -> int:
        end = limit(self, where, first)
        seen["held back"] += end < self.ends.get(where[1], 0)
        return end

    monkeypatch.setattr(partition_map, "is_in", counted)
    monkeypatch.setattr(Reader, "limit", held_back)
    for seed in range(60):
        seen.update(happening(run(seed, 600, Town)))
    for name in (
        "GenerationOpened", "PartitionsRemoved", "QueueDrained", "ScalingCancelled", "ScalingEnded", "IngressDisabled",
        "up", "down", "exclusive", "partitioned", "live", "drain", "delete", "lost", "stuck", "comes back", "taken away",
        "left out of a replay", "held back", "two groups", "Floor", "PartitionRemoved", "Released",
        "crashes", "finds its checkpoint in use",
    ):  # fmt: skip
        assert seen[name] >= 5, (name, seen)


def happening(town: Town) -> Iterator[str]:
    """Names for what one run tells."""
    counts = [g.partition_count for g in town.queue.state.generations]
    for before, after in itertools.pairwise(counts):
        yield "up" if after > before else "down"
        if 0 in (before, after):
            yield "partitioned" if after else "exclusive"
    for fact in town.queue.facts:
        yield fact.kind
        if fact.kind == "ScalingStarted":
            yield fact.body["mode"]
        if fact.body.get("lost"):
            yield "lost"
    if town.queue.state.stuck:
        yield "stuck"
    if len(town.groups) > 1:
        yield "two groups"
    for group in town.groups:
        for _, told in group.control.facts:
            yield str(told.kind)
            if told.kind == Kind.PARTITION_ADDED and told.epoch:
                yield "comes back"
            if told.kind == Kind.GRANTED and told.forced:
                yield "taken away"
    yield from (what for _, _, _, what in town.trace if isinstance(what, str))


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts what it did; of a failure it prints the seed, the setup and the end of the trace."""
    assert main(["--seeds", "3", "--steps", "200", "--seed", "5"]) == 0
    printed = capsys.readouterr().out
    assert "3 seeds, 200 steps each" in printed and "resizes" in printed and "messages" in printed
    monkeypatch.setattr(partition_map, "may_append", lambda sealed, generation: True)
    assert main(["--seeds", "50", "--steps", "400"]) == 1
    printed = capsys.readouterr().out
    assert "seed " in printed and "SimulationError: I15" in printed
    assert "TownSetup(" in printed and "seals" in printed


def test_a_long_run() -> None:
    """Age changes nothing: after dozens of generations each message is still delivered in order."""
    group = small(Setup(flows=(1, 2), manual=(False, False), trouble=0.005))
    town = Town(1, TownSetup(4, sinks=2, groups=(group,), modes=("live",), counts=(2, 3, 4, 6), trouble=0.02))
    town.run(8_000)
    assert town.queue.state.generation > 12


def test_without_trouble() -> None:
    """One resize at a time, nobody fails: each message is delivered once, none marked."""
    group = small(Setup(flows=(1,), manual=(False,), trouble=0.0, conflict=0.0, lost=0.0, landed=0.0))
    town = Town(random.Random(0).randrange(100), TownSetup(2, groups=(group,), trouble=0.0))
    for partitions in (3, 5, 2, 4):
        town.scale(partitions)
        for _ in range(2_500):
            town.tick()
    town.converge()
    assert town.queue.state.generation == 4
    delivered = [d for n in town.logs for d in town.groups[0].recorder.deliveries.get(("q0", n), [])]
    assert sum(d.end - d.start for d in delivered) == len(town.placed)
    assert all(d.mark <= d.start for d in delivered)
