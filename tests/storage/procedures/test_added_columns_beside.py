"""A column that a queue gets beside something else: a promotion, another change of the queue, a copy, a query that begins."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable

import spark_partq as partq
from spark_partq.core.format import ADDED_COLUMNS
from spark_partq.core.queue.facts import QueueFact
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures import alter, delete_messages
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.consume.subscription import Subscription
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.storage.procedures.test_added_columns import NEW, OLD, make, put, read, stored

# Each message is too old when it would be delivered, and is put aside.
EXPIRES: dict[str, Any] = {
    "max_deliveries": 1,
    "dead_letter_queue": "dead",
    "message_ttl_ms": 1,
    "expired_messages": "dead_letter",
}


def once(action: Callable[[], object]) -> Callable[[], None]:
    """Does it the first time alone, also if it comes here itself."""
    left = [action]

    def do() -> None:
        if left:
            left.pop()()

    return do


@pytest.mark.parametrize(("column", "notes"), [("note int", [None, None, 7]), ("note string", [None, "n", "7"])])
def test_a_column_that_was_lost_with_a_primary(store: str, tmp_path: Path, column: str, notes: list[Any]) -> None:
    """The last pass has copied a file with the column, and not the fact: of another type it is another column."""
    make(store, partitions=1)
    put(opened(store), 0, OLD)
    copy = str(tmp_path / "copy")
    partq.replicate(store, "q", copy)
    capture = Replicator._capture

    def late(*arguments: Any) -> Any:
        captured = capture(*arguments)
        partq.add_column(store, "q", "note string")
        put(opened(store), 1, NEW)
        return captured

    with mock.patch.object(Replicator, "_capture", late):
        partq.replicate(store, "q", copy)
    shutil.move(store, tmp_path / "lost")
    partq.promote(copy, "q", force=True)
    assert stored(opened(copy)) == [OLD, {"k": "b", "v": 2}]
    partq.add_column(copy, "q", f"{column}, more double")
    put(opened(copy), 2, {"k": "z", "v": 3, "note": 7 if column == "note int" else "7"})
    assert [row["note"] for row in stored(opened(copy))] == notes
    names = [field.name for field in DeltaTable(f"{copy}/queues/q/partitions/partition=0").schema().fields]
    assert {"note", "more"} <= set(names)


def test_a_dead_message_queue_that_is_named_meanwhile_gets_the_column(store: str) -> None:
    make(store, partitions=1)
    checked, alter_it = alter.check_primary, once(lambda: partq.alter_queue(store, "q", **EXPIRES))

    def late(queue: Queue, **options: Any) -> None:
        checked(queue, **options)
        alter_it()

    with mock.patch.object(alter, "check_primary", late):
        partq.add_column(store, "q", "note string")
    put(opened(store), 0, NEW)
    assert read(store, "g", arrow_schema(opened(store).state.schema)) == []
    assert [message.payload for message in partq.dead_letters(store, "q")] == [NEW]


def test_a_column_that_comes_while_a_dead_message_queue_is_named(store: str) -> None:
    make(store, partitions=1)
    provide, add = alter._provide_dead_letter_queue, once(lambda: partq.add_column(store, "q", "note string"))

    def late(*arguments: Any) -> None:
        provide(*arguments)
        add()

    with mock.patch.object(alter, "_provide_dead_letter_queue", late):
        partq.alter_queue(store, "q", max_deliveries=1, dead_letter_queue="dead")
    assert [f["name"] for f in opened(store, "dead").state.schema["fields"]][-1] == "note"


def test_a_dead_message_does_not_come_back_without_it(store: str) -> None:
    """Its queue was deleted and created again without the column."""
    make(store, partitions=1, **EXPIRES)
    partq.add_column(store, "q", "note string")
    put(opened(store), 0, NEW)
    assert read(store, "g", arrow_schema(opened(store).state.schema)) == []
    partq.delete_queue(store, "q")
    make(store, partitions=1)
    with pytest.raises(partq.SchemaMismatchError, match="have columns that the queue does not have: note"):
        partq.redrive(store, "dead")
    partq.add_column(store, "q", "note string")
    assert partq.redrive(store, "dead") == {"q": 1} and stored(opened(store)) == [NEW]


def test_a_column_that_comes_while_what_is_stuck_is_copied(store: str) -> None:
    make(store, partitions=0)
    put(opened(store), 0, OLD)
    partq.scale(store, "q", 2)
    refresh, add = Producer.refresh, once(lambda: partq.add_column(store, "q", "note string"))

    def late(producer: Producer) -> None:
        add()
        refresh(producer)

    with mock.patch.object(Producer, "refresh", late):
        assert partq.copy_stuck(store, "q") == 1
    assert stored(opened(store)) == [{**OLD, "note": None}]


def test_a_column_that_comes_while_messages_are_deleted(store: str) -> None:
    """Between the search of a file and its rewriting."""
    make(store, partitions=1)
    for batch, row in enumerate((OLD, {**OLD, "k": "b"})):
        put(opened(store), batch, row, row)
    allow, add = delete_messages._allow_deletion, once(lambda: partq.add_column(store, "q", "note string"))

    def late(queue: Queue) -> None:
        add()
        allow(queue)

    with mock.patch.object(delete_messages, "_allow_deletion", late):
        assert partq.delete_messages(store, "q", {"k": OLD["k"]}) == 2
    assert stored(opened(store)) == [{**OLD, "k": "b", "note": None}] * 2


def test_a_query_reads_what_it_began_with(store: str) -> None:
    """A queue that matches later, and lacks the column, is read by a query that does not know it either."""
    make(store, "q1", partitions=1)
    before = opened(store, "q1").state.schema
    partq.add_column(store, "q1", "note string")
    make(store, "q2", partitions=1)
    for payload, names in ((before, {"q1", "q2"}), (opened(store, "q1").state.schema, {"q1"})):
        subscription = Subscription(ConsumerSettings(Store(store), queue_pattern="q.*", payload=payload))
        subscription.reopen()
        assert {queue.name for queue in subscription.queues.values()} == names


def test_dead_messages_are_listed_with_a_column_that_comes_meanwhile(store: str) -> None:
    make(store, partitions=1, **EXPIRES)
    for batch in (0, 1):
        put(opened(store), batch, {**OLD, "v": batch})
        read(store, "g", arrow_schema(opened(store).state.schema))
    found = partq.dead_letters(store, "q")
    assert next(found).payload == {"k": "a", "v": 0}
    partq.add_column(store, "q", "note string")
    assert next(found).payload in ({"k": "a", "v": 1}, {"k": "a", "v": 1, "note": None})


def test_a_fact_is_normalized(store: str) -> None:
    make(store, partitions=1)
    raised = replace(opened(store).state.format, features=(ADDED_COLUMNS,))
    column = {"name": "n", "type": {"type": "array", "elementType": "integer", "containsNull": False}}
    facts = [QueueFact("FormatRaised", raised.body()), QueueFact("ColumnsAdded", {"columns": [column]})]
    open_control(Store.at(store), "q").commit(facts)
    put(opened(store), 0, {**OLD, "n": [1, None]})
    assert stored(opened(store)) == [{**OLD, "n": [1, None]}]
