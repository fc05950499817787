"""No text advises to delete what may be whole and hold messages that somebody needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_partq as partq
from tests.refused.cases import EVERY

_ADVICE = re.compile(
    r"\bdelete (?:it|this|that|the|them|groups|queues|what)\b|\bor delete\b|\bdelete-(?:queue|group)\b", re.I
)
# Texts that advise to delete something, and why that loses nothing.
_SAFE = {
    "delete it again": "its deletion has begun, and only a deletion ends that",
    "create or delete the queue again": "the same, or it is half made: nobody could write to it yet",
    "delete the damaged group only when the other one has begun": "another group keeps the messages by then",
    "only then delete this group (spark-partq delete-group)": "the same",
    "or forget it: spark-partq delete-group": "the group does not exist: only the queue knows its name",
    "; if its primary is gone, delete it (spark-partq delete-queue": "no pass ever ended, so it is no whole copy and cannot be promoted",
    "delete the group where the primary is": "the user has asked to delete this group; the text says where",
    "delete groups that are gone": "a drain waits for them, and only the user knows that their consumers never come again",
    "spark-partq delete-group forgets a group": "the user has just deleted the queue, and learns what that leaves",
    "its dead messages stay in queue": "the same",
}  # fmt: skip


def texts(source: str) -> Iterator[str]:
    """The texts of a module, without docstrings; what an f-string fills in is left out."""
    tree = ast.parse(source)
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.value


def advising(found: Iterator[str]) -> set[str]:
    return {text for text in found if " " in text.strip() and _ADVICE.search(text)}


_PACKAGE = Path(partq.__file__).parent
_TEXTS = advising(text for path in sorted(_PACKAGE.rglob("*.py")) for text in texts(path.read_text()))


def test_what_is_advised_to_delete_is_not_needed() -> None:
    """In the texts of the package, and in the errors that bad input gets."""
    told = _TEXTS | advising(case.begins for case in EVERY)
    assert {text for text in told if not any(safe in text for safe in _SAFE)} == set()


@pytest.mark.parametrize("safe", _SAFE)
def test_a_text_of_the_list_exists(safe: str) -> None:
    assert any(safe in text for text in _TEXTS)
