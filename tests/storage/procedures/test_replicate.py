"""Replicas: what follows a queue, and how far it is (S7)."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pytest
from deltalake import DeltaTable

import spark_partq as partq
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.files import FileAlreadyExists
from spark_partq.storage.inspect import replicas
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.log.folder import CLEAN_UP_EVERY
from spark_partq.storage.procedures.keep_replicas import keep_replicas
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import Replicator, replicate
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.replica import table_copy
from spark_partq.storage.replica.complete import SyncReport
from spark_partq.storage.replica.table import ReplicaTable, replica_role
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import new_file
from tests.replicas import (
    READS,
    Crash,
    age,
    assert_equal,
    assert_usable,
    clean_log,
    crashing,
    group_of,
    grow,
    log_names,
    maintain,
    messages,
    put,
    queue_fixture,  # noqa: F401
    sync,
    table,
    tables_of,
    there_fixture,  # noqa: F401
    version,
)
from tests.spark.test_object_store import bucket  # noqa: F401


def test_follows(queue: str, there: str) -> None:
    """S7: a replica has the same tables, versions and bytes; a pass copies only what is new."""
    put(queue, 0, range(5))
    consumer = Consumer(queue, "i")
    consumer.ack(0, 3)
    first = sync(queue, there)
    assert (first.location, first.reachable, first.promoted, first.total_lag) == (there, True, False, 0)
    assert_equal(queue, there)
    put(queue, 0, range(5, 9))
    put(queue, 1, [7])
    consumer.ack(0, 6)
    (behind,) = replicas.status(Store.at(queue), "q")
    assert behind.lag == {0: 4, 1: 1} and not replicas.in_sync(Store.at(queue), "q")
    replicator = Replicator(Store.at(queue), "q", there)
    assert replicator.sync() == SyncReport(3, {0: 0, 1: 0})
    assert_equal(queue, there)
    assert replicator.sync().commits == 0
    assert replicas.in_sync(Store.at(queue), "q")
    (status,) = replicas.status(Store.at(queue), "q")
    assert (status.generation, status.unread) == (0, 4)
    assert status.synced_at is not None and abs(dt.datetime.now(dt.UTC) - status.synced_at) < dt.timedelta(minutes=1)
    assert messages(there, 0) == {o: o for o in range(9)}
    assert replica_role(Store.at(queue), "q") == "primary" and replica_role(Store.at(there), "q") == "replica"


def test_a_pass_over_nothing_new_is_a_look(queue: str, there: str) -> None:
    """S7: some looks at the log of each table, and no listing but those of partitions and manifests; the cost of k commits is that of k."""
    put(queue, 0, range(5))
    Consumer(queue, "i").ack(0, 3)
    replicator = Replicator(Store.at(queue), "q", there)
    replicator.register()
    replicator.sync()
    with crashing(10**9) as done:
        replicator.sync()
    assert done == ["put"]  # when the pass ended
    logs = len(tables_of(queue))
    with crashing(10**9, READS) as done:
        replicator.sync()
    listings = 2 + 3  # where the queue is opened; of manifests
    assert done.count("info") <= 5 * logs and done.count("list_files") <= listings
    costs = []
    for k in (10, 40):
        for n in range(k):
            put(queue, 0, [n])
        with crashing(10**9) as done:
            assert replicator.sync().commits == k
        costs.append(len(done))
    assert costs[1] < 5 * costs[0]


def test_in_sync_knows_what_was_decided(queue: str, there: str) -> None:
    """S7: a change of the partition count is in sync when the replica has it."""
    sync(queue, there)
    grow(queue)
    assert not replicas.in_sync(Store.at(queue), "q")
    assert sync(queue, there).generation == 1
    assert replicas.in_sync(Store.at(queue), "q")
    assert table(there, 2).next_offset == 0
    assert_equal(queue, there)


def test_goes_on_at_a_checkpoint(queue: str, there: str) -> None:
    """S7: what fell behind further than the primary's log reaches goes on at a checkpoint, and its log does not grow."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(1000))
    for n in range(5):
        consumer.ack(0, n + 1)
    sync(queue, there)
    for n in range(5, 250):
        consumer.ack(0, n + 1)
    clean_log(queue, "groups/g/acks")
    assert min(log_names(queue, "groups/g/acks")) > f"{100:020d}"
    sync(queue, there)
    assert version(queue, "groups/g/acks") == version(there, "groups/g/acks")
    assert group_of(there).position(consumer.partition_id(0)) == 250
    assert len(log_names(there, "groups/g/acks")) <= len(log_names(queue, "groups/g/acks")) + 1
    about = ReplicaTable(Store.at(there), "q").refresh()
    assert about is not None and list(about.jumps) == ["groups/g/acks"]
    consumer.ack(0, 300)
    sync(queue, there)
    assert group_of(there).position(consumer.partition_id(0)) == 300


def test_log_of_the_copy_does_not_grow(queue: str, there: str) -> None:
    """S7: checkpoints are taken over, and what the primary drops of its log is dropped."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(2000))
    replicator = Replicator(Store.at(queue), "q", there)
    replicator.register()
    for n in range(450):
        consumer.ack(0, n + 1)
        if n % 10 == 0:
            replicator.sync()
        if n % 90 == 0:
            age(Path(queue) / "groups/g/acks/_delta_log", "*.json")  # behind a newest checkpoint that is young
    replicator.sync()
    mine, theirs = log_names(queue, "groups/g/acks"), log_names(there, "groups/g/acks")
    assert len(theirs) < CLEAN_UP_EVERY + 50 and len(theirs) <= len(mine) + 100
    assert any("checkpoint" in name for name in theirs)
    assert_equal(queue, there)


def test_far_behind(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: whoever is very far behind takes a checkpoint and what is live, not every commit."""
    monkeypatch.setattr(table_copy, "MAX_COMMITS", 20)
    sync(queue, there)
    for n in range(60):
        put(queue, 0, [n])
    consumer = Consumer(queue, "i")
    consumer.ack(0, 60)
    maintain(queue)
    sync(queue, there)
    assert table(there, 0).next_offset == 60 and messages(there, 0) == {}
    assert version(queue, "queues/q/partitions/partition=0") == version(there, "queues/q/partitions/partition=0")
    put(queue, 0, [60])
    sync(queue, there)
    assert messages(there, 0) == {60: 60}
    assert_usable(queue, there)


def test_files_that_were_deleted_before_they_were_copied(queue: str, there: str) -> None:
    """S7: commits whose files are gone at the primary are passed over in one step."""
    put(queue, 0, [0])
    sync(queue, there)
    for n in range(1, 5):
        put(queue, 0, [n])
    Consumer(queue, "i").ack(0, 4)
    maintain(queue)
    assert len(messages(queue, 0)) == 1
    for at in range(1, 400, 5):
        with crashing(at) as done, contextlib.suppress(Crash):
            sync(queue, there)
        assert_usable(queue, there)
        if len(done) < at:
            break
    assert_equal(queue, there)


def test_deleted_files_are_deleted_there(queue: str, there: str) -> None:
    """S7: the replica's folders do not grow: what the primary deleted goes, what is live or new stays."""
    for n in range(4):
        put(queue, 0, [n])
    sync(queue, there)
    consumer = Consumer(queue, "i")
    consumer.ack(0, 3)
    folder = Path(there) / "queues/q/partitions/partition=0"
    (folder / "_copying_of_a_killed_process").write_bytes(b"half")
    maintain(queue)
    sync(queue, there)
    assert len(list(folder.glob("part-*.parquet"))) == 4, "younger than an hour"
    age(Path(there) / "queues/q/partitions", "*")
    put(queue, 0, [4])
    new = Path(there) / "queues/q/partitions/partition=0/part-new.parquet"
    new.write_bytes(b"of a commit to come")
    consumer.ack(0, 4)
    maintain(queue)
    sync(queue, there)
    left = sorted(p.name for p in folder.glob("*") if p.is_file())
    live = sorted(Path(u).name for u in DeltaTable(str(folder)).file_uris())
    assert left == sorted([*live, new.name])
    assert_equal(queue, there)


def test_damage_is_not_copied(queue: str, there: str) -> None:
    """S7: a file that is not what the log says stops the pass, and the replica stays as it is."""
    put(queue, 0, [0])
    sync(queue, there)
    put(queue, 0, [1, 2])
    found = table(queue, 0)
    path = Path(queue) / found.folder / found.index.path(1)
    good = path.read_bytes()
    for bad, message in ((good + b"x", "bytes instead of"), (b"x" * len(good), "no Parquet file"), (None, "not there")):
        path.unlink(missing_ok=True)
        if bad is not None:
            path.write_bytes(bad)
        with pytest.raises(partq.CorruptTableError, match=message):
            sync(queue, there)
        assert messages(there, 0) == {0: 0}
        assert diagnose(Store.at(there)).faults == []
    path.write_bytes(good)
    sync(queue, there)
    assert messages(there, 0) == {0: 0, 1: 1, 2: 2}


def test_a_damaged_copy_is_told_from_a_damaged_original(queue: str, there: str) -> None:
    """S7: it is not to be promoted, so the advice is another one."""
    put(queue, 0, [0])
    sync(queue, there)
    log = sorted(Path(there, table(there, 0).folder, "_delta_log").glob("*.json"))
    log[-1].write_bytes(b"x")
    with pytest.raises(partq.CorruptTableError, match=f"the log of {there}.*, or replicate to another place"):
        sync(queue, there)


def test_queues_of_one_group(queue: str, there: str) -> None:
    """S7: a group's positions never lie past the messages of any queue of it that has its replica there."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    consumer = Consumer(queue, "i", queues=("p", "q"))
    primary = Store.at(queue)
    replicate(primary, "p", there)
    replicate(primary, "q", there)
    put(queue, 0, range(9), queue="p")
    put(queue, 0, range(3))
    consumer.ack(0, 8, queue="p")
    consumer.ack(0, 3)
    sync(queue, there)
    assert diagnose(Store.at(there)).faults == []
    assert group_of(there).position(consumer.partition_id(0, "p")) == 8
    assert table(there, 0, "p").next_offset == 9
    promote(Store.at(there), "p")
    consumer.ack(0, 9, queue="p")
    put(queue, 0, range(4))
    sync(queue, there)  # q goes on, but the group is used there
    assert table(there, 0).next_offset == 7
    assert group_of(there).position(consumer.partition_id(0, "p")) == 8


def test_what_a_group_does_during_a_pass_comes_with_the_next(queue: str, there: str) -> None:
    """S7: else its position could lie past the messages of this one."""
    put(queue, 0, range(3))
    consumer = Consumer(queue, "i")
    consumer.ack(0, 3)
    apply = table_copy.TableCopy.apply

    def meanwhile(copy: table_copy.TableCopy, steps: Iterable[table_copy.Step]) -> int:
        moved = apply(copy, steps)
        if copy.folder.endswith("partition=0") and table(queue, 0).next_offset == 3:
            put(queue, 0, range(3, 9))
            consumer.ack(0, 9)
        return moved

    with mock.patch.object(table_copy.TableCopy, "apply", meanwhile):
        sync(queue, there)
    assert table(queue, 0).next_offset == 9
    assert group_of(there).position(consumer.partition_id(0)) == table(there, 0).next_offset == 3


def test_replicas_are_kept(queue: str, there: str) -> None:
    """S7: pass after pass; an error is told once and the loop goes on."""
    replicator = Replicator(Store.at(queue), "q", there)
    replicator.register()
    seen: list[SyncReport] = []
    errors: list[partq.PartqError] = []
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 1:
            put(queue, 0, [1])
        if len(waits) == 2:
            os.rename(there, f"{there}-away")
        if len(waits) == 4:
            os.rename(f"{there}-away", there)
        return len(waits) == 6

    keep_replicas([replicator], 0.5, wait, lambda _, synced: seen.append(synced), errors.append)
    assert [s.commits > 0 for s in seen] == [True, True, False, False]
    assert len(errors) == 1 and waits == [0.5] * 6
    assert [s.total_lag for s in seen] == [0] * 4
    os.rename(there, f"{there}-away")
    with pytest.raises(partq.ReplicaError):
        keep_replicas([replicator], 0, wait, lambda *_: None)


@pytest.mark.parametrize(
    "folder", ["queues/q/partitions/partition=0", "queues/q/control", "groups/g/control", "groups/g/acks"]
)
@pytest.mark.parametrize("entry", ['{"add": null}\n', '{"add": {"path": null}}\n', "null\n", "x"])
def test_damage_ends_no_loop(queue: str, there: str, folder: str, entry: str) -> None:
    """S7: an entry of the primary that cannot be is told once; once it is put right, the same loop catches up."""
    consumer = Consumer(queue, "i")
    replicator = Replicator(Store.at(queue), "q", there)
    replicator.register()
    whole: dict[Path, bytes] = {}
    seen: list[tuple[int, int]] = []
    errors: list[partq.PartqError] = []
    passes = 0

    def wait(seconds: float) -> bool:
        nonlocal passes
        passes += 1
        if passes == 1:
            put(queue, 0, [1, 2])
            consumer.ack(0, 1)
            partq.set_ingress(queue, "q", False)
            Consumer(queue, "j")
            damaged = max(Path(queue, folder, "_delta_log").glob("*.json"))
            whole[damaged] = damaged.read_bytes()
            damaged.write_text(entry)
        if passes == 4:
            for path, data in whole.items():
                path.write_bytes(data)
        return passes == 6

    keep_replicas([replicator], 0, wait, lambda _, synced: seen.append((passes, synced.total_lag)), errors.append)
    assert [type(error) for error in errors] == [partq.CorruptTableError] and folder in str(errors[0])
    assert seen == [(0, 0), (4, 0), (5, 0)]
    assert_equal(queue, there)
    assert messages(there, 0) == {0: 1, 1: 2}


def test_object_store(queue: str, bucket: tuple[str, dict[str, str]]) -> None:  # noqa: F811
    """S7: a replica in a bucket, and one of that in another folder of it."""
    uri, options = bucket
    consumer = Consumer(queue, "i")
    put(queue, 0, range(5))
    consumer.ack(0, 3)
    status = replicate(Store.at(queue), "q", uri, options=options)
    assert (status.total_lag, status.reachable) == (0, True)
    put(queue, 1, [1])
    for _ in range(120):
        consumer.beat()
    clean_log(queue, "groups/g/acks")
    replicate(Store.at(queue), "q", uri, options=options)
    bucket_store = Store.at(uri, options)
    assert diagnose(bucket_store).faults == []
    assert promote(bucket_store, "q").fenced
    with pytest.raises(partq.ReplicaError, match="a place of its own"):
        replicate(bucket_store, "q", f"{uri}/x/../y")
    second = f"{uri}-2"
    assert replicate(bucket_store, "q", second).total_lag == 0
    assert diagnose(Store.at(second, options)).faults == []
    bucket_store.files.put_if_absent("x", b"1")
    with pytest.raises(FileAlreadyExists):
        bucket_store.files.put_if_absent("x", b"2")


def test_a_manifest_that_is_put_late(queue: str, there: str) -> None:
    """S7: of two queries with one sink's id the slow one leaves a manifest of a batch that is over; the replica goes on."""
    producer = Producer(open_queue(Store.at(queue), "q"))

    def write(batch: int) -> None:
        producer.refresh()
        record = BatchRecord("s", batch, "prompt")
        producer.write(record, lambda: [new_file(queue, "q", 0, {"v": [batch]})], lambda: 1)

    write(0)
    sync(queue, there)
    (manifest,) = Path(queue).glob("queues/q/manifests/*/*.json")
    late = manifest.read_bytes().replace(b"prompt", b"slow")
    write(1)
    assert not manifest.exists()
    manifest.write_bytes(late)
    sync(queue, there)
    assert messages(there, 0) == {0: 0, 1: 1}
