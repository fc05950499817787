"""Small files that stay are put together while the queue is used: every message keeps its place and its time, whoever reads it."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures import make_segments as procedure
from spark_partq.storage.queue.file_age import FileAge
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import read_timed
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import Slice, slices
from spark_partq.storage.queue.starting import enqueued_us, first_since, runs
from tests.helpers import in_parallel, new_file, opened
from tests.planners import Query
from tests.rewrites import before_the_commit
from tests.storage.procedures.test_added_columns import make, put

HOUR = 3_600_000
Row = tuple[int, int, str, int]  # partition, offset, key, when it was enqueued (microseconds since 1970)


def ago(hours: float) -> int:
    """Microseconds since 1970, in the middle of a period if `hours` is whole."""
    now_ms = int(time.time() * 1000)
    return (now_ms // HOUR * HOUR + HOUR // 2) * 1000 - int(hours * HOUR * 1000)


def commit(store: str, keys: str, at_us: int, partition: int = 0) -> None:
    """A file of messages of these keys, a letter each, that came at that time."""
    columns = {"k": list(keys), "v": list(range(len(keys)))}
    table = opened(store).table(partition)
    table.append(
        [new_file(store, "q", partition, columns)], None, opened(store).state.generation, time_us=lambda: at_us
    )


def read(store: str, start: int = 0, end: int | None = None) -> list[Row]:
    queue, found = opened(store), []
    for table in queue.partitions:
        first, last = max(start, table.first_offset), min(end or table.next_offset, table.next_offset)
        for part in slices(queue.state, table.partition, table.index, first, last):
            found += rows_of(queue, part)
    return found


def rows_of(queue: Queue, part: Slice) -> list[Row]:
    return [
        (part.partition, part.base_offset + first + n, key, at)
        for first, rows, times in read_timed(queue.store, part, arrow_schema(queue.state.schema))
        for n, (key, at) in enumerate(zip(rows["k"].to_pylist(), times.tolist(), strict=True))
    ]


def merged(store: str) -> int:
    return partq.maintain(store, "q")[0].merged_files


def live(store: str) -> int:
    return sum(len(table.index) for table in opened(store).partitions)


def fill(store: str) -> None:
    """A queue with ten files of three hours ago and two of now."""
    make(store, partitions=1)
    for n in range(10):
        commit(store, "abc"[: 1 + n % 3], ago(3) + 1_000_000 * n)
    for n in range(2):
        commit(store, "z", ago(0) + n)


@pytest.fixture
def old(store: str) -> str:
    fill(store)
    return store


def test_a_queue_that_is_fenced_meanwhile(old: str, tmp_path: Path) -> None:
    """Its replica has taken over: nothing is put together, and nothing is counted."""
    replica = str(tmp_path / "replica")
    partq.replicate(old, "q", replica)
    queue = opened(old)
    assert partq.promote(replica, "q").fenced
    assert procedure.make_segments(queue, queue.partitions, queue.store.now_ms()) == 0


def test_messages_keep_their_places_and_times(old: str) -> None:
    before, table = read(old), opened(old).partitions[0]
    assert merged(old) == 9
    assert read(old) == before and live(old) == 3
    assert opened(old).state.format.features == ("segments",)
    described = partq.describe_queue(old, "q").partitions[0]
    assert (described.files, described.first_offset, described.next_offset) == (3, 0, table.next_offset)
    assert merged(old) == 0  # nothing is left to do


def test_other_readers_of_the_table_find_the_same_messages(old: str) -> None:
    """They have one time for all messages of a segment: that of the last."""
    before = read(old)
    merged(old)
    rows = DeltaTable(f"{old}/queues/q/partitions/partition=0").to_pyarrow_table().to_pylist()
    assert sorted((row["base_offset"] + row["_row"], row["k"]) for row in rows) == [(n, k) for _, n, k, _ in before]
    times = {row["_enqueued_at"] for row in rows if row["base_offset"] == 0}
    assert times == {dt.datetime.fromtimestamp((ago(3) + 9_000_000) / 1e6, dt.UTC)}


def test_a_checkpoint_keeps_them(old: str) -> None:
    before = read(old)
    merged(old)
    opened(old).partitions[0].checkpoint()
    for entry in Path(old, "queues/q/partitions/partition=0/_delta_log").glob("*.json"):
        entry.unlink()
    assert read(old) == before and live(old) == 3


def test_no_news_for_who_follows_the_table(old: str) -> None:
    """Delta's own streams take a file that only holds what was there for no new one."""
    merged(old)
    log = Path(old, "queues/q/partitions/partition=0/_delta_log")
    entry = next(text for path in log.glob("*.json") if "OPTIMIZE" in (text := path.read_text()))
    actions = [json.loads(line) for line in entry.splitlines()]
    changes = [action.get("add") or action.get("remove") for action in actions[1:]]
    assert len(changes) == 11 and not any(change["dataChange"] for change in changes)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.text("abcd", min_size=1, max_size=6), st.integers(0, 50)), min_size=1, max_size=8),
    st.lists(st.sampled_from(["a", "b", "merge", "column"]), max_size=5),
    st.integers(0, 40),
    st.integers(1, 40),
)
def test_any_range_stays_what_it_is(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[tuple[str, int]],
    steps: list[str],
    start: int,
    length: int,
) -> None:
    """Also when messages are deleted before and after."""
    store, at_us = str(tmp_path_factory.mktemp("store") / "store"), ago(9)
    make(store, partitions=1)
    for keys, gap in files:
        at_us += gap * HOUR * 20
        commit(store, keys, at_us)
    wanted = read(store)
    for step in steps:
        if step == "merge":
            merged(store)
        elif step == "column":
            partq.add_column(store, "q", "note string")
        else:
            partq.delete_messages(store, "q", {"k": step})
            wanted = [row for row in wanted if row[2] != step]
    assert read(store) == wanted
    assert read(store, start, start + length) == [row for row in wanted if start <= row[1] < start + length]
    assert int(opened(store).partitions[0].index.left.sum()) == len(wanted)


def test_a_time_is_found_in_the_midst(old: str) -> None:
    since = [first_since(opened(old).partitions[0], ago(3) + 1_000_000 * n) for n in range(11)]
    merged(old)
    assert [first_since(opened(old).partitions[0], ago(3) + 1_000_000 * n) for n in range(11)] == since


# ---- what stays apart
def test_never(store: str) -> None:
    make(store, partitions=1, segment_ms=None)
    for _ in range(3):
        commit(store, "a", ago(5))
    assert merged(store) == 0 and opened(store).state.format.features == ()
    partq.alter_queue(store, "q", segment_ms=60_000)
    assert merged(store) == 2


def test_none_goes_on_across_a_seal(store: str) -> None:
    """What was sealed is removed up to its cut, also if the partition comes back later."""
    make(store, partitions=2)
    for partition in range(2):
        commit(store, "ab", ago(5), partition)
        commit(store, "ab", ago(5), partition)
    partq.scale(store, "q", 1)
    partq.scale(store, "q", 2)
    for _ in range(2):
        commit(store, "cd", ago(5))
    assert merged(store) == 3
    bases = [table.index.base.tolist() for table in opened(store).partitions]
    assert bases == [[0, 4], [0]]


@pytest.mark.parametrize("when", ["after the look", "before the commit"])
def test_a_parent_that_is_copied(store: str, when: str) -> None:
    """Each of its files is a batch of the copy: put together they would be taken for the first of them."""
    make(store, partitions=0)
    query = Query(store, "a")
    for keys in ("ab", "cd", "ef"):
        commit(store, keys, ago(5), -1)
    query.next()
    query.leave()
    queue, before = opened(store), opened(store).table(-1)
    before.refresh()
    due, replace = procedure._due, PartitionTable.replace

    def sealed_behind_it(*about: Any) -> Any:
        found = due(*about)
        if when == "after the look":
            partq.scale(store, "q", 2)
        return found

    def sealed_first(table: PartitionTable, *about: Any) -> bool:
        if when == "before the commit":
            partq.scale(store, "q", 2)
        return replace(table, *about)

    with (
        mock.patch.object(procedure, "_due", sealed_behind_it),
        mock.patch.object(PartitionTable, "replace", sealed_first),
    ):
        assert procedure.make_segments(queue, queue.partitions, int(time.time() * 1000)) == 0
    assert merged(store) == 0 and partq.copy_stuck(store, "q") == 6
    assert sorted(key for *_, key, _ in read(store)) == list("abcdef")


def test_a_pass_has_an_end(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, partitions=1)
    for hours in (9, 8, 7):
        for _ in range(2):
            commit(store, "a", ago(hours))
    monkeypatch.setattr(procedure, "_MOST_BYTES_A_PASS", 1)
    assert [merged(store) for _ in range(4)] == [1, 1, 1, 0]


# ---- beside others
def between(store: str, act: Callable[[], Any]) -> int:
    """Maintain the queue, and let something happen between a segment and its commit."""
    with before_the_commit(act):
        return merged(store)


def test_producers_commit_meanwhile(old: str) -> None:
    before = read(old)
    assert between(old, lambda: put(opened(old), 7, {"k": "n", "v": 7})) == 9
    assert read(old)[:-1] == before and read(old)[-1][2] == "n" and live(old) == 4


def test_messages_are_deleted_meanwhile(old: str) -> None:
    before = read(old)
    assert between(old, lambda: partq.delete_messages(old, "q", {"k": "b"})) == 0
    assert read(old) == [row for row in before if row[2] != "b"]
    assert merged(old) == 9
    assert read(old) == [row for row in before if row[2] != "b"]


def test_it_took_too_long(old: str) -> None:
    """Maintenance might have deleted the new file before its commit."""
    real, before = PartitionTable.replace, read(old)

    def late(table: PartitionTable, paths: Any, file: Any, age: FileAge, generation: Any) -> bool:
        return real(table, paths, file, replace(age, began_s=age.began_s - age.grace_ms / 2000), generation)

    with mock.patch.object(PartitionTable, "replace", late):
        assert merged(old) == 0
    assert read(old) == before and merged(old) == 9 and read(old) == before


def test_a_replica_takes_over_meanwhile(old: str, tmp_path: Path) -> None:
    replica, before = str(tmp_path / "replica"), read(old)
    partq.replicate(old, "q", replica)
    assert between(old, lambda: partq.promote(replica, "q")) == 0
    assert read(replica) == before
    assert merged(replica) == 9 and read(replica) == before


def test_two_that_maintain_at_once(old: str) -> None:
    before = read(old)
    done = in_parallel([lambda: merged(old)] * 3)
    assert not [error for error in done if isinstance(error, BaseException)]
    assert sum(n for n in done if isinstance(n, int)) == 9 and read(old) == before


@pytest.mark.parametrize("jump", [False, True])
def test_a_replica_follows(old: str, tmp_path: Path, jump: bool) -> None:
    replica = str(tmp_path / "replica")
    partq.replicate(old, "q", replica)
    merged(old)
    commit(old, "y", ago(0) + 5)
    before = read(old)
    if jump:  # what the replica lacks is gone: it goes on from a checkpoint
        table = opened(old).partitions[0]
        table.checkpoint()
        *earlier, last = sorted(Path(old, table.folder, "_delta_log").glob("0*.*"))
        assert last.name.endswith(".json")
        for entry in earlier[:-1]:
            entry.unlink()
    partq.replicate(old, "q", replica)
    partq.promote(replica, "q")
    assert read(replica) == before and live(replica) == 4


# ---- what the log and the files say
@pytest.mark.parametrize("told", ["", "x", "-1", "1.5", "9" * 19, "9" * 5_000, "²"])
def test_a_segment_that_does_not_say_since_when(old: str, told: str) -> None:
    merged(old)
    log = Path(old, "queues/q/partitions/partition=0/_delta_log")
    path, text = next((path, text) for path in log.glob("*.json") if "OPTIMIZE" in (text := path.read_text()))
    actions: Sequence[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["tags"]["partq.since"] = told
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for hint in log.glob("*checkpoint*"):
        hint.unlink()
    with pytest.raises(partq.CorruptTableError, match="a segment has messages from"):
        read(old)


def test_a_segment_without_times(old: str) -> None:
    merged(old)
    table = opened(old).partitions[0]
    path = Path(old, table.folder, table.index.path(0))
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["_enqueued_at"]), path)
    with pytest.raises(partq.CorruptTableError, match="cannot be read"):
        read(old)


def test_times_of_a_segment_whose_last_messages_are_deleted(store: str) -> None:
    make(store, partitions=1)
    for n, keys in enumerate(["ab", "c", "zz"]):
        commit(store, keys, ago(5) + n)
    commit(store, "d", ago(0))
    assert merged(store) == 2
    partq.delete_messages(store, "q", {"k": "z"})
    table = opened(store).partitions[0]
    assert [first_since(table, ago(5) + n) for n in range(4)] == [0, 2, 5, 5]
    assert [enqueued_us(table, n) for n in (0, 1, 2, 3, 4, 5, 6)] == [*[ago(5)] * 2, *[ago(5) + 1] * 3, ago(0), None]
    assert list(runs(table)) == [(0, 2, ago(5)), (2, 5, ago(5) + 1), (5, 6, ago(0))]
    for key in "abc":
        partq.delete_messages(store, "q", {"k": key})
    table = opened(store).partitions[0]
    assert enqueued_us(table, 0) == ago(5) + 2 and list(runs(table)) == [(5, 6, ago(0))]
