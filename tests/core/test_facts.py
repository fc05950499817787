"""Facts of queues, groups and replicas are made by decisions, and by nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "spark_partq"
FACTS = {"QueueFact", "GroupFact", "ReplicaFact"}

# Where a decision may make one.
DECISIONS = (
    "core/queue/decide.py",
    "core/queue/deletion",
    "core/queue/alter.py",
    "core/queue/replicas.py",
    "core/queue/resetting.py",
    "core/queue/stuck.py",
    "core/replica/decide.py",
    "core/group/decide.py",
    "core/group/steps/",
)
# Where a stored row becomes one.
READERS = {
    "storage/queue/control.py": "QueueFact",
    "storage/replica/table.py": "ReplicaFact",
    "storage/group/control.py": "GroupFact",
    "storage/inspect/doctor/group_history.py": "GroupFact",
    "testing/simulation/oracle.py": "QueueFact GroupFact",
    "testing/simulation/copies.py": "ReplicaFact",
}


def made(path: Path) -> set[str]:
    """The kinds of facts that a file makes."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    named = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
    return named & FACTS


def test_no_fact_is_made_outside_a_decision() -> None:
    found = {path.relative_to(PACKAGE).as_posix(): made(path) for path in PACKAGE.rglob("*.py")}
    others = {path: facts for path, facts in found.items() if facts and not path.startswith(DECISIONS)}
    assert others == {path: set(facts.split()) for path, facts in READERS.items()}
