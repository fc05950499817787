"""Reads the tables of a group and of its queues as DataFrames."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import pandas as pd

from spark_partq.analysis.frames import frame_of, nullable_frame
from spark_partq.core.errors import QueueNotFoundError, QueueNotReadyError
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.inspect import group_history
from spark_partq.storage.queue.file_index import enqueued_at
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.queue.starting import runs
from spark_partq.storage.store import Store


def history(
    store: str | os.PathLike[str], group: str, *, storage_options: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Every fact of the group in order, with the columns of its control table; times in UTC. Needs no Spark.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    """
    return nullable_frame(group_history.history(Store.at(store, storage_options), group))


def acknowledgements(
    store: str | os.PathLike[str], group: str, *, storage_options: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """The acknowledgements and heartbeats that are still stored: of old ones, only the last of each partition."""
    return nullable_frame(group_history.acknowledgements(Store.at(store, storage_options), group))


def enqueued(
    store: str | os.PathLike[str], group: str, *, storage_options: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """When the messages came that are still stored in the group's queues: a row per file, with its offsets ``[first, end)``."""
    opened = Store.at(store, storage_options)
    rows = []
    for queue_id, known in open_group(opened, group).state.queues.items():
        with contextlib.suppress(QueueNotFoundError, QueueNotReadyError):
            queue = open_queue(opened, known.name)
            if queue.state.queue_id != queue_id:
                continue
            queue.refresh()
            for table in queue.partitions:
                for first, end, micros in runs(table):
                    rows.append((enqueued_at(micros), known.name, table.partition, first, end))
    return frame_of(rows, ("at", "queue", "partition", "first", "end"))
