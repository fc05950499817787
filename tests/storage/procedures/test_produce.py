"""Producers that meet: another query with their sink's id, their own twin, a queue that is being drained."""

from __future__ import annotations

from typing import Any

import pytest

import spark_partq as partq
from spark_partq.storage.procedures import drain, scale
from spark_partq.storage.procedures.produce import Producer
from tests.helpers import opened
from tests.scaled import Message, Reader, Sink, make, messages, stored
from tests.storage.procedures.test_begun import half_of_a_batch


def in_queue(store: str) -> list[Message]:
    return [message for partition in stored(store).values() for message in partition]


@pytest.mark.parametrize("partitions", [2, 3], ids=["same map", "next map"])
def test_two_queries_with_one_sink_id(store: str, partitions: int) -> None:
    """Q5: of two queries that write batch 0 at once one is refused, and nothing is dropped silently."""
    make(store, 2)
    first, second = Sink(store, query_id="first"), Sink(store, query_id="second")

    def meanwhile() -> None:
        if not in_queue(store):
            second.write(0, messages(100, 120))
            if partitions != 2:
                scale.scale(opened(store), partitions)

    with pytest.raises(partq.SinkAheadError, match="another query"):
        first.write(0, messages(0, 20), meanwhile)
    assert set(messages(100, 120)) <= set(in_queue(store))


@pytest.mark.parametrize("partitions", [2, 3], ids=["same map", "next map"])
@pytest.mark.parametrize("is_half", [True, False])
def test_other_messages_under_a_number(store: str, partitions: int, is_half: bool) -> None:
    """Q5: a batch that was planned again, from an older checkpoint, is not taken for the one of its number; one that is repeated is."""
    make(store, 2)
    if is_half:
        half_of_a_batch(store, offsets_digest="a")
    else:
        Sink(store, offsets_digest="a").write(0, messages(0, 20))
    if partitions != 2:
        scale.scale(opened(store), partitions)
    for _ in range(2):
        with pytest.raises(partq.SinkAheadError, match="batch 0 of other messages"):
            Sink(store, offsets_digest="b").write(0, messages(100, 120))
        Sink(store, offsets_digest="a").write(0, messages(0, 20))
        assert sorted(in_queue(store)) == sorted(messages(0, 20))
    Sink(store).write(0, messages(100, 120))  # a program that does not know of digests
    assert sorted(in_queue(store)) == sorted(messages(0, 20))


def test_twin_of_a_query(store: str) -> None:
    """Q5: two processes of one query that write a batch at once add it once."""
    make(store, 2)
    first, second = Sink(store, query_id="query"), Sink(store, query_id="query")

    def meanwhile() -> None:
        if not in_queue(store):
            assert second.write(0, messages(0, 20)) == 20

    assert first.write(0, messages(0, 20), meanwhile) == 0
    assert sorted(in_queue(store)) == sorted(messages(0, 20))


def test_message_that_comes_late_is_drained(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S4: what a producer appends between the drain and the seals is acknowledged before the next map is in force."""
    make(store, 0)
    sink, reader, queue = Sink(store), Reader(store), opened(store)
    commit = Producer._commit

    def late(producer: Producer, *args: Any) -> Any:
        monkeypatch.setattr(Producer, "_commit", commit)
        scale.start(queue, 2, "drain")
        assert drain.decide_drained(queue) is None
        return commit(producer, *args)

    monkeypatch.setattr(Producer, "_commit", late)
    assert sink.write(0, messages(0, 3)) == 3
    for _ in range(2):
        waiting = scale.step(queue)
        assert waiting is not None and waiting.left == 3
        assert queue.state.generation == 0
    reader.turn()
    assert scale.step(queue) is None
    assert queue.state.generation == 1 and sorted(reader.seen) == sorted(messages(0, 3))
