"""What maintenance takes out of the table of a partition: messages (Q8), and records of sinks that are silent (Q5)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.queue.records import KEPT_MS, BatchRecord
from spark_partq.storage.group.control import MERGE_AFTER
from spark_partq.storage.log import Conflict, DeltaLog
from tests.groups import Consumer
from tests.helpers import new_file, opened, put


@pytest.fixture
def queue(store: str) -> str:
    partq.create_queue(store, "q", "v bigint", partitions=1)
    return store


def test_a_removal_that_loses_a_race(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is decided again, by the files that are there then."""
    put(queue, 0, range(3))
    commit, ends = DeltaLog.commit, list[list[int]]()

    def late(log: DeltaLog, *arguments: object, **named: object) -> object:
        monkeypatch.setattr(DeltaLog, "commit", commit)
        put(queue, 0, range(2))
        raise Conflict

    def until(index: object) -> int:
        ends.append(np.asarray(index.end).tolist())  # type: ignore[attr-defined]
        return 1

    monkeypatch.setattr(DeltaLog, "commit", late)
    table = opened(queue).partitions[0]
    assert table.remove(until) == 3
    assert ends == [[3], [3, 5]] and (table.first_offset, table.next_offset) == (3, 5)


def test_a_removal_tells_what_was_removed(queue: str) -> None:
    """Of messages, and of facts that were merged: Delta's readers then know its size and partition without the entries before."""
    put(queue, 0, range(3))
    opened(queue).partitions[0].remove(lambda _: 1)
    for _ in range(MERGE_AFTER):
        Consumer(queue, "a").leave()
    for folder in ("queues/q/partitions/partition=0", "groups/g/control"):
        entries = sorted(Path(queue, folder, "_delta_log").glob("*.json"))
        actions = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
        added = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
        removed = [action["remove"] for action in actions if "remove" in action]
        assert removed
        for remove in removed:
            add = added[remove["path"]]
            assert (remove["size"], remove["partitionValues"]) == (add["size"], add["partitionValues"])


def test_only_the_sinks_that_are_named_are_forgotten(queue: str) -> None:
    """Another one may be silent in this table alone."""
    table = opened(queue).partitions[0]
    for sink in "ab":
        file = new_file(queue, "q", 0, {"v": pa.array([0], pa.int64())})
        table.append([file], BatchRecord(sink, 5))
    later_ms = table.store.now_ms() + 2 * KEPT_MS
    table.forget({"a"}, later_ms)
    assert [table.has(BatchRecord(sink, 5), 0) for sink in "ab"] == [False, True]
    table.forget({"a", "b"}, later_ms)
    assert not table.has(BatchRecord("b", 5), 0)
