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
    "[]a]",
    "[-a]",
    "(a|b)",
    "(?:ab|a)",
    "(a|)",
    r"\.",
    "^",
    "$",
    "",
]
REPEATS = ["", "", "*", "+", "?", "{2}", "{1,3}", "{,2}", "{2,}", "*?", "+?", "??"]
PART = st.tuples(st.sampled_from(ATOMS), st.sampled_from(REPEATS)).map("".join)
PATTERNS = st.recursive(
    st.lists(PART, max_size=4).map("".join),
    lambda inner: (
        st.tuples(inner, st.sampled_from(REPEATS)).map(lambda two: f"({two[0]}){two[1]}")
        | st.tuples(inner, inner).map("|".join)
    ),
    max_leaves=4,
)


@given(PATTERNS, st.lists(st.text("ab-.1", max_size=6), max_size=5))
def test_as_re(pattern: str, names: list[str]) -> None:
    try:
        judge = re.compile(pattern)
    except re.error:
        with pytest.raises(ValueError, match=r"\w"):
            check_pattern(pattern)
        return
    if re.search(r"[*+?}]\+", pattern):  # possessive
        return
    check_pattern(pattern)
    for name in names:
        assert matches(pattern, name) == (judge.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    "pattern",
    ["(a|aa)+b", "([a-z0-9_]+)*-eu", "(a*)*b", "a*" * 200 + "b", "(.*)(.*)(.*)(.*)(.*)x", "(a?){40}" + "a{40}b"],
)
def test_what_takes_for_ever_elsewhere(pattern: str) -> None:
    began = time.process_time()
    assert not matches(pattern, "a" * 128)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "(a", "a)", "[", "[a", "*", "+a", "a**", "a{2}{2}", "a{3,2}", "{2}", "a{", "a{x}", "\\", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)",
        "(?i)a", "(?P<n>a)", r"\b", r"\Z", r"\s", "[z-a]", r"[\d-z]", "a" * (MAX_LENGTH + 1), "(" * 200 + ")" * 200, "a{9999}",
        "((((a{9}){9}){9}){9}){9}",
    ],
)  # fmt: skip
def test_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        check_pattern(pattern)
