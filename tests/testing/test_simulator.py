"""The simulator itself: seeds that must pass, the same run from the same seed, and what it says of a failure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from spark_partq.core.assignors import BUILTIN
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.state import GroupState
from spark_partq.testing import simulator
from spark_partq.testing.simulator import Setup, World, describe, main, run

# Seeds that once failed, each for another reason.
ONCE_FAILED = (
    0,
    18,
    44,
    542,
    1005,
    1190,
    2003,
    2019,
    2059,
    2136,
    3000,
    3006,
    3018,
    3098,
    200620,
    201358,
    300616,
    305902,
)


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_seeds(first: int) -> None:
    """W1, W2, H1-H5, R1-R8: nothing is lost, nothing hangs, whatever goes wrong."""
    for seed in range(first, first + 50):
        run(seed, 1_000)


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_seeds_that_once_failed(seed: int) -> None:
    run(seed, 1_000)


def test_a_long_run() -> None:
    """Age changes nothing: the tables stay small and the group goes on."""
    world = World(7, Setup((8,), 1_000, 2_000, flows=(2, 1, 3), manual=(False, True, False), trouble=0.01))
    world.run(20_000)
    assert len(world.acks.rows) < 200
    assert len(world.control.facts) > 500


def test_the_same_seed_is_the_same_run() -> None:
    """A failure can be looked at as often as one likes."""
    assert describe(run(3, 500), 10_000) == describe(run(3, 500), 10_000)
    assert describe(run(3, 500), 10_000) != describe(run(4, 500), 10_000)


def test_much_happens() -> None:
    """Runs in which nothing happens prove nothing."""
    seen: Counter[str] = Counter()
    for seed in range(100):
        facts = [fact for _, fact in run(seed, 1_000).control.facts]
        seen.update(happening(facts))
        members: dict[str, dict[str, object]] = {}
        for fact in facts:
            if fact.kind == Kind.MEMBER_JOINED:
                told, before = json.loads(fact.body or ""), members.get(fact.instance or "")
                if before is not None:
                    seen["upgrade"] += before["cooperative"] is False and told["cooperative"] is True
                    seen["downgrade"] += before["cooperative"] is True and told["cooperative"] is False
                    seen["resubscribed"] += before["queues"] != told["queues"]
                members[fact.instance or ""] = told
    for name in (
        "HandoffStarted", "HandoffCancelled", "Released", "Unassigned", "Floor", "Holddown", "QueueAdded", "QueueRemoved",
        "AssignmentComputed", "eager", "cooperative", "revoked", "given back", "moved", "taken away", "unassigned by force",
        "the protocol changed", "the assignor changed", "upgrade", "downgrade", "resubscribed", *BUILTIN,
    ):  # fmt: skip
        assert seen[name] >= 5, (name, seen)


def happening(facts: list[GroupFact]) -> Iterator[str]:
    """Names for what the facts of one run tell."""
    used: list[tuple[str, str]] = []
    for fact in facts:
        yield str(fact.kind)
        if fact.status:
            yield fact.status
        if fact.forced:
            yield "taken away" if fact.kind == Kind.GRANTED else "unassigned by force"
        if fact.kind == Kind.HANDOFF_STARTED:
            yield "moved" if fact.to_flow else "revoked"
        if (
            fact.kind == Kind.GRANTED
            and used
            and used[-1][1] == "eager"
            and (fact.lineage_epoch or 0) < (fact.epoch or 0)
        ):
            yield "given back"
        if fact.kind == Kind.ASSIGNMENT_COMPUTED:
            told = json.loads(fact.body or "")
            yield from (told["assignor"], told["protocol"])
            if used and used[-1][1] != told["protocol"]:
                yield "the protocol changed"
            if used and used[-1][0] != told["assignor"]:
                yield "the assignor changed"
            used.append((told["assignor"], told["protocol"]))


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts what it did; of a failure it prints the seed, the setup and the end of the trace."""
    assert main(["--seeds", "3", "--steps", "200", "--seed", "5"]) == 0
    assert "3 seeds, 200 steps each" in capsys.readouterr().out
    monkeypatch.setattr(GroupState, "delivered", lambda self, where, acks: self.position(where, acks) or 0)
    assert main(["--seeds", "50", "--steps", "400"]) == 1
    printed = capsys.readouterr().out
    assert "seed " in printed and "InvariantError: H4" in printed
    assert "Setup(" in printed and "commits Granted" in printed


def test_a_setup_of_ones_own() -> None:
    """One consumer, no trouble: all in order, each message once."""
    setup = Setup((3,), flows=(1,), manual=(False,), trouble=0.0, conflict=0.0, lost=0.0, landed=0.0)
    world = simulator.run(1, 2_000, lambda seed: World(seed, setup))
    for deliveries in world.recorder.deliveries.values():
        assert [d.start for d in deliveries] == [0, *(d.end for d in deliveries)][:-1]
        assert all(d.mark == 0 for d in deliveries)
