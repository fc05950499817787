"""The invariants of a queue: each of them can be broken, and says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from spark_partq.core.invariants import InvariantError
from spark_partq.core.queue import decide, invariants, replicas
from spark_partq.core.queue import state as queue_state
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.invariants import check, check_state
from spark_partq.core.queue.partition_map import PARENT, Generation
from spark_partq.core.queue.state import QueueState, replay
from tests.core.queue.queues import follow, ready, scale, start


def fenced() -> QueueState:
    state = ready()
    state = follow(state, replicas.add_replica(state, "r"))
    return follow(state, replicas.fence(state, "r"))


def shrunk(at: int = 7) -> QueueState:
    """A queue of which partitions 2 and 3 were removed."""
    state = scale(ready(), 2, at=at)
    return follow(state, decide.remove_drained(state, state, {2: 7, 3: 7}))


def with_cuts(cuts: dict[int, int]) -> QueueState:
    return replace(ready(), generations=(Generation(4, cuts), Generation(4)))


BROKEN_STATES: list[tuple[str, Callable[[], QueueState]]] = [
    ("generation 0 has cuts of", lambda: with_cuts({0: 1})),
    ("is cut at -1 of partition 0", lambda: with_cuts({0: -1, 1: 0, 2: 0, 3: 0})),
    (
        "is cut at 6 of partition 0, after 7",
        lambda: replace(
            scale(scale(ready(), 4 + 1, at=7), 4, at=9),
            generations=(
                Generation(4, dict.fromkeys(range(5), 7)),
                Generation(5, {**dict.fromkeys(range(5), 9), 0: 6}),
                Generation(4),
            ),
        ),
    ),
    ("is in force, and has cuts", lambda: replace(ready(), generations=(Generation(4, {0: 0}),))),
    ("nobody shares them", lambda: replace(ready(), operating_partitions=3)),
    ("no map ever had some of them", lambda: replace(ready(), operating_partitions=5)),
    ("the parent is shared exactly while", lambda: replace(scale(ready(0), 2), first=PARENT)),
    ("are configured", lambda: replace(ready(), configured_partitions=5)),
    ("partition 3 ended at -1", lambda: replace(shrunk(), removed_ends={3: -1})),
    ("no map ever had it", lambda: replace(shrunk(), removed_ends={9: 1})),
    ("ingress is enabled while the queue is drained", lambda: replace(start(ready(), 2, "drain"), ingress=True)),
    ("what is not stuck is being copied", lambda: replace(ready(), copying=0)),
    ("is copied again", lambda: replace(scale(ready(0), 2, at=9), removed_ends={PARENT: 5}, copying=4)),
    ("the parent comes back", lambda: replace(start(scale(ready(0), 2, at=9), 0), copying=0)),
    ("a replica is there twice", lambda: replace(ready(), replicas=("a", "a"))),
    ("has taken over, and is no replica", lambda: replace(ready(), fenced_by="a")),
    ("partitions are shared before all exist", lambda: replace(ready(), generations=())),
]


@pytest.mark.parametrize(("why", "state"), BROKEN_STATES)
def test_a_state_that_must_not_be(why: str, state: Callable[[], QueueState]) -> None:
    with pytest.raises(InvariantError, match=why):
        check_state(state())


BROKEN_STEPS: list[tuple[str, Callable[[], QueueState], str, dict[str, Any]]] = [
    ("although r has taken over", fenced, "ScalingStarted", {"partitions": 5, "mode": "live"}),
    ("x takes over after r", fenced, "QueueFenced", {"location": "x"}),
    ("promoted, although r has taken over", fenced, "Promoted", {"incarnation": "again", "ends": {}}),
    ("follows the deletion", lambda: follow(ready(), decide.delete(ready())), "QueueDeleted", {}),
    ("was removed went from 7 to 1", shrunk, "PartitionsRemoved", {"ends": {2: 1, 3: 7}, "lost": 0}),
]


@pytest.mark.parametrize(("why", "state", "kind", "body"), BROKEN_STEPS)
def test_a_step_that_must_not_be(why: str, state: Callable[[], QueueState], kind: str, body: dict[str, Any]) -> None:
    """Replay lets them pass, for a table may have them; nobody may decide them."""
    before, facts = state(), [QueueFact(kind, body)]
    after = replay("orders", facts, before)
    assert after is not None
    with pytest.raises(InvariantError, match=why):
        check(before, after, facts)


def test_a_reset_that_was_announced_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the replay forgot it."""
    before = replace(ready(), resets={"g": 2, "h": 1})
    after = replace(before, resets={"g": 1, "h": 1}, revision=before.revision + 1)
    monkeypatch.setattr(invariants, "replay", lambda *_: after)
    with pytest.raises(InvariantError, match="reset 2 of group g was announced, and is forgotten"):
        check(before, after, decide.set_ingress(before, False))


def test_a_cut_below_the_end_of_what_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """S5: also if the replay let it pass."""
    monkeypatch.setattr(queue_state, "_least_cut", lambda *_: 0)
    before, facts = start(shrunk(), 3), [QueueFact("GenerationOpened", {"partitions": 3, "cuts": {0: 9, 1: 9, 2: 3}})]
    after = replay("orders", facts, before)
    assert after is not None
    with pytest.raises(InvariantError, match="is cut at 3, and was removed at 7"):
        check(before, after, facts)


BROKEN_ENDS: list[tuple[str, Callable[[QueueState], QueueState]]] = [
    ("not what its facts say", lambda after: replace(after, ingress=True)),
    ("not what its facts say", lambda after: replace(after, revision=9)),
]


@pytest.mark.parametrize(("why", "change"), BROKEN_ENDS)
def test_a_state_is_what_its_facts_say(why: str, change: Callable[[QueueState], QueueState]) -> None:
    facts: Sequence[QueueFact] = decide.set_ingress(ready(), False)
    after = replay("orders", facts, ready())
    assert after is not None
    with pytest.raises(InvariantError, match=why):
        check(ready(), change(after), facts)


def test_the_status_changes_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """S8."""
    state = start(ready(), 2)
    facts = decide.open_generation(state, 0, dict.fromkeys(range(4), 7))
    monkeypatch.setattr(QueueState, "removing", [])
    after = replay("orders", facts, state)
    assert after is not None
    with pytest.raises(InvariantError, match="GenerationOpened changes the status from ScalingDown to Ready"):
        check(state, after, facts)
