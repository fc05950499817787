"""Each error has a page that says what it means, each `raise` uses one that has, and docs/errors.md is made from them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spark_partq.core import errors
from spark_partq.core.errors import PartqError
from tests.refused.cases import EVERY
from tools.errors import PAGE, classes, page

PACKAGE = Path(errors.__file__).parents[1]
CLASSES = list(classes())

# What Python's own protocols and readers of stored data raise. All of it is caught before a user meets it, or is Python's own manner.
BUILT_IN = {
    "ValueError": "what is read cannot be: the caller names the table, or the argument",
    "TypeError": "the same",
    "AttributeError": "a module has no such name",
    "RuntimeError": "a caller inside the package has made a mistake",
    "InterruptedError": "a job was told to stop",
    "FileExistsError": "of the operating system; `DiskFiles` explains it",
    "IsADirectoryError": "the same",
    "PermissionError": "the same, of the socket's folder: the driver goes on without it",
    "BadParameter": "typer's, for wrong usage of the command",
    "Exit": "typer's, for an exit code",
}


@cache
def modules() -> dict[Path, ast.Module]:
    """Of the product; what `testing` raises is for tests."""
    return {
        path: ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "testing"
    }


@cache
def nodes(kind: type) -> list[Any]:
    return [node for tree in modules().values() for node in ast.walk(tree) if isinstance(node, kind)]


def names_in(node: ast.AST | None) -> set[str]:
    """The names in an expression; of `a.b` the last one. An annotation may be a text."""
    if node is None:
        return set()
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return set(re.findall(r"\w+", node.value))
    return {
        n.attr if isinstance(n, ast.Attribute) else n.id
        for n in ast.walk(node)
        if isinstance(n, (ast.Attribute, ast.Name))
    }


@cache
def bases() -> dict[str, set[str]]:
    """Of each class of the package the names of its bases."""
    return {node.name: set().union(*map(names_in, node.bases)) for node in nodes(ast.ClassDef)}


@cache
def signals() -> set[str]:
    """Exceptions of the package that are no errors of a user: its parts tell them each other."""
    return below({"Exception", "AssertionError", *BUILT_IN}) - below({"PartqError"}) - {"PartqError"}


def below(roots: set[str]) -> set[str]:
    """The classes of the package that derive from one of these."""
    found: set[str] = set()
    while more := {name for name, of in bases().items() if of & (roots | found)} - found:
        found |= more
    return found


# ---- the classes
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_each_says_when_and_what_to_do(cls: type[PartqError]) -> None:
    own = vars(cls)
    assert own["__doc__"].strip().endswith(".")
    assert own["next_step"].endswith(".") and own["retry"].endswith(".")
    assert re.match(r"(Yes|No)\b", own["retry"])
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", own["error_class"])


def test_each_has_a_code_of_its_own() -> None:
    codes = [cls.error_class for cls in [PartqError, *CLASSES]]
    assert len(codes) == len(set(codes))


def test_the_tree_at_the_top_of_the_file_is_the_tree() -> None:
    drawn = re.findall(r"^    ([ │]*)[├└]── (\w+) +([A-Z_]+)", errors.__doc__ or "", re.MULTILINE)
    told = {name: (code, len(indent) // 4) for indent, name, code in drawn}
    assert told == {
        cls.__name__: (cls.error_class, len(cls.__mro__) - len(PartqError.__mro__) - 1)
        for cls in CLASSES
        if cls.__module__ == errors.__name__
    }


def test_every_error_of_the_package_has_a_section() -> None:
    assert {cls.__name__ for cls in CLASSES} == below({"PartqError"})


def test_every_error_is_shown_by_bad_input() -> None:
    shown = {case.error for case in EVERY}
    assert {cls for cls in CLASSES if cls.__module__ == errors.__name__} <= shown


# ---- the page
def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m tools.errors"


# ---- what is raised
def raised() -> list[tuple[str, ast.expr]]:
    """Where something is raised, and what; `raise` alone passes on what was caught."""
    found: list[tuple[str, ast.expr]] = []
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and node.exc is not None:
                parts = [node.exc.body, node.exc.orelse] if isinstance(node.exc, ast.IfExp) else [node.exc]
                found += [(f"{path.relative_to(PACKAGE)}:{node.lineno}", part) for part in parts]
    return found


@cache
def returned(function: str) -> set[str]:
    """What functions of that name are said to return."""
    found = [node.returns for node in nodes(ast.FunctionDef) if node.name == function]
    return set().union(*map(names_in, found)) - {"type"}


def test_every_raise_is_of_a_class_with_a_section() -> None:
    known = {cls.__name__ for cls in CLASSES} | signals() | set(BUILT_IN)
    seen = set()
    for where, what in raised():
        called = what.func if isinstance(what, ast.Call) else what
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name.lstrip("_")[:1].isupper():
            assert name in known, where
            seen.add(name)
        elif isinstance(what, ast.Call):  # a function that makes it
            assert returned(name) and returned(name) <= known, (where, returned(name))
            seen |= returned(name)
        # else a variable: what was caught before
    assert set(BUILT_IN) <= seen, "a built-in is listed and not raised"
    assert {cls.__name__ for cls in CLASSES} <= seen, "a class is never raised"


def test_what_the_parts_tell_each_other_is_caught() -> None:
    caught = set().union(*(names_in(node.type) for node in nodes(ast.ExceptHandler)))
    caught |= {
        name
        for node in nodes(ast.Call)
        if names_in(node.func) & {"suppress", "isinstance", "retry_if_exception_type"}
        for name in set().union(*map(names_in, node.args))
    }
    for name in signals() - {
        "InvariantError"
    }:  # of `core.invariants`: what the doctor reports, and the simulation stops at
        assert name in caught or bases()[name] & caught, name
