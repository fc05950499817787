"""Dead messages that were put back before their queue's replica took over stay put back; those that the replica lacked do not count (S7)."""

from __future__ import annotations

import os

import spark_partq as partq
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import replicate
from spark_partq.storage.store import Store
from tests.helpers import opened, put
from tests.replicas import there_fixture  # noqa: F401


def put_aside(store: str, start: int, end: int) -> None:
    found = opened(store)
    DeadLetters(found.store, "dead", "g").send(found, found.table(0), 1, DeadMessages(start, end, "dead", 1))


def redriven(store: str) -> list[int]:
    return [m.payload["v"] for m in partq.dead_letters(store, "q") if m.redriven]


def test_what_was_put_back_before_a_promotion(store: str, there: str) -> None:
    """It is not put back again, and nobody waits for it; what comes later is put back once."""
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, dead_letter_queue="dead")
    put(store, 0, range(10))
    put_aside(store, 2, 5)
    assert partq.redrive(store, "q") == {"q": 3}
    for name in ("q", "dead"):
        replicate(Store(store), name, there)
    for name in ("q", "dead"):
        promote(Store(there), name)
    assert redriven(there) == [2, 3, 4]
    assert partq.redrive(there, "q") == {}
    put_aside(there, 7, 9)
    assert redriven(there) == [2, 3, 4]
    assert partq.redrive(there, "q") == {"q": 2}
    assert redriven(there) == [2, 3, 4, 7, 8] and partq.redrive(there, "q") == {}


def test_what_the_replica_lacked_is_put_back(store: str, there: str) -> None:
    """Its messages have the offsets of those that were put back and lost, and they were not."""
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, dead_letter_queue="dead")
    put(store, 0, range(10))
    put_aside(store, 0, 1)
    replicate(Store(store), "dead", there)
    put_aside(store, 1, 4)
    assert partq.redrive(store, "q") == {"q": 4}
    replicate(Store(store), "q", there)
    os.rename(store, f"{store}-away")
    for name in ("q", "dead"):
        promote(Store(there), name)
    assert redriven(there) == [0]
    put_aside(there, 5, 7)
    assert redriven(there) == [0]
    assert partq.redrive(there, "q") == {"q": 2}


def test_what_was_put_aside_beyond_the_position_that_the_replica_had(store: str, there: str) -> None:
    """The dead-message queue was copied after the group had gone on: the new primary puts aside each message that it leaves out."""
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, dead_letter_queue="dead")
    put(store, 0, range(10))
    replicate(Store(store), "q", there)
    put_aside(store, 5, 6)  # behind what the group had finished
    replicate(Store(store), "dead", there)
    for name in ("q", "dead"):
        promote(Store(there), name)
    for _ in range(2):
        put_aside(there, 0, 5)
    assert sorted(m.payload["v"] for m in partq.dead_letters(there, "q")) == list(range(6))
