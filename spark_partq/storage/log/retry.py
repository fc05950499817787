"""Compare-and-set, again and again until it succeeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from spark_partq.core.errors import CommitFailedError

T = TypeVar("T")


class Conflict(Exception):
    """Somebody else committed first."""


def retrying(attempt: Callable[[], T], what: str) -> T:
    """Run `attempt` until it meets no `Conflict`; each time it must refresh the table first.

    Raises
    ------
    CommitFailedError
        After 1,000 lost races.
    """
    try:
        return attempt()  # without tenacity's own cost, as most attempts meet nobody
    except Conflict:
        pass
    for retry in Retrying(
        retry=retry_if_exception_type(Conflict),
        wait=wait_random_exponential(multiplier=0.005, max=0.5),
        stop=stop_after_attempt(999),
        retry_error_callback=lambda _: None,
    ):
        with retry:
            return attempt()
    raise CommitFailedError(
        f"{what}: lost 1,000 races against other writers; try again when there are fewer", what=what
    )
