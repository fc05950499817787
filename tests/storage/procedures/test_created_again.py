"""Queues that are deleted, and created again under the same name, while somebody uses the one of before; on a disk and in an object store (Q1)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.errors import PartqError
from spark_partq.storage.files import Files, MemoryFiles
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.log import Conflict, strangers
from spark_partq.storage.log.entries import Entry, encode
from spark_partq.storage.procedures.batch import Batch
from spark_partq.storage.procedures.create import create_queue
from spark_partq.storage.procedures.delete import delete_queue
from spark_partq.storage.procedures.ingress import set_ingress
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.store import Store
from spark_partq.testing.faults import Crash, FaultyFiles
from tests.helpers import opened
from tests.scaled import Sink, make, messages, stored
from tests.storage.log.tables import (
    Died,
    MemoryFilesElsewhere,
    Watched,
    count,
    entries,
    entry_path,
    fresh,
    handle,
    made,
    once,
)

LOG = "queues/q/partitions/partition=0/_delta_log"


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store that does not exist yet."""
    if request.param == "disk":
        return Store(str(tmp_path / "store"))
    return Store(request.getfixturevalue("prefix"), request.getfixturevalue("s3").options)


def anew(store: Store, batches: int) -> None:
    delete_queue(store, "q")
    make(store, 1)
    new = Sink(store, sink_id="new")
    for batch in range(batches):
        new.write(batch, messages(100 + batch, 101 + batch))


def check_sound(store: Store, batches: int) -> None:
    """The queue has what was written to it, nothing else, and can be written."""
    assert stored(store) == {0: messages(100, 100 + batches)}
    assert [finding for finding in diagnose(store).findings if "no log names" not in finding.what] == []
    assert Sink(store, sink_id="new").write(batches, messages(100 + batches, 101 + batches)) == 1
    assert stored(store) == {0: messages(100, 101 + batches)}


# The old queue has versions 0 to 3, and the next one of its producer would be 4.
@pytest.mark.parametrize("batches", [0, 1, 3, 4, 6])
def test_producer_of_the_queue_of_before(place: Store, batches: int) -> None:
    """It deletes nothing of the new queue, adds nothing to it, and is told; however far the new one has come."""
    make(place, 1)
    old = Sink(place)
    for batch in range(3):
        old.write(batch, messages(batch, batch + 1))
    with pytest.raises(partq.QueueNotFoundError, match="created again"):
        old.write(3, messages(3, 5), lambda: anew(place, batches))
    with pytest.raises(partq.QueueNotFoundError, match="created again"):
        old.write(3, messages(3, 5))
    check_sound(place, batches)


@pytest.mark.parametrize("look", ["check_files", "was_forgotten"])
def test_producer_that_finishes_a_batch_of_the_queue_of_before(place: Store, look: str) -> None:
    """Q5: the batch was begun, and is finished by another process, which stands still while its files and its manifest go.

    The batch is not taken for one that is in, also where it costs a request to see that the table is another one.
    """
    make(place, 1)
    with mock.patch.object(Producer, "_commit", side_effect=Died), pytest.raises(Died):
        Sink(place).write(0, messages(0, 5))
    original = getattr(Batch, look)

    def late(*about: Any) -> Any:
        anew(place, 1)
        return original(*about)

    with mock.patch.object(Batch, look, late), pytest.raises(partq.QueueNotFoundError, match="created again"):
        Sink(place).write(0, messages(0, 5))
    check_sound(place, 1)


def test_queue_that_is_created_again_within_a_tick_of_the_clock(tmp_path: Path) -> None:
    """The first entries of both have one size and one time; who knows the former one would try again and again to commit the second."""
    store, entry = Store(str(tmp_path / "store")), tmp_path / "store" / LOG / f"{0:020d}.json"
    make(store, 1)
    table, before = opened(store).partitions[0], entry.stat()
    anew(store, 1)
    assert entry.stat().st_size == before.st_size
    os.utime(entry, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(partq.CorruptTableError, match="is another table than before"):
        table.refresh()
    check_sound(store, 1)


@pytest.mark.parametrize("batches", [0, 1, 3, 4, 6])
def test_commit_into_another_table(place: Store, batches: int) -> None:
    """Also one that nothing has looked after since the table was read."""
    make(place, 1)
    old = Sink(place)
    for batch in range(3):
        old.write(batch, messages(batch, batch + 1))
    table = old.queue.table(0)._log
    anew(place, batches)
    with pytest.raises((Conflict, partq.CorruptTableError)):
        table.commit(transactions={"partq:next": 99})
    with pytest.raises(partq.CorruptTableError, match=r"another table|another version"):
        table.refresh()
    check_sound(place, batches)


def test_control_table_of_the_queue_of_before(place: Store) -> None:
    """What was decided about the old queue is not decided about the new one."""
    make(place, 1)
    old = open_queue(place, "q")
    anew(place, 2)
    with pytest.raises(partq.QueueNotFoundError, match="created again"):
        set_ingress(old, False)
    assert open_queue(place, "q").state.ingress
    check_sound(place, 2)


def test_queue_that_is_deleted_and_not_created_again(place: Store) -> None:
    """Nothing comes back of it."""
    partq.create_queue(place, "another", "v bigint", partitions=1)
    make(place, 1)
    old = Sink(place)
    old.write(0, messages(0, 2))
    with pytest.raises(partq.QueueNotFoundError, match="deleted"):
        old.write(1, messages(2, 4), lambda: delete_queue(place, "q"))
    assert partq.list_queues(place) == ["another"]
    table = old.queue.table(0)._log
    with pytest.raises(PartqError):
        table.refresh(sure=True)
    assert not old.queue.table(0).exists()


# ---- the log alone: who puts an entry into another table's log dies before he has taken it back
def left_behind(files: Files, ahead: int = 0) -> None:
    """A log of versions 0 to 3 with an entry behind it that was made for a table of before; `ahead`: with a gap of so many."""
    old = made(files, 3 + ahead)
    watched = Watched(files, is_local=False)
    late = handle(watched)
    late.refresh()

    def replaced() -> None:
        files.delete_folder("t")
        made(files, 3)

    def die() -> None:
        raise Died

    watched.before = once("put_if_absent", entry_path(4 + ahead), replaced)
    watched.after = once("put_if_absent", entry_path(4 + ahead), die)
    with pytest.raises(Died):
        late.commit(transactions={"late": 1})
    assert entries(files) == [0, 1, 2, 3, 4 + ahead]
    del old


def test_entry_is_taken_back() -> None:
    """Who learns after his put that the log is another table's fails, and leaves it as it was."""
    files = MemoryFiles()
    made(files, 3)
    watched = Watched(files, is_local=False)
    late = handle(watched)
    late.refresh()

    def replaced() -> None:
        files.delete_folder("t")
        made(files, 3)

    watched.before = once("put_if_absent", entry_path(4), replaced)
    with pytest.raises(Conflict):
        late.commit(transactions={"late": 1})
    assert entries(files) == [0, 1, 2, 3]
    with pytest.raises(partq.CorruptTableError, match="another table"):
        late.refresh(sure=True)


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("ahead", [0, 2])
def test_entry_that_nobody_takes_back(is_local: bool, ahead: int) -> None:
    """Readers pass over it, and who needs its version removes it."""
    files = MemoryFiles()
    left_behind(files, ahead)
    snapshot = fresh(files)
    assert (snapshot.version, snapshot.transactions["next"].version) == (3, 3)
    one, other = (handle(Watched(files, is_local=is_local)) for _ in range(2))
    other.refresh()
    count(one, 3)
    assert other.refresh()
    count(other)
    assert fresh(files).transactions["next"].version == 7 and "late" not in fresh(files).transactions
    assert entries(files) == list(range(8))


def test_reader_that_knows_the_log_passes_over_it() -> None:
    """It is told of no damage while the entry is there, and sees what is committed after."""
    files = MemoryFiles()
    made(files, 3)
    reader = handle(Watched(files, is_local=False))
    reader.refresh()
    stray = Entry(
        {"engineInfo": "spark_partq", "txnId": "ff", "previousTxnId": "aa", "tableId": "another", "actionCount": 1}
    )
    files.put_if_absent(entry_path(4), encode(stray))
    assert not reader.refresh() and reader.version == 3
    count(handle(files))
    assert reader.refresh() and reader.version == 4


def test_an_entry_is_removed_by_one() -> None:
    """Who comes late does not delete what was put under the name since."""
    files = MemoryFiles()
    left_behind(files)
    slow = handle(files)
    slow.refresh()
    stray = slow.log.read(4)
    strangers.remove(slow.log, 4, stray)
    assert entries(files) == [0, 1, 2, 3]
    count(slow)
    strangers.remove(handle(files).log, 4, stray)  # he had read it before
    assert fresh(files).version == 4


def test_claim_of_a_process_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as long as the deletion may be asked for again, and no longer than others try."""
    files = MemoryFiles()
    left_behind(files)
    watched = Watched(files)
    claimant = handle(watched).log

    def die() -> None:
        raise Died

    watched.before = once("delete", entry_path(4), die)
    with pytest.raises(Died):
        strangers.remove(claimant, 4, stray := handle(files).log.read(4))
    strangers.remove(handle(files).log, 4, stray)
    assert entries(files) == [0, 1, 2, 3, 4]
    now_ms, later_s = handle(files).log.store_ms, [300]
    monkeypatch.setattr("spark_partq.storage.log.folder.LogFolder.store_ms", lambda log: now_ms() + 1_000 * later_s[0])
    strangers.remove(handle(files).log, 4, stray)
    assert entries(files) == [0, 1, 2, 3, 4]
    later_s[0] = 601
    strangers.remove(handle(files).log, 4, stray)
    assert entries(files) == [0, 1, 2, 3]


def test_late_checkpoint_of_the_table_of_before() -> None:
    """It does not stay in the new table's log."""
    files = MemoryFiles()
    made(files, 3)
    watched = Watched(files)
    old = handle(watched)

    def replaced() -> None:
        files.delete_folder("t")
        made(files, 1)

    watched.before = once("put_if_absent", f"t/_delta_log/{3:020d}.checkpoint.parquet", replaced)
    with pytest.raises(partq.CorruptTableError):
        old.checkpoint()
    assert fresh(files).version == 1 and handle(files).log.names().checkpoints == []


# ---- deletion
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
def test_deletion_that_is_interrupted_anywhere(place: Store, every: int) -> None:
    """Who opens the queue meanwhile is told that it is being deleted, or is not there, and deleting again ends it."""
    if not place.is_local:
        place = Store.over(MemoryFilesElsewhere(), uri="memory:/elsewhere")
    partq.create_queue(place, "another", "v bigint", partitions=1)
    at, over = 1, False
    while not over:
        make(place, 2)
        for batch in range(2):
            Sink(place).write(batch, messages(batch, batch + 4))
        dying = Store.over(FaultyFiles(place.files, plan={at: "crash before"}), uri=place.uri)
        try:
            delete_queue(dying, "q")
            over = True
        except Crash:
            check_refused(lambda: open_queue(place, "q").refresh(), place)
        if "q" in partq.list_queues(place):
            delete_queue(place, "q")
        assert partq.list_queues(place) == ["another"]
        at += every
    assert at > 20


def check_refused(look: Callable[[], object], place: Store) -> None:
    try:
        look()
    except (partq.QueueNotFoundError, partq.QueueNotReadyError):
        return
    control = open_queue(place, "q").control  # the deletion has not been decided yet
    assert not control.state.deleted


def test_what_a_dead_producer_left_does_not_hinder() -> None:
    """An entry, or a file, in the place of a queue that was deleted: the queue can be made, and is whole."""
    files = MemoryFilesElsewhere()
    store = Store.over(files, uri="memory:/left")
    make(store, 1)
    old: Queue = open_queue(store, "q")
    old.refresh()
    old.table(0)._log.commit(transactions={"partq:next": 0})
    entry = files.read(f"{LOG}/{1:020d}.json")
    delete_queue(store, "q")
    files.put(f"{LOG}/{1:020d}.json", entry)
    files.put("queues/q/partitions/partition=0/part-1.parquet", b"x")
    create_queue(store, "q", "k string, v bigint", "k", 1)
    assert Sink(store, sink_id="new").write(0, messages(100, 101)) == 1
    check_sound(store, 1)
