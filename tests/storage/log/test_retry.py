"""How long who loses races tries again."""

from __future__ import annotations

import random

import pytest

import spark_partq as partq
from spark_partq.storage.log import Conflict, retrying
from spark_partq.storage.log.strangers import _CLAIM_S
from spark_partq.storage.runtime import SystemRuntime


class Slept(SystemRuntime):
    """Sleeps at once, and says how long that would have been."""

    def __init__(self, seed: int) -> None:
        self.random, self.slept_s = random.Random(seed).random, 0.0  # type: ignore[method-assign]

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds


@pytest.mark.parametrize("seed", range(5))
def test_a_process_that_died_is_waited_for(seed: int) -> None:
    """Nobody gives up before an entry can be claimed again."""
    runtime = Slept(seed)

    def attempt() -> None:
        if runtime.slept_s < _CLAIM_S:
            raise Conflict

    retrying(runtime, attempt, "a table")


def test_others_that_commit_are_waited_for_shortly() -> None:
    """Who loses fifty races has waited less than 2.5 seconds."""
    runtime, lost = Slept(1), list[int]()

    def attempt() -> None:
        if len(lost) < 50:
            lost.append(1)
            raise Conflict

    retrying(runtime, attempt, "a table")
    assert 0 < runtime.slept_s < 2.5


def test_in_the_end_it_is_told() -> None:
    def attempt() -> None:
        raise Conflict

    with pytest.raises(partq.CommitFailedError, match="a table: lost 1,000 races"):
        retrying(Slept(1), attempt, "a table")
