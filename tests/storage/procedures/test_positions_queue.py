"""What becomes of messages goes into another queue, each once, whatever befalls the consumers and the queue (H4, Q5)."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue.records import KEPT_MS
from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.procedures.delete import delete_queue
from spark_partq.storage.procedures.maintain import maintain
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.procedures.rewrites import MAX_REWRITES
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store
from spark_partq.testing.faults import CHANGES, Crash, FaultyFiles
from tests.clocks import no_grace
from tests.helpers import opened
from tests.relays import Relay, arrived, manifests, put_void_batch, told
from tests.scaled import Sink, make, messages, scale, stored


def numbers(*ranges: tuple[int, int, int]) -> list[int]:
    """Of partitions, as (number, start, end)."""
    return sorted(1000 * p + i for p, start, end in ranges for i in range(start, end))


# ---- consumers
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("fault", ["crash before", "crash after", "landed", "repeated"])
def test_something_goes_wrong_at_any_operation(fault: str, every: int) -> None:
    """Another consumer delivers more, in other micro-batches: each message is in once, those of a partition in order."""
    failures = () if fault == "repeated" else (Crash, partq.StoreUnavailableError, partq.CommitFailedError)
    store = Store.over(MemoryFiles())
    make(store, 2)
    Relay(store).deliver({0: (0, 5)})
    at, last, over = 1, 5, False
    while not over:
        files = FaultyFiles(store.files, plan={at: fault}, names=CHANGES)
        with contextlib.suppress(*failures):
            Relay(Store.over(files, uri=store.uri)).deliver({0: (last, last + 10), 1: (last, last + 10)})
            over = files.count < at
        Relay(store).deliver({0: (last, last + 4), 2: (last, last + 4)})
        Relay(store).deliver({0: (last, last + 12), 1: (5, last + 12), 2: (last, last + 12)})
        at, last = at + every, last + 12
    assert arrived(store) == numbers((0, 0, last), (1, 5, last), (2, 5, last))
    assert at > 30


def test_two_consumers_at_once(store: str) -> None:
    """Who comes second leaves out what the first has written, and neither loses what the other does not have."""
    make(store, 2)
    other = Relay(store)
    relay = Relay(store, meanwhile=lambda: other.deliver({0: (0, 7), 1: (0, 3)}))
    assert relay.deliver({0: (0, 10)})
    assert relay.written == [{0: (0, 10)}, {0: (7, 10)}]
    assert arrived(store) == numbers((0, 0, 10), (1, 0, 3))
    assert not other.deliver({0: (2, 10)}) and other.written == [{0: (0, 7), 1: (0, 3)}]


def test_a_commit_of_others_costs_no_other_file(store: str) -> None:
    make(store, 2)
    other = Relay(store)
    relay = Relay(store, meanwhile=lambda: other.deliver({1: (0, 3)}))
    assert relay.deliver({0: (0, 10)})
    assert relay.written == [{0: (0, 10)}] and arrived(store) == numbers((0, 0, 10), (1, 0, 3))


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_zombie_whose_number_was_given_and_deleted(store: str, monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """It wakes when it is about to put its manifest, and others have written that batch and later ones: what they have does not get in, the rest does."""
    make(store, 2)
    Relay(store).deliver({0: (0, 3)})
    zombie, add = Relay(store), Producer.add

    def late(producer: Producer, *args: object) -> bool:
        monkeypatch.setattr(Producer, "add", add)
        for i in range(batches):
            Relay(store).deliver({0: (3 * i + 3, 3 * i + 6)})
        return add(producer, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Producer, "add", late)
    zombie.deliver({0: (0, 4), 1: (0, 2)})
    assert arrived(store) == numbers((0, 0, 3 * batches + 3), (1, 0, 2))


def test_sinks_of_groups(store: str) -> None:
    """Each group has its own positions, and each of its sinks."""
    make(store, 2)
    relays = [
        Relay(store, "g"),
        Relay(store, "h"),
        Relay(store, "g", "a"),
        Relay(store, "h", "a"),
        Relay(store, "g", "b"),
    ]
    for _ in range(2):
        for relay in relays:
            relay.deliver({0: (0, 4)})
    assert arrived(store, in_order=False) == sorted(5 * numbers((0, 0, 4)))
    assert {name.sink_id for name in manifests(store).names()} == {"_group.g", "_group.h", "_sink.a", "_sink.b"}


@pytest.mark.parametrize("sink_id", ["_group.g", "_sink.a", "_stuck"])
def test_a_sink_of_a_user_is_none_of_them(store: str, sink_id: str) -> None:
    make(store, 2)
    with pytest.raises(partq.InvalidArgumentError, match="cannot name a sink"):
        partq.queue_sink(store, "q", sink_id=sink_id)
    sink = Sink(store, sink_id="g")
    Relay(store).deliver({0: (0, 4)})
    assert sink.write(0, messages(10, 12)) == 2 and Sink(store, sink_id="g").write(0, messages(10, 12)) == 0
    assert arrived(store) == [*range(4), 10, 11]


# ---- what is lost
def half_of_a_batch(store: str) -> None:
    """Batch 1 dies when its manifest is put."""
    relay = Relay(store)
    relay.deliver({0: (0, 5)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Producer, "_commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            relay.deliver({0: (5, 10)})


def test_a_manifest_that_is_lost(store: str) -> None:
    """Nobody knows what is in, and each is told so, also who has it in mind; nothing is written."""
    make(store, 2)
    relay = Relay(store)
    relay.deliver({0: (0, 5)})
    (name,) = manifests(store).names()
    kept = Path(store, manifests(store).path(name))
    data = kept.read_bytes()
    kept.unlink()
    for consumer in (relay, Relay(store)):
        with pytest.raises(partq.CorruptTableError, match=r"'_group\.g'.* is missing: .*Restore it from a backup"):
            consumer.deliver({0: (0, 10)})
    kept.write_bytes(data)
    for consumer in (relay, Relay(store)):
        consumer.deliver({0: (0, 10)})
    assert arrived(store) == list(range(10))


def test_an_older_manifest_in_its_place(store: str) -> None:
    make(store, 2)
    relay = Relay(store)
    relay.deliver({0: (0, 5)})
    (name,) = manifests(store).names()
    data = Path(store, manifests(store).path(name)).read_bytes()
    relay.deliver({0: (5, 10)})
    (last,) = manifests(store).names()
    Path(store, manifests(store).path(last)).rename(Path(store, "kept"))
    Path(store, manifests(store).path(name)).write_bytes(data)
    for consumer in (relay, Relay(store)):
        with pytest.raises(partq.CorruptTableError, match="is missing"):
            consumer.deliver({0: (0, 10)})
    Path(store, "kept").rename(Path(store, manifests(store).path(last)))
    assert not Relay(store).deliver({0: (0, 10)}) and arrived(store) == list(range(10))


def test_a_queue_is_put_back_to_before_the_first_batch(store: str) -> None:
    """No table knows of the batch any more, and a consumer that goes on does."""
    make(store, 2)
    shutil.copytree(store, f"{store}-kept")
    relay = Relay(store)
    relay.deliver({0: (0, 5)})
    shutil.rmtree(store)
    os.rename(f"{store}-kept", store)
    with pytest.raises(partq.CorruptTableError, match=r"'_group\.g'.* is missing: .*Restore it from a backup"):
        relay.deliver({0: (0, 10)})
    assert arrived(store) == []


def test_a_manifest_of_messages_that_were_all_discarded_is_lost(store: str) -> None:
    """What it says is in the queue's count alone."""
    make(store, 2, reject_to_sender="off")
    partq.set_ingress(store, "q", False)
    Relay(store).deliver({0: (0, 5)})
    partq.set_ingress(store, "q", True)
    (name,) = manifests(store).names()
    Path(store, manifests(store).path(name)).unlink()
    with pytest.raises(partq.CorruptTableError, match="is missing"):
        Relay(store).deliver({0: (0, 5)})


def test_tables_that_were_put_back(store: str) -> None:
    """Q5: the last batch is void, and the tables lack the batch before it: then nobody knows which messages are in the queue."""
    make(store, 2)
    before = shutil.copytree(f"{store}/queues/q/partitions", f"{store}-before")
    Relay(store).deliver({0: (0, 5)})
    shutil.rmtree(f"{store}/queues/q/partitions")
    Path(before).rename(f"{store}/queues/q/partitions")
    put_void_batch(store, 1, 10)
    tried = itertools.count()
    add = Producer.add

    def at_most_once(*arguments: Any) -> bool:
        assert next(tried) < 2, "the sink tries it for ever"
        return add(*arguments)

    with (
        mock.patch.object(Producer, "add", at_most_once),
        pytest.raises(partq.CorruptTableError, match="Restore it from a backup"),
    ):
        Relay(store).deliver({0: (0, 5)})


def test_a_queue_that_is_deleted_and_created_again(store: str) -> None:
    """Who has the one of before is told so, not that something is damaged; who opens the new one writes it from the beginning."""
    make(store, 2)
    relay = Relay(store)
    relay.deliver({0: (0, 5)})
    names = relay.target._manifests.of_sink

    def late(sink_id: str) -> object:
        relay.target._manifests.of_sink = names  # type: ignore[method-assign]
        delete_queue(Store(store), "q")
        make(store, 2)
        return names(sink_id)

    relay.target._manifests.of_sink = late  # type: ignore[method-assign,assignment]
    for _ in range(2):
        with pytest.raises(partq.QueueNotFoundError):
            relay.deliver({0: (0, 10)})
    assert arrived(store) == []
    Relay(store).deliver({0: (0, 10)})
    assert arrived(store) == list(range(10))


# ---- files that are too old
def slow(relay: Relay, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Writing takes longer than files may wait, so many times."""
    runtime, late = relay.queue.store.runtime, [0.0]
    clock, left = runtime.monotonic_s, [times]

    def tick() -> None:
        left[0] -= 1
        if left[0] >= 0:
            late[0] += relay.queue.state.settings.vacuum_grace_ms / 1000

    relay._meanwhile = tick
    monkeypatch.setattr(type(runtime), "monotonic_s", lambda _: clock() + late[0])


def test_files_that_are_too_old_are_written_again(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, 2)
    relay = Relay(store)
    slow(relay, monkeypatch, MAX_REWRITES)
    assert relay.deliver({0: (0, 5)})
    assert len(relay.written) == MAX_REWRITES + 1 and arrived(store) == list(range(5))


def test_files_that_are_too_old_again_and_again(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with an error; the next micro-batch has as many tries."""
    make(store, 2)
    relay = Relay(store)
    slow(relay, monkeypatch, 2 * MAX_REWRITES + 1)
    with pytest.raises(partq.CommitFailedError, match=f"were written {MAX_REWRITES + 1} times"):
        relay.deliver({0: (0, 5)})
    assert arrived(store) == []
    assert relay.deliver({0: (0, 5)}) and arrived(store) == list(range(5))


# ---- the queue changes
@pytest.mark.parametrize("partitions", [5, 1, 0])
def test_the_map_changes_when_a_batch_is_durable(store: str, partitions: int) -> None:
    """What is placed again keeps the positions: the next manifest of the batch has them."""
    make(store, 3)
    half_of_a_batch(store)
    before = told(store)
    scale(store, partitions)
    assert not Relay(store).deliver({0: (0, 10)})
    assert told(store) == before and max(manifests(store).names()).number == 1
    assert arrived(store) == list(range(10))
    assert Relay(store).deliver({0: (0, 20)}) and arrived(store) == list(range(20))


def test_the_map_changes_in_the_midst_of_a_batch(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, 4)
    append, left = PartitionTable.append, [1]

    def once(table: PartitionTable, *args: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return append(table, *args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(PartitionTable, "append", once)
        with pytest.raises(KeyboardInterrupt):
            Relay(store).deliver(dict.fromkeys(range(4), (0, 10)))
    assert 0 < len(arrived(store)) < 40
    there = tuple(number for number, rows in sorted(stored(store).items()) if rows)
    scale(store, 7)
    Relay(store).deliver({})
    last = manifests(store).read(max(manifests(store).names()))
    assert (dict(last.placed), last.generation, last.name.number) == ({0: there}, 1, 1)
    Relay(store).deliver({0: (5, 15)})
    assert arrived(store) == numbers((0, 0, 15), *((p, 0, 10) for p in range(1, 4)))


def test_the_map_changes_before_a_batch_is_durable(store: str) -> None:
    make(store, 2)
    counts = iter((5, 1))
    relay = Relay(store, meanwhile=lambda: scale(store, next(counts)))
    for i in range(2):
        assert relay.deliver({0: (0, 10 * i + 10)})
    assert arrived(store) == list(range(20))


# ---- ingress
def test_what_is_discarded_is_counted_once_and_does_not_come_again(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, 2, reject_to_sender="off")
    partq.set_ingress(store, "q", False)
    with monkeypatch.context() as patch:
        patch.setattr(Producer, "_discard", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Relay(store).deliver({0: (0, 5)})
    assert partq.describe_queue(store, "q").discarded == 0
    Relay(store).deliver({0: (0, 8)})
    partq.set_ingress(store, "q", True)
    Relay(store).deliver({0: (0, 10)})
    assert partq.describe_queue(store, "q").discarded == 8 and arrived(store) == [8, 9]


@pytest.mark.parametrize("rejects", ["including_when_shutdown", "off"])
def test_ingress_is_disabled_when_files_are_written(store: str, rejects: str) -> None:
    """Another consumer commits in between, so there is time to see it: nothing is stored."""
    make(store, 2, reject_to_sender=rejects)
    other = Relay(store)

    def meanwhile() -> None:
        if other.deliver({1: (0, 3)}):
            partq.set_ingress(store, "q", False)

    relay = Relay(store, meanwhile=meanwhile)
    if rejects == "off":
        assert relay.deliver({0: (0, 5)})
    else:
        with pytest.raises(partq.IngressDisabledError):
            relay.deliver({0: (0, 5)})
    assert arrived(store) == numbers((1, 0, 3))
    assert partq.describe_queue(store, "q").discarded == (5 if rejects == "off" else 0)


def test_ingress_is_enabled_when_messages_are_counted(store: str) -> None:
    make(store, 2, reject_to_sender="off")
    partq.set_ingress(store, "q", False)
    other = Relay(store)

    def meanwhile() -> None:
        if other.deliver({1: (0, 3)}):
            partq.set_ingress(store, "q", True)

    assert Relay(store, meanwhile=meanwhile).deliver({0: (0, 5)})
    assert arrived(store) == list(range(5)) and partq.describe_queue(store, "q").discarded == 3


# ---- long after
def test_nothing_is_forgotten_after_30_days(store: str) -> None:
    """Neither the last manifest nor the records, while other sinks write."""
    make(store, 2)
    half_of_a_batch(store)
    name = max(manifests(store).names())
    os.utime(Path(store, manifests(store).path(name)), (0, 0))
    later_ms = 2 * KEPT_MS
    sink = Sink(store, sink_id="another")
    for i in range(3):
        sink.write(i, messages(100 * i + 100, 100 * i + 120))
    with no_grace(), pytest.MonkeyPatch.context() as patch:
        runtime = type(opened(store).store.runtime)
        time_ns = runtime.time_ns
        patch.setattr(runtime, "time_ns", lambda self: time_ns(self) + later_ms * 1_000_000)
        patch.setattr("spark_partq.storage.store.Store.clock_ms", lambda self, _: self.now_ms())
        maintain(opened(store))
    assert name in manifests(store).names()
    assert Relay(store).deliver({0: (0, 12)})
    assert [value for value in arrived(store) if value < 100] == list(range(12))
