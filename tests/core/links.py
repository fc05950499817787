"""What documents link: tests by their names, and headings by their anchors."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_TEST = re.compile(r"\[(test_\w+)\]\(([^)#]+\.py)\)")


def linked_tests(text: str, folder: Path) -> list[tuple[str, Path]]:
    """Links whose text is the name of a test: the test, and the file that it should be in."""
    return [(test, (folder / target).resolve()) for test, target in _TEST.findall(text)]


@cache
def named_in(path: Path) -> dict[str, str]:
    """The tests of a file, with their docstrings."""
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def assert_there(test: str, path: Path) -> None:
    assert path.is_relative_to(ROOT / "tests"), path
    assert test in named_in(path), (test, path)


@cache
def anchors(path: Path) -> set[str]:
    """What ``#…`` may name in a document, as GitHub makes it of headings.

    A heading in a block of code is none.
    """
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        found[name] = found.get(name, 0) + 1
    return {f"{name}-{n}" if n else name for name, count in found.items() for n in range(count)}
