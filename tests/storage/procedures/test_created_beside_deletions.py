"""A queue is deleted while its tables are being made, and another one is made in its place (Q1, S1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.storage.procedures import create
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store
from tests.helpers import in_parallel, opened
from tests.scaled import Reader, Sink, make, messages

Taken = Callable[[], object]


def sleep_before(monkeypatch: pytest.MonkeyPatch, partition: int, meanwhile: Taken) -> None:
    """Call `meanwhile` right before the process that makes tables next makes this one."""
    before = PartitionTable.create

    def late(table: PartitionTable, *args: Any, **named: Any) -> bool:
        if table.partition == partition:
            monkeypatch.undo()
            meanwhile()
        return before(table, *args, **named)

    monkeypatch.setattr(PartitionTable, "create", late)


def die_before_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process that makes tables die right after it made them."""

    def die(*_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(create, "open_control", die)  # with which the check begins


def tables(store: str) -> int:
    found = Store.at(store)
    return sum(
        found.files.info(f"queues/q/partitions/partition={n}/_delta_log/{0:020d}.json") is not None for n in range(4)
    )


def works(store: str, partitions: int, batch: int = 0) -> None:
    """Whether the queue takes and gives messages."""
    sink, reader = Sink(store), Reader(store)
    sink.write(batch, messages(0, 20))
    assert len(reader.all()) == 20
    assert opened(store).state.operating_partitions == partitions


def test_a_creation_ends_after_the_deletion(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep_before(monkeypatch, 1, lambda: partq.delete_queue(store, "q"))
    with pytest.raises(partq.QueueNotFoundError):
        make(store, 3)
    assert tables(store) == 0
    make(store, 3)
    works(store, 3)


def test_a_creation_that_ends_after_the_deletion_dies(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has left is none of the next queue's, which may have other columns and fewer partitions."""

    def meanwhile() -> None:
        partq.delete_queue(store, "q")
        die_before_the_check(monkeypatch)

    sleep_before(monkeypatch, 1, meanwhile)
    with pytest.raises(InterruptedError):
        make(store, 3)
    monkeypatch.undo()
    assert tables(store) == 2 and partq.list_queues(store) == []
    make(store, 2)
    works(store, 2)
    partq.scale(store, "q", 3)  # onto the other one
    works(store, 3, batch=1)


def test_the_next_queue_is_there_already(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile() -> None:
        partq.delete_queue(store, "q")
        make(store, 3)

    sleep_before(monkeypatch, 1, meanwhile)
    with pytest.raises(partq.QueueNotFoundError, match="deleted and created again"):
        make(store, 3)
    works(store, 3)


def test_a_scale_ends_after_the_deletion(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, 1)
    sleep_before(monkeypatch, 1, lambda: partq.delete_queue(store, "q"))
    with pytest.raises(partq.QueueNotFoundError):
        partq.scale(store, "q", 3)
    assert tables(store) == 0
    make(store, 1)
    partq.scale(store, "q", 3)
    works(store, 3)


def test_a_scale_that_ends_after_the_deletion_dies(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have sealed what it made."""
    make(store, 1)
    sleep_before(monkeypatch, 1, lambda: partq.delete_queue(store, "q"))
    with mock.patch.object(create, "_check_present"), pytest.raises(partq.QueueNotFoundError):
        partq.scale(store, "q", 3)
    assert tables(store) == 2
    make(store, 1)
    partq.scale(store, "q", 3)
    works(store, 3)


def test_messages_of_another_queue_are_not_removed(store: str) -> None:
    """Somebody lost a queue's control table, and made the queue again."""
    make(store, 2)
    Sink(store).write(0, messages(0, 20))
    there = Store.at(store)
    there.files.delete_folder("queues/q/control")
    with pytest.raises(partq.CorruptTableError, match="Move that folder to another place") as refused:
        make(store, 2)
    assert "partition=0" in str(refused.value)
    assert there.files.list_files("queues/q/partitions/partition=0")
    for n in range(2):
        there.files.delete_folder(f"queues/q/partitions/partition={n}")
    with pytest.raises(partq.QueueAlreadyExistsError):  # which ends it
        make(store, 2)
    works(store, 2)


def test_a_table_that_was_lost_is_not_made_again(store: str) -> None:
    """Its offsets would begin again."""
    make(store, 2)
    Sink(store).write(0, messages(0, 20))
    partq.scale(store, "q", 1)
    Reader(store).all()
    partq.maintain(store)
    Store.at(store).files.delete_folder("queues/q/partitions/partition=1")
    with pytest.raises(partq.CorruptTableError, match=r"partition 1 of queue 'q'.* Restore it from a backup"):
        partq.scale(store, "q", 2)


def test_several_find_what_was_left(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep_before(monkeypatch, 1, lambda: (partq.delete_queue(store, "q"), die_before_the_check(monkeypatch)))
    with pytest.raises(InterruptedError):
        make(store, 3)
    monkeypatch.undo()
    done = in_parallel([lambda: make(store, 3)] * 4)
    assert sum(error is None for error in done) == 1
    works(store, 3)
