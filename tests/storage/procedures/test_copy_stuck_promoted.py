"""What is stuck is copied at the primary while a pass is made; then the replica takes over, and the copy is ended there (S6, S7)."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.procedures import scale
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import Replicator, replicate
from spark_partq.storage.replica.step import Step
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.runtime import SystemRuntime
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.replicas import there_fixture  # noqa: F401
from tests.scaled import Crash, Reader, Sink, _die_after, assert_in_order, make, messages, runs, stored
from tests.storage.procedures.test_copy_stuck import with_stuck


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass does with partitions what it does at once in the order of their numbers; and who scales cannot reach the replica."""
    monkeypatch.setattr(SystemRuntime, "map", lambda _, function, items: [function(item) for item in items])
    monkeypatch.setattr(scale, "update_replicas", lambda *_: None)


def take_over(store: str, there: str) -> None:
    """The primary is lost."""
    os.rename(store, f"{store}-away")
    promote(Store(there), "q")


def assert_whole(there: str) -> None:
    """All is in a partition that is read, once, and each key's messages in order."""
    assert not opened(there).state.stuck and partq.describe_queue(there, "q").stuck == 0
    assert_in_order(Reader(there, "x", group="new").all(), messages(0, 60))


def assert_ends_there(store: str, there: str) -> None:
    """The primary is lost, and what is stuck is copied where the replica took over."""
    take_over(store, there)
    partq.copy_stuck(there, "q")
    assert_whole(there)


def when(monkeypatch: pytest.MonkeyPatch, name: str, number: int, happens: Callable[[], object]) -> None:
    """Before a pass reads, or puts, what is new in a partition, something happens, once."""
    method = getattr(TableCopy, name)

    def late(copy: TableCopy, *steps: Iterable[Step]) -> Any:
        if copy.folder.endswith(f"/partition={number}"):
            monkeypatch.setattr(TableCopy, name, method)
            happens()
        return method(copy, *steps)

    monkeypatch.setattr(TableCopy, name, late)


@pytest.mark.parametrize("number", [PARENT, 0, 1, 3])
def test_a_copy_while_a_pass_reads_the_partitions(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Some of them have a file of the parent, others do not, and its manifest is gone."""
    with_stuck(store)
    replicate(Store(store), "q", there)
    when(monkeypatch, "steps", number, lambda: partq.copy_stuck(store, "q"))
    replicate(Store(store), "q", there)
    assert_ends_there(store, there)
    assert partq.copy_stuck(there, "q") == 0


def resized_and_copied(store: str) -> None:
    partq.scale(store, "q", 6)
    partq.copy_stuck(store, "q")


def test_a_resize_and_a_copy_after_a_pass_has_read_the_control_table(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What left the parent is behind seals that the copied control table would not explain."""
    with_stuck(store)
    replicate(Store(store), "q", there)
    when(monkeypatch, "steps", PARENT, lambda: resized_and_copied(store))
    replicate(Store(store), "q", there)
    assert_ends_there(store, there)


@pytest.mark.parametrize("commits", range(1, 5))
def test_a_pass_that_dies_on_its_way_through_a_resize_and_a_copy(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """The parent waits until the copied control table explains where its messages went."""
    with_stuck(store)
    replicate(Store(store), "q", there)
    resized_and_copied(store)
    left, apply = [commits], TableCopy.apply

    def dies(copy: TableCopy, steps: Iterable[Step]) -> int:
        if copy.folder == "queues/q/control":
            left[0] -= 1
            if not left[0]:
                raise Crash
        return apply(copy, steps)

    monkeypatch.setattr(TableCopy, "apply", dies)
    with pytest.raises(Crash):
        replicate(Store(store), "q", there)
    monkeypatch.setattr(TableCopy, "apply", apply)
    take_over(store, there)
    if opened(there).state.scaling is not None:
        partq.scale(there, "q", 6)
    partq.copy_stuck(there, "q")
    assert_whole(there)


@pytest.mark.parametrize("number", [PARENT, 0, 1, 3])
def test_a_pass_that_dies_between_the_partitions(
    store: str, there: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The parent is empty at the primary by then; in the copy that comes last. If some partition has copies, the replica goes on copying."""
    with_stuck(store)
    replicate(Store(store), "q", there)
    partq.copy_stuck(store, "q")

    def dies() -> None:
        raise Crash

    when(monkeypatch, "apply", number, dies)
    with pytest.raises(Crash):
        replicate(Store(store), "q", there)
    take_over(store, there)
    if number != 0:  # which is the first one
        with pytest.raises(partq.ScalingInProgressError, match="run copy_stuck again"):
            partq.scale(there, "q", 0)
    partq.copy_stuck(there, "q")
    assert_whole(there)


def some_of_the_copy(store: str, monkeypatch: pytest.MonkeyPatch, commits: int) -> None:
    with monkeypatch.context() as patch:
        _die_after(patch, commits)
        with contextlib.suppress(Crash, partq.InvalidArgumentError):  # it may be exclusive still
            partq.copy_stuck(store, "q")


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 12))])
def test_whatever_a_pass_meets(store: str, there: str, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The map changes, too, here and there; passes die, and so does who copies."""
    chance = random.Random(seed)
    counts = [2, 4, 5]
    if chance.random() < 0.5:
        with_stuck(store, 3)
    else:
        make(store, 0)
        for batch in range(10):
            Sink(store).write(batch, messages(batch * 6, batch * 6 + 6))
    replicate(Store(store), "q", there)

    def happens(copy: TableCopy) -> None:
        if "/partitions/" not in copy.folder or chance.random() < 0.5:
            return
        if counts and chance.random() < 0.2:
            partq.scale(store, "q", counts.pop())
        else:
            some_of_the_copy(store, monkeypatch, chance.choice([1, 5, 12, 99]))

    def meeting(name: str, dies: float) -> Callable[..., Any]:
        method = getattr(TableCopy, name)

        def late(copy: TableCopy, *steps: Iterable[Step]) -> Any:
            happens(copy)
            if chance.random() < dies:
                raise Crash
            return method(copy, *steps)

        return late

    with monkeypatch.context() as patch:
        patch.setattr(TableCopy, "steps", meeting("steps", 0.01))
        patch.setattr(TableCopy, "apply", meeting("apply", 0.1))
        for _ in range(chance.randint(1, 3)):
            try:
                replicate(Store(store), "q", there)
            except Crash:
                break
    take_over(store, there)
    if chance.random() < 0.5 or opened(there).state.partition_count == 0:
        under_way = opened(there).state.scaling
        if under_way is not None:
            partq.scale(there, "q", under_way.partition_count)
        partq.scale(there, "q", 7)
    runs(monkeypatch, lambda: partq.copy_stuck(there, "q"))
    assert_whole(there)
    assert sum(map(len, stored(there).values())) == 60
    assert Path(there, "groups").exists()


def test_another_pass_copies_a_resize_meanwhile(store: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: this one has no step of the control table left then, and ends with the state that the other has copied."""
    with_stuck(store)
    replicate(Store(store), "q", there)
    pass_ = Replicator._pass

    def late(replicator: Replicator, state: QueueState) -> Any:
        monkeypatch.setattr(Replicator, "_pass", pass_)
        partq.scale(store, "q", 6)
        replicate(Store(store), "q", there)
        return pass_(replicator, state)

    monkeypatch.setattr(Replicator, "_pass", late)
    replicate(Store(store), "q", there)
    assert partq.describe_queue(there, "q").operating_partitions == 6
