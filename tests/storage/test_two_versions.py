"""Two releases on one store: they work side by side, until the format is raised and the older one stops."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_partq as partq
from spark_partq.core.errors import NewerStoreError
from spark_partq.core.group import acks
from spark_partq.core.group.acks import AckRow, Work, heartbeat
from spark_partq.core.group.decide import decide
from spark_partq.core.group.events import Join
from spark_partq.core.group.facts import Member
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.replica.facts import ReplicaFact
from spark_partq.storage.group import ack_table
from spark_partq.storage.group import control as group_control
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.queue import control as queue_control
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.store import Store
from tests import queries
from tests.groups import Consumer
from tests.helpers import ROOT, eventually, opened, put
from tests.scaled import Sink, make, messages
from tests.versions import NEWER, OLDER, needs, raise_group, raise_queue, running

UPGRADE = f"upgrade it to {NEWER.RELEASE} or newer"


@pytest.fixture(autouse=True)
def _older() -> Iterator[None]:
    """Where nothing else is said, this is the older program, whatever later ones know."""
    with running(OLDER):
        yield
        queries.stop_all()


def content(store: str) -> dict[str, bytes]:
    """Every file of the store."""
    return {str(path): path.read_bytes() for path in sorted(Path(store).rglob("*")) if path.is_file()}


def join_with_a_rack(store: str, instance: str) -> None:
    """A consumer of the newer program, which says of itself what the older one does not know."""
    with running(NEWER):
        table = ControlTable(Store.at(store), "g")
        table.refresh()
        group = Group(Store.at(store), "g")
        group.refresh()
        member = Member(instance, f"{instance}1", 1, 10_000, ("balanced",), ("q",))
        facts = decide(group.state, group.acks, [Join(member, {}, {})], instance)
        told = [
            replace(fact, body=json.dumps({**json.loads(fact.body or ""), "rack": 7}))
            if fact.kind == "MemberJoined"
            else fact
            for fact in facts
        ]
        table.commit(told)


def rack(store: str) -> Any:
    with running(NEWER):
        table = ControlTable(Store.at(store), "g")
        table.refresh()
        return table.state.members["b"].more


# ---- a rolling upgrade
def test_side_by_side(store: str) -> None:
    """Steps 1 to 3 of docs/upgrading.md: what the newer one makes the older one uses, and the other way round."""
    with running(NEWER):
        make(store, 2)
        newer = Sink(store, "newer")
    older = Sink(store, "older")
    for batch in range(3):
        older.write(batch, messages(20 * batch, 20 * batch + 10))
        with running(NEWER):
            newer.write(batch, messages(20 * batch + 10, 20 * batch + 20))
    consumer = Consumer(store, "a")
    join_with_a_rack(store, "b")
    consumer.ack(0, 3)
    with running(NEWER):
        partq.scale(store, "q", 3)
        Consumer(store, "c")
    consumer.beat()
    for program in (OLDER, NEWER):
        with running(program):
            assert sum(table.next_offset for table in opened(store).partitions) == 60
            assert set(Consumer(store, "a").group.state.members) == {"a", "b", "c"}
            assert diagnose(Store.at(store)).findings == []


def test_what_the_older_one_rewrites_keeps_what_the_newer_one_said(store: str) -> None:
    make(store, 1)
    with running(NEWER):
        open_control(Store.at(store), "q").commit([QueueFact("IngressDisabled", {"why": "flood"})])
    consumer = Consumer(store, "a")
    join_with_a_rack(store, "b")
    for n in range(queue_control.MERGE_AFTER + 2):
        partq.set_ingress(store, "q", n % 2 == 0)
    for _ in range(group_control.MERGE_AFTER + 2):
        consumer.group.refresh()
        consumer.start_again()
    files = [path.name for path in (Path(store) / "groups/g/control").glob("*.parquet")]
    assert any("-snapshot-" in name for name in files) and any("-history-" in name for name in files)
    assert rack(store) == {"rack": 7}
    said = [
        json.loads(row["body"])
        for row in Group(Store.at(store), "g").history()
        if row["instance"] == "b" and row["body"]
    ]
    assert said[0]["rack"] == 7
    rows = open_control(Store.at(store), "q").history()
    assert len(opened(store).control._rows.files) < queue_control.MERGE_AFTER
    assert {"why": "flood"} in [json.loads(row["body"]) for row in rows]
    # A query sends one long before the doctor misses it.
    consumer.group.acknowledge([heartbeat(consumer.incarnation, 1)])
    assert diagnose(Store.at(store)).findings == []


def test_the_older_one_ignores_what_heartbeats_tell(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And loses it when it compacts, which moves no position; the next heartbeat tells it again."""
    make(store, 1)
    put(store, 0, range(9))
    consumer, done = Consumer(store, "a"), Work(3, 90, 800)
    consumer.ack(0, 2)
    consumer.group.acknowledge([heartbeat(consumer.incarnation, 5, done)])

    def told() -> Work | None:
        group = Group(Store.at(store), "g")
        group.refresh()
        assert group.position(consumer.partition_id(0)) == group.delivered(consumer.partition_id(0)) == 2
        return group.acks.work.get(consumer.incarnation)

    def compacted(rows: Iterable[AckRow], live: Iterable[str], gone: Iterable[str]) -> list[AckRow]:
        """As it was before heartbeats told anything."""
        return acks.compacted([row if row.partition_id else AckRow(row.incarnation, row.beat) for row in rows], live)

    assert told() == done
    assert diagnose(Store.at(store)).findings == []
    with monkeypatch.context() as older:
        older.setattr(ack_table, "compacted", compacted)
        for _ in range(ack_table.COMPACT_AFTER):
            consumer.beat()
    assert told() is None
    consumer.group.acknowledge([heartbeat(consumer.incarnation, 99, done)])
    for _ in range(ack_table.COMPACT_AFTER):
        assert told() == done
        consumer.beat()


def test_the_older_one_stops_when_the_format_is_raised(store: str, tmp_path: Path) -> None:
    """Step 4 of docs/upgrading.md: a query and a sink that run, on a store that another process upgrades; then the newer one goes on where they stopped."""
    make(store, 2)
    sink, seen, checkpoint = Sink(store), list[Any](), tmp_path / "checkpoint"
    sink.write(0, messages(0, 20))
    query = queries.running(store, checkpoint, seen, group="g", instanceId="a", sessionTimeoutMs=1_000)
    eventually(lambda: len(seen) == 20, "the messages")
    raised = subprocess.run(
        [sys.executable, "-m", "tests.versions", store], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert raised.returncode == 0, raised.stderr
    eventually(lambda: not query.isActive, "its end")
    stopped = query.exception()
    assert isinstance(stopped, NewerStoreError) and UPGRADE in str(stopped)
    before = content(store)
    with pytest.raises(NewerStoreError, match=UPGRADE):
        sink.write(1, messages(20, 30))
    with pytest.raises(NewerStoreError, match=UPGRADE):
        queries.consume(store, checkpoint, group="g", instanceId="a", sessionTimeoutMs=1_000)
    assert content(store) == before
    with running(NEWER):
        Sink(store).write(1, messages(20, 30))
        rest = queries.consume(store, checkpoint, group="g", instanceId="a", sessionTimeoutMs=1_000)
        values = sorted(row.v for row in [*seen, *(row for rows in rest for row in rows)])
        assert values == sorted(set(values)) == list(range(30))
        assert diagnose(Store.at(store)).findings == []


# ---- each table
@pytest.mark.parametrize("body", [needs(1, 2), needs(2, 2), needs(1, 1, "tides")], ids=["writer", "reader", "feature"])
def test_a_process_that_has_the_table_open_writes_nothing(store: str, body: dict[str, Any]) -> None:
    make(store, 1)
    put(store, 0, range(5), column="v")
    consumer, queue = Consumer(store, "a"), opened(store)
    raise_group(store, body)
    raise_queue(store, body)
    before = content(store)

    def acknowledge() -> None:
        consumer.group.refresh()
        consumer.group.acknowledge([AckRow(consumer.incarnation, 9)])

    def vacuum() -> None:
        group = Group(Store.at(store), "g")
        group.refresh()
        group.vacuum(0)

    for write in (
        consumer.start_again,
        acknowledge,
        lambda: queue.control.decide(lambda state: [QueueFact("IngressDisabled", {})]),
        lambda: queue.control.record_removal(lambda state: {0: 5}),
        lambda: queue.control.discard(1, None),
        lambda: partq.maintain(store, "q"),
        lambda: partq.scale(store, "q", 2),
        lambda: partq.delete_queue(store, "q"),
        lambda: partq.delete_group(store, "g"),
        vacuum,
    ):
        with pytest.raises(NewerStoreError, match=UPGRADE):
            write()
    assert content(store) == before


def test_a_table_may_be_read_that_may_not_be_written(store: str) -> None:
    make(store, 1)
    Sink(store).write(0, messages(0, 5))
    Consumer(store, "a").ack(0, 2)
    raise_group(store, needs(1, 2))
    raise_queue(store, needs(1, 2))
    assert partq.describe_queue(store, "q").depth == 3
    assert partq.describe_group(store, "g").lag == 3
    assert len(queries.read(store)) == 5
    assert diagnose(Store.at(store)).findings == []


def test_a_snapshot_says_it_too(store: str) -> None:
    """Whoever starts reads no older facts."""
    make(store, 1)
    consumer = Consumer(store, "a")
    raise_group(store, needs(2, 2))
    with running(NEWER):
        for _ in range(group_control.MERGE_AFTER + 1):
            consumer.group.refresh()
            consumer.start_again()
    left = [path.name for path in Path(store).glob("groups/g/control/*-snapshot-*")]
    assert left
    with pytest.raises(NewerStoreError, match=r"the control table of group 'g' in .* needs reader version 2"):
        Group(Store.at(store), "g").refresh()


def test_the_first_fact_is_enough(store: str) -> None:
    """A queue that is newer from its beginning, with kinds of facts and fields that nobody here knows."""
    make_by_the_future(store)
    with pytest.raises(NewerStoreError, match=f"reader version 2.*{UPGRADE}"):
        open_control(Store.at(store), "q")


def make_by_the_future(store: str) -> None:
    control = queue_control.QueueControl(Store.at(store), "q")
    facts = [QueueFact("TideCreated", {**needs(2, 2), "moon": True}), QueueFact("TideTurned", {})]
    control._rows.create([queue_control._row(fact, seq, control.store.now()) for seq, fact in enumerate(facts)])


def test_a_group_with_files_of_another_kind(store: str) -> None:
    make(store, 1)
    Consumer(store, "a")
    raise_group(store, needs(2, 2))
    table = ControlTable(Store.at(store), "g")
    table._log.refresh()
    add, _ = table._disk.write([{"seq": 99, "kind": "Tide"}], table._log.version + 1, "tides")
    table._log.commit([add])
    with pytest.raises(NewerStoreError, match=UPGRADE):
        Group(Store.at(store), "g").refresh()


def test_a_replica(store: str) -> None:
    make(store, 1)
    table = ReplicaTable(Store.at(store), "q")
    body = {"replica_id": "r", "primary": "/p", "location": "/l", "queue_id": "u", **needs(1, 1)}
    table.decide(lambda _: [ReplicaFact("ReplicaOf", body)])
    with running(NEWER):
        table.decide(lambda _: [ReplicaFact("FormatRaised", needs(1, 2))])
    assert table.refresh() is not None
    with pytest.raises(NewerStoreError, match=r"the replica table of queue 'q' in .* needs writer version 2"):
        table.decide(lambda _: [ReplicaFact("Removed", {})])
    with running(NEWER):
        table.decide(lambda _: [ReplicaFact("FormatRaised", needs(2, 2))])
    with pytest.raises(NewerStoreError, match=r"the replica table of queue 'q' in .* needs reader version 2"):
        ReplicaTable(Store.at(store), "q").refresh()


def test_unknown_columns_are_ignored(store: str) -> None:
    make(store, 1)
    Consumer(store, "a").ack(0, 0)
    for path in [*Path(store).glob("queues/q/control/*.parquet"), *Path(store).glob("groups/g/*/*.parquet")]:
        table = pq.read_table(path)
        wider = table.add_column(0, "tide", pa.array(["low"] * table.num_rows))
        pq.write_table(wider, path)
    group = Group(Store.at(store), "g")
    group.refresh()
    assert set(group.state.members) == {"a"} and group.acks.beats
    assert partq.describe_queue(store, "q").status == "Ready"
