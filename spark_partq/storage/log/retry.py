"""Compare-and-set, again and again until it succeeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from spark_partq.core.errors import CommitFailedError
from spark_partq.storage.runtime import Runtime

if TYPE_CHECKING:
    from tenacity import RetryCallState

# Who waits longer is no likelier to win, as others commit meanwhile that have not waited; whoever loses again and again only falls behind.
_LONGEST_WAIT_S = 0.05
# But who has lost so often waits for one process that may have died, as while it claims an entry, and not for many that commit.
_OFTEN, _PATIENT_S = 100, 2.0

T = TypeVar("T")


class Conflict(Exception):
    """Somebody else committed first."""


def retrying(runtime: Runtime, attempt: Callable[[], T], what: str) -> T:
    """Run `attempt` until it meets no `Conflict`; each time it must refresh the table first.

    Raises
    ------
    CommitFailedError
        After 1,000 lost races, which take a quarter of an hour.
    """
    try:
        return attempt()  # without tenacity's own cost, as most attempts meet nobody
    except Conflict:
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

    def wait(state: RetryCallState) -> float:
        longest_s = _LONGEST_WAIT_S if state.attempt_number < _OFTEN else _PATIENT_S
        return runtime.random() * min(longest_s, 0.005 * float(2 ** min(state.attempt_number - 1, 10)))

    for retry in Retrying(
        retry=retry_if_exception_type(Conflict),
        wait=wait,
        sleep=runtime.sleep,
        stop=stop_after_attempt(999),
        retry_error_callback=lambda _: None,
    ):
        with retry:
            return attempt()
    raise CommitFailedError(
        f"{what}: lost 1,000 races against other writers; try again when there are fewer", what=what
    )
