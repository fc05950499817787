"""A queue that may be there already."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from tests.helpers import in_parallel, opened

LIKE: dict[str, Any] = {"schema": "k string, v bigint", "key": "k", "partitions": 3, "retention_ms": 5}


def create(store: str, **others: Any) -> partq.QueueDescription:
    return partq.create_queue(store, "q", **{**LIKE, **others}, exist_ok=True)


def test_the_same_queue_is_left_as_it_is(store: str) -> None:
    made = create(store)
    facts = len(opened(store).control.history())
    assert create(store) == made
    assert create(store, schema="k STRING, v long").queue_id == made.queue_id
    assert len(opened(store).control.history()) == facts


def test_each_difference_is_named(store: str) -> None:
    create(store)
    with pytest.raises(partq.QueueAlreadyExistsError) as caught:
        create(store, schema="k string, v int", key=None, partitions=4, retention_ms=None, max_handoff_time_ms=1)
    for words in (
        "its schema is k:string,v:long, not k:string,v:integer",
        "its key is k, not none",
        "its partition count is 3, not 4",
        "its retention_ms is 5, not none",
        "its max_handoff_time_ms is 3000, not 1",
        "alter-queue",
    ):
        assert words in str(caught.value)
    assert "rebalance_delay_ms" not in str(caught.value)


def test_what_was_altered_since_is_a_difference(store: str) -> None:
    create(store)
    partq.alter_queue(store, "q", retention_ms=6)
    with pytest.raises(partq.QueueAlreadyExistsError, match="its retention_ms is 6, not 5"):
        create(store)
    assert create(store, retention_ms=6).settings["retention_ms"] == 6


def test_of_several_at_once_all_succeed_if_they_want_the_same(store: str) -> None:
    done = in_parallel([lambda: create(store)] * 4)
    assert len({found.queue_id for found in done if isinstance(found, partq.QueueDescription)}) == 1
    assert not [error for error in done if isinstance(error, BaseException)]


def test_a_creation_that_died_is_finished(store: str) -> None:
    with (
        mock.patch("spark_partq.storage.procedures.create.make_tables", side_effect=InterruptedError),
        pytest.raises(InterruptedError),
    ):
        create(store)
    assert create(store).status == "Ready"


def test_a_queue_that_is_being_deleted_is_another_one(store: str) -> None:
    create(store)
    with (
        mock.patch("spark_partq.storage.procedures.delete.queue_folder", side_effect=InterruptedError),
        pytest.raises(InterruptedError),
    ):
        partq.delete_queue(store, "q")
    with pytest.raises(partq.QueueAlreadyExistsError, match="it is being deleted"):
        create(store)
