"""Patterns of queue names: regular expressions of RE2, whose match takes time in proportion to pattern and name, whatever they are.

One member's pattern is matched by every process of its group, so one that takes for ever (``(a|aa)+b`` does, with Python's `re`) would
stop them all. RE2 has no look-around and no back-references, for which there is no such match.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

MAX_LENGTH = 500
# Of one compiled pattern and what RE2 keeps of its matches.
_MAX_BYTES = 1 << 20


def check_pattern(pattern: str) -> None:
    """Refuse what is no pattern.

    Raises
    ------
    ValueError
        The text says what is wrong.
    """
    _compiled(pattern)


@lru_cache(10_000)
def matches(pattern: str, name: str) -> bool:
    """Whether the whole name matches; raises `ValueError` as `check_pattern` does."""
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(128)
def _compiled(pattern: str) -> Any:
    if len(pattern) > MAX_LENGTH:
        raise ValueError(f"it is longer than {MAX_LENGTH} characters")
    if not pattern.isascii() or not pattern.isprintable():
        raise ValueError("it has characters other than those of ASCII that can be printed; no name has them")
    import re2  # a compiled library, which those who use no pattern need not load

    options = re2.Options()
    options.max_mem, options.log_errors = _MAX_BYTES, False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode()) from None
