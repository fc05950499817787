"""An exclusive queue becomes partitioned, and the other way round; what is stuck in the parent is copied (S6)."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.names import check_name
from spark_partq.core.payload.keys import partition_of
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.sink_ids import STUCK_SINK
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.procedures import copy_stuck, place, scale
from spark_partq.storage.procedures.place import key_hashes
from spark_partq.storage.queue import messages as message_files
from spark_partq.storage.queue.messages import MessageWriter
from tests.helpers import ROOT, eventually, in_parallel, opened, put
from tests.planners import Query
from tests.scaled import Crash, Reader, Sink, assert_in_order, known, make, messages, runs, stored, while_scaling


def with_stuck(store: str, partitions: int = 4, read: int = 0) -> None:
    """Queue of 10 batches of 6 messages in the parent, of which a group has read the first ones; then it became partitioned."""
    make(store, 0)
    sink = Sink(store)
    reader = Reader(store)
    for batch in range(10):
        sink.write(batch, messages(batch * 6, batch * 6 + 6))
    if read:
        reader.ack(PARENT, read)
    partq.scale(store, "q", partitions)


# ---- exclusive and back
def test_exclusive(store: str) -> None:
    """S6: one partition, one active flow, the others stand by; all messages in the order in which they were written."""
    make(store, 0)
    sink, active, standby = Sink(store), Reader(store, "a"), Reader(store, "b")
    sink.write(0, messages(0, 20))
    sink.write(1, messages(20, 40))
    assert standby.all() == [] and active.all() == messages(0, 40)
    described = partq.describe_queue(store, "q")
    assert (described.operating_partitions, [p.partition for p in described.partitions]) == (0, [PARENT])


def test_0_8_0_8(store: str) -> None:
    """S6: clients are unbound at each change; what is left is stuck, is copied, and everything is read once."""
    make(store, 0)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 30))
    reader.ack(PARENT, 10)
    found = partq.scale(store, "q", 8)
    reader.group.refresh()
    assert reader.group.state.members == {}
    assert (found.stuck, found.depth, found.operating_partitions) == (20, 0, 8)
    sink.write(1, messages(30, 50))
    assert sorted(v for _, v in reader.all()) == list(range(30, 50))
    assert partq.copy_stuck(store, "q") == 20
    assert partq.describe_queue(store, "q").stuck == 0
    assert sorted(v for _, v in reader.all()) == list(range(10, 50))
    sink.write(2, messages(50, 70))
    found = while_scaling(lambda: partq.scale(store, "q", 0), reader.turn)
    assert (found.operating_partitions, found.status, found.stuck) == (0, "Ready", 0)
    sink.write(3, messages(70, 90))
    reader.turn()
    assert sorted(v for _, v in reader.all()) == list(range(10, 90))
    assert known(store) == [PARENT]
    sink.write(4, messages(90, 100))
    assert partq.scale(store, "q", 8).stuck == 10
    assert partq.copy_stuck(store, "q") == 10  # a second time
    assert sorted(v for _, v in reader.all()) == list(range(10, 100))
    late = Reader(store, "late", group="h")
    assert set(late.all()) <= set(reader.seen)


def test_what_is_stuck_is_read_where_it_is_when_the_parent_comes_back(store: str) -> None:
    """S6: without having been copied."""
    with_stuck(store, read=7)
    reader = Reader(store)
    assert reader.all() == []
    partq.scale(store, "q", 0)
    assert reader.all() == messages(7, 60)


@pytest.mark.parametrize("mode", ["live", "drain", "delete"])
def test_nothing_is_stuck_if_all_was_acknowledged(store: str, mode: Any) -> None:
    """S6: also of several groups; the parent's files go."""
    make(store, 0)
    Sink(store).write(0, messages(0, 30))
    readers = [Reader(store, group=name) for name in ("g", "h")]
    for reader in readers:
        reader.all()
    assert partq.scale(store, "q", 4, mode).stuck == 0
    state = opened(store).state
    assert not state.stuck and opened(store).table(PARENT).index.rows.sum() == 0
    assert partq.copy_stuck(store, "q") == 0
    assert opened(store).state.revision == state.revision


def test_delete_loses_what_would_be_stuck(store: str) -> None:
    """S2, S6: of the parent as of any partition, once it is confirmed."""
    make(store, 0)
    Sink(store).write(0, messages(0, 30))
    Reader(store).ack(PARENT, 10)
    with pytest.raises(partq.InvalidArgumentError, match="lose 20 messages"):
        partq.scale(store, "q", 2, "delete")
    assert partq.scale(store, "q", 2, "delete", confirm_lost=20).stuck == 0
    assert partq.copy_stuck(store, "q") == 0 and stored(store) == {0: [], 1: []}
    reader = Reader(store)
    partq.scale(store, "q", 0)
    Sink(store).write(1, messages(30, 40))
    assert reader.all() == messages(30, 40)


# ---- copying
def test_each_key_where_a_sink_would_put_it_and_in_order(store: str) -> None:
    """S6: from the group that is furthest behind on, and behind what is in the partitions already."""
    with_stuck(store, 4, read=20)
    Reader(store, "new", group="new").leave()  # it never knew the parent
    assert partq.describe_queue(store, "q").stuck == 40
    Sink(store).write(10, messages(60, 80))
    assert partq.copy_stuck(store, "q") == 40
    found = stored(store)
    for number, rows in found.items():
        assert all(partition_of([k], ["string"], 4) == number for k, _ in rows)
        assert [v for _, v in rows if v >= 60] + [v for _, v in rows if v < 60] == [v for _, v in rows]
    assert_in_order([row for rows in found.values() for row in rows if row[1] < 60], messages(20, 60))


def test_without_a_group_all_that_is_stored(store: str) -> None:
    """S6: whoever comes reads it."""
    make(store, 0)
    Sink(store).write(0, messages(0, 30))
    assert partq.scale(store, "q", 3).stuck == 30
    assert partq.copy_stuck(store, "q") == 30
    assert_in_order(Reader(store).all(), messages(0, 30))


def test_of_several_groups_the_one_that_is_furthest_behind(store: str) -> None:
    """S6, Q8: also for what maintenance removes of the parent."""
    make(store, 0)
    sink = Sink(store)
    for batch in range(3):
        sink.write(batch, messages(batch * 10, batch * 10 + 10))
    for name, position in (("g", 25), ("h", 12)):
        Reader(store, group=name).ack(PARENT, position)
    assert partq.scale(store, "q", 2).stuck == 18
    assert partq.maintain(store)[0].removed_messages == 10
    parent = opened(store).table(PARENT)
    parent.refresh()
    assert parent.first_offset == 10
    assert partq.copy_stuck(store, "q") == 18


def test_a_group_that_joins_while_the_queue_becomes_partitioned(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S6: it attached while there was only the parent, and is to be given all of it; but it has no position yet. Nothing is removed, and all is stuck."""
    make(store, 0)
    sink, other = Sink(store), Reader(store, group="h")
    for batch in range(2):
        sink.write(batch, messages(batch * 10, batch * 10 + 10))
    other.all()
    commit = ControlTable.commit

    def late(table: ControlTable, facts: Any) -> Any:
        monkeypatch.setattr(ControlTable, "commit", commit)
        assert partq.scale(store, "q", 2).stuck == 20
        assert partq.maintain(store)[0].removed_messages == 0
        return commit(table, facts)

    monkeypatch.setattr(ControlTable, "commit", late)
    joins = Query(store, "a")
    joins.next()
    assert partq.copy_stuck(store, "q") == 20
    assert sum(end - start for start, end in joins.next().values()) == 20
    joins.leave()


def test_copies_are_new_messages(store: str) -> None:
    """S6: they are not marked, although a consumer was given the messages in the parent and did not acknowledge them."""
    make(store, 0)
    Sink(store).write(0, messages(0, 10))
    before = Query(store, "a")
    assert before.next() == {PARENT: (0, 10)}
    partq.scale(store, "q", 2)
    assert partq.copy_stuck(store, "q") == 10
    before.leave()  # else it joins again, and gets a part of the copies
    after = Query(store, "b")
    assert sum(end - start for start, end in after.next().values()) == 10
    pieces = [piece for task in after.planner.tasks(after.started, after.done) for piece in task]
    assert pieces and not any(piece.redelivered for piece in pieces)
    after.leave()


def test_every_type_of_key(store: str) -> None:
    """S6, Q2: the copies go where the key belongs; rows without a key are spread."""
    types = {
        "string": ["a", "ä東", None], "bigint": [1, -5, None], "int": [1, 2, 3], "date": [dt.date(9999, 12, 31), None, dt.date(1, 1, 1)],
        "timestamp": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None, dt.datetime(1, 1, 2, tzinfo=dt.UTC)],
        "timestamp_ntz": [dt.datetime(2024, 1, 1, 5), None, dt.datetime(1500, 1, 1)], "double": [0.5, -0.0, None],
        "decimal(30,2)": [Decimal("1.25"), None, Decimal("-7")], "binary": [b"x", b"", None], "boolean": [True, False, None],
        "struct<a:int,b:array<string>>": [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}],
    }  # fmt: skip
    columns = {f"c{n}": type_ for n, type_ in enumerate(types)}
    ddl = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    partq.create_queue(store, "q", f"{ddl}, v bigint", key=list(columns), partitions=0)
    queue = opened(store)
    schema = arrow_schema(queue.state.schema)
    keys = [{name: types[type_][n % 3] for name, type_ in columns.items()} for n in range(9)]
    keys += [{**dict.fromkeys(columns), name: keys[0][name]} for name in columns]
    rows = [{**key, "v": v} for v, key in enumerate([*keys, dict.fromkeys(columns), dict.fromkeys(columns)])]
    writer = MessageWriter(queue.store, "q", schema, list(columns), sorted_input=False)
    order = np.arange(len(rows))
    writer.write(pa.RecordBatch.from_pylist(rows, schema), order * 0 + PARENT, order)
    queue.table(PARENT).append(writer.finish(), None)
    partq.scale(store, "q", 5)
    assert partq.copy_stuck(store, "q") == len(rows)
    for number, found in stored(store, schema).items():
        for *key, v in found:
            assert key == list(rows[v].values())[:-1]
            wanted = partition_of(key, queue.state.key_types, 5)
            assert number == (v % 5 if wanted is None else wanted), rows[v]
    assert sum(map(len, stored(store, schema).values())) == len(rows)


def test_no_key(store: str) -> None:
    """S6, Q3: spread evenly."""
    partq.create_queue(store, "q", "v bigint", partitions=0)
    put(store, PARENT, range(40))
    partq.scale(store, "q", 4)
    assert partq.copy_stuck(store, "q") == 40
    found = stored(store, pa.schema([("v", pa.int64())]))
    assert {n: [v for (v,) in rows] for n, rows in found.items()} == {n: list(range(n, 40, 4)) for n in range(4)}


def test_what_cannot_be_copied(store: str) -> None:
    """S6: an exclusive queue has nothing stuck, nor has one that never was; one that is about to change is left alone."""
    make(store, 2)
    assert partq.copy_stuck(store, "q") == 0
    with pytest.raises(partq.QueueNotFoundError):
        partq.copy_stuck(store, "p")
    partq.scale(store, "q", 0)
    with pytest.raises(partq.InvalidArgumentError, match="is exclusive"):
        partq.copy_stuck(store, "q")
    Sink(store).write(0, messages(0, 10))
    partq.scale(store, "q", 2)
    queue = opened(store)
    scale.start(queue, 0, "live")
    with pytest.raises(partq.ScalingInProgressError, match="about to become exclusive"):
        partq.copy_stuck(store, "q")
    assert partq.scale(store, "q", 0).stuck == 0
    assert Reader(store).all() == messages(0, 10)


def crash(*_: object) -> None:
    raise Crash


def test_the_parent_does_not_come_back_meanwhile(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S6: else what was copied would be read there again."""
    with_stuck(store)
    with monkeypatch.context() as patch:
        patch.setattr(copy_stuck, "remove_files", crash)
        patch.setattr(copy_stuck, "Producer", crash)
        with pytest.raises(Crash):
            partq.copy_stuck(store, "q")
    with pytest.raises(partq.ScalingInProgressError, match="run copy_stuck again"):
        partq.scale(store, "q", 0)
    partq.maintain(store)
    partq.copy_stuck(store, "q")
    partq.scale(store, "q", 0)
    assert_in_order(Reader(store).all(), messages(0, 60))


def test_no_sink_can_have_its_name() -> None:
    with pytest.raises(partq.InvalidArgumentError):
        check_name("sink", STUCK_SINK)


def test_ingress_is_not_heeded(store: str) -> None:
    """S3, S6: the messages were taken already."""
    with_stuck(store)
    partq.set_ingress(store, "q", False)
    assert partq.copy_stuck(store, "q") == 60
    assert partq.describe_queue(store, "q").discarded == 0


# ---- dying, and others at the same time
def test_between_any_two_commits(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S6: run again, also after the map has changed, it copies each message once, in order."""
    with_stuck(store, 3, read=15)
    counts = iter((2, 5))
    copies = 0

    def between() -> None:
        nonlocal copies
        copies += 1
        assert partq.describe_queue(store, "q").stuck == (45 if opened(store).state.stuck else 0)
        count = next(counts, None) if copies % 7 == 3 else None
        if count is not None:
            partq.scale(store, "q", count)

    assert runs(monkeypatch, lambda: partq.copy_stuck(store, "q"), between) > 15
    assert partq.copy_stuck(store, "q") == 0
    assert not opened(store).state.stuck and partq.describe_queue(store, "q").stuck == 0
    assert sum(opened(store).table(PARENT).index.rows) == 0
    assert_in_order(Reader(store, "x", group="new").all(), messages(15, 60))


def test_several_copy_while_the_map_changes(store: str) -> None:
    """S6, S5: together they copy each message once, beside a producer."""
    with_stuck(store)
    sink = Sink(store)

    def produce() -> None:
        for batch in range(10, 14):
            sink.write(batch, messages(batch * 6, batch * 6 + 6))

    copy = [lambda: partq.copy_stuck(store, "q")] * 3
    found = in_parallel([*copy, produce, lambda: [partq.scale(store, "q", n) for n in (6, 3)]])
    assert [f for f in found if isinstance(f, BaseException)] == []
    assert 0 < sum(found[:3]) <= 60  # none counts a file that another ended
    rows = [row for part in stored(store).values() for row in part]
    assert sorted(v for _, v in rows) == list(range(84))
    seen = Reader(store, "x", group="new").all()
    assert_in_order([row for row in seen if row[1] < 60], messages(0, 60))


PROGRAM = """
import sys
import spark_partq as partq
print("begins", flush=True)
partq.copy_stuck(sys.argv[1], "q")
"""


def test_a_process_that_is_killed(store: str) -> None:
    """S6: with SIGKILL, wherever that is."""
    with_stuck(store)
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, store], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None and process.stdout.readline() == "begins\n"
    eventually(lambda: sum(map(len, stored(store).values())) >= 6 or process.poll() is not None, "a copy", every_s=0)
    process.kill()
    process.communicate()
    partq.copy_stuck(store, "q")
    assert_in_order(Reader(store, "x", group="new").all(), messages(0, 60))


def test_memory_is_bounded_by_a_row_group(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S6: a large file is read and written piece by piece."""
    make(store, 0)
    Sink(store).write(0, messages(0, 5000))
    partq.scale(store, "q", 2)
    monkeypatch.setattr(message_files, "_BATCH_BYTES", 1 << 12)
    monkeypatch.setattr(message_files, "ROW_GROUP_BYTES", 1 << 13)
    sizes: list[int] = []

    def measured(state: Any, batch: pa.RecordBatch, otherwise: Any) -> Any:
        sizes.append(batch.num_rows)
        return key_hashes(state, batch, otherwise)

    monkeypatch.setattr(place, "key_hashes", measured)
    assert partq.copy_stuck(store, "q") == 5000
    assert sum(sizes) == 5000 and max(sizes) < 1000
    assert_in_order(Reader(store).all(), messages(0, 5000))
