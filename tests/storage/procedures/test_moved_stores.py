"""A primary or a replica that was moved or copied: no pass goes on silently, so no promotion misses the queue that is used (S7)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.replica.facts import Phase
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures import promote as procedure
from spark_partq.storage.procedures.primary import know_replica
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.remove_replica import remove_replica
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import ReplicaTable, same_place
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.replicas import (
    Crash,
    assert_equal,
    messages,
    put,
    queue_fixture,  # noqa: F401
    sync,
    there_fixture,  # noqa: F401
)
from tests.storage.log.tables import MemoryFilesElsewhere


def replica(store: str, queue: str = "q") -> ReplicaState:
    found = ReplicaTable(Store.at(store), queue).refresh()
    assert found is not None
    return found


def moved(path: str, how: str = "move") -> str:
    new = f"{path}-new"
    (shutil.copytree if how == "copy" else os.rename)(path, new)
    return new


def refused(store: str, there: str, match: str) -> None:
    """A pass is refused, whether it is the first of its process or a later one. Nothing is written on either side."""
    before = queue_state(Store.at(store), "q"), sorted(map(str, Path(there).rglob("*")))
    with pytest.raises(partq.ReplicaError, match=match):
        sync(store, there)
    with pytest.raises(partq.ReplicaError, match=match):
        Replicator(Store.at(store), "q", there).sync()
    assert (queue_state(Store.at(store), "q"), sorted(map(str, Path(there).rglob("*")))) == before


def replicate_again(store: str, there: str, queue: str = "q") -> None:
    remove_replica(Store.at(store), queue, there)
    partq.replicate(store, queue, there)


# ---- the primary
@pytest.mark.parametrize("how", ["move", "copy"])
def test_a_pass_from_another_place_of_the_primary(queue: str, there: str, how: str) -> None:
    """It is refused, and the remedy works: a planned promotion then finds all messages."""
    put(queue, 0, range(3))
    sync(queue, there)
    new = moved(queue, how)
    put(new, 0, [3])
    refused(new, there, f"follows the queue in {queue}, and not the one in {new}.*remove the replica")
    replicate_again(new, there)
    assert (replica(there).primary, replica(there).location) == (new, there)
    put(new, 0, [4])
    done = promote(Store.at(there), "q")
    assert (done.primary, done.fenced, done.problem) == (new, True, "")
    assert sorted(messages(there, 0).values()) == [0, 1, 2, 3, 4]


def test_two_copies_of_a_primary_do_not_take_turns(queue: str, there: str) -> None:
    """The one that the replica follows goes on; the other is refused, whichever it is and whether or not it has other messages."""
    put(queue, 0, range(3))
    sync(queue, there)
    new = moved(queue, "copy")
    refused(new, there, "follows the queue in")
    assert sync(queue, there).problem == ""
    replicate_again(new, there)
    for values in ([], [3]):
        if values:
            put(queue, 0, values)
        refused(queue, there, f"follows the queue in {new}, and not the one in {queue}")
        assert sync(new, there).problem == ""
    assert replica(there).primary == new


def test_a_primary_that_comes_back_to_its_old_place(queue: str, there: str) -> None:
    sync(queue, there)
    new = moved(queue)
    refused(new, there, "follows the queue in")
    os.rename(new, queue)
    put(queue, 0, [0])
    sync(queue, there)
    assert_equal(queue, there)


def test_a_copy_that_does_not_know_the_replica(queue: str, there: str) -> None:
    """It was made before the replica: nothing can be removed there."""
    new = moved(queue, "copy")
    sync(queue, there)
    refused(new, there, "to another place")


def test_names_of_one_primary(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that differ only in form, or by a link, are one place."""
    put(queue, 0, range(3))
    sync(queue, there)
    known = replica(there), queue_state(Store.at(queue), "q")
    monkeypatch.chdir(Path(queue).parent)
    os.symlink(queue, f"{queue}-link")
    names = f"{queue}/", f"file://{queue}", os.path.basename(queue), f"{queue}/../{os.path.basename(queue)}"
    for name in (*names, f"{queue}-link"):
        sync(name, there)
    sync(queue, f"{there}/")
    assert (replica(there), queue_state(Store.at(queue), "q")) == known


def test_names_of_one_place_in_a_bucket() -> None:
    store = Store.over(MemoryFilesElsewhere(), uri="s3://b/store")
    for uri in ("s3://b/store", "s3a://b/store", "s3://b/store/", "s3://b/x/../store"):
        assert same_place(store, uri)
    for uri in ("s3://c/store", "gs://b/store", "s3://b/store-2", "/b/store"):
        assert not same_place(store, uri)
    assert same_place(Store.over(MemoryFilesElsewhere(), uri="abfss://c@a/store"), "abfs://c@a/store/")


def test_a_dead_message_queue_whose_primary_was_moved(store: str, there: str) -> None:
    """A pass of another queue does not bring it up to date as before: it reports that."""
    partq.create_queue(store, "q", "v bigint", partitions=1, dead_letter_queue="dead")
    for name in ("dead", "q"):
        partq.replicate(store, name, there)
    new = moved(store)
    remove_replica(Store.at(new), "q", there)
    with pytest.raises(partq.ReplicaError, match=f"queue 'dead' in {there} follows the queue in {store}"):
        sync(new, there)
    replicate_again(new, there, "dead")
    assert sync(new, there).problem == ""
    assert [replica(there, name).primary for name in ("dead", "q")] == [new, new]


def test_two_queues_of_a_group(queue: str, there: str) -> None:
    """Each is replicated again by itself."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    Consumer(queue, "a", queues=("p", "q")).leave()
    for name in ("p", "q"):
        partq.replicate(queue, name, there)
    new = moved(queue)
    for name in ("p", "q"):
        replicate_again(new, there, name)
    put(new, 0, [1])
    put(new, 0, [2], queue="p")
    for name in ("p", "q"):
        assert promote(Store.at(there), name).fenced
    assert (messages(there, 0), messages(there, 0, "p")) == ({0: 1}, {0: 2})


@pytest.mark.parametrize("followed", [False, True])
def test_a_promoted_primary_that_was_moved(queue: str, there: str, followed: bool) -> None:
    """A standby of the first primary begins to follow it where it is; one that followed it before is refused."""
    second = f"{there}-2"
    put(queue, 0, range(3))
    for location in (there, second):
        sync(queue, location)
    promote(Store.at(there), "q")
    if followed:
        sync(there, second)
    new = moved(there)
    if followed:
        refused(new, second, f"follows the queue in {there}")
        replicate_again(new, second)
    put(new, 0, [3])
    sync(new, second)
    assert replica(second).primary == new
    assert promote(Store.at(second), "q").fenced
    assert sorted(messages(second, 0).values()) == [0, 1, 2, 3]


# ---- the replica
@pytest.mark.parametrize("how", ["move", "copy"])
def test_a_pass_to_another_place_of_the_replica(queue: str, there: str, how: str) -> None:
    """It is refused; once the primary has given the first place up, it begins anew there, and can be promoted."""
    put(queue, 0, range(3))
    sync(queue, there)
    new = moved(there, how)
    refused(queue, new, f"was made in {there}, and the queue in {queue} knows it there.*remove the replica in {there}")
    remove_replica(Store.at(queue), "q", there)
    sync(queue, new)
    assert (replica(new).location, queue_state(Store.at(queue), "q").replicas) == (new, (new,))
    put(queue, 0, [3])
    assert promote(Store.at(new), "q").fenced
    assert sorted(messages(new, 0).values()) == [0, 1, 2, 3]
    with pytest.raises(partq.QueueFencedError, match=new):
        partq.scale(queue, "q", 3)
    if how == "copy":
        assert replica(there).phase is Phase.REMOVED


@pytest.mark.parametrize("removed", [False, True])
def test_a_moved_replica_to_which_an_older_program_has_replicated(queue: str, there: str, removed: bool) -> None:
    """The primary knows it under both names, or under the new one; its table names the old one."""
    sync(queue, there)
    new = moved(there)
    know_replica(Store.at(queue), queue_state(Store.at(queue), "q"), new, replica(new).replica_id)
    if not removed:
        refused(queue, new, "was made in")
    remove_replica(Store.at(queue), "q", there)
    with pytest.raises(partq.ReplicaError, match="replicate it again"):
        promote(Store.at(new), "q")
    put(queue, 0, [0])
    sync(queue, new)
    assert queue_state(Store.at(queue), "q").replicas == (new,)
    assert promote(Store.at(new), "q").fenced


def test_a_promotion_at_another_name_of_the_replica(queue: str, there: str) -> None:
    """The machine of the standby may know it by another name than the replicator: a promotion goes on there, and loses nothing."""
    put(queue, 0, range(3))
    sync(queue, there)
    new = moved(there)
    put(queue, 0, [3])
    assert promote(Store.at(new), "q").fenced
    assert sorted(messages(new, 0).values()) == [0, 1, 2, 3]


def test_an_interrupted_promotion_of_a_replica_that_was_moved(queue: str, there: str) -> None:
    put(queue, 0, range(3))
    sync(queue, there)
    with mock.patch.object(procedure, "begin_groups_anew", side_effect=Crash), pytest.raises(Crash):
        promote(Store.at(there), "q")
    new = moved(there)
    with pytest.raises(partq.PartqError):
        sync(queue, new)
    assert promote(Store.at(new), "q").fenced


# ---- doctor
def test_doctor_names_both_places(queue: str, there: str) -> None:
    sync(queue, there)
    new = moved(queue, "copy")
    (found,) = diagnose(Store.at(new)).findings
    assert f"follows the queue in {queue}, and not the one in {new}" in found.what
    assert diagnose(Store.at(queue)).findings == []
    away = moved(there)
    (found,) = diagnose(Store.at(queue)).findings
    assert f"spark-partq replicate q --to {there} --remove" in found.remedy
    (found,) = diagnose(Store.at(away)).findings
    assert f"was made in {there}" in found.what and queue in found.remedy
