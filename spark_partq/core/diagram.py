"""The state diagrams of the documents, drawn from the tables of `core.group` (mermaid)."""

from __future__ import annotations

from spark_partq.core.group.facts import PartitionState
from spark_partq.core.group.state import STATUS_TRANSITIONS, TRANSITIONS, GroupState


def status_diagram() -> str:
    """The statuses of a group (R7)."""
    return _diagram([("[*]", GroupState().status, ""), *((before, after, "") for before, after in STATUS_TRANSITIONS)])


def partition_diagram() -> str:
    """The states of a partition; each arrow has the facts that lead along it."""
    facts: dict[tuple[PartitionState, PartitionState], list[str]] = {}
    for kind, pairs in TRANSITIONS.items():
        for pair in pairs:
            facts.setdefault(pair, []).append(kind)
    return _diagram([(before, after, ", ".join(kinds)) for (before, after), kinds in facts.items()])


def _diagram(arrows: list[tuple[str, str, str]]) -> str:
    lines = ["stateDiagram-v2"]
    for before, after, label in arrows:
        start, end = ("[*]" if state == PartitionState.UNKNOWN else state for state in (before, after))
        lines.append(f"  {start} --> {end}" + (f": {label}" if label else ""))
    return "\n".join(lines) + "\n"
