"""Asking an object store again where the client library gives up at once: a connection that fails in the middle of an answer."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from typing import TypeVar

# So often, and not later than that.
_ASKS, _UNTIL_S = 10, 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_ASKED_ALL = re.compile(r"after (\d+) retries, max_retries: \1\b")

T = TypeVar("T")


def asked_again(ask: Callable[[], T], is_broken: Callable[[Exception], bool]) -> T:
    """What the store says; it is asked again as long as the error is that of a broken connection."""
    left, until, pause_s = _ASKS, time.monotonic() + _UNTIL_S, _FIRST_PAUSE_S
    while True:
        left -= 1
        try:
            return ask()
        except Exception as error:
            if not left or time.monotonic() > until or not is_broken(error):
                raise
        time.sleep(random.uniform(0, pause_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def tells_of_connection(text: str) -> bool:
    """Whether an error of the client library says that a connection failed, and not that it has asked as often as it may."""
    return "HTTP error" in text and _ASKED_ALL.search(text) is None
