"""Only a store's runtime and files reach the world: whatever a procedure does the simulation can do (docs/adr/0014)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_partq.storage

STORAGE = Path(spark_partq.storage.__file__).parent
# Modules with clocks, threads, chance or processes, and the files that may have them.
WORLD = {"time", "threading", "random", "uuid", "secrets", "concurrent", "multiprocessing", "subprocess", "asyncio"}
MAY = ("runtime.py", "upkeep.py", "files/")


def sources() -> list[str]:
    found = [str(path.relative_to(STORAGE)) for path in sorted(STORAGE.rglob("*.py"))]
    return [path for path in found if not path.startswith(MAY)]


def imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("path", sources())
def test_nothing_else_has_a_clock_a_thread_or_chance(path: str) -> None:
    assert not WORLD & set(imported((STORAGE / path).read_text()))


def test_the_procedures_are_looked_at() -> None:
    assert {"procedures/produce.py", "procedures/consume/planner.py", "log/table.py"} <= set(sources())
    assert set(imported("import time.x\ndef f():\n    from threading import Thread")) == {"time", "threading"}
