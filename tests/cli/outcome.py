"""What a command leads to."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Outcome:
    code: int
    out: str
    err: str


class Terminal(io.StringIO):
    """A standard input at which somebody sits, who types this."""

    def isatty(self) -> bool:
        return True


Command = Callable[..., Outcome]


def assert_refused(outcome: Outcome, error_class: str, *words: str) -> None:
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith(f"error: [{error_class}] ")
    assert outcome.err.count("\n") == 1
    for word in words:
        assert word in outcome.err
