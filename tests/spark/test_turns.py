"""Queries of a program that share a sink: its micro-batches take turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, cast
from unittest import mock

import pytest
from pyspark.sql import DataFrame

import spark_partq as partq
from spark_partq.core.delivery.topics import Topic
from spark_partq.spark import delta_sink
from spark_partq.spark.from_topic import TopicSink
from spark_partq.spark.sink import QueueSink
from spark_partq.storage.store import Store
from tests.helpers import in_parallel

Foreach = Callable[[DataFrame, int], object]
# What waits here for another thread to come in waits in vain where they take turns.
_PATIENCE_S = 0.3


class Work:
    """Stands for what a sink does with a micro-batch.

    Attributes
    ----------
    met : event
        Two threads were in it at once.
    """

    def __init__(self) -> None:
        self.met = threading.Event()
        self._inside = threading.Lock()

    def __call__(self, *_: object) -> NoReturn:
        if self._inside.acquire(blocking=False):
            self.met.wait(_PATIENCE_S)
            self._inside.release()
        else:
            self.met.set()
        raise InterruptedError


def into_a_queue(store: str, work: Work, patch: pytest.MonkeyPatch) -> Foreach:
    patch.setattr(QueueSink, "_write", work)
    return partq.queue_sink(store, "q", sink_id="s").append


def into_a_queue_exactly_once(store: str, work: Work, patch: pytest.MonkeyPatch) -> Foreach:
    patch.setattr(QueueSink, "_deliver_once", work)
    return partq.queue_sink(store, "q", exactly_once=True)


def into_a_delta_table(store: str, work: Work, patch: pytest.MonkeyPatch) -> Foreach:
    patch.setattr(delta_sink, "micro_batch", work)
    return partq.delta_sink(Path(store, "table"))


def from_a_topic(store: str, work: Work, patch: pytest.MonkeyPatch) -> Foreach:
    return TopicSink(Store.at(store), "q", "s", ["v"], cast(Callable[[], Topic], work))


@pytest.mark.parametrize("made", [into_a_queue, into_a_queue_exactly_once, into_a_delta_table, from_a_topic])
def test_one_micro_batch_at_a_time(
    store: str, monkeypatch: pytest.MonkeyPatch, made: Callable[[str, Work, pytest.MonkeyPatch], Foreach]
) -> None:
    """Q5: each query calls the sink in a thread of its own."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    work = Work()
    sink = made(store, work, monkeypatch)
    batch = mock.MagicMock()  # of no query
    batch.sparkSession.sparkContext.getLocalProperty.return_value = None
    found = in_parallel([lambda: sink(batch, 0)] * 2)
    assert [type(error) for error in found] == [InterruptedError] * 2  # one that fails lets the next one begin
    assert not work.met.is_set()
