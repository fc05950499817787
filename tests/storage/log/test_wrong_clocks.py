"""Processes whose clocks are wrong: they go on, and delete nothing that is young."""

from __future__ import annotations

import pytest

from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log import vacuum
from spark_partq.storage.runtime import SYSTEM
from tests.storage.log.damage import busy
from tests.storage.log.tables import FOLDER, HOUR_MS, age, count, fresh, handle, made

YEAR_MS = 365 * 24 * HOUR_MS


@pytest.mark.parametrize("by_ms", [-YEAR_MS, YEAR_MS])
def test_wrong_clock(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, by_ms: int) -> None:
    """A process whose clock is wrong, or set back, goes on; what is young by the store's clock stays."""
    writer = made(files, 3)
    wall, seconds = SYSTEM.time_ns, SYSTEM.monotonic_s
    monkeypatch.setattr(SYSTEM, "time_ns", lambda: wall() + by_ms * 1_000_000)
    monkeypatch.setattr(SYSTEM, "monotonic_s", lambda: seconds() + by_ms / 1000)
    wrong = handle(files)
    for one in (writer, wrong, writer):
        count(one, 2)
        one.checkpoint()
    monkeypatch.undo()
    right = handle(files)
    for one in (right, wrong, writer):
        count(one)
        assert not one.refresh()
    right.checkpoint()
    assert right.log.names().entries == list(range(13))
    assert fresh(files).transactions["next"].version == 12
    age(files, 2 * HOUR_MS)
    count(right)
    right.checkpoint()
    assert right.log.names().entries == [13]


def test_a_removal_in_the_future(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint keeps it from now on, as long as any other one."""
    wall = SYSTEM.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(SYSTEM, "time_ns", lambda: wall() + YEAR_MS * 1_000_000)
        busy(files)
    handle(files).checkpoint()
    tombstones = handle(files).log.load(tombstones=True).tombstones
    assert tombstones is not None and abs(tombstones["c"].deleted_ms - wall() // 1_000_000) < HOUR_MS


@pytest.mark.parametrize(
    "by_ms",
    [
        -YEAR_MS,
        pytest.param(YEAR_MS),
    ],
)
def test_vacuum_with_a_wrong_clock(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, by_ms: int) -> None:
    """A file that somebody has just written, and is about to commit, is young whatever the clock of who cleans up says."""
    writer = made(files, 1)
    files.put(f"{FOLDER}/about-to-be-committed", b"x")
    wall = SYSTEM.time_ns
    monkeypatch.setattr(SYSTEM, "time_ns", lambda: wall() + by_ms * 1_000_000)
    assert vacuum(writer, 24 * HOUR_MS) == 0
