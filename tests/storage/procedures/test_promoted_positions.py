"""A replica takes over that has a sink's last manifest, and lacks messages which the positions of this manifest count (S7, H4).

They come again: the sink goes on at positions whose messages the replica has.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.queue.sink_ids import next_batch, positions_sink
from spark_partq.core.replica.decide import cancel_promotion
from spark_partq.storage.procedures import promote as promotion
from spark_partq.storage.procedures import scale
from spark_partq.storage.procedures.finish_begun import finish_begun
from spark_partq.storage.procedures.positions_queue import read_positions
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import replicate
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica import manifest_copy
from spark_partq.storage.replica.copied_files import put_same
from spark_partq.storage.replica.manifest_copy import ManifestCopy
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.store import Store
from tests.relays import Relay, arrived, manifests, put_void_batch, take_over, told
from tests.replicas import (
    Crash,
    crashing,
    there_fixture,  # noqa: F401
)
from tests.scaled import make

FEW, ALL = 5, 30


def deliver(store: str, first: int = FEW, end: int = ALL) -> None:
    """A batch of the sink for each five messages."""
    relay = Relay(store)
    for start in range(first, end, FEW):
        relay.deliver({0: (start, start + FEW)})


def begun(store: str, there: str) -> None:
    """The replica has the sink's first batch."""
    make(store, 2)
    deliver(store, 0, FEW)
    replicate(Store(store), "q", there)


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """It happens in the next pass, after the partitions were read and before manifests are copied."""
    copy = ManifestCopy.copy

    def late(found: ManifestCopy) -> None:
        monkeypatch.setattr(ManifestCopy, "copy", copy)
        act()
        copy(found)

    monkeypatch.setattr(ManifestCopy, "copy", late)


def dying(monkeypatch: pytest.MonkeyPatch, where: object, name: str, act: Callable[[], object]) -> None:
    """The process dies when it has called this."""
    original = getattr(where, name)

    def dies(*arguments: object) -> None:
        original(*arguments)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(where, name, dies)
        with pytest.raises(Crash):
            act()


def promoted_in_a_pass(store: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The primary is lost and the replica promoted while a pass sleeps. Then the pass puts its first manifest."""

    def late(*arguments: Any) -> bool:
        monkeypatch.setattr(manifest_copy, "put_same", put_same)
        take_over(store, there)
        return put_same(*arguments)

    monkeypatch.setattr(manifest_copy, "put_same", late)
    with pytest.raises(partq.ReplicaError):
        replicate(Store(store), "q", there)


def promoted_after_each_crash(store: str, there: str, every: int) -> Iterator[int]:
    """The next pass dies at its first operation, at a later one… and ends at last; each time the primary is lost and the replica promoted.
    Yields the operation."""
    before, lost = shutil.copytree(there, f"{there}-before"), f"{store}-lost"
    for at in range(1, 1000, every):
        shutil.rmtree(there)
        shutil.copytree(before, there)
        with crashing(at) as done, contextlib.suppress(Crash):
            replicate(Store(store), "q", there)
        Path(store).rename(lost)
        promote(Store(there), "q")
        yield at
        Path(lost).rename(store)
        if len(done) < at:
            break
    assert len(done) < at


def test_the_primary_is_lost_when_manifests_were_copied(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(store, there)
    deliver(store)
    dying(monkeypatch, ManifestCopy, "copy", lambda: replicate(Store(store), "q", there))
    assert len(manifests(there).names()) == 2
    take_over(store, there)
    assert Relay(there).deliver({0: (0, ALL)})
    assert arrived(there) == list(range(ALL)) and len(manifests(there).names()) == 1


def test_the_sink_goes_on_while_a_pass_reads(store: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass ends. The replica has what the sink had written before, and goes on there."""
    begun(store, there)
    deliver(store, FEW, 3 * FEW)
    meanwhile(monkeypatch, lambda: deliver(store, 3 * FEW))
    replicate(Store(store), "q", there)
    take_over(store, there)
    assert arrived(there) == list(range(3 * FEW))
    assert Relay(there).deliver({0: (2 * FEW, ALL)}) and arrived(there) == list(range(ALL))


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.long)])
def test_the_primary_is_lost_in_the_middle_of_a_pass(store: str, there: str, has_begun: bool, every: int) -> None:
    """Whatever the pass had copied, nothing is lost; and what the replica has already comes again only if the pass died while it moved the copies on."""
    make(store, 2)
    if has_begun:
        deliver(store, 0, FEW)
    replicate(Store(store), "q", there)
    deliver(store, FEW if has_begun else 0)
    twice = whole = 0
    for at in promoted_after_each_crash(store, there, every):
        copied = arrived(there)
        Relay(there).deliver({0: (0, ALL + 1)})
        found = arrived(there, in_order=False)
        assert sorted(set(found)) == list(range(ALL + 1)), at
        twice, whole = twice + (len(found) > len(set(found))), whole + (copied == list(range(ALL)))
    assert whole > 0 and twice * every < at / 3


@pytest.mark.parametrize(
    ("end", "every"), [(2 * FEW, 5), *(pytest.param(end, 1, marks=pytest.mark.long) for end in (2 * FEW, ALL))]
)
def test_a_batch_that_was_placed_by_two_maps(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch, end: int, every: int
) -> None:
    """A part of the last batch is in under the former map, and the rest by another manifest. The primary is lost in the middle of the pass that copies this."""
    begun(store, there)
    queue = open_queue(Store(store), "q")
    monkeypatch.setattr(scale, "update_replicas", lambda *_: None)  # so that one pass copies all of it
    commit, committed = PartitionTable.append, []

    def one(table: PartitionTable, *arguments: Any) -> Any:
        if committed:
            raise Crash
        committed.append(table.partition)
        return commit(table, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionTable, "append", one)
        with pytest.raises(Crash):
            deliver(store, FEW, 2 * FEW)
    assert committed
    scale.scale(queue, 3)
    deliver(store, FEW, end)
    for at in promoted_after_each_crash(store, there, every):
        Relay(there).deliver({0: (0, ALL + 1)})
        assert set(arrived(there, in_order=False)) == set(range(ALL + 1)), at


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_a_void_batch_behind_such_a_manifest(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    """The sink's next batch is void. The positions of the batch before it count only if all parts of that batch are in."""
    make(store, 2)
    replicate(Store(store), "q", there)
    deliver(store, 0, FEW)
    promoted_in_a_pass(store, there, monkeypatch)
    commit, left = PartitionTable.append, iter(range(parts))

    def some(table: PartitionTable, *arguments: Any) -> Any:
        if next(left, None) is None:
            raise Crash
        return commit(table, *arguments)

    with monkeypatch.context() as patch, contextlib.suppress(Crash):
        patch.setattr(PartitionTable, "append", some)
        Relay(there).target.refresh()
    put_void_batch(there, next_batch(0, 1), 2 * FEW)
    assert set(read_positions(open_queue(Store(there), "q"), positions_sink("g", None)).values()) == {
        FEW if parts == 2 else 0
    }
    assert Relay(there).deliver({0: (0, ALL)})
    found = arrived(there, in_order=False)
    assert sorted(set(found)) == list(range(ALL)) and (len(found) > ALL) == (parts == 1)


def maintained(there: str) -> None:
    partq.maintain(there, "q")
    assert not manifests(there).names()


@pytest.mark.parametrize("act", [id, maintained, lambda there: finish_begun(open_queue(Store(there), "q"))])
def test_a_pass_that_puts_the_first_manifest_of_a_sink_after_the_promotion(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch, act: Callable[[str], object]
) -> None:
    """Its positions count batches that the replica does not have. Nobody had stated any: the replica did not know the sink."""
    make(store, 2)
    replicate(Store(store), "q", there)
    deliver(store, 0)
    promoted_in_a_pass(store, there, monkeypatch)
    assert [name.batch_id for name in manifests(there).names()] == [ALL // FEW - 1]
    act(there)
    assert read_positions(open_queue(Store(there), "q"), positions_sink("g", None)) == {}
    assert Relay(there).deliver({0: (0, ALL)}) and arrived(there) == list(range(ALL))


def test_a_primary_that_is_there_is_copied_to_its_end(store: str, there: str) -> None:
    """Then the sink's last manifest counts as it is."""
    begun(store, there)
    deliver(store)
    promote(Store(there), "q")
    assert set(told(there).values()) == {ALL}
    assert not Relay(there).deliver({0: (0, ALL)}) and arrived(there) == list(range(ALL))


def test_promotions_that_died_or_were_cancelled(store: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they stated holds: the copies stay as they were."""
    begun(store, there)
    deliver(store, FEW, 3 * FEW)
    away = f"{store}-away"
    dying(monkeypatch, ManifestCopy, "copy", lambda: replicate(Store(store), "q", there))
    os.rename(store, away)
    for _ in range(2):
        dying(monkeypatch, promotion, "restate_positions", lambda: promote(Store(there), "q"))
    assert [name[1:] for name in manifests(there).names()] == [(0, 0), (2, 0), (10**12 - 1, 0)]
    assert set(told(there).values()) == {FEW}

    table = ReplicaTable(Store(there), "q")
    promoting = table.refresh()
    assert promoting is not None and promoting.incarnation is not None
    table.decide(lambda now: cancel_promotion(now, promoting.incarnation))
    promote(Store(there), "q")
    assert Relay(there).deliver({0: (0, ALL)}) and arrived(there) == list(range(ALL))
