"""`durability="disk"`: what was confirmed is there after a power cut at any moment, and work goes on from what is left."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.store import Store
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


def batch_of(batch: int) -> list[Message]:
    return messages(batch * BATCH, (batch + 1) * BATCH)


@pytest.mark.parametrize("every", [31, pytest.param(1, marks=pytest.mark.long)])
def test_what_was_confirmed_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    machine = Machine(tmp_path, monkeypatch, every)
    machine.run("disk")
    assert machine.cuts > 600 // every


def _forces_no_folder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DiskFiles, "_force_names", lambda files, path: None)


def _forces_no_file(patch: pytest.MonkeyPatch) -> None:
    force = os.fsync
    patch.setattr(os, "fsync", lambda descriptor: None if _is_file(descriptor) else force(descriptor))


def _is_file(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


@pytest.mark.parametrize("bug", [_forces_no_folder, _forces_no_file])
def test_a_write_that_is_not_forced_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Callable[[pytest.MonkeyPatch], None]
) -> None:
    machine = Machine(tmp_path, monkeypatch, every=5, planted=bug)
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
