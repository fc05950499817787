"""`durability="disk"`: what was confirmed is there after a power cut at any moment, and work goes on from what is left. Its replica, too."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.files.port import TEMPORARY
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.replica.table import replica_role
from spark_partq.storage.store import Store
from spark_partq.storage.upkeep import UPKEEP
from tests.replicas import assert_equal, group_of, sync
from tests.scaled import Message, Reader, Sink, make, messages, scale, stored
from tests.storage.power import Power

BATCH = 12


@dataclass
class Machine:
    """One that runs a producer, a consumer and whoever scales and maintains their queue, and has its power cut again and again.

    Attributes
    ----------
    confirmed : int
        So many batches were.
    processed : list of (key, value)
        What the consumer has processed; it acknowledges that after it.
    """

    folder: Path
    patch: pytest.MonkeyPatch
    every: int
    confirmed: int = 0
    made: bool = False
    processed: list[Message] = field(default_factory=list)
    cuts: int = 0
    planted: Callable[[pytest.MonkeyPatch], None] = lambda patch: None

    def run(self, durability: str) -> None:
        self.store = self.folder / "store"
        self.store.mkdir()
        power = Power(self.store, self.patch, self._look)
        self._power, self._forced = power, 0
        self.planted(self.patch)
        try:
            make(str(self.store), 3, durability=durability)
            self.made = True
            sink, reader = Sink(str(self.store)), Reader(str(self.store))
            self.processed = reader.seen
            for batch in range(6):
                sink.write(batch, batch_of(batch))
                self.confirmed = batch + 1
                reader.turn()
                if batch == 2:
                    scale(str(self.store), 5)
            reader.all()
            partq.maintain(str(self.store), "q")
            scale(str(self.store), 2)
        finally:
            power.close()

    def _look(self) -> None:
        self._forced += 1
        if self._forced % self.every == 0:
            for rng in (None, random.Random(self._forced)):
                image = self.folder / "image"
                self._power.cut(image, rng)
                self.cuts += 1
                self.check(str(image))
                shutil.rmtree(image)

    def check(self, store: str) -> None:
        """Nothing that was confirmed is missing, nothing is there twice, and everybody goes on from what is there."""
        try:
            sink = Sink(store)
        except (partq.NotAStoreError, partq.QueueNotFoundError, partq.QueueNotReadyError):
            assert not self.made, "the queue is gone"
            return
        assert diagnose(Store(store)).faults == []
        if self.confirmed:  # is replayed, with other rows, unless it is seen that the sink had gone on
            with contextlib.suppress(partq.SinkAheadError):
                sink.write(self.confirmed - 1, batch_of(1_000))
        for batch in (self.confirmed, self.confirmed + 1):
            sink.write(batch, batch_of(batch))
        reader = Reader(store)
        seen = set(reader.all()) | set(self.processed)
        wanted = {message for batch in range(self.confirmed + 2) for message in batch_of(batch)}
        assert wanted <= seen, sorted(wanted - seen)
        there = [message for rows in stored(store).values() for message in rows]
        assert len(there) == len(set(there))


@dataclass
class WithReplica(Machine):
    """One that keeps a replica of the queue in a second store, `there`, promotes it and goes on there.

    A store knows the other one by its path. So what a cut leaves is looked at after the run, where the stores were.

    Attributes
    ----------
    copied : int
        So many batches were confirmed before the last pass that has ended began.
    acknowledged : dict
        The group's position in each partition by then.
    promotes, promoted : bool
        Whether the promotion has begun, and whether it has ended.
    """

    copied: int = 0
    acknowledged: dict[int, int] = field(default_factory=dict)
    promotes: bool = False
    promoted: bool = False
    left: list[tuple[Path, WithReplica]] = field(default_factory=list)

    def run(self, durability: str) -> None:
        root = self.folder / "machine"
        root.mkdir()
        with self.patch.context() as patch:
            self._power, self._forced = Power(root, patch, self._look), 0
            self.planted(patch)
            try:
                self._work(durability)
                UPKEEP.wait()
            finally:
                self._power.close()
        for name in ("fsync", "sync"):  # no more cuts come
            self.patch.setattr(os, name, lambda *_: None)
        for image, then in self.left:
            shutil.rmtree(root)
            image.rename(root)
            then.check_both()

    def _work(self, durability: str) -> None:
        make(self.here, 2, durability=durability)
        self.made = True
        sink, reader = Sink(self.here), Reader(self.here)
        self.processed = reader.seen
        for batch in range(4):
            sink.write(batch, batch_of(batch))
            self.confirmed = batch + 1
            reader.turn()
            if batch in (0, 2):
                self._pass()
            if batch == 1:
                scale(self.here, 3)
        self.promotes = True
        partq.promote(self.there, "q")
        self.promoted = True
        Sink(self.there).write(self.confirmed, batch_of(self.confirmed))
        self.confirmed += 1

    def _pass(self) -> None:
        acknowledged = positions(self.here)
        replicator = Replicator(Store(self.here), "q", self.there)
        replicator.register()
        assert replicator.sync().total_lag == 0
        self.copied, self.acknowledged = self.confirmed, acknowledged

    def _look(self) -> None:
        self._forced += 1
        if self._forced % self.every == 0:
            for rng in (None, random.Random(self._forced)):
                image = self.folder / f"image-{len(self.left)}"
                self._power.cut(image, rng)
                self.left.append((image, replace(self, processed=list(self.processed), left=[])))

    @property
    def here(self) -> str:
        return str(self.folder / "machine" / "here")

    @property
    def there(self) -> str:
        return str(self.folder / "machine" / "there")

    def check_both(self) -> None:
        """The replica has what it was said to have; a pass and the promotion can be run again; then the replica has what was confirmed."""
        for unfinished in (self.folder / "machine").rglob(f"*{TEMPORARY}"):
            unfinished.unlink()  # else a log that only has such a file is taken for a table
        if self.copied:
            assert diagnose(Store(self.there)).faults == []
            there = {message for rows in stored(self.there).values() for message in rows}
            assert {message for batch in range(self.copied) for message in batch_of(batch)} <= there
            now = positions(self.there)
            assert all(now[number] >= position for number, position in self.acknowledged.items())
        if self.promoted:
            assert replica_role(Store(self.there), "q") == "promoted"
        elif self.made:
            if not self.promotes:
                assert not any(sync(self.here, self.there).lag.values())
                assert_equal(self.here, self.there)
            promotion = partq.promote(self.there, "q")
            assert (promotion.fenced, promotion.problem) == (True, "")
        self.check(self.there)


def positions(store: str) -> dict[int, int]:
    group = group_of(store)
    found = {number: group.position((queue_id, number)) for queue_id, number in group.state.partitions}
    return {number: position for number, position in found.items() if position is not None}


def batch_of(batch: int) -> list[Message]:
    return messages(batch * BATCH, (batch + 1) * BATCH)


@pytest.mark.parametrize("every", [61, pytest.param(1, marks=pytest.mark.long)])
def test_what_was_confirmed_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    machine = Machine(tmp_path, monkeypatch, every)
    machine.run("disk")
    assert machine.cuts > 600 // every


@pytest.mark.parametrize("every", [301, pytest.param(3, marks=pytest.mark.long)])
def test_what_was_copied_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """What a pass has copied, and a promotion that has ended, survive a cut; both can be run again."""
    machine = WithReplica(tmp_path, monkeypatch, every)
    machine.run("disk")
    assert len(machine.left) > 600 // every


def _forces_no_folder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DiskFiles, "_force_names", lambda files, path: None)


def _forces_no_file(patch: pytest.MonkeyPatch) -> None:
    force = os.fsync
    patch.setattr(os, "fsync", lambda descriptor: None if _is_file(descriptor) else force(descriptor))


def _is_file(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _forces_no_replica(patch: pytest.MonkeyPatch) -> None:
    begin = Replicator.__init__

    def begin_unforced(replicator: Replicator, *arguments: Any, **options: Any) -> None:
        begin(replicator, *arguments, **options)
        patch.setattr(replicator.target, "force_writes", lambda: None)

    patch.setattr(Replicator, "__init__", begin_unforced)


@pytest.mark.parametrize(
    ("kind", "every", "bug"),
    [(Machine, 5, _forces_no_folder), (Machine, 5, _forces_no_file), (WithReplica, 61, _forces_no_replica)],
)
def test_a_write_that_is_not_forced_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Machine],
    every: int,
    bug: Callable[[pytest.MonkeyPatch], None],
) -> None:
    machine = kind(tmp_path, monkeypatch, every, planted=bug)
    with pytest.raises((AssertionError, partq.PartqError)):
        machine.run("disk")


def test_folders_above_a_new_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store makes the folders that lead to it, too."""
    live, image = tmp_path / "live", tmp_path / "image"
    live.mkdir()
    power = Power(live, monkeypatch, lambda: None)
    try:
        store = Store(live / "new" / "deeper" / "store")
        make(store, 2, durability="disk")
        Sink(store).write(0, batch_of(0))
        power.cut(image)
    finally:
        power.close()
    there = stored(str(image / "new" / "deeper" / "store")).values()
    assert sorted(message for messages_ in there for message in messages_) == sorted(batch_of(0))
