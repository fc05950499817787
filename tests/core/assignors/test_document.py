"""The examples of docs/assignors.md are right, and it says of each assignor what is so."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from spark_partq.core.assignors import BUILTIN
from spark_partq.core.assignors.model import LIGHTEST
from spark_partq.core.assignors.weighted import MARGIN

DOCUMENT = (Path(__file__).parents[3] / "docs" / "assignors.md").read_text()


def test_examples() -> None:
    examples = doctest.DocTestParser().get_doctest(DOCUMENT, {}, "assignors.md", "docs/assignors.md", 0)
    assert len(examples.examples) > 15
    assert doctest.DocTestRunner().run(examples).failed == 0


def test_table() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| (eager|cooperative) \| (yes|no) \| (yes|no) \|$", DOCUMENT, re.MULTILINE)
    yes = {True: "yes", False: "no"}
    assert sorted(rows) == sorted(
        (a.name, "cooperative" if a.cooperative else "eager", yes[a.weights], yes[a.loads]) for a in BUILTIN.values()
    )


def test_numbers() -> None:
    assert f"by more than {MARGIN:.0%}".replace("%", " %") in DOCUMENT
    assert "a million times lighter" in DOCUMENT
    assert LIGHTEST == 1 / 1_000_000
