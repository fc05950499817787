"""The state diagrams of the documents, drawn from the tables of transitions in `core` (mermaid)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from spark_partq.core.group import transitions as group
from spark_partq.core.group.state import GroupState
from spark_partq.core.queue import transitions as queue
from spark_partq.core.replica import state as replica

_UNKNOWN = "Unknown"  # what is not there yet, or not any more

K = TypeVar("K", bound=str)
S = TypeVar("S", bound=str)
Transitions = Mapping[K, Iterable[tuple[S, S]]]


def group_status_diagram() -> str:
    """The statuses of a group (R7)."""
    first = GroupState().status
    return _diagram([(_UNKNOWN, first, ""), *((before, after, "") for before, after in group.STATUS_TRANSITIONS)])


def group_partition_diagram() -> str:
    """The states of a partition in a group; each arrow has the facts that lead along it."""
    return _diagram(_arrows(group.TRANSITIONS))


def queue_status_diagram() -> str:
    """The statuses of a queue (S8)."""
    return _diagram(_arrows(queue.STATUS_TRANSITIONS))


def queue_phase_diagram() -> str:
    """How far the creation of a queue, or a change of its partition count, has come."""
    return _diagram(_arrows(queue.TRANSITIONS, only_changes=True))


def replica_diagram() -> str:
    """What a queue is to its primary (S7)."""
    return _diagram(_arrows(replica.TRANSITIONS, only_changes=True))


def _arrows(transitions: Transitions[K, S], only_changes: bool = False) -> list[tuple[str, str, str]]:
    """Each pair of states once, with all facts that lead from one to the other."""
    facts: dict[tuple[S, S], list[str]] = {}
    for kind, pairs in transitions.items():
        for pair in pairs:
            if not only_changes or pair[0] != pair[1]:
                facts.setdefault(pair, []).append(kind)
    return [(before, after, ", ".join(kinds)) for (before, after), kinds in facts.items()]


def _diagram(arrows: list[tuple[str, str, str]]) -> str:
    lines = ["stateDiagram-v2"]
    for before, after, label in arrows:
        start, end = ("[*]" if state == _UNKNOWN else state for state in (before, after))
        lines.append(f"  {start} --> {end}" + (f": {label}" if label else ""))
    return "\n".join(lines) + "\n"
