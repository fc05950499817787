"""A queue or a group is deleted while it is maintained or resized: that is told, and nothing as damage. (Q8)"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.group.handle import Group
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store
from tests.clocks import wall_clock
from tests.groups import Consumer
from tests.helpers import put
from tests.storage.procedures.test_maintain import group_at


def make(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=2)
    for number in range(2):
        put(store, number, range(5))


def beside(method: str, act: Callable[[], Any]) -> Any:
    """Do something else once, before a partition is touched."""
    original, acts = getattr(PartitionTable, method), [act]

    def hooked(table: PartitionTable, *arguments: Any) -> Any:
        if acts:
            acts.pop()()
        return original(table, *arguments)

    return mock.patch.object(PartitionTable, method, hooked)


def test_the_group_is_deleted_meanwhile(store: str) -> None:
    make(store)
    group_at(store, "g", {0: 5, 1: 5})
    with beside("remove", lambda: partq.delete_group(store, "g")):
        (report,) = partq.maintain(store, "q")
    assert report.removed_messages == 10 and report.waiting_for == ()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("method", "do"),
    [("remove", lambda store: partq.maintain(store, "q")), ("seal", lambda store: partq.scale(store, "q", 3))],
)
def test_the_queue_is_deleted_meanwhile(store: str, method: str, do: Callable[[str], Any], again: bool) -> None:
    make(store)
    group_at(store, "g", {0: 5, 1: 5})

    def act() -> None:
        partq.delete_queue(store, "q")
        if again:
            make(store)

    with beside(method, act), pytest.raises(partq.QueueNotFoundError, match="deleted"):
        do(store)


def test_a_process_stands_still_while_it_opens_a_group(store: str) -> None:
    """Files of the version that it has read about are merged and deleted meanwhile; it reads the newest one."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0)

    def decisions(count: int) -> None:
        for _ in range(count):
            Consumer(store, "a")

    decisions(20)
    for path in Path(store, "groups/g/control").glob("*.parquet"):
        os.utime(path, (time.time() - 172_800,) * 2)
    follow, acts = ControlTable._follow, [None]

    def slow(table: ControlTable, written: Mapping[str, Any]) -> bool:
        if acts:
            acts.pop()
            with wall_clock(dt.datetime.now(dt.UTC) - dt.timedelta(minutes=2)):
                decisions(60)
            Group(Store.at(store), "g")._control._log.checkpoint()
            partq.maintain(store)
        return follow(table, written)

    with mock.patch.object(ControlTable, "_follow", slow):
        assert partq.describe_group(store, "g").status == "Ready"
