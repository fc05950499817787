"""A writer stands still right before it puts a manifest, for so long that maintenance deletes the files: the batch is written anew (Q5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.queue.manifest import Manifest
from spark_partq.core.queue.records import BatchRecord
from spark_partq.core.queue.sink_ids import positions_sink
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.procedures.maintain import maintain
from spark_partq.storage.procedures.positions_queue import read_positions
from spark_partq.storage.procedures.prepared import Prepared
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.manifests import Manifests
from spark_partq.storage.runtime import SYSTEM
from spark_partq.testing.faults import Crash
from tests.clocks import no_grace
from tests.helpers import opened
from tests.relays import Relay, arrived, manifests, told
from tests.scaled import Sink, make, messages, scale, stored
from tests.storage.procedures.test_begun import half_of_a_batch

HOUR_MS = 3_600_000
Asleep = Callable[..., None]


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asleep]:
    """Lets whoever puts a manifest next sleep for two hours before that, and die behind it if he is to; maintenance comes meanwhile."""
    put, clock, slept_s = Manifests.put, SYSTEM.monotonic_s, [0.0]
    monkeypatch.setattr(SYSTEM, "monotonic_s", lambda: clock() + slept_s[0])

    def begin(store: str, dies: bool = False) -> None:
        def late(self: Manifests, manifest: Manifest) -> bool:
            patch.stop()
            slept_s[0] += 2 * HOUR_MS / 1000
            named = {file.path for name in self.names() for file in self.read(name).files}
            for path in Path(store).rglob("part-*.parquet"):
                if path.name not in named:
                    os.utime(path, (path.stat().st_mtime - 2 * HOUR_MS / 1000,) * 2)
            with no_grace():
                maintain(opened(store))
            was_put = put(self, manifest)
            if dies:
                raise Crash
            return was_put

        patch = mock.patch.object(Manifests, "put", late)
        patch.start()

    yield begin
    mock.patch.stopall()


def values(store: str) -> list[int]:
    return sorted(value for rows in stored(store).values() for _, value in rows)


def test_who_wakes_up_writes_it_anew(store: str, asleep: Asleep) -> None:
    make(store, 2, vacuum_grace_ms=HOUR_MS)
    Sink(store).write(0, messages(0, 5))
    asleep(store)
    assert Sink(store).write(1, messages(5, 25)) == 20
    assert Sink(store).write(1, messages(5, 25)) == 0 and Sink(store).write(2, messages(25, 30)) == 5
    assert values(store) == list(range(30)) and len(manifests(store).names()) == 1


def test_whoever_writes_it_again_writes_it_anew(store: str, asleep: Asleep) -> None:
    make(store, 2, vacuum_grace_ms=HOUR_MS)
    asleep(store, dies=True)
    with pytest.raises(Crash):
        Sink(store).write(0, messages(0, 20))
    assert values(store) == []
    with no_grace():
        maintain(opened(store))
    assert Sink(store).write(0, messages(100, 120)) == 20
    assert Sink(store).write(0, messages(0, 20)) == 0
    assert values(store) == list(range(100, 120))


def test_what_is_placed_again_too_late(store: str, asleep: Asleep) -> None:
    """The manifest before still has its files, which maintenance keeps."""
    make(store, 2, vacuum_grace_ms=HOUR_MS)
    with mock.patch.object(Producer, "_commit", side_effect=Crash), pytest.raises(Crash):
        Sink(store).write(0, messages(0, 20))
    scale(store, 4)
    asleep(store, dies=True)
    with pytest.raises(Crash):
        Sink(store).write(0, messages(0, 20))
    with no_grace():
        maintain(opened(store))
    assert Sink(store).write(0, messages(100, 120)) == 20
    assert values(store) == list(range(20))


def test_a_manifest_that_is_taken_for_late_afterwards(store: str) -> None:
    """On a disk it is so if somebody changes its inode: the manifest before still has its files."""
    make(store, 2, vacuum_grace_ms=HOUR_MS)
    half_of_a_batch(store)
    scale(store, 4)
    commit = Producer._commit

    def dies(self: Producer, placed: Prepared, *about: Any) -> Any:
        if placed.manifest.name.number:
            raise Crash
        return commit(self, placed, *about)

    with mock.patch.object(Producer, "_commit", dies), pytest.raises(Crash):
        Sink(store).write(0, [])
    with no_grace():
        assert maintain(opened(store)).vacuumed_files == 0
    *_, last = manifests(store).names()
    assert last.number == 1
    for file in manifests(store).read(last).files:
        (path,) = Path(store).rglob(file.path)
        os.utime(path, (path.stat().st_mtime - 2 * HOUR_MS / 1000,) * 2)
    left = len(values(store))
    assert Sink(store).write(0, []) == 20 - left > 0
    assert values(store) == list(range(20))


@pytest.mark.parametrize("dies", [True, False])
def test_maintenance_deletes_the_files_behind_the_manifest(store: str, asleep: Asleep, dies: bool) -> None:
    """It had chosen them before, and slept, too: they are still there when the writer looks."""
    make(store, 2, vacuum_grace_ms=HOUR_MS)
    with mock.patch.object(LogFolder, "delete", autospec=True) as delete:
        asleep(store, dies)
        if dies:
            with pytest.raises(Crash):
                Sink(store).write(0, messages(0, 20))
        assert Sink(store).write(0, messages(100, 120)) == 20
    assert sum(LogFolder.delete(*call.args) for call in delete.call_args_list) == 2
    assert values(store) == list(range(100, 120))


@pytest.mark.parametrize("delivered", [0, 7])
@pytest.mark.parametrize("dies", [True, False])
def test_a_sink_that_keeps_positions(store: str, asleep: Asleep, delivered: int, dies: bool) -> None:
    """They are those of the batch before, whose manifest is kept, also by maintenance."""
    make(store, 2, vacuum_grace_ms=HOUR_MS)
    if delivered:
        Relay(store).deliver({0: (0, delivered)})
    before = dict(read_positions(opened(store), positions_sink("g", None)))
    asleep(store, dies)
    if dies:
        with pytest.raises(Crash):
            Relay(store).deliver({0: (0, 15)})
        with no_grace():
            maintain(opened(store))
        assert read_positions(opened(store), positions_sink("g", None)) == before
        assert arrived(store) == list(range(delivered))
    assert Relay(store).deliver({0: (0, 15)}) and not Relay(store).deliver({0: (0, 15)})
    assert arrived(store) == list(range(15)) and list(told(store).values()) == [15]
    assert Relay(store).deliver({0: (0, 20)}) and arrived(store) == list(range(20))
    assert len(manifests(store).names()) == 1


def test_a_batch_of_which_a_part_is_in_is_not_written_anew(store: str) -> None:
    """Only a backup has its files."""
    make(store, 2)
    with mock.patch.object(Producer, "_commit", side_effect=Crash), pytest.raises(Crash):
        Sink(store).write(0, messages(0, 20))
    queue, (name,) = opened(store), manifests(store).names()
    first, second = manifests(store).read(name).files
    queue.table(first.partition).append([first], BatchRecord("s", 0), 0)
    queue.store.files.delete(f"{queue.table(second.partition).folder}/{second.path}")
    with pytest.raises(partq.CommitFailedError, match="Restore it from a backup"):
        Sink(store).write(0, messages(0, 20))
