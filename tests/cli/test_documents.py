"""Documents, and the texts of the package, name functions, commands and options that there are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import spark_partq as partq
from spark_partq.cli import app
from tests.core.test_documents import DOCUMENTS

# These have names of the protocol, such as `partq.token`, and what is refused.
DOCUMENTS = [path for path in DOCUMENTS if path.name not in ("PROTOCOL.md", "errors.md")]
COMMAND = typer.main.get_command(app)
PACKAGE = Path(partq.__file__).parent


def unknown(words: list[str]) -> str:
    """The first word that is no command or option of ``spark-partq``."""
    command: Any = COMMAND
    options = {name for parameter in command.params for name in parameter.opts}
    takes_value = False
    for word in words:
        if word.startswith("--"):
            if word not in options | {"--help"}:
                return word
            takes_value = True
        elif not takes_value and hasattr(command, "commands"):
            if word not in command.commands:
                return word
            command = command.commands[word]
            options |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        else:
            takes_value = False
    return ""


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("--store s scale q 3 --mode drain", ""),
        ("ingress disable q", ""),
        ("resize q", "resize"),
        ("scale q --fast", "--fast"),
    ],
)
def test_what_there_is_not_is_found(line: str, wrong: str) -> None:
    assert unknown(line.split()) == wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_names(document: Path) -> None:
    text = document.read_text()
    for name in re.findall(r"\bpartq\.([a-zA-Z_]\w*)", text):
        assert hasattr(partq, name), f"partq.{name}"
    for line in re.findall(r"spark-partq ((?:--store|[a-z-]+\b)[^\n`|#]*)", text):
        words = [word.strip(".,;:)") for word in line.split()]
        assert unknown(words) == "", line


def texts(source: str) -> Iterator[str]:
    """The texts of a module, with docstrings; a word stands for what an f-string fills in."""
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "filled" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def test_texts_of_the_package() -> None:
    """Remedies of the doctor, errors, help."""
    found = {
        " ".join(words): unknown(words)
        for path in sorted(PACKAGE.rglob("*.py"))
        for text in texts(path.read_text())
        for line in re.findall(r"spark-partq ((?:--store|[a-z-]+\b)[^\n`|#)]*)", text)
        if (words := [word.strip(".,;:)") for word in line.split()])
    }
    assert len(found) > 20
    assert {line: word for line, word in found.items() if word} == {}
