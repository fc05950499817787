"""Replicas that take over: promotion, and the fence of the old primary (S7)."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.storage.files import FileAlreadyExists
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.inspect import replicas
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.procedures import promote as promotions
from spark_partq.storage.procedures.primary import check_not_superseded
from spark_partq.storage.procedures.promote import Promotion, promote
from spark_partq.storage.procedures.remove_replica import remove_replica
from spark_partq.storage.procedures.replicate import Replicator, replicate
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.closing import CLOSED
from spark_partq.storage.replica.table import replica_role
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import new_file
from tests.replicas import (
    Crash,
    age,
    assert_equal,
    clean_log,
    crashing,
    group_of,
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


def take_away(store: str) -> str:
    away = f"{store}-away"
    os.rename(store, away)
    return away


def test_promote(queue: str, there: str) -> None:
    """S7: with both alive nothing is lost: what was not copied is copied, and the primary takes no more."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(5))
    sync(queue, there)
    put(queue, 0, range(5, 9))
    put(queue, 1, [1])
    consumer.ack(0, 6)
    found = promote(Store.at(there), "q")
    assert found == Promotion("q", queue, fenced=True)
    assert replica_role(Store.at(there), "q") == "promoted"
    assert messages(there, 0) == {o: o for o in range(9)} and messages(there, 1) == {0: 1}
    assert group_of(there).position(consumer.partition_id(0)) == 6
    state = queue_state(Store.at(there), "q")
    assert (state.fenced_by, state.replicas, state.status) == (None, (), "Ready")
    assert queue_state(Store.at(queue), "q").fenced_by == there
    assert [table(queue, n).fenced for n in range(2)] == [True, True]
    assert [table(there, n).fenced for n in range(2)] == [False, False]
    copies = [LogFolder(Store.at(there), folder).load().transactions for folder in tables_of(there)]
    assert all(f"{CLOSED}/{state.incarnation}" in transactions for transactions in copies)
    left = [row for row in group_of(there).history() if row["kind"] == "MemberLeft"]
    assert [(row["instance"], row["by"]) for row in left] == [("i", "promotion")]
    with pytest.raises(partq.ReplicaError, match="already promoted"):
        promote(Store.at(there), "q")
    with pytest.raises(partq.ReplicaError, match="was promoted"):
        Replicator(Store.at(queue), "q", there).sync()
    with pytest.raises(partq.ReplicaError, match="was promoted"):
        sync(queue, there)
    with pytest.raises(partq.QueueFencedError, match="taken over"):
        replicate(Store.at(queue), "q", f"{there}-2")
    (status,) = replicas.status(Store.at(queue), "q")
    assert status.promoted
    assert put(there, 0, [9]) == 9
    reader = Consumer(there, "i")
    assert reader.group.position(reader.partition_id(0)) == 6
    reader.ack(0, 10)
    maintain(there)
    assert table(there, 0).first_offset == 10
    assert diagnose(Store.at(there)).faults == []
    assert replicate(Store.at(there), "q", f"{there}-3").total_lag == 0
    assert_equal(there, f"{there}-3")


def test_promote_without_the_primary(queue: str, there: str) -> None:
    """S7: the primary's folder is gone: what was copied is used from the acknowledged offsets; the primary comes back fenced."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(5))
    consumer.ack(0, 3)
    sync(queue, there)
    put(queue, 0, [5])
    away = take_away(queue)
    found = promote(Store.at(there), "q")
    assert found.fenced is False and queue in found.problem
    with pytest.raises(partq.ReplicaError, match="already promoted"):
        promote(Store.at(there), "q")
    assert put(there, 0, [50]) == 5
    assert group_of(there).position((queue_state(Store.at(there), "q").queue_id, 0)) == 3
    os.rename(away, queue)
    state = queue_state(Store.at(queue), "q")
    assert state.fenced_by is None
    for _ in range(2):
        with pytest.raises(partq.QueueFencedError, match="taken over"):
            check_not_superseded(Store.at(queue), state)
        state = queue_state(Store.at(queue), "q")
        assert state.fenced_by == there
    with pytest.raises(partq.ReplicaError, match="was promoted"):
        Replicator(Store.at(queue), "q", there).sync()
    assert messages(there, 0)[5] == 50


def test_a_replica_that_is_not_promoted_supersedes_nothing(queue: str, there: str) -> None:
    """S7: a primary goes on beside its replicas, also those that cannot be reached."""
    sync(queue, there)
    check_not_superseded(Store.at(queue), queue_state(Store.at(queue), "q"))
    shutil.rmtree(there)
    check_not_superseded(Store.at(queue), queue_state(Store.at(queue), "q"))
    (status,) = replicas.status(Store.at(queue), "q")
    assert not status.reachable and status.problem and not replicas.in_sync(Store.at(queue), "q")


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("alive", [True, False])
def test_promotion_interrupted_anywhere(queue: str, there: str, tmp_path: Path, alive: bool, every: int) -> None:
    """S7: a promotion that dies at any operation is finished by promoting again, and nothing is lost that could be had."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(5))
    sync(queue, there)
    put(queue, 0, [5])
    consumer.ack(0, 5 if alive else 0)
    saved = [shutil.copytree(path, tmp_path / f"saved{n}") for n, path in enumerate((queue, there))]
    for at in range(1, 400, every):
        for path, was in zip((queue, there), saved, strict=True):
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(was, path)
        if not alive:
            shutil.rmtree(queue)
        with crashing(at) as done, contextlib.suppress(Crash):
            promote(Store.at(there), "q")
        through = len(done) < at
        try:
            promote(Store.at(there), "q")
        except partq.ReplicaError:
            through_before = True
        else:
            through_before = False
        assert not through or through_before
        assert replica_role(Store.at(there), "q") == "promoted"
        assert len(messages(there, 0)) == (6 if alive else 5)
        assert queue_state(Store.at(there), "q").fenced_by is None
        assert put(there, 0, [99]) == (6 if alive else 5)
        assert diagnose(Store.at(there)).faults == []
        if through:
            return
    raise AssertionError("it never came through")


def test_a_primary_that_comes_back_in_the_middle_of_a_promotion(
    queue: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S7: it was taken for lost, so what it had was not copied: whoever promotes again is told of each such message."""
    put(queue, 0, range(5))
    sync(queue, there)
    put(queue, 0, [5, 6])
    put(queue, 1, [7])
    away = take_away(queue)
    with monkeypatch.context() as patch:
        patch.setattr(promotions, "_close", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            promote(Store.at(there), "q")
    os.rename(away, queue)
    found = promote(Store.at(there), "q")
    assert found.fenced and "not copied: partition 0 from 5 to 6, partition 1 from 0 to 0. Read them" in found.problem
    with pytest.raises(partq.QueueFencedError):
        check_not_superseded(Store.at(queue), queue_state(Store.at(queue), "q"))
    assert len(messages(there, 0)) == 5 and put(there, 0, [50]) == 5


def test_two_promote_at_once(queue: str, there: str) -> None:
    """S7: of several that promote, one has done it."""
    put(queue, 0, range(5))
    sync(queue, there)
    code = (
        "import sys; from spark_partq.storage.procedures.promote import promote; from spark_partq.storage.store import Store\n"
        "sys.stdin.readline(); promote(Store.at(sys.argv[1]), 'q')"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, there], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    results = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        results.append((process.communicate()[1], process.returncode))
    assert sorted(code for _, code in results) == [0, 1, 1], results
    assert all("already promoted" in text for text, code in results if code)
    assert put(there, 0, [5]) == 5
    assert diagnose(Store.at(there)).faults == []


def test_a_pass_that_sleeps_through_the_promotion(queue: str, there: str) -> None:
    """S7: what a pass had still on its way is refused by each table, also where nobody has written since."""
    consumer = Consumer(queue, "i")
    consumer.beat()
    put(queue, 0, range(5))
    sync(queue, there)
    put(queue, 0, [5])
    consumer.ack(0, 6)
    files = Store.at(queue), Store.at(there)
    folders = ["queues/q/partitions/partition=0", "groups/g/acks"]
    copies = [TableCopy(*files, folder) for folder in folders]
    steps = [list(copy.steps()) for copy in copies]
    take_away(queue)
    promote(Store.at(there), "q")
    before = [version(there, folder) for folder in folders]
    for copy, left in zip(copies, steps, strict=True):
        assert left
        with pytest.raises(partq.ReplicaError, match="promoted"):
            copy.apply(left)
    assert [version(there, folder) for folder in folders] == before
    assert diagnose(Store.at(there)).faults == []


def test_a_jump_that_sleeps_through_the_promotion(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: a jump that was announced and not made is refused after the promotion, whatever was written since."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(100))
    consumer.ack(0, 1)
    sync(queue, there)
    for n in range(20):
        consumer.ack(0, n + 2)
    clean_log(queue, "groups/g/acks")
    held: list[tuple[DiskFiles, str, bytes]] = []
    put_if_absent = DiskFiles.put_if_absent

    def hold(self: DiskFiles, path: str, data: bytes) -> None:
        if "checkpoint" in path:
            held.append((self, path, data))
            raise Crash
        put_if_absent(self, path, data)

    monkeypatch.setattr(DiskFiles, "put_if_absent", hold)
    with pytest.raises(Crash):
        sync(queue, there)
    monkeypatch.setattr(DiskFiles, "put_if_absent", put_if_absent)
    take_away(queue)
    promote(Store.at(there), "q")
    reader = Consumer(there, "i")
    reader.ack(0, 50)
    ((files, path, data),) = held
    with pytest.raises(FileAlreadyExists):
        files.put_if_absent(path, data)
    assert group_of(there).position(reader.partition_id(0)) == 50
    assert diagnose(Store.at(there)).faults == []


def test_no_jump_is_made_after_the_promotion(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: a jump that was not announced in time is given up."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(50))
    consumer.ack(0, 1)
    sync(queue, there)
    for n in range(20):
        consumer.ack(0, n + 2)
    clean_log(queue, "groups/g/acks")
    announce = Replicator._announce

    def late(self: Replicator, folder: str, version: int) -> None:
        monkeypatch.setattr(Replicator, "_announce", announce)
        take_away(queue)
        promote(Store.at(there), "q")
        announce(self, folder, version)

    monkeypatch.setattr(Replicator, "_announce", late)
    with pytest.raises(partq.ReplicaError, match="was promoted"):
        Replicator(Store.at(queue), "q", there).sync()
    assert group_of(there).position(consumer.partition_id(0)) == 1
    assert diagnose(Store.at(there)).faults == []


def test_nothing_is_deleted_after_the_promotion(queue: str, there: str) -> None:
    """S7: a pass that wakes up after the promotion deletes nothing of what is written since."""
    sync(queue, there)
    copy = Replicator(Store.at(queue), "q", there)._copy("queues/q/partitions/partition=0", ("q",))
    promote(Store.at(there), "q")
    pending = Path(there) / copy.folder / new_file(there, "q", 0, {"v": pa.array([1], pa.int64())}).path
    age(pending.parent, "*.parquet")
    with pytest.raises(partq.ReplicaError, match="was promoted"):
        copy.tidy()
    assert pending.exists()


def test_files_whose_commits_never_came(queue: str, there: str) -> None:
    """S7: a pass that died after it had copied a group's files leaves nothing that looks like a damaged group."""
    consumer = Consumer(queue, "i")
    consumer.beat()
    sync(queue, there)
    consumer.leave()
    for _ in range(3):
        consumer.start_again()
        consumer.beat()
    replicator = Replicator(Store.at(queue), "q", there)
    for part in ("acks", "control"):
        assert list(replicator._copy(f"groups/g/{part}", ("q",)).steps())
    found = diagnose(Store.at(there))
    assert found.faults == [] and "a pass has not ended" in str(found.findings)
    take_away(queue)
    promote(Store.at(there), "q")
    assert diagnose(Store.at(there)).faults == []


def test_removals_that_came_before_their_floors(queue: str, there: str) -> None:
    """S7, Q8: messages that the primary removed as acknowledged are below the group's floor after the promotion."""
    consumer = Consumer(queue, "i")
    for n in range(5):
        put(queue, 0, [n])
    consumer.ack(0, 1)
    sync(queue, there)
    consumer.ack(0, 4)
    maintain(queue)
    replicator = Replicator(Store.at(queue), "q", there)
    copy = replicator._copy("queues/q/partitions/partition=0", ("q",))
    copy.apply(copy.steps())  # and there the pass died
    away = take_away(queue)
    found = promote(Store.at(there), "q")
    assert found.floors == (("g", 0, 1, 4),)
    assert group_of(there).position(consumer.partition_id(0)) == 4 == table(there, 0).first_offset
    assert diagnose(Store.at(there)).faults == []
    assert Path(away).exists()


def test_fenced_by_another_replica(queue: str, there: str) -> None:
    """S7: of two replicas one takes over; the other is told which."""
    sync(queue, there)
    sync(queue, f"{there}-2")
    promote(Store.at(there), "q")
    for force in (False, True):
        with pytest.raises(partq.ReplicaError, match=f"another replica of queue 'q', {there}, has taken over"):
            promote(Store.at(f"{there}-2"), "q", force=force)
    with pytest.raises(partq.QueueFencedError):
        Replicator(Store.at(queue), "q", f"{there}-2").sync()


def test_promote_refused(queue: str, there: str) -> None:
    """S7: what is no replica, or was never whole, or was removed, is not promoted."""
    with pytest.raises(partq.ReplicaError, match="no replica"):
        promote(Store.at(queue), "q")
    with pytest.raises(partq.NotAStoreError):
        promote(Store.at(there), "q")
    Replicator(Store.at(queue), "q", there).register()
    away = take_away(queue)
    with pytest.raises(partq.ReplicaError, match="never ended"):
        promote(Store.at(there), "q")
    os.rename(away, queue)
    sync(queue, there)
    remove_replica(Store.at(queue), "q", there)
    with pytest.raises(partq.ReplicaError, match="was removed"):
        promote(Store.at(there), "q")
    assert replica_role(Store.at(there), "q") == "replica"


def test_promote_beside_a_damaged_primary(queue: str, there: str) -> None:
    """S7: a primary that is there and cannot be copied needs force, and nothing but what the replica has is used."""
    put(queue, 0, [0])
    sync(queue, there)
    put(queue, 0, [1])
    found = table(queue, 0)
    (Path(queue) / found.folder / found.index.path(1)).unlink()
    way_back = f"fenced by now; to use it again: spark-partq --store {queue} replicate q --to {there} --remove --force"
    with pytest.raises(partq.ReplicaError, match=rf"then promote with force: .*{re.escape(way_back)}$"):
        promote(Store.at(there), "q")
    assert replica_role(Store.at(there), "q") == "replica"
    done = promote(Store.at(there), "q", force=True)
    assert done.fenced and "which is not there" in done.problem
    assert put(there, 0, [9]) == 1
