"""Checkpoints, by several processes at once, and the hint to the newest."""

from __future__ import annotations

from itertools import pairwise

import pytest

from spark_partq.core.errors import CorruptTableError
from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log import table
from spark_partq.storage.log.entries import Add, Remove
from spark_partq.storage.upkeep import UPKEEP
from tests.storage.log.tables import (
    HINT_PATH,
    HOUR_MS,
    Watched,
    age,
    assert_same,
    checkpoint_path,
    count,
    entries,
    everything,
    fresh,
    go_on,
    handle,
    made,
    once,
    refreshed,
    spec,
)


def hinted(files: MemoryFiles) -> int:
    """The version that `_last_checkpoint` names."""
    hint = handle(files).log.hint()
    assert hint is not None
    return hint.version


def test_two_checkpoint_at_once(files: MemoryFiles) -> None:
    """Two processes that write the same checkpoint, step by step one in the other."""
    made(files, 3)
    steps: list[str] = []

    def other(operation: str, _: str) -> None:
        steps.append(operation)
        handle(files).checkpoint()

    handle(Watched(files, other, other)).checkpoint()
    assert "put_if_absent" not in steps  # the other one had made it
    assert handle(files).log.names().checkpoints == [3] and fresh(files).base == 3

    made_by_one = MemoryFiles()
    made(made_by_one, 3)
    late = handle(
        Watched(made_by_one, before=once("put_if_absent", checkpoint_path(3), handle(made_by_one).checkpoint))
    )
    late.checkpoint()
    assert fresh(made_by_one).base == 3 and fresh(made_by_one).version == 3


@pytest.mark.parametrize("operation", ["put_if_absent", "put"])
def test_hint_that_goes_back(files: MemoryFiles, operation: str) -> None:
    """Whoever slept with a checkpoint under way leaves an old one, and the hint to it: everybody finds the newest."""
    made(files, 3)
    path = checkpoint_path(3) if operation == "put_if_absent" else HINT_PATH
    late = handle(Watched(files, before=once(operation, path, lambda: go_on(files))))
    late.checkpoint()
    assert fresh(files).version == fresh(files).base == 8
    assert hinted(files) == (8 if operation == "put_if_absent" else 3)
    late.refresh()
    count(late)
    late.checkpoint()
    assert hinted(files) == 9 == fresh(files).base


BAD_HINTS = [
    b"",
    b"{",
    b"\x00\xff",
    b"[]",
    b"7",
    b"null",
    b'"version"',
    b"{}",
    b'{"version":null}',
    b'{"version":"4"}',
    b'{"version":4.5}',
    b'{"version":-1}',
    b'{"version":1e400}',
    b'{"version":NaN}',
    b'{"version":true}',
    b'{"version":2}',
    b'{"version":5}',
    b'{"version":7}',
    b'{"version":' + b"9" * 30 + b"}",
    b'{"version":' + b"9" * 5000 + b"}",
    pytest.param(
        b"[" * 100_000,
        id="deep",
    ),
]


@pytest.mark.parametrize("hint", [None, *BAD_HINTS], ids=lambda hint: repr(hint)[:24])
def test_bad_hint(files: MemoryFiles, hint: bytes | None) -> None:
    """It is only a hint: whatever it says, everybody reads the same, commits, and the next checkpoint puts it right."""
    writer = made(files, 3)
    writer.checkpoint()
    age(files, 2 * HOUR_MS)
    count(writer, 2)
    writer.checkpoint()
    count(writer)
    assert entries(files) == [3, 4, 5, 6][-3:]
    expected = fresh(files)
    old = handle(files)
    old.refresh()
    if hint is None:
        files.delete(HINT_PATH)
    else:
        files.put(HINT_PATH, hint)
    assert_same(fresh(files), expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_CHECK_EVERY_S", -1.0)
        assert not old.refresh()
    count(old)
    count(handle(files))
    assert fresh(files).version == 8
    handle(files).checkpoint()
    assert hinted(files) == fresh(files).base == 8


def test_hint_that_is_far_ahead(files: MemoryFiles) -> None:
    """A hint to a version that is far away does not put an end to checkpoints."""
    writer = made(files)
    files.put(HINT_PATH, b'{"version":1000000}')
    for _ in range(6):
        count(writer, 50)
        UPKEEP.wait()
    assert fresh(files).base >= 100


def test_checkpoints_come_by_themselves(files: MemoryFiles) -> None:
    """However many handles commit, each for itself, there are as many checkpoints as one handle would make."""
    made(files)
    handles = [handle(files) for _ in range(5)]
    for _ in range(100):
        for one in handles:
            count(one)
        UPKEEP.wait()
    checkpoints = handle(files).log.names().checkpoints
    gaps = [after - before for before, after in pairwise(checkpoints)]
    least, most = table.CHECKPOINT_INTERVALS
    assert len(checkpoints) >= 4 and all(least <= gap <= most + len(handles) for gap in gaps)


@pytest.mark.parametrize("newly_opened", [False, True])
def test_checkpoints_that_hold_much_come_less_often(files: MemoryFiles, newly_opened: bool) -> None:
    """Q3: a table remembers removed files for a day and longer, and each of its checkpoints names them all."""
    writer = made(files)
    adds = [Add(f"{n}.parquet", 1, {}) for n in range(1_200)]
    writer.commit(adds)
    writer.commit(removes=[Remove(add.path, writer.store.now_ms()) for add in adds])
    writer.checkpoint()
    first = writer.version
    if newly_opened:
        writer = refreshed(files)
    while handle(files).log.names().checkpoints[-1] == first:
        count(writer)
        UPKEEP.wait()
    assert writer.version - first == 60  # a twentieth


@pytest.mark.parametrize("size", ['"many"', "true", "-1", "1e9", "[]", "null", "1" + 30 * "0"])
def test_size_in_the_hint_that_is_wrong(files: MemoryFiles, size: str) -> None:
    """The next checkpoint comes all the same, and mends the hint."""
    writer = made(files, 3)
    writer.checkpoint()
    files.put(HINT_PATH, f'{{"version":3,"size":{size}}}'.encode())
    later = refreshed(files)
    for _ in range(table.CHECKPOINT_INTERVALS[1]):
        count(later)
        UPKEEP.wait()
    assert hinted(files) == fresh(files).base > 3


def test_tables_that_begin_together_have_their_first_checkpoints_apart() -> None:
    """The tables of a queue are committed to together; so not all of them are written at one time."""
    firsts = []
    for number in range(5):
        one = handle(MemoryFiles(), uri=f"/store/{number}")
        one.create(spec())
        while not one.log.names().checkpoints:
            count(one)
            UPKEEP.wait()
        firsts += one.log.names().checkpoints
    least, _ = table.CHECKPOINT_INTERVALS
    assert all(least - 1 <= first < 2 * least for first in firsts) and len(set(firsts)) > 3, firsts


def test_a_checkpoint_of_another_table_stays(files: MemoryFiles) -> None:
    """A process stood still before it put its checkpoint. Its table was deleted, and another one was made there, which has one of that version."""
    made(files, 3)

    def another() -> None:
        for path in list(everything(files)):
            files.delete(path)
        made(files, 3)
        handle(files).checkpoint()

    late = handle(Watched(files, before=once("put_if_absent", checkpoint_path(3), another)))
    with pytest.raises(CorruptTableError):
        late.checkpoint()
    assert handle(files).log.names().checkpoints == [3] and fresh(files).base == 3
