"""A pass stands still while its replica is removed, promoted, or follows another primary; and what a store says of itself meanwhile (S7)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue import decide
from spark_partq.storage.log import LogFolder
from spark_partq.storage.procedures import remove_replica as removals
from spark_partq.storage.procedures.delete import delete_queue
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.remove_replica import remove_replica
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.handle import open_queue, queue_state
from spark_partq.storage.replica import complete
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.store import Store
from tests.clocks import no_grace
from tests.replicas import (
    Crash,
    clean_log,
    faults,
    messages,
    put,
    sync,
    there_fixture,  # noqa: F401
)
from tests.storage.procedures.test_replicate_deleted import interrupted, of_one_group

PARTITION, CONTROL = "queues/{}/partitions/partition=0", "queues/{}/control"


@pytest.fixture(autouse=True)
def at_once() -> Any:
    """A store that cannot be reached is asked once."""
    with no_grace():
        yield


def sleep_before_put(monkeypatch: pytest.MonkeyPatch, folder: str, meanwhile: Callable[[], object]) -> list[str]:
    """Call `meanwhile` once, right before a pass puts a checkpoint into the copy of that table."""
    put_file, slept = TableCopy._put, list[str]()

    def late(copy: TableCopy, path: str, data: bytes) -> None:
        if not slept and copy.folder == folder and path.endswith(".parquet"):
            slept.append(path)
            meanwhile()
        put_file(copy, path, data)

    monkeypatch.setattr(TableCopy, "_put", late)
    return slept


def lose(store: str) -> Callable[[], None]:
    """The store cannot be reached, until the function that is returned is called."""
    os.rename(store, f"{store}-away")
    return lambda: os.rename(f"{store}-away", store)


def test_a_jump_is_announced_to_the_queue_of_its_table(store: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass of `q` copies a partition of `p`, too, which is promoted. What was announced of `q` alone is deleted with it."""
    of_one_group(store, there)
    for value in range(5, 20):
        put(store, 0, [value], queue="p")
    clean_log(store, PARTITION.format("p"))

    def meanwhile() -> None:
        remove_replica(Store.at(store), "q", there)
        delete_queue(Store.at(there), "q")
        lose(store)
        promote(Store.at(there), "p")
        put(there, 0, [100], queue="p")

    slept = sleep_before_put(monkeypatch, PARTITION.format("p"), meanwhile)
    with pytest.raises(partq.ReplicaError):
        Replicator(Store.at(store), "q", there).sync()
    assert slept and sorted(messages(there, 0, "p").values()) == [*range(5), 100] and faults(there) == []


def three(store: str, tmp_path: Path) -> tuple[str, str, str]:
    """A primary and two replicas that know each other."""
    stores = store, str(tmp_path / "second"), str(tmp_path / "third")
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, range(5))
    for _ in range(2):
        for location in stores[1:]:
            sync(store, location)
    return stores


def test_a_jump_of_the_former_primary_is_taken_back(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third store follows the second one by now, and has its messages as a whole."""
    first, second, third = three(store, tmp_path)
    for value in range(5, 40):
        put(first, 0, [value])
    clean_log(first, PARTITION.format("q"))

    def meanwhile() -> None:
        lose(first)
        promote(Store.at(second), "q")
        put(second, 0, [100])
        sync(second, third)

    slept = sleep_before_put(monkeypatch, PARTITION.format("q"), meanwhile)
    with pytest.raises(partq.ReplicaError, match="was removed while a pass copied to it"):
        Replicator(Store.at(first), "q", third).sync()
    put(second, 0, [101])
    assert slept and sync(second, third).total_lag == 0
    lose(second)
    promote(Store.at(third), "q")
    assert sorted(messages(third, 0).values()) == [*range(5), 100, 101] and faults(third) == []


def test_a_pass_of_the_former_primary_says_late_that_it_has_ended(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pass from the second store died. Half of a copy is not promoted."""
    first, second, third = three(store, tmp_path)
    has_ended, slept = complete.has_ended, list[bool]()

    def dies(copy: TableCopy, steps: Any) -> int:
        if copy.folder == CONTROL.format("q"):
            raise Crash
        return apply(copy, steps)

    apply = TableCopy.apply

    def late(*arguments: Any) -> None:
        if not slept:
            slept.append(True)
            lose(first)
            promote(Store.at(second), "q")
            put(second, 0, [100])
            with mock.patch.object(TableCopy, "apply", dies), pytest.raises(Crash):
                sync(second, third)
        has_ended(*arguments)

    monkeypatch.setattr(complete, "has_ended", late)
    Replicator(Store.at(first), "q", third).sync()
    back = lose(second)
    with pytest.raises(partq.ReplicaError, match="never ended"):
        promote(Store.at(third), "q")
    back()
    sync(second, third)
    lose(second)
    promote(Store.at(third), "q")
    assert sorted(messages(third, 0).values()) == [*range(5), 100]


@pytest.mark.parametrize("table", [PARTITION, CONTROL])
@pytest.mark.parametrize("again", [False, True])
def test_a_mirrored_checkpoint_is_taken_back(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch, table: str, again: bool
) -> None:
    """The copy is removed and deleted, and a queue of that name is created there, now or later."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    sync(store, there)
    for value in range(40):
        put(store, 0, [value])
    for enabled in (False, True) * 3:
        open_control(Store.at(store), "q").decide(lambda state, enabled=enabled: decide.set_ingress(state, enabled))  # type: ignore[misc]
    LogFolder(Store.at(store), table.format("q")).write_checkpoint()

    def meanwhile() -> None:
        remove_replica(Store.at(store), "q", there)
        delete_queue(Store.at(there), "q")
        if again:
            partq.create_queue(there, "q", "v bigint", partitions=1)

    slept = sleep_before_put(monkeypatch, table.format("q"), meanwhile)
    with pytest.raises(partq.ReplicaError, match="was removed while a pass copied to it"):
        Replicator(Store.at(store), "q", there).sync()
    assert slept
    if not again:
        partq.create_queue(there, "q", "v bigint", partitions=1)
    put(there, 0, [7])
    assert messages(there, 0) == {0: 7} and faults(there) == []


@pytest.mark.parametrize("asks", ["open", "remove", "promote"])
def test_a_store_that_had_taken_over_becomes_a_replica_again(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    """Its first pass is under way, so its own copy does not say yet that it had taken over from the first store."""
    first, second, third = three(store, tmp_path)
    fourth = str(tmp_path / "fourth")
    back, came_back = lose(first), lose(third)
    promote(Store.at(second), "q")
    sync(second, fourth)
    promote(Store.at(fourth), "q")
    delete_queue(Store.at(second), "q")
    apply, asked = TableCopy.apply, list[bool]()

    def under_way(copy: TableCopy, steps: Any) -> int:
        if not asked:
            asked.append(True)
            if asks == "promote":
                came_back()
                with pytest.raises(partq.ReplicaError, match="has taken over; use that one"):
                    promote(Store.at(third), "q")
            elif asks == "remove":
                back()
                with pytest.raises(partq.ReplicaError, match="took over from queue"):
                    remove_replica(Store.at(first), "q", second)
            else:
                back()
                with pytest.raises(partq.QueueFencedError):
                    check_primary(open_queue(Store.at(first), "q"), opening=True)
        return apply(copy, steps)

    monkeypatch.setattr(TableCopy, "apply", under_way)
    sync(fourth, second)
    assert asked


def test_a_removed_replica_takes_nothing_over_from_a_primary_that_is_there(store: str, there: str) -> None:
    """The removal died before the primary forgot the replica. Nobody insists on losing what came since."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    sync(store, there)
    with mock.patch.object(removals, "open_control", side_effect=Crash), pytest.raises(Crash):
        remove_replica(Store.at(store), "q", there)
    put(store, 0, [1])
    with pytest.raises(partq.ReplicaError, match="which is there and goes on without it"):
        promote(Store.at(there), "q", force=True)
    assert queue_state(Store.at(store), "q").fenced_by is None
    lose(store)
    assert not promote(Store.at(there), "q", force=True).fenced


def test_a_cancelled_promotion_keeps_no_other_queue_back(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had closed the tables of the group. The other queue is copied; a promotion says what is wrong before it fences anything."""
    of_one_group(store, there)
    monkeypatch.setattr("spark_partq.storage.procedures.promote.begin_groups_anew", interrupted)
    with pytest.raises(InterruptedError):
        promote(Store.at(there), "p")
    monkeypatch.undo()
    partq.remove_replica(store, "p", there, force=True)
    put(store, 0, [7], queue="q")
    with pytest.raises(partq.ReplicaError, match="group 'g' is not copied"):
        Replicator(Store.at(store), "q", there).sync()
    assert sorted(messages(there, 0, "q").values()) == [*range(5), 7]
    with pytest.raises(partq.ReplicaError, match="group 'g' is not copied"):
        promote(Store.at(there), "q")
    assert queue_state(Store.at(store), "q").fenced_by is None and put(store, 0, [8], queue="q") == 6


def test_messages_of_another_queue_are_forced_to_the_disk(store: str, there: str) -> None:
    """`durability=disk`: a pass of a queue that does not ask for it brings them. Nobody would force them later."""
    of_one_group(store, there)
    replicator = Replicator(Store.at(store), "q", there)
    replicator.sync()
    partq.alter_queue(store, "p", durability="disk")
    forced = list[int]()
    fsync = os.fsync

    def force(descriptor: int) -> None:
        forced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    with pytest.MonkeyPatch.context() as watched:
        watched.setattr(os, "fsync", force)
        put(store, 0, [7], queue="p")
        before = set(Path(there, PARTITION.format("p")).rglob("*"))
        replicator.sync()
    new = {path for path in Path(there, PARTITION.format("p")).rglob("*") if path.is_file()} - before
    assert new and {path.stat().st_ino for path in new} <= set(forced)
