"""Patterns mean what they mean to `re`, in linear time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.patterns import MAX_LENGTH, check_pattern, matches

ATOMS = [
    "a",
    "b",
    "-",
    ".",
    r"\d",
    r"\w",
    r"\W",
    "[ab]",
    "[^a]",
    "[a-c]",
    "[^]a]",
    "[-a]",
    "(a|b)",
    "(?:ab|a)",
    "(a|)",
    r"\.",
    "^",
    "$",
    "",
]
REPEATS = ["", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "??"]
PART = st.tuples(st.sampled_from(ATOMS), st.sampled_from(REPEATS)).map("".join)
PATTERNS = st.recursive(
    st.lists(PART, max_size=4).map("".join),
    lambda inner: (
        st.tuples(inner, st.sampled_from(REPEATS)).map(lambda two: f"({two[0]}){two[1]}")
        | st.tuples(inner, inner).map("|".join)
    ),
    max_leaves=4,
)


def means_something_else(pattern: str) -> bool:
    """Newer versions of `re` have possessive repetitions, which RE2 has not."""
    return re.search(r"[*+?}]\+", pattern) is not None


@given(PATTERNS, st.lists(st.text("ab-.1", max_size=6), max_size=5))
def test_as_re(pattern: str, names: list[str]) -> None:
    """What both know means the same."""
    try:
        judge = re.compile(pattern)
    except re.error:
        return
    if not means_something_else(pattern):
        for name in names:
            assert matches(pattern, name) == (judge.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|aa)+b", "([a-z0-9_]+)*-eu", "(a*)*b", "a*" * 200 + "b", "(.*)(.*)(.*)(.*)(.*)x", "(a?){40}" + "a{40}b", "(a?){400}a{400}b",
        "[ab]*a[ab]{900}", "(.{0,30}){30}b",
    ],
)  # fmt: skip
def test_what_takes_for_ever_elsewhere(pattern: str) -> None:
    """Also where the automaton has more states than the memory of one pattern holds."""
    began = time.process_time()
    for k in range(100):
        assert not matches(pattern, f"{'a' * 62}{k}{'ab' * 31}c")
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "(a", "a)", "[", "[a", "*", "+a", "a**", "a*+", "a{2}{2}", "a{3,2}", "{2}", "\\", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)",
        "(?>a)", "(?P=n)", r"\Z", "[z-a]", "a" * (MAX_LENGTH + 1), "a{9999}", "((((a{9}){9}){9}){9}){9}", r"(\PN{100}){9}",
    ],
)  # fmt: skip
def test_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        check_pattern(pattern)
    with pytest.raises(ValueError, match=r"\w"):
        matches(pattern, "a")


@pytest.mark.parametrize("pattern", ["é", "a\0b", "a\n", "\x1b[2J", "\ud800", "[^é]"])
def test_what_no_name_has(pattern: str) -> None:
    with pytest.raises(ValueError, match="no name has them"):
        check_pattern(pattern)


def test_nothing_is_written_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 would write why it refuses a pattern."""
    with pytest.raises(ValueError, match="missing"):
        check_pattern("(is not closed")
    assert capfd.readouterr() == ("", "")
