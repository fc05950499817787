"""A primary that was put back to an older state is not followed: nothing is copied to its replica, and nothing deleted there (S7)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.storage.inspect import replicas
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica import history
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.replicas import (
    assert_equal,
    clean_log,
    faults,
    maintain,
    messages,
    put,
    queue_fixture,  # noqa: F401
    sync,
    table,
    there_fixture,  # noqa: F401
)
from tests.storage.bombs import one_text, packed, refused_for_little

PARTITION = "queues/q/partitions/partition=0"


def files(store: str) -> dict[str, bytes]:
    """All files of a store but what a pass says of itself."""
    found = {str(path.relative_to(store)): path for path in Path(store).rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.endswith("synced.json")}


class PutBack:
    """A primary of which a state is kept, and a replica that is ahead of it."""

    def __init__(self, queue: str, there: str) -> None:
        self.queue, self.there = queue, there
        put(queue, 0, range(3))
        put(queue, 1, [100])
        self.replicator = Replicator(Store.at(queue), "q", there)
        self.replicator.register()
        self.replicator.sync()
        shutil.copytree(queue, f"{queue}-kept")
        for value in range(3, 6):
            put(queue, 0, [value])
        self.replicator.sync()

    def put_back(self, folder: str = "") -> None:
        shutil.rmtree(os.path.join(self.queue, folder))
        shutil.copytree(os.path.join(f"{self.queue}-kept", folder), os.path.join(self.queue, folder))

    def refused(self, why: str) -> None:
        """By a replicator that runs, and by one that starts; and people are told."""
        before = files(self.there)
        for replicator in (self.replicator, Replicator(Store.at(self.queue), "q", self.there)):
            with pytest.raises(
                partq.ReplicaError, match=f"{why}.*older state was put back.*promote the replica by force"
            ):
                replicator.sync()
        with pytest.raises(partq.ReplicaError, match=why):
            sync(self.queue, self.there)
        assert files(self.there) == before
        (status,) = replicas.status(Store.at(self.queue), "q")
        assert status.reachable and "older state" in status.problem
        assert not replicas.in_sync(Store.at(self.queue), "q")
        assert any("its replica has another history" in fault for fault in faults(self.queue))


@pytest.fixture(name="world")
def world_fixture(queue: str, there: str) -> PutBack:
    return PutBack(queue, there)


def test_another_table_in_its_place(queue: str, there: str) -> None:
    """Its checkpoint was read, or the table went, while a pass looked."""
    partq.create_queue(there, "q", "v bigint", partitions=2)
    original, copy = (LogFolder(Store.at(store), PARTITION) for store in (queue, there))
    history.check_leads_on(original, original, original.load())
    with pytest.raises(partq.ReplicaError, match=f"{PARTITION} is another table than its copy"):
        history.check_leads_on(original, copy, original.load())
    token = history.token_at(copy, 0)
    shutil.rmtree(Path(queue, PARTITION, "_delta_log"))
    with pytest.raises(partq.ReplicaError, match=f"{PARTITION} is not there any more, and its copy .* at version 0"):
        history.check_has_version(original, copy, 0, token)


def test_a_shorter_log(world: PutBack) -> None:
    """S7: the primary ends before the copy."""
    world.put_back()
    world.refused(rf"{PARTITION} ends at version 1 and lacks version 4 of")


@pytest.mark.parametrize("commits", [3, 5])
def test_other_commits_of_the_same_number(world: PutBack, commits: int) -> None:
    """S7: as many as the copy has, which then would look as if it had everything; or more."""
    world.put_back()
    for value in range(commits):
        put(world.queue, 0, [1000 + value])
    world.refused(rf"{PARTITION} has another version 4 than")
    assert messages(world.there, 0) == {o: o for o in range(6)}


def test_commits_of_the_same_number_that_come_meanwhile(world: PutBack, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: the pass finds no such version at the primary, and then others have written one."""
    world.put_back()
    look = history.check_same_history

    def late(*about: Any) -> bool:
        found = look(*about)
        if about[0].folder == PARTITION:
            monkeypatch.setattr(history, "check_same_history", look)
            for value in range(3):
                put(world.queue, 0, [1000 + value])
        return found

    monkeypatch.setattr(history, "check_same_history", late)
    world.refused(rf"{PARTITION} has another version 4 than")


def test_a_checkpoint_that_comes_meanwhile(world: PutBack) -> None:
    """S7: the pass has read what to copy, and then an older state was put back, and went on to a checkpoint."""
    put(world.queue, 0, [6])
    copy = TableCopy(Store.at(world.queue), Store.at(world.there), PARTITION)
    steps = list(copy.steps())
    world.put_back()
    for value in range(3):
        put(world.queue, 0, [1000 + value])
    table(world.queue, 0).checkpoint()
    assert copy.apply(steps) == 1
    assert messages(world.there, 0) == {o: o for o in range(7)}


def test_one_table_alone(world: PutBack) -> None:
    """S7: nothing of the others is copied, either."""
    world.put_back(PARTITION)
    put(world.queue, 1, [101])
    world.refused(PARTITION)
    assert messages(world.there, 1) == {0: 100}


@pytest.mark.parametrize("commits", [3, 5])
def test_behind_a_clean_up(world: PutBack, commits: int) -> None:
    """S7: the version at which the copy ends is cleaned up; the messages that the checkpoint knows are others."""
    world.put_back()
    for value in range(commits):
        put(world.queue, 0, [1000 + value])
    clean_log(world.queue, PARTITION)
    put(world.queue, 0, [2000])
    clean_log(world.queue, PARTITION)
    before = set(messages(world.there, 0).items())
    with pytest.raises(partq.ReplicaError, match=f"{PARTITION} .*older state was put back"):
        world.replicator.sync()
    assert set(messages(world.there, 0).items()) == before


def test_facts_behind_a_clean_up(queue: str, there: str) -> None:
    """S7: the same of a control table, whose facts are others."""
    control = "queues/q/control"
    sync(queue, there)
    shutil.copytree(f"{queue}/{control}", f"{queue}-kept")
    partq.set_ingress(queue, "q", enabled=False)
    sync(queue, there)
    shutil.rmtree(f"{queue}/{control}")
    shutil.copytree(f"{queue}-kept", f"{queue}/{control}")
    Consumer(queue, "i")
    partq.set_ingress(queue, "q", enabled=False)
    for _ in range(2):
        partq.set_ingress(queue, "q", enabled=True)
        clean_log(queue, control)
        partq.set_ingress(queue, "q", enabled=False)
    clean_log(queue, control)
    with pytest.raises(partq.ReplicaError, match=f"{control} has another fact"):
        Replicator(Store.at(queue), "q", there).sync()
    assert not queue_state(Store.at(there), "q").groups


_COMPARED = """
from spark_partq.storage.log.folder import DamagedLog, LogFolder
from spark_partq.storage.replica.history import check_leads_on
from spark_partq.storage.store import Store
logs = [LogFolder(Store(uri), "queues/q/control") for uri in sys.argv[1:]]
newer = logs[0].load()
def compare():
    try:
        check_leads_on(*logs, newer)
    except DamagedLog as error:
        raise CorruptTableError(str(error)) from error
"""


def test_facts_that_would_take_much_memory(queue: str, there: str) -> None:
    """Bad input: a file of facts of some kilobytes, which hold gigabytes, is refused before it is read."""
    sync(queue, there)
    count = 2_000
    columns = {"seq": list(range(count)), "kind": ["x"] * count, "body": one_text("x" * (1 << 20), count)}
    bomb = packed(pa.table({**columns, "by": ["x"] * count, "at": [0] * count}))
    for file in Path(there).glob("queues/q/control/*.parquet"):
        file.write_bytes(bomb)
    assert "cannot be read (it holds more than" in refused_for_little(_COMPARED, "compare()", queue, there)


def test_a_copy_that_fell_behind_goes_on(queue: str, there: str) -> None:
    """S7: the same clean-up without anything that was put back: of partitions, facts and acknowledgements."""
    consumer = Consumer(queue, "i")
    for value in range(3):
        put(queue, 0, [value])
    replicator = Replicator(Store.at(queue), "q", there)
    replicator.register()
    replicator.sync()
    for _ in range(2):
        for value in range(20):
            put(queue, 0, [value])
            consumer.ack(0, table(queue, 0).next_offset - 1)
        maintain(queue)
        for name in ("a", "b"):
            Consumer(queue, name, group="h").leave()
        for folder in (PARTITION, "queues/q/control", "groups/g/acks", "groups/g/control", "groups/h/control"):
            if os.path.exists(f"{queue}/{folder}"):
                clean_log(queue, folder)
        Replicator(Store.at(queue), "q", there).sync()
        put(queue, 0, [7])
        clean_log(queue, PARTITION)
        replicator.sync()
    assert_equal(queue, there)


def test_what_is_put_back_during_a_pass(world: PutBack, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: each commit names the one before it, so none is copied that follows another."""
    put(world.queue, 0, [6])
    original = TableCopy.check_history

    def then_put_back(copy: TableCopy) -> None:
        original(copy)
        if copy.folder == PARTITION:
            monkeypatch.setattr(TableCopy, "check_history", original)
            world.put_back(PARTITION)
            for value in range(5):
                put(world.queue, 0, [1000 + value])

    monkeypatch.setattr(TableCopy, "check_history", then_put_back)
    with pytest.raises(partq.ReplicaError, match="follows, in version 5, another version than"):
        world.replicator.sync()
    assert messages(world.there, 0) == {o: o for o in range(6)}


@pytest.mark.parametrize("before_the_replica", [False, True])
def test_the_replica_is_promoted_instead(queue: str, there: str, before_the_replica: bool) -> None:
    """S7: by force, and the primary that was put back is fenced, also one that does not know the replica."""
    shutil.copytree(queue, f"{queue}-first")
    world = PutBack(queue, there)
    if before_the_replica:
        shutil.rmtree(f"{queue}-kept")
        os.rename(f"{queue}-first", f"{queue}-kept")
    world.put_back()
    with pytest.raises(partq.ReplicaError):
        promote(Store.at(there), "q")
    done = promote(Store.at(there), "q", force=True)
    assert done.fenced and done.problem
    assert queue_state(Store.at(queue), "q").fenced_by == there
    assert messages(there, 0) == {o: o for o in range(6)} and faults(there) == []


# ---- what people are told of two primaries
def two_primaries(queue: str, there: str) -> None:
    sync(queue, there)
    os.rename(queue, f"{queue}-away")
    promote(Store.at(there), "q")
    os.rename(f"{queue}-away", queue)


@pytest.mark.parametrize("asked", ["the primary", "the replica"])
def test_two_primaries_are_told(queue: str, there: str, asked: str) -> None:
    """S7: doctor finds a promoted replica beside a primary that nobody has fenced yet, from either side."""
    two_primaries(queue, there)
    ask: Callable[[], list[str]] = lambda: faults(queue if asked == "the primary" else there)  # noqa: E731
    (fault,) = ask()
    assert "there are two primaries" in fault and (there if asked == "the primary" else queue) in fault
    with pytest.raises(partq.QueueFencedError):
        partq.scale(queue, "q", 3)
    assert ask() == []


def test_a_replica_that_is_gone_is_told(queue: str, there: str) -> None:
    """S7: nobody could promote it."""
    sync(queue, there)
    assert diagnose(Store.at(queue)).findings == []
    os.rename(there, f"{there}-away")
    (warning,) = map(str, diagnose(Store.at(queue)).findings)
    assert f"queue q: its replica in {there} is gone" in warning and f"spark-partq replicate q --to {there}" in warning
