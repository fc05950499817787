"""What a seed draws: how a history begins, and what happens in it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Of each kind of step, how often a history has it: so many for sure, and one more with the chance behind the point.
OFTEN: Mapping[str, float] = {
    "kill": 4.6,
    "stop": 1.0,
    "resize": 0.5,
    "leave": 0.5,
    "maintain": 0.5,
    "replicate": 0.3,
    "promote": 0.25,
    "reset": 0.2,
    "disk_full": 0.15,
    "read_only": 0.15,
    "clock": 0.2,
}
# The same, if the store lies in an object store.
STORE_FAULTS: Mapping[str, float] = {
    "lost_answers": 1.0,
    "store_errors": 0.7,
    "store_timeouts": 0.5,
    "store_slow": 0.4,
    "cut_answers": 0.4,
}
_OFTEN_ON_OBJECTS = {**OFTEN, "kill": 3.0, "disk_full": 0.0, "read_only": 0.0, **STORE_FAULTS}
# A consumer looks once a second for what is new, and each file takes several requests to the one server: so sessions are longer, and
# there are fewer and larger files.
_PACE_ON_OBJECTS, _ROWS_ON_OBJECTS, _EVERY_S_ON_OBJECTS = 2.0, 10, (1.0, 2.0)
# They need the store where the history began, and a promotion goes to another one.
_BEFORE_PROMOTION = ("disk_full",)
WRITERS, RECORDERS = "g", "h"  # the groups: one writes results exactly once, the other only what it was given


@dataclass(frozen=True)
class Step:
    """One thing that happens; what it draws itself it draws with its own seed.

    Attributes
    ----------
    at_once : bool
        It begins before it was seen that all have recovered from the step before.
    """

    kind: str
    seed: int
    at_once: bool = False


@dataclass(frozen=True)
class Plan:
    """A history as it is drawn. Processes are real, so their timing differs from run to run.

    Attributes
    ----------
    messages : int
        How many at least.
    shared_keys : bool
        Both producers write the same keys; else each has keys of its own.
    writers, recorders : int
        Consumers of the two groups.
    machine_s : float
        How long starting, planning, reading and writing may take beside the waits that the product documents.
    named : tuple of bool
        Of each consumer, whether its instance id is one that the user gave: such a one never leaves, its session expires.
    on_objects : bool
        All stores and the table lie in an object store, else on a disk.
    """

    seed: int
    messages: int
    partitions: int
    rows: int
    every_s: float
    shared_keys: bool
    writers: int
    recorders: int
    named: tuple[bool, ...]
    session_ms: int
    machine_s: float
    steps: tuple[Step, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    on_objects: bool = False


def draw(
    seed: int,
    messages: int,
    kinds: Sequence[str] | None = None,
    pace: float = 1.0,
    machine_s: float = 10.0,
    on_objects: float = 0.0,
) -> Plan:
    """The plan of a seed; with `kinds` exactly these steps in this order.

    `pace` lengthens what a slower application needs, `machine_s` what a busy machine may take. `on_objects` is the share of seeds whose
    history lies in an object store; one with steps that are done only there always does.
    """
    rng = random.Random(seed)
    objects = random.Random(f"{seed} place").random() < on_objects or not STORE_FAULTS.keys().isdisjoint(kinds or ())
    often = _OFTEN_ON_OBJECTS if objects else OFTEN
    pace *= _PACE_ON_OBJECTS if objects else 1
    writers, recorders = rng.choice([2, 2, 3]), rng.choice([1, 1, 2])
    count = writers + recorders
    plan = Plan(
        seed=seed,
        messages=messages,
        partitions=rng.randint(3, 6) - objects,
        rows=max(10, round(messages * rng.uniform(0.005, 0.009))) * (_ROWS_ON_OBJECTS if objects else 1),
        every_s=rng.choice(_EVERY_S_ON_OBJECTS if objects else [0.3, 0.5]) * pace,
        shared_keys=rng.random() < 0.5,
        writers=writers,
        recorders=recorders,
        named=tuple(rng.random() < 0.5 for _ in range(count)),
        session_ms=round(2_000 * pace),
        machine_s=machine_s,
        steps=(),
        settings={
            "rebalance_delay_ms": rng.choice([0, 500]),
            "max_handoff_time_ms": rng.choice([500, 2_000]),
            "segment_ms": random.Random(f"{seed} segments").choice([1_000, 3_600_000]),
        },
        on_objects=objects,
    )
    drawn = [kind for kind, share in often.items() for _ in range(int(share) + (rng.random() < share % 1))]
    rng.shuffle(drawn)
    if "promote" in drawn:
        drawn.sort(key=lambda kind: kind not in _BEFORE_PROMOTION)
    steps = tuple(Step(kind, rng.randrange(2**32), rng.random() < 0.3) for kind in kinds or drawn)
    return Plan(**{**vars(plan), "steps": steps})
