"""The promises have names: docs/promises.md lists them, tests and docstrings cite them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.core.links import ROOT, assert_there, linked_tests, named_in

PROMISES = ROOT / "docs" / "promises.md"
FAMILIES = {"Q": 8, "R": 8, "H": 6, "S": 8, "K": 8, "W": 3, "U": 3}

# What is cited stands in parentheses, or before a colon: "(H1, W2)", "S1, S5: up and down", "(see R5)", "K3-K7: the protocols".
# An invariant of the protocol (I10) may stand among them.
_LIST = re.compile(r"\b[A-Z]\d+(?:(?:, | and |[-–])[A-Z]\d+)*(?=[):;])")
_PROMISE = re.compile(r"\b[QRHSKWU]\d+\b")
_SPARK = re.compile(r"\b(?:SparkSession|spark-submit)\b|\bdriver\(")
_RANGE = re.compile(r"\b([QRHSKWU])(\d)[-–]\1(\d)\b")


@cache
def rows() -> list[tuple[str, str, tuple[tuple[str, Path], ...]]]:
    """Of each promise its name, its sentences, and the tests that show it, each with its file."""
    found = []
    for line in PROMISES.read_text().splitlines():
        if re.match(r"\| [A-Z]\d+ \|", line):
            name, text, shown = (cell.strip() for cell in line.strip("|").split("|"))
            found.append((name, text, tuple(linked_tests(shown, PROMISES.parent))))
    return found


def texts(path: Path) -> Iterator[str]:
    """Docstrings and comments."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""
    yield from re.findall(r"(?:^|\s)#.*", source)


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
    for name, text, tests in rows():
        assert text.endswith("."), name
        assert 1 <= len(tests) <= 4, name


@pytest.mark.parametrize("folder", ["spark_partq", "tests"])
def test_what_is_cited_is_promised(folder: str) -> None:
    known = {name for name, _, _ in rows()}
    for path in sources(folder):
        if path != Path(__file__).resolve():
            assert cited(path) <= known, path.relative_to(ROOT)


def test_each_promise_is_cited_by_tests() -> None:
    found = set().union(*(cited(path) for path in sources("tests") if path != Path(__file__).resolve()))
    assert {name for name, _, _ in rows()} <= found


def test_only_the_tests_in_one_folder_start_spark() -> None:
    """As the page says of the tests that it names."""
    files = {file for _, _, tests in rows() for _, file in tests}
    using = {file for file in files if _SPARK.search(file.read_text())}
    assert using and {file.parent for file in using} == {ROOT / "tests" / "spark"}


def test_each_promise_is_shown_by_the_tests_that_the_page_names() -> None:
    """They are there, and say of themselves, or their file says, that they show it."""
    for name, _, tests in rows():
        for test, file in tests:
            assert_there(test, file)
            module = ast.get_docstring(ast.parse(file.read_text())) or ""
            assert name in cited_in(named_in(file)[test]) | cited_in(module), (name, test)


def test_every_link_of_the_page_names_a_test() -> None:
    shown = [line.rsplit("|", 2)[1] for line in PROMISES.read_text().splitlines() if re.match(r"\| [A-Z]\d+ \|", line)]
    assert sum(cell.count("](") for cell in shown) == sum(len(tests) for _, _, tests in rows())
