"""What is refused as a replica: places, queues, groups and tables that are none (S7)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.core.stored import MALFORMED
from spark_partq.storage.inspect import replicas
from spark_partq.storage.procedures.replicate import Replicator, replicate
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import ReplicaTable, check_apart
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.replicas import (
    group_of,
    messages,
    put,
    queue_fixture,  # noqa: F401
    sync,
    there_fixture,  # noqa: F401
)
from tests.storage.log.tables import MemoryFilesElsewhere


def listing(location: str) -> list[str]:
    return sorted(map(str, Path(location).rglob("*"))) if location else []


def refused(store: str, location: str, match: str, error: type[partq.PartqError] = partq.ReplicaError) -> None:
    """Nothing is written on either side."""
    before = queue_state(Store.at(store), "q"), listing(location)
    with pytest.raises(error, match=match):
        replicate(Store.at(store), "q", location)
    assert (queue_state(Store.at(store), "q"), listing(location)) == before


@pytest.mark.parametrize("kind", MALFORMED)
def test_whatever_a_fact_of_its_table_raises_is_one_error(
    queue: str, there: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise kind("odd")

    sync(queue, there)
    monkeypatch.setattr("spark_partq.storage.replica.table.replay", refuse)
    with pytest.raises(
        partq.CorruptTableError, match=r"the replica table of queue 'q' in .* holds a fact that cannot be"
    ):
        ReplicaTable(Store.at(there), "q").refresh()


def test_places_that_are_the_primarys(queue: str, tmp_path: Path) -> None:
    """S7: the same place, one inside it, or around it; by whatever name."""
    (tmp_path / "link").symlink_to(queue)
    (tmp_path / "half" / "queues").parent.mkdir()
    (tmp_path / "half" / "queues").symlink_to(f"{queue}/queues")
    for location in (
        queue, f"{queue}/", f"{queue}/x/..", f"file://{queue}", str(tmp_path / "link"), f"{queue}/queues/q", f"{queue}/x",
        str(tmp_path / "link" / "x"), str(tmp_path), str(tmp_path / "half"),
    ):  # fmt: skip
        refused(queue, location, "a place of its own")


def test_places_in_a_bucket() -> None:
    """S7: which are told apart by their names alone."""
    primary = Store.over(MemoryFilesElsewhere(), uri="s3://b/storeX")
    for uri in ("s3://b/store", "s3://b/store-2", "s3://c/storeX", "gs://b/storeX"):
        check_apart(primary, Store.over(MemoryFilesElsewhere(), uri=uri), "q")
    for uri in ("s3://b/storeX/", "s3a://b/x/../storeX", "s3://b", "s3://b/storeX/queues/q/there"):
        with pytest.raises(partq.ReplicaError, match="a place of its own"):
            check_apart(primary, Store.over(MemoryFilesElsewhere(), uri=uri), "q")


def test_places_that_hold_something_else(queue: str, there: str, tmp_path: Path) -> None:
    """S7: another queue or group of that name, something that is no store, or what cannot be written."""
    partq.create_queue(there, "q", "v bigint", partitions=1)
    refused(queue, there, "holds a queue 'q' that is no replica of this queue")
    partq.delete_queue(there, "q")
    partq.create_queue(there, "other", "v bigint", partitions=1)
    Consumer(there, "i", queues=("other",))
    Consumer(queue, "i")
    refused(queue, there, "groups/g/control is no copy")
    other = str(tmp_path / "other")
    partq.create_queue(other, "q", "v bigint", partitions=1)
    third = str(tmp_path / "third")
    replicate(Store.at(other), "q", third)
    refused(queue, third, "the replica of another queue")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    refused(queue, str(tmp_path / "full"), "not a store", partq.NotAStoreError)
    refused(queue, str(tmp_path / "full" / "file"), "is a file", partq.NotAStoreError)
    refused(queue, "/proc/nowhere", "cannot be kept")
    refused(queue, "", "empty", partq.InvalidArgumentError)


def test_queues_that_have_no_replica(queue: str, there: str) -> None:
    """S7: a replica itself, and a queue that is not there."""
    sync(queue, there)
    with pytest.raises(partq.ReplicaError, match="is a replica itself"):
        replicate(Store.at(there), "q", f"{there}-2")
    assert not Path(f"{there}-2").exists()
    with pytest.raises(partq.QueueNotFoundError):
        replicate(Store.at(queue), "p", there)
    with pytest.raises(partq.NotAStoreError):
        replicas.status(Store.at(f"{there}-2"), "q")


def test_a_queue_created_again(queue: str, there: str) -> None:
    """S7: the replica of a queue that was deleted is not that of the next one of its name."""
    put(queue, 0, [1])
    sync(queue, there)
    partq.delete_queue(queue, "q")
    partq.create_queue(queue, "q", "v bigint", partitions=2)
    refused(queue, there, "the replica of another queue")
    (status,) = [s for s in [Replicator(Store.at(queue), "q", there)] if s]
    with pytest.raises(partq.ReplicaError, match="no replica of queue"):
        status.sync()
    assert messages(there, 0) == {0: 1}


def test_a_group_created_again(queue: str, there: str) -> None:
    """S7: its deletion is copied, and so is what comes after that."""
    old = Consumer(queue, "i")
    old.beat()
    sync(queue, there)
    old.expire()
    partq.delete_group(queue, "g")
    sync(queue, there)
    assert partq.list_groups(there) == []
    Consumer(queue, "i").beat()
    put(queue, 0, [1])
    sync(queue, there)
    assert group_of(there).state == group_of(queue).state and group_of(there).acks == group_of(queue).acks
    with pytest.raises(partq.ReplicaError, match="delete the group where the primary is"):
        partq.delete_group(there, "g")


def test_an_older_primary(queue: str, there: str, tmp_path: Path) -> None:
    """S7: a primary that was put back to an older state is not followed."""
    put(queue, 0, [1])
    shutil.copytree(queue, tmp_path / "old")
    put(queue, 0, [2])
    sync(queue, there)
    shutil.rmtree(f"{queue}/queues/q/partitions")
    shutil.copytree(tmp_path / "old/queues/q/partitions", f"{queue}/queues/q/partitions")
    with pytest.raises(partq.ReplicaError, match=r"no copy of|older state"):
        Replicator(Store.at(queue), "q", there).sync()
    put(queue, 0, [3])  # as many commits again, but others
    with pytest.raises(partq.ReplicaError, match="older state"):
        Replicator(Store.at(queue), "q", there).sync()
    assert messages(there, 0) == {0: 1, 1: 2}


def test_foreign_commit(queue: str, there: str) -> None:
    """S7: a replica that was written is one no more."""
    put(queue, 0, [1])
    sync(queue, there)
    replicator = Replicator(Store.at(queue), "q", there)
    replicator.sync()
    put(there, 0, [5])
    put(queue, 0, [2])
    with pytest.raises(partq.ReplicaError, match="written by something else"):
        replicator.sync()
    with pytest.raises(partq.ReplicaError, match="something else wrote to the copy"):
        sync(queue, there)
