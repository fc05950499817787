"""Messages that kill their consumer end in the dead-message queue, those that are too old are left out, and both come back when asked."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.procedures import redrive as redriving
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import slices
from spark_partq.storage.store import Store
from tests.helpers import opened, position, put

_NOTHING = StreamOffset("", "", {}, {})


def make(store: str, **settings: Any) -> None:
    partq.create_queue(
        store, "q", "v bigint", key="v", partitions=2, rebalance_delay_ms=0, dead_letter_queue="dead", **settings
    )


class Query:
    """A query whose process dies of some messages; its checkpoint stays."""

    def __init__(self, store: str, deadly: set[int], **options: Any) -> None:
        self._settings = ConsumerSettings(Store(store), ("q",), instance_id="a", **options)
        self._schema = arrow_schema(opened(store).state.schema)
        self.deadly, self.done, self.offsets, self.committed = deadly, [], [_NOTHING], 0  # type: ignore[var-annotated]
        self.batches: list[list[int]] = []
        self.starts = 0

    def run(self) -> bool:
        """Until there is nothing to do, or until it dies; whether it has ended."""
        self.starts += 1
        self.planner = Planner(self._settings, "g", "a")
        try:
            return self._run(self.planner)
        finally:
            self.planner.membership.stopping.set()  # its threads end; it does not leave

    def _run(self, planner: Planner) -> bool:
        if self.committed < len(self.offsets) - 1 and not self._batch(planner):
            return False
        while (end := planner.next(self.offsets[-1], Limits())) is not None:
            self.offsets.append(end)
            if not self._batch(planner):
                return False
        return True

    def _batch(self, planner: Planner) -> bool:
        values = [
            value
            for pieces in planner.tasks(self.offsets[-2], self.offsets[-1])
            for piece in pieces
            for _, rows in read_slice(self._settings.store, piece.slice, self._schema)
            for value in rows.column("v").to_pylist()
        ]
        self.batches.append(values)
        if self.deadly & set(values):
            return False
        self.done += values
        self.committed = len(self.offsets) - 1
        return True


def dead(store: str) -> list[tuple[int, str, int]]:
    return [
        (m.payload["v"], m.origin["dead_reason"], m.origin["delivery_count"]) for m in partq.dead_letters(store, "q")
    ]


@pytest.mark.parametrize("max_deliveries", [1, 2, 5])
def test_message_that_kills(store: str, max_deliveries: int) -> None:
    """All others are delivered once it is found; the more messages died with it, the more deliveries that takes."""
    make(store, max_deliveries=max_deliveries)
    put(store, 0, range(100))
    put(store, 1, range(100, 110))
    query = Query(store, {42, 43, 107})
    while not query.run():
        assert query.starts < 30
    assert sorted(query.done) == [v for v in range(110) if v not in query.deadly]
    found = dead(store)
    assert sorted(v for v, _, _ in found) == [42, 43, 107]
    assert {reason for _, reason, _ in found} == {"dead"}
    for value, _, count in found:
        assert max(2, max_deliveries) <= count == sum(value in batch for batch in query.batches)
        assert [value] in query.batches  # it came alone
    assert position(store, "g", 0) == 100 and position(store, "g", 1) == 10
    kinds = [row["kind"] for row in open_group(Store(store), "g").history()]
    assert kinds.count("Skipped") == 3 and "Isolated" in kinds


def test_query_that_dies_of_something_else_gives_all_again(store: str) -> None:
    """Before the last delivery that a message may have, the same micro-batch comes whole."""
    make(store, max_deliveries=4)
    put(store, 0, range(50))
    query = Query(store, {7})
    for _ in range(2):
        assert not query.run()
    query.deadly.clear()
    assert query.run()
    assert query.batches == [list(range(50))] * 3 and dead(store) == []


def test_message_that_is_sent_again_is_there_once(store: str) -> None:
    """Whoever leaves it out may die before the fact; the next owner sends it again."""
    make(store, max_deliveries=2)
    put(store, 1, range(5))
    queue = opened(store)
    table = queue.table(1)
    table.refresh()
    for _ in range(2):
        for letters in (DeadLetters(Store(store), "dead", "g"), DeadLetters(Store(store), "dead", "g")):
            letters.send(queue, table, 1, DeadMessages(1, 2, "dead", 2))
            letters.send(queue, table, 1, DeadMessages(3, 4, "dead", 2))
    assert [v for v, _, _ in dead(store)] == [1, 3]
    DeadLetters(Store(store), "dead", "other").send(queue, table, 1, DeadMessages(1, 2, "dead", 2))
    assert sorted(v for v, _, _ in dead(store)) == [1, 1, 3]


@pytest.mark.parametrize("again", ["reset", "deleted"])
def test_a_group_that_reads_again(store: str, again: str) -> None:
    """H4: a message is put aside also if a later one was, before the group was set back or created again."""
    make(store, max_deliveries=2)
    put(store, 0, range(20))
    query = Query(store, {12}, session_timeout_ms=500)
    while not query.run():
        assert query.starts < 30
    query.planner.leave()
    if again == "reset":
        partq.reset_offsets(store, "g", "earliest")
    else:
        partq.delete_group(store, "g")
    query = Query(store, {5, 12}, starting_offsets="earliest", session_timeout_ms=500)
    while not query.run():
        assert query.starts < 30
    assert sorted(query.done) == [v for v in range(20) if v not in query.deadly]
    assert sorted(v for v, _, _ in dead(store)) == [5, 12, 12]


@pytest.mark.parametrize("kept", ["discard", "dead_letter"])
def test_messages_that_are_too_old(store: str, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, message_ttl_ms=60_000, expired_messages=kept)
    put(store, 0, range(10))
    put(store, 0, range(10, 15))
    query = Query(store, set())
    late = Store.now_ms
    monkeypatch.setattr(Store, "now_ms", lambda self: late(self) + 61_000)
    assert query.run()
    assert query.done == []
    monkeypatch.setattr(Store, "now_ms", late)
    put(store, 0, range(15, 20))
    assert query.run()
    assert query.done == list(range(15, 20)) and position(store, "g", 0) == 20
    assert [v for v, _, _ in dead(store)] == (list(range(15)) if kept == "dead_letter" else [])
    skipped = [row for row in open_group(Store(store), "g").history() if row["kind"] == "Skipped"]
    files = [(0, 10), (10, 15)] if kept == "dead_letter" else [(0, 15)]  # what is copied is copied a file at a time
    assert [(row["offset"], row["delivered"]) for row in skipped] == files
    assert {json.loads(row["body"])["why"] for row in skipped} == {"expired"}


@pytest.mark.parametrize("max_deliveries", [5, None])
def test_each_message_says_how_often_it_was_delivered(store: str, max_deliveries: int | None) -> None:
    """What is left out at once may differ in that; nobody knows where nobody counts."""
    make(store, max_deliveries=max_deliveries, message_ttl_column="v", expired_messages="dead_letter")
    put(store, 0, [60_000, 60_001])
    query = Query(store, {60_000})
    for _ in range(3):
        assert not query.run()
    put(store, 0, [60_002, 60_003])
    now_ms = Store.now_ms
    with mock.patch.object(Store, "now_ms", lambda self: now_ms(self) + 61_000):
        assert not query.run()  # the micro-batch that was planned comes again
        query.deadly.clear()
        assert Query(store, set()).run()
    counts = [4, 4, 0, 0] if max_deliveries else [None] * 4
    assert [(v, count) for v, _, count in dead(store)] == list(zip(range(60_000, 60_004), counts, strict=True))


def sent(store: str, start: int, end: int, queue: str = "q", partition: int = 0) -> None:
    """These messages of a partition are left out."""
    found = opened(store, queue)
    found.table(partition).refresh()
    letters = DeadLetters(Store(store), "dead", "g")
    letters.send(found, found.table(partition), 1, DeadMessages(start, end, "dead", 3))


def test_what_is_kept_of_a_message(store: str) -> None:
    """The message as it was, across files; where it came from, and when it came and went."""
    make(store)
    at = dt.datetime(2026, 11, 1, 12, 30, 0, 123456, tzinfo=dt.UTC)
    for first in (0, 5):
        put(store, 1, range(first, first + 5), at=at + dt.timedelta(seconds=first))
    before = Store(store).now()
    sent(store, 3, 7, partition=1)
    found = list(partq.dead_letters(store, "q"))
    assert [(m.partition, m.offset, m.redriven, m.payload) for m in found] == [
        (0, n, False, {"v": n + 3}) for n in range(4)
    ]
    for n, message in enumerate(found, 3):
        dead_at = message.origin.pop("dead_at")
        assert before <= dead_at <= Store(store).now()
        assert message.origin == {
            "origin_queue": "q",
            "origin_partition": 1,
            "origin_offset": n,
            "origin_enqueued_at": at + dt.timedelta(seconds=0 if n < 5 else 5),
            "origin_group": "g",
            "delivery_count": 3,
            "dead_reason": "dead",
        }
    assert found[0].to_dict() == {
        **found[0].origin,
        "partition": 0,
        "offset": 0,
        "redriven": False,
        "payload": {"v": 3},
    }
    dead_queue = opened(store, "dead").state
    assert (dead_queue.key, dead_queue.configured_partitions) == (("v",), 1)


def dead_of_two_queues(store: str) -> None:
    """Queues q and r, each with three messages in one dead-message queue."""
    make(store)
    partq.create_queue(store, "r", "v bigint", key="v", partitions=1, dead_letter_queue="dead")
    for name in ("q", "r"):
        put(store, 0, range(10), queue=name)
        sent(store, 2, 5, name)


def test_a_redrive_goes_on_in_the_midst_of_a_file(store: str) -> None:
    """The call before has died behind two of its messages."""
    dead_of_two_queues(store)
    partq.maintain(store, "dead")
    assert [m.offset for m in partq.dead_letters(store, "dead")] == list(range(6))
    with mock.patch.object(redriving, "_redrive") as once:
        partq.redrive(store, "q")
    found, origin, ends = once.call_args_list[0].args
    assert (found.name, origin.name, ends) == ("dead", "q", {0: 6})
    table, part = next(redriving._parts(found, {}))
    with mock.patch.object(redriving, "_parts", return_value=[(table, replace(part, last_row=2))]):
        assert redriving._redrive(found, origin, ends) == 2
    assert [m.redriven for m in partq.dead_letters(store, "q")] == [True, True, False, False, False, False]
    assert partq.redrive(store, "dead") == {"q": 1, "r": 3}
    assert partq.redrive(store, "dead") == {}
    for name in ("q", "r"):
        values = [v for rows in stored(store, name).values() for v in rows]
        assert sorted(values) == sorted([*range(10), 2, 3, 4])


@pytest.mark.parametrize("placed", [0, 1])
def test_a_redrive_that_died_with_its_last_messages_durable(store: str, placed: int) -> None:
    """They count as put back; the next call places them in those partitions that lack them."""
    make(store, max_deliveries=1)
    put(store, 0, range(10))
    sent(store, 2, 8)
    append = PartitionTable.append

    def dies(table: PartitionTable, *args: Any, **named: Any) -> int | None:
        return append(table, *args, **named) if table.partition < placed else 1 // 0

    with mock.patch.object(PartitionTable, "append", dies), pytest.raises(ZeroDivisionError):
        partq.redrive(store, "q")
    assert all(m.redriven for m in partq.dead_letters(store, "q"))
    partq.redrive(store, "q")
    assert sorted(v for rows in stored(store, "q").values() for v in rows) == sorted([*range(10), *range(2, 8)])


def stored(store: str, name: str) -> dict[int, list[int]]:
    queue = opened(store, name)
    schema = arrow_schema(queue.state.schema)
    return {
        table.partition: [
            value
            for part in slices(queue.state, table.partition, table.index, table.first_offset, table.next_offset)
            for _, rows in read_slice(queue.store, part, schema)
            for value in rows.column("v").to_pylist()
        ]
        for table in queue.partitions
    }


@pytest.mark.parametrize("again", ["", "v bigint", "v string"])
def test_a_queue_that_shared_the_dead_message_queue_was_deleted(store: str, again: str) -> None:
    """`redrive` of a queue puts its messages back, and leaves the others: of a deleted queue, also if another one has its name by now."""
    dead_of_two_queues(store)
    partq.delete_queue(store, "r")
    if again:
        partq.create_queue(store, "r", again, key="v", partitions=1, dead_letter_queue="other")
    assert partq.redrive(store, "q") == {"q": 3}
    assert partq.redrive(store, "q") == {}
    assert sorted(m.origin["origin_queue"] for m in partq.dead_letters(store, "q") if not m.redriven) == ["r"] * 3


def test_a_redrive_that_cannot_be(store: str) -> None:
    """Before anything is put back: a queue is gone, or has other columns by now."""
    dead_of_two_queues(store)
    partq.delete_queue(store, "r")
    with pytest.raises(partq.QueueNotFoundError, match="'r'"):
        partq.redrive(store, "dead")
    assert not any(m.redriven for m in partq.dead_letters(store, "q"))
    partq.create_queue(store, "r", "v string", key="v", partitions=1)
    with pytest.raises(
        partq.SchemaMismatchError,
        match="dead-message queue 'dead' does not have the columns of queue 'r', from which messages came",
    ):
        partq.redrive(store, "dead")
    assert not any(m.redriven for m in partq.dead_letters(store, "q"))
    put(store, 0, ["x"], queue="r", type_=pa.string())
    with pytest.raises(
        partq.SchemaMismatchError,
        match=r"queue 'r' does not have the columns of dead_letter_queue 'dead'.*Give the queue another dead_letter_queue",
    ):
        sent(store, 0, 1, "r")


def test_redrive(store: str) -> None:
    """Each message comes back once, into the queue from which it came, also if that takes two calls."""
    make(store, max_deliveries=1)
    partq.create_queue(store, "r", "v bigint", key="v", partitions=1, max_deliveries=1, dead_letter_queue="dead")
    for name in ("q", "r"):
        put(store, 0, range(20), queue=name)
        queue = opened(store, name)
        queue.table(0).refresh()
        DeadLetters(Store(store), "dead", "g").send(queue, queue.table(0), 1, DeadMessages(3, 9, "dead", 1))
    before = {name: partq.describe_queue(store, name).depth for name in ("q", "r")}
    assert partq.redrive(store, "q") == {"q": 6}
    assert partq.redrive(store, "dead") == {"r": 6}
    assert partq.redrive(store, "dead") == {}
    assert all(m.redriven for m in partq.dead_letters(store, "dead"))
    assert {name: partq.describe_queue(store, name).depth - n for name, n in before.items()} == {"q": 6, "r": 6}
    queue = opened(store)
    queue.table(0).refresh()
    DeadLetters(Store(store), "dead", "g").send(queue, queue.table(0), 1, DeadMessages(15, 16, "dead", 1))
    assert [m.payload["v"] for m in partq.dead_letters(store, "q") if not m.redriven] == [15]
    assert partq.redrive(store, "q") == {"q": 1}


def test_settings_that_are_changed_later(store: str) -> None:
    """The dead-message queue is made, and is not taken away from what needs it."""
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, rebalance_delay_ms=0)
    with pytest.raises(partq.InvalidArgumentError, match="max_deliveries needs a dead_letter_queue"):
        partq.alter_queue(store, "q", max_deliveries=2)
    partq.alter_queue(store, "q", max_deliveries=2, dead_letter_queue="dead")
    partq.alter_queue(store, "q", max_deliveries=3)
    with pytest.raises(partq.InvalidArgumentError, match="max_deliveries needs a dead_letter_queue"):
        partq.alter_queue(store, "q", dead_letter_queue=None)
    put(store, 0, range(3))
    query = Query(store, {1})
    while not query.run():
        assert query.starts < 9
    assert dead(store) == [(1, "dead", 3)]


def test_what_cannot_be_is_refused(store: str) -> None:
    def create(text: str, **settings: Any) -> None:
        with pytest.raises(partq.PartqError, match=text):
            partq.create_queue(store, "q", "v bigint", key="v", **settings)
        assert not Store(store).files.list_folders("queues") or "q" not in partq.list_queues(store)

    create("needs a dead_letter_queue", max_deliveries=3)
    create("greater than or equal to 1", max_deliveries=0, dead_letter_queue="dead")
    create("needs a dead_letter_queue", expired_messages="dead_letter", message_ttl_ms=1)
    create("cannot name a queue", dead_letter_queue="no/name")
    create("its own", dead_letter_queue="q")
    partq.create_queue(store, "other", "v string")
    create("does not have the columns|a dead message", dead_letter_queue="other")
    with pytest.raises(partq.InvalidArgumentError, match="Dead_Reason"):
        partq.create_queue(store, "p", "Dead_Reason string", dead_letter_queue="dead")
    with pytest.raises(partq.InvalidArgumentError, match="no dead_letter_queue"):
        next(partq.dead_letters(store, "other"))
