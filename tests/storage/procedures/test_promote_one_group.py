"""A group whose queues are promoted one after the other, or at once: its tables are closed once, and then used (S7)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.replica.facts import Phase
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.procedures import promoted_groups
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import Replicator, replicate
from spark_partq.storage.replica import closing
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.replicas import (
    faults,
    group_of,
    put,
    queue_fixture,  # noqa: F401
    there_fixture,  # noqa: F401
    version,
)

ACKS = "groups/g/acks"
FAR = 60  # a version that the table reaches in no test


@pytest.fixture(name="both")
def both_fixture(queue: str, there: str) -> str:
    """A replica of two queues that one group reads; a pass has announced a jump of the group's acknowledgements, and died."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    Consumer(queue, "i", queues=("p", "q")).beat()
    put(queue, 0, range(500), queue="p")
    for name in ("p", "q"):
        replicate(Store.at(queue), name, there)
    replicator = Replicator(Store.at(queue), "q", there)
    replicator._copy(ACKS, ("p", "q"))
    replicator._announce(ACKS, FAR)
    os.rename(queue, f"{queue}-lost")
    return there


def used(there: str) -> Consumer:
    """The group goes on with the queue that was promoted."""
    consumer = Consumer(there, "new", queues=("p",))
    consumer.ack(0, 100, queue="p")
    return consumer


def position(there: str, consumer: Consumer) -> int | None:
    return group_of(there).position(consumer.partition_id(0, "p"))


def once_before_a_put(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Do something when a promotion is about to bring the log of the acknowledgements behind a jump."""
    put_same = closing.put_same

    def slow(files: Any, path: str, data: bytes) -> None:
        if ACKS in path:
            monkeypatch.setattr(closing, "put_same", put_same)
            do()
        put_same(files, path, data)

    monkeypatch.setattr(closing, "put_same", slow)


def promoted_meanwhile(there: str, monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
    """Then another process promotes p, and a consumer begins; which it is."""
    began: list[Consumer] = []

    def other() -> None:
        promote(Store.at(there), "p")
        began.append(used(there))

    once_before_a_put(monkeypatch, other)
    return began


def test_a_second_promotion_leaves_alone_what_is_used(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: whatever was announced; and no file goes that a consumer is about to commit."""
    promote(Store.at(both), "p")
    consumer = used(both)
    put_if_absent = DiskFiles.put_if_absent

    def promoted_first(self: DiskFiles, path: str, data: bytes) -> None:
        monkeypatch.setattr(DiskFiles, "put_if_absent", put_if_absent)  # the file is there, and the commit is to come
        before = version(both, ACKS)
        promote(Store.at(both), "q")
        assert version(both, ACKS) == before
        put_if_absent(self, path, data)

    monkeypatch.setattr(DiskFiles, "put_if_absent", promoted_first)
    consumer.ack(0, 300, queue="p")
    assert position(both, consumer) == 300 and faults(both) == []


def test_two_queues_of_a_group_are_promoted_at_once(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: the one that is slower knows the group's tables as they were before the other one's consumers began."""
    began = promoted_meanwhile(both, monkeypatch)
    promote(Store.at(both), "q")
    assert position(both, began[0]) == 100 and version(both, ACKS) > FAR and faults(both) == []


def test_a_jump_that_only_the_slower_one_knows(both: str) -> None:
    """S7: it was announced when no pass could make it any more. The mark of the first says how far its closing goes."""
    store, replica = Store.at(both), ReplicaTable(Store.at(both), "p").refresh()
    assert replica is not None
    first = replace(replica, phase=Phase.PROMOTING, incarnation="first")
    closing.close(store, ACKS, "first", [FAR])
    closing.close(store, ACKS, "second", [FAR, 2 * FAR], lambda: [first])
    assert version(both, ACKS) == FAR + 1
    closing.close(store, ACKS, "third", [2 * FAR])  # the others were cancelled
    assert version(both, ACKS) == 2 * FAR


# ---- whoever promotes and sleeps
def test_a_promotion_that_slept_while_another_process_ended_it(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: it takes back no acknowledgement of the consumers that began since."""
    began = promoted_meanwhile(both, monkeypatch)
    with pytest.raises(partq.ReplicaError, match="already promoted"):
        promote(Store.at(both), "p")
    assert position(both, began[0]) == 100 and faults(both) == []


def test_a_promotion_that_wakes_up_unbinds_nobody(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: the group is used since."""
    began: list[Consumer] = []
    groups_of = promoted_groups.groups_of

    def again(*arguments: Any) -> Any:
        found = groups_of(*arguments)
        monkeypatch.setattr(promoted_groups, "groups_of", groups_of)
        promote(Store.at(both), "p")
        began.append(used(both))
        return found

    monkeypatch.setattr(promoted_groups, "groups_of", again)
    with pytest.raises(partq.ReplicaError, match="already promoted"):
        promote(Store.at(both), "p")
    assert list(group_of(both).state.members) == ["new"] and position(both, began[0]) == 100
