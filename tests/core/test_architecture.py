"""The walks of docs/architecture.md lead through files and functions that exist, in as many files as they say; no file is too long."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"
PACKAGE = Path(__file__).parents[2] / "spark_partq"
LONGEST = 400

_STEP = re.compile(r"(\d+)\. \[([^\]]+)\]\(([^)]+)\) ((?:`[^`]+`(?:, )?)+): \S.*")


def walks() -> dict[str, str]:
    """Each walk by its heading."""
    parts = re.split(r"^### (Walk \d.*)\n", DOCUMENT.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.split("\n## ")[0] for part in parts[2::2]), strict=True))


def steps(walk: str) -> list[tuple[Path, list[str]]]:
    """The file of each step, and the functions that it names."""
    found = []
    for line in walks()[walk].splitlines():
        if re.match(r"\d+\. ", line):
            step = _STEP.fullmatch(line)
            assert step, line
            number, text, link, functions = step.groups()
            path = (DOCUMENT.parent / link).resolve()
            assert int(number) == len(found) + 1, line
            assert path == PACKAGE / text, line
            found.append((path, re.findall(r"`([^`]+)`", functions)))
    return found


@cache
def defined(path: Path) -> set[str]:
    """Functions and classes of a file; those of a class as ``Class.function``."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def test_there_are_four_walks() -> None:
    assert len(walks()) == 4


@pytest.mark.parametrize("walk", walks())
def test_each_step_exists(walk: str) -> None:
    assert steps(walk)
    for path, functions in steps(walk):
        assert path.exists(), path
        assert set(functions) <= defined(path), path


@pytest.mark.parametrize("walk", walks())
def test_a_walk_says_how_many_files_it_visits(walk: str) -> None:
    told = re.search(r"visits (\d+) files", walks()[walk])
    assert told
    assert int(told[1]) == len({path for path, _ in steps(walk)})


def test_the_tree_shows_every_package() -> None:
    tree = DOCUMENT.read_text().partition("## The tree")[2].partition("```\n")[2].partition("```")[0]
    packages = [*PACKAGE.glob("*/__init__.py"), *PACKAGE.glob("*/*/__init__.py")]
    assert [path.parent.name for path in packages if f" {path.parent.name}/" not in tree] == []


def test_no_file_is_too_long_to_be_one_idea() -> None:
    root = PACKAGE.parent
    files = [*root.glob("*.py"), *root.glob("[!.]*/**/*.py")]
    assert PACKAGE / "__init__.py" in files and Path(__file__).resolve() in files
    lines = {str(path.relative_to(root)): len(path.read_text().splitlines()) for path in files}
    assert {path: count for path, count in lines.items() if count > LONGEST} == {}
