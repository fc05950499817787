"""Decisions about a queue, one after the other, each of which is checked."""

from __future__ import annotations

import json
from typing import Any

from spark_partq.core.queue import decide
from spark_partq.core.queue.decide import Facts
from spark_partq.core.queue.facts import Mode, QueueFact
from spark_partq.core.queue.invariants import check
from spark_partq.core.queue.partition_map import partition_numbers
from spark_partq.core.queue.scaling import Remainder
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.state import QueueState, replay

SCHEMA: Any = {"type": "struct", "fields": [{"name": "k", "type": "string", "nullable": True, "metadata": {}}]}


def create(partition_count: int) -> QueueState:
    """A queue whose tables do not exist yet."""
    facts = decide.create("id", SCHEMA, ["k"], partition_count, QueueSettings.parse({}))
    state = replay("orders", stored(facts))
    assert state is not None
    check(None, state, facts)
    return state


def ready(partition_count: int = 4) -> QueueState:
    state = create(partition_count)
    return follow(state, decide.finish_creation(state))


def follow(state: QueueState, facts: Facts) -> QueueState:
    """The state after these facts, as they are read back; no invariant is broken."""
    after = replay(state.name, stored(facts), state)
    assert after is not None
    check(state, after, facts)
    return after


def stored(facts: Facts) -> list[QueueFact]:
    return [QueueFact(str(fact.kind), json.loads(json.dumps(fact.body))) for fact in facts]


def kinds(facts: Facts) -> list[str]:
    return [str(fact.kind) for fact in facts]


def start(state: QueueState, partition_count: int, mode: Mode = "live", confirm_lost: int | None = None) -> QueueState:
    remainder = Remainder(dict.fromkeys(state.not_named_by(partition_count), 0))
    return follow(state, decide.start_scaling(state, partition_count, mode, remainder, confirm_lost))


def cuts(state: QueueState, at: int = 0) -> dict[int, int]:
    """Of all partitions of both maps."""
    assert state.scaling is not None
    counts = state.partition_count, state.scaling.partition_count
    return {number: at for count in counts for number in partition_numbers(count)}


def open_(state: QueueState, at: int = 0, remainder: Remainder | None = None) -> QueueState:
    return follow(state, decide.open_generation(state, state.generation, cuts(state, at), remainder))


def scale(state: QueueState, partition_count: int, mode: Mode = "live", at: int = 0) -> QueueState:
    """Up to the new map."""
    state = start(state, partition_count, mode)
    if mode == "drain":
        state = follow(state, decide.finish_draining(state, state))
    return open_(state, at)
