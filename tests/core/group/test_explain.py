"""What is told of a partition is what its group's state says, whatever happened before."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import asdict
from typing import Any

import pytest

from spark_partq.core.group.acks import Acks
from spark_partq.core.group.decide import decide
from spark_partq.core.group.events import Reset
from spark_partq.core.group.explain import Surroundings, WaitKind, explain
from spark_partq.core.group.state import GroupState
from spark_partq.render import explanation
from tests.core.group.test_every_order import BOTH, COOPERATIVE, EAGER, Explorer, Options

NOW = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 100))])
def test_any_state_is_explained(seed: int) -> None:
    """It never fails, names the owner that the state has, and of the last step, too; and says at least one thing that is waited for."""
    rng = random.Random(seed)
    explorer = rng.choice(
        (
            Explorer(4, {"a": 2, "b": 1, "c": 1}, rng.choice((0, 1_000)), rng.choice((0, 1_000))),
            Options({"q": 2, "r": 1}, {"a": [EAGER, BOTH], "b": [BOTH, COOPERATIVE], "c": [{"queues": ("q",), **BOTH}]}, 1_000, 1_000),
        )
    )  # fmt: skip
    state, acks, facts = GroupState(), Acks(), list[dict[str, Any]]()
    for _ in range(60):
        events = list(explorer.events(state, acks))
        if not state.members and state.partitions:
            events.append(Reset({next(iter(state.partitions)): rng.randint(0, 3)}, state.resets + 1, "earliest"))
        made = decide(state, acks, [rng.choice(events)])
        state = state.copy()
        for fact in made:
            facts.append({"seq": state.seq, "at": NOW + dt.timedelta(seconds=state.seq), **asdict(fact)})
            state.replay(fact)
        for acknowledged in explorer.acknowledgements(state, acks):
            if rng.random() < 0.5:
                acks = acknowledged
                break
        for partition_id, own in state.partitions.items():
            end = rng.choice((None, state.delivered(partition_id, acks), state.delivered(partition_id, acks) + 5))
            seen = Surroundings(NOW + dt.timedelta(seconds=state.seq), end)
            found = explain(state, acks, facts, partition_id, "g", seen)
            assert (found.owner, found.state, found.epoch) == (own.flow, own.state, own.epoch)
            owners = [step.owner for step in found.steps]
            assert owners[-1] == own.flow and [step.fact for step in found.steps] == sorted(
                step.fact for step in found.steps
            )
            forced = {fact["seq"] for fact in facts if fact["forced"]}
            assert all(("is delivered again" in step.text) == (step.fact in forced) for step in found.steps)
            assert found.waits or end is None
            assert all(wait.seconds_left is None or wait.seconds_left <= 1 for wait in found.waits)
            assert max(map(len, explanation(found))) <= 80
            assert found.to_dict()["owner"] == own.flow


def test_every_kind_of_waiting_is_tested() -> None:
    from tests.storage.inspect import test_explain

    assert {kind for kind, _ in test_explain.KINDS} == set(WaitKind)
