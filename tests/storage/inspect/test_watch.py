"""A monitor's looks at a store: what they see, and how many requests they take."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.storage.inspect.describe_group import GroupDescription
from spark_partq.storage.inspect.watch import Sample, StoreWatch
from spark_partq.storage.log import Add
from spark_partq.storage.store import Store
from tests.clocks import wall_clock
from tests.groups import Consumer, Lasting
from tests.helpers import opened, put
from tests.storage.log.tables import Watched
from tests.versions import OLDER, needs, raise_group, raise_queue, running

PARTITIONS = 3


@pytest.fixture
def queue(store: str) -> str:
    """Queue `q` of 3 partitions with 5 messages each, which group `g` reads."""
    partq.create_queue(store, "q", "v long", partitions=PARTITIONS, rebalance_delay_ms=0)
    for number in range(PARTITIONS):
        put(store, number, range(5))
    Lasting(store, "a").ack(0, 2, delivered=4)
    return store


def without_recent(found: GroupDescription) -> dict[str, Any]:
    """What does not come from the group's last facts, nor from the clock."""
    plain = found.to_dict()
    del plain["since"], plain["warnings"]
    for member in plain["members"]:
        del member["heartbeat_age_s"]
    return plain


def assert_as_described(store: str, sample: Sample) -> None:
    assert not sample.failed
    assert [q.name for q in sample.queues] == partq.list_queues(store)
    for queue in sample.queues:
        described = partq.describe_queue(store, queue.name)
        assert queue.partitions == described.partitions
        for name in ("status", "configured_partitions", "operating_partitions", "ingress", "discarded", "stuck"):
            assert getattr(queue, name) == getattr(described, name)
    assert [g.description.group for g in sample.groups] == partq.list_groups(store)
    for group in sample.groups:
        described_ = partq.describe_group(store, group.description.group)
        assert without_recent(group.description) == without_recent(described_)


def test_each_look_is_what_the_commands_show(queue: str) -> None:
    """Also of queues and groups that are made, changed, deleted and made again meanwhile."""
    watch = StoreWatch(Store(queue))
    assert_as_described(queue, watch.look())
    b = Lasting(queue, "b")
    b.ack(1, 5)
    put(queue, 2, range(3))
    assert_as_described(queue, watch.look())
    partq.create_queue(queue, "other", "v long", partitions=2)
    Lasting(queue, "c", group="late", queues=("other", "q"))
    partq.set_ingress(queue, "q", False)
    assert_as_described(queue, watch.look())
    partq.delete_queue(queue, "other")
    assert_as_described(queue, watch.look())
    partq.create_queue(queue, "other", "v long", partitions=1)
    assert_as_described(queue, watch.look())
    partq.scale(queue, "q", 5, timeout_s=60)
    assert_as_described(queue, watch.look())
    b.leave()
    Consumer(queue, "x", group="gone").leave()
    assert_as_described(queue, watch.look())
    partq.delete_group(queue, "gone")
    assert_as_described(queue, watch.look())
    Lasting(queue, "x", group="gone")
    assert_as_described(queue, watch.look())


def test_the_oldest_message(store: str) -> None:
    """Of those that are stored, and of those that a group has not acknowledged."""
    start = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    partq.create_queue(store, "q", "v long", partitions=2)
    for seconds in (0, 10, 20):
        put(store, 0, range(5), at=start + dt.timedelta(seconds=seconds))
    consumer = Lasting(store, "a")
    watch = StoreWatch(Store(store))
    for position, age_s in ((0, 60.0), (4, 60.0), (5, 50.0), (11, 40.0), (15, 0.0)):
        consumer.ack(0, position)
        with wall_clock(start + dt.timedelta(seconds=60)):
            sample = watch.look()
        assert sample.queues[0].oldest_s == {0: 60.0, 1: 0.0}
        assert sample.groups[0].oldest_s == {("q", 0): age_s, ("q", 1): 0.0}


def test_counts_begin_with_the_first_look(queue: str) -> None:
    watch = StoreWatch(Store(queue))
    assert watch.look().groups[0].counts.rebalances == 0
    Lasting(queue, "b")
    assert watch.look().groups[0].counts.rebalances == watch.look().groups[0].counts.rebalances == 1


def test_what_cannot_be_read_does_not_hide_the_rest(queue: str) -> None:
    """A newer group hides the depth of the queue that it reads, and nothing else."""
    with running(OLDER):
        partq.create_queue(queue, "other", "v long", partitions=1)
        Lasting(queue, "c", group="late", queues=("other",))
        watch = StoreWatch(Store(queue))
        assert not watch.look().failed
        raise_group(queue, needs(2, 2), "late")
        sample = watch.look()
        assert {key: error.error_class for key, error in sample.failed.items()} == {
            ("group", "late"): "NEWER_STORE",
            ("queue", "other"): "NEWER_STORE",
        }
        assert [q.name for q in sample.queues] == ["q"] and [g.description.group for g in sample.groups] == ["g"]


def test_a_damaged_history_hides_its_group_alone(queue: str) -> None:
    partq.create_queue(queue, "other", "v long", partitions=1)
    Lasting(queue, "c", group="late", queues=("other",))  # it has not sent a heartbeat, so its last facts are read
    watch = StoreWatch(Store(queue))
    assert not watch.look().failed
    for file in Path(queue, "groups", "late", "control").glob("*.parquet"):
        file.unlink()
    sample = watch.look()
    assert sample.failed.keys() == {("group", "late")}
    assert len(sample.queues) == 2 and [g.description.group for g in sample.groups] == ["g"]


def test_a_damaged_parent_hides_its_queue_alone(queue: str) -> None:
    """S4: messages that are stuck there cannot be counted."""
    partq.create_queue(queue, "other", "v long", partitions=0)
    put(queue, -1, [1], queue="other")
    partq.scale(queue, "other", 2, timeout_s=60)
    watch = StoreWatch(Store(queue))
    assert not watch.look().failed
    (log,) = Path(queue, "queues", "other").rglob("partition=-1/_delta_log")
    newest = max(log.glob("*.json"))
    newest.with_name(f"{int(newest.stem) + 1:020d}.json").write_text("{")
    sample = watch.look()
    assert sample.failed.keys() == {("queue", "other")}
    assert [q.name for q in sample.queues] == ["q"] and [g.description.group for g in sample.groups] == ["g"]


def test_a_damaged_partition_hides_its_queue_alone(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is told, with its lag in the other queue."""
    partq.create_queue(queue, "other", "v long", partitions=1)
    put(queue, 0, range(5), queue="other")
    Lasting(queue, "c", group="late", queues=("q", "other"))
    add = Add("part-x", 1, {"base_offset": "x", "_enqueued_at": "y"}, '{"numRecords": 1}', 0, True)
    opened(queue, "other").table(0)._log.commit([add])
    sample = StoreWatch(Store(queue)).look()
    assert sample.failed.keys() == {("queue", "other")}
    late = {g.description.group: g.description for g in sample.groups}["late"]
    assert late.lag == 15 and "queue other cannot be read" in late.warnings[-1]


def test_a_queue_that_cannot_be_read_was_not_deleted(queue: str) -> None:
    """Nobody shall delete the group because of what it is told of the queue."""
    with running(OLDER):
        partq.create_queue(queue, "other", "v long", partitions=1)
        Lasting(queue, "c", group="late", queues=("q", "other"))
        raise_queue(queue, needs(2, 2), "other")
        description = {g.description.group: g.description for g in StoreWatch(Store(queue)).look().groups}["late"]
    assert "queue other cannot be read, so its lag is not known; spark-partq doctor says why" in description.warnings
    assert {(p.queue, p.lag) for p in description.partitions} == {("q", 5), ("other", None)}


def test_something_else_than_a_store(store: str) -> None:
    with pytest.raises(partq.NotAStoreError):
        StoreWatch(Store(store)).look()


# ---- what a look costs
def grow(store: str, consumer: Consumer, rounds: int) -> None:
    """Messages come and are read; now and then somebody joins anew."""
    for n in range(rounds):
        for number in range(PARTITIONS):
            put(store, number, [n])
            consumer.ack(number, opened(store).table(number).next_offset)
        if n % 10 == 0:
            consumer.start_again()
            consumer.beat()


def requests(watch: StoreWatch, files: Watched) -> int:
    files.calls.clear()
    watch.look()
    return len(files.calls)


def test_requests_do_not_grow_with_age(store: str) -> None:
    """Three to list the store, one for each table; and one for each commit since the last look, and for its rows where they are facts."""
    partq.create_queue(store, "q", "v long", partitions=PARTITIONS, rebalance_delay_ms=0)
    consumer = Lasting(store, "a")
    for rounds in (1, 20, 20):
        grow(store, consumer, rounds)
        files = Watched(Store(store).files, is_local=False)
        watch = StoreWatch(Store.over(files, uri=store))
        watch.look()
        idle = 3 + (1 + PARTITIONS) + 2
        assert [requests(watch, files) for _ in range(3)] == [idle] * 3
        put(store, 0, [1])
        consumer.ack(0, 1)
        assert requests(watch, files) == idle + 1 + 2
        assert {operation for operation, _ in files.calls} == {"read", "list_folders"}  # nothing is written


def test_requests_of_a_look_at_many(store: str) -> None:
    """Each queue adds one for its control table and one for each partition, each group two."""
    counts = []
    for n in range(1, 4):
        partq.create_queue(store, f"q{n}", "v long", partitions=PARTITIONS, rebalance_delay_ms=0)
        Lasting(store, "a", group=f"g{n}", queues=(f"q{n}",)).beat()
        files = Watched(Store(store).files, is_local=False)
        watch = StoreWatch(Store.over(files, uri=store))
        watch.look()
        counts.append(requests(watch, files))
    assert counts == [3 + n * (1 + PARTITIONS + 2) for n in (1, 2, 3)]
