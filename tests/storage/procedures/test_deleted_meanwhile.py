"""Messages of a key are deleted while others write, copy or take over at the same moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.format import DELETED_MESSAGES
from spark_partq.core.queue import replicas
from spark_partq.storage.procedures import delete_messages as procedure
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.file_age import FilesTooOld
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import MessageFile
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.rewrites import before_the_commit
from tests.storage.procedures.test_added_columns import make, put
from tests.storage.procedures.test_delete_messages import fill, rows_at


def between(store: str, act: Any, queue: str = "q") -> Any:
    """Run the deletion of key `a`, and `act` once between a new file of the queue and its commit."""
    with before_the_commit(act, queue):
        return partq.delete_messages(store, "q", {"k": "a"})


def test_a_message_dies_meanwhile(store: str) -> None:
    """It comes into the dead-message queue while that is searched."""
    make(store, partitions=1, dead_letter_queue="dead")
    fill(store, "ab", "a")
    died = {"k": "a", "v": 0, "origin_queue": "q"}
    put(opened(store, "dead"), 0, died)
    assert between(store, lambda: put(opened(store, "dead"), 1, died), "dead") == 4
    assert not rows_at(store, "dead")


def test_somebody_else_rewrites_the_file(store: str) -> None:
    make(store, partitions=1)
    fill(store, "abca", "a")
    assert between(store, lambda: partq.delete_messages(store, "q", {"k": "b"})) == 3
    assert [row["k"] for row in rows_at(store).values()] == ["c"]


def test_messages_come_and_go_meanwhile(store: str) -> None:
    make(store, partitions=1, retention_ms=1)
    fill(store, "ab", "ac")

    def act() -> None:
        put(opened(store), 7, {"k": "a", "v": 7}, {"k": "d", "v": 8})
        partq.maintain(store, "q")

    between(store, act)
    left = rows_at(store)
    assert all(row["k"] != "a" for row in left.values()) and opened(store).partitions[0].next_offset == 6


def test_a_replica_is_taking_over_meanwhile(store: str, tmp_path: Path) -> None:
    """The queue is fenced, its partitions are not yet. Older programs may still read it, as nobody could keep them away any more."""
    make(store, partitions=1)
    fill(store, "ab")
    replica = str(tmp_path / "replica")
    partq.replicate(store, "q", replica)
    check_primary, before = procedure.check_primary, rows_at(store)

    def fenced_behind_it(queue: Queue, opening: bool = False) -> None:
        check_primary(queue, opening)
        open_control(Store.at(store), "q").decide(
            lambda state: replicas.fence(state, replica, state.replica_ids[replica])
        )

    with mock.patch.object(procedure, "check_primary", fenced_behind_it), pytest.raises(partq.QueueFencedError):
        partq.delete_messages(store, "q", {"k": "a"})
    assert rows_at(store) == before
    assert DELETED_MESSAGES not in opened(store).state.format.features


def test_a_column_comes_meanwhile(store: str) -> None:
    """Who knows nothing of it yet takes its values away from nobody."""
    make(store, partitions=1)
    queue = opened(store)
    fill(store, "ab")
    partq.add_column(store, "q", "note string")
    put(opened(store), 3, {"k": "a", "v": 5, "note": "x"}, {"k": "b", "v": 6, "note": "y"})
    assert procedure.delete_messages(queue, {"k": "a"}) == 2
    assert [row["note"] for row in rows_at(store).values()] == [None, "y"]


def test_a_file_that_took_too_long_is_written_again(store: str) -> None:
    """Maintenance might have deleted it before its commit."""
    make(store, partitions=1, vacuum_grace_ms=3_600_000)
    fill(store, "ab")
    queue, paths = opened(store), list[str]()
    clock_s, close = [0.0], MessageFile.close

    def slow(file: MessageFile) -> Any:
        clock_s[0] += 1801 if not paths else 1
        new = close(file)
        paths.append(new.path)
        return new

    clock = mock.patch.object(type(queue.store.runtime), "monotonic_s", side_effect=lambda: clock_s[0])
    with clock, mock.patch.object(MessageFile, "close", slow):
        assert procedure.delete_messages(queue, {"k": "a"}) == 1
    live = opened(store).partitions[0].index
    assert len(paths) == 2 and live.path(0) == paths[1] and live.left.tolist() == [1]


def test_files_that_take_too_long_again_and_again(store: str) -> None:
    """It ends, and says that not all is done."""
    make(store, partitions=1)
    fill(store, "ab")
    late = mock.patch.object(PartitionTable, "replace", side_effect=FilesTooOld)
    with late as replace, pytest.raises(partq.CommitFailedError, match="not all messages are deleted"):
        partq.delete_messages(store, "q", {"k": "a"})
    assert replace.call_count == 4 and len(rows_at(store)) == 2


def test_a_call_that_dies_is_made_again(store: str) -> None:
    make(store)
    fill(store, "abab", "aab")
    with mock.patch.object(PartitionTable, "replace", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        partq.delete_messages(store, "q", {"k": "a"})
    assert len(rows_at(store)) == 7 and partq.delete_messages(store, "q", {"k": "a"}) == 4
