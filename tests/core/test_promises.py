"""The promises have names: docs/promises.md lists them, tests and docstrings cite them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = ROOT / "docs" / "promises.md"
FAMILIES = {"Q": 8, "R": 8, "H": 6, "S": 8, "K": 8, "W": 3, "U": 3}

# What is cited stands in parentheses, or before a colon: "(H1, W2)", "S1, S5: up and down", "(see R5)", "K3-K7: the protocols".
# An invariant of the protocol (I10) may stand among them.
_LIST = re.compile(r"\b[A-Z]\d+(?:(?:, | and |[-–])[A-Z]\d+)*(?=[):;])")
_PROMISE = re.compile(r"\b[QRHSKWU]\d+\b")
_RANGE = re.compile(r"\b([QRHSKWU])(\d)[-–]\1(\d)\b")


@cache
def rows() -> list[tuple[str, str, tuple[Path, ...]]]:
    """Of each promise its name, its sentences, and the files that show it."""
    found = []
    for line in PROMISES.read_text().splitlines():
        if re.match(r"\| [A-Z]\d+ \|", line):
            name, text, shown = (cell.strip() for cell in line.strip("|").split("|"))
            files = (PROMISES.parent / target for target in re.findall(r"\]\(([^)]+)\)", shown))
            found.append((name, text, tuple(file.resolve() for file in files)))
    return found


def texts(path: Path) -> Iterator[str]:
    """Docstrings and comments."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def cited_in(text: str) -> set[str]:
    found = set()
    for listed in _LIST.findall(text):
        found |= set(_PROMISE.findall(listed))
        for family, first, last in _RANGE.findall(listed):
            found |= {f"{family}{n}" for n in range(int(first), int(last) + 1)}
    return found


@cache
def cited(path: Path) -> frozenset[str]:
    return frozenset(name for text in texts(path) for name in cited_in(text))


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("R6: the steps.", {"R6"}),
        ("A group (W1), and more (see H4).", {"W1", "H4"}),
        ("S1, R2: until then.", {"S1", "R2"}),
        ("It holds (I10, R1).", {"R1"}),
        ("at once; R8: to the fewest", {"R8"}),
        ("K3-K5, R1: which protocol", {"K3", "K4", "K5", "R1"}),
        ("A server that speaks S3, on a machine.", set()),
        ("an object store (S3, Azure)", set()),
    ],
)
def test_citations_are_found(text: str, names: set[str]) -> None:
    assert cited_in(text) == names


def test_each_family_is_whole() -> None:
    names = [f"{family}{n}" for family, count in FAMILIES.items() for n in range(1, count + 1)]
    assert [name for name, _, _ in rows()] == names
    assert len(names) == 44


def test_each_promise_says_something() -> None:
    for name, text, files in rows():
        assert text.endswith("."), name
        assert 1 <= len(files) <= 2, name


@pytest.mark.parametrize("folder", ["spark_partq", "tests"])
def test_what_is_cited_is_promised(folder: str) -> None:
    known = {name for name, _, _ in rows()}
    for path in sources(folder):
        if path != Path(__file__).resolve():
            assert cited(path) <= known, path.relative_to(ROOT)


def test_each_promise_is_cited_by_tests() -> None:
    found = set().union(*(cited(path) for path in sources("tests") if path != Path(__file__).resolve()))
    assert {name for name, _, _ in rows()} <= found


def test_each_promise_is_shown_where_the_page_says() -> None:
    for name, _, files in rows():
        for file in files:
            assert file.is_relative_to(ROOT / "tests"), (name, file)
            assert file.exists(), (name, file)
            assert name in cited(file), (name, file)
