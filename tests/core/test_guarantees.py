"""docs/guarantees.md: each guarantee says what it needs, what breaks it, and which tests show it."""

from __future__ import annotations

import re

import pytest

from tests.core.links import ROOT, assert_there, linked_tests
from tests.core.test_documents import section, table
from tests.core.test_promises import rows

PAGE = ROOT / "docs" / "guarantees.md"
TEXT = PAGE.read_text()
HEADINGS = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
WAITS, BREAKS = "Bounded waits", "What breaks all of them"
GUARANTEES = [heading for heading in HEADINGS if heading not in (WAITS, BREAKS)]


def test_the_list_at_the_top_has_every_section() -> None:
    top = TEXT.partition("\n## ")[0]
    assert re.findall(r"^\| \[([^\]]+)\]", top, re.MULTILINE) == HEADINGS
    assert HEADINGS[-2:] == [WAITS, BREAKS] and len(GUARANTEES) >= 9


@pytest.mark.parametrize("heading", GUARANTEES)
def test_each_guarantee_is_whole(heading: str) -> None:
    parts = re.split(r"^\*\*(Needs|Breaks it|Shown by)\*\*", section(TEXT, heading), flags=re.MULTILINE)
    assert parts[1::2] == ["Needs", "Breaks it", "Shown by"]
    what, needs, breaks, shown = parts[0::2]
    assert what.strip() and "\n- " in needs and "\n- " in breaks
    assert len(linked_tests(shown, PAGE.parent)) >= 3
    known = {name for name, _, _ in rows()}
    cited = re.search(r"\(([A-Z]\d(?:,\s[A-Z]\d)*)\)\s*$", what)
    assert cited and set(re.findall(r"\w+", cited[1])) <= known


def test_each_wait_has_an_end_or_says_that_it_has_none() -> None:
    waits = table(section(TEXT, WAITS))
    assert len(waits) >= 10
    for who, _, how_long, then, shown in waits:
        assert re.search(r"\d|three|`\w+`|no bound", how_long), who
        assert then and linked_tests(shown, PAGE.parent), who


def test_each_thing_that_breaks_all_is_shown() -> None:
    parts = [part for part in section(TEXT, BREAKS).split("\n\n") if part.strip()]
    assert all(part.strip().startswith("**") and linked_tests(part, PAGE.parent) for part in parts) and len(parts) >= 5


def test_the_tests_are_there() -> None:
    found = linked_tests(TEXT, PAGE.parent)
    assert len(found) == TEXT.count("[test_") >= 40
    for test, path in found:
        assert_there(test, path)
