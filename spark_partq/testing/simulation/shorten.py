"""A run that goes wrong, made smaller as long as it still goes wrong in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from spark_partq.testing.simulation.setup import NONE, Setup, possible

# Of the problem's text, what must stay the same.
_KIND = ":"


# What a run can do without.
_OPTIONAL: dict[str, Any] = {
    "maintain_every_s": None,
    "column_added_s": None,
    "deleted_key": None,
    "delete_group_s": None,
    "reset": None,
    "discards": False,
    "ingress_s": None,
    "copy_stuck_s": None,
    "copiers": 1,
    "recreated_s": None,
    "retention_ms": None,
    "max_bytes": None,
    "min_retention_ms": 0,
    "segment_ms": None,
    "skew": False,
    "lost_after": None,
    "other_promoted_s": None,
    "removed_s": None,
    "dead_is_copied": False,
    "poison": 0,
    "max_deliveries": None,
    "message_ttl_ms": None,
    "lifetimes": False,
    "holds": False,
    "redriven": False,
    "relayed_scaled_s": None,
    "old_checkpoints": False,
    "put_back_s": None,
}


def kind_of(problem: str) -> str:
    """What kind of problem it is: ``LOST``, ``STUCK``…"""
    return problem.partition(_KIND)[0]


def shortened(setup: Setup, problem: str, execute: Callable[[Setup], str], tries: int = 60) -> tuple[Setup, str]:
    """A smaller setup with a problem of the same kind, and that problem.

    Parameters
    ----------
    execute : function
        Runs a setup and returns its problem, empty if there is none.
    tries : int
        How many runs that may take.
    """
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(setup):
            if candidate != possible(candidate):
                continue
            if tries <= 0:
                return setup, problem
            tries -= 1
            found = execute(candidate)
            if kind_of(found) == kind_of(problem):
                setup, problem, smaller = candidate, found, True
                break
    return setup, problem


def _smaller(s: Setup) -> Iterator[Setup]:
    """Setups with one thing less, the greatest first."""
    if s.faults != NONE:
        yield replace(s, faults=NONE)
    for i in range(len(s.queries)):
        yield replace(s, queries=s.queries[:i] + s.queries[i + 1 :])
    for i in range(len(s.producers)):
        if len(s.producers) > 1:
            yield replace(s, producers=s.producers[:i] + s.producers[i + 1 :])
    for i in range(len(s.scalings)):
        yield replace(s, scalings=s.scalings[:i] + s.scalings[i + 1 :])
    for i in range(len(s.alterings)):
        yield replace(s, alterings=s.alterings[:i] + s.alterings[i + 1 :])
    for name, nothing in _OPTIONAL.items():
        if getattr(s, name) != nothing:
            yield replace(s, **{name: nothing})
    if s.promoted_s is not None:
        yield replace(s, promoted_s=None, primary_lost=False)
    if s.replicas > (s.promoted_s is not None):
        yield replace(s, replicas=s.replicas - 1)
    for i, producer in enumerate(s.producers):
        if producer.batches > 1:
            fewer = replace(producer, batches=producer.batches // 2)
            yield replace(s, producers=(*s.producers[:i], fewer, *s.producers[i + 1 :]))
        if producer.twins > 1:
            yield replace(s, producers=(*s.producers[:i], replace(producer, twins=1), *s.producers[i + 1 :]))
        if producer.recomputes:
            yield replace(s, producers=(*s.producers[:i], replace(producer, recomputes=False), *s.producers[i + 1 :]))
    for i, query in enumerate(s.queries):
        if query.flows > 1:
            yield replace(s, queries=(*s.queries[:i], replace(query, flows=1), *s.queries[i + 1 :]))
    for name in ("unknown", "kill", "stall", "slow", "jump"):
        if getattr(s.faults, name):
            yield replace(s, faults=replace(s.faults, **{name: 0.0}))
    for i in range(len(s.drops)):
        yield replace(s, drops=s.drops[:i] + s.drops[i + 1 :])
    for i in range(len(s.blows)):
        yield replace(s, blows=s.blows[:i] + s.blows[i + 1 :])
