"""Files of a log with any bytes in them: each is read or refused, and nothing else happens."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq.storage.files import Files, MemoryFiles
from spark_partq.storage.log import Snapshot
from tests.storage.log.damage import busy
from tests.storage.log.tables import HINT_PATH, checkpoint_path, entry_path, fresh, handle, put_back, stored_files


def _damaged(whole: bytes, changes: Iterable[tuple[float, str, bytes]]) -> bytes:
    data = bytearray(whole)
    for where, how, new in changes:
        at = int(where * len(data))
        end = at if how == "insert" else at + len(new)
        data[at:end] = b"" if how == "delete" else new
    return bytes(data)


CHANGES = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["insert", "delete", "replace"]),
        st.binary(min_size=1, max_size=4) | st.sampled_from([b"\n", b"0", b"null", b"{", b'"', b",", b"%"]),
    ),
    min_size=1,
    max_size=4,
)


def _read(files: Files) -> Snapshot | None:
    """The table, or None if it is refused; nothing else may happen."""
    try:
        return fresh(files)
    except partq.CorruptTableError:
        return None


@pytest.fixture(scope="module")
def whole() -> MemoryFiles:
    files = MemoryFiles()
    busy(files)
    return files


def _copy(files: MemoryFiles) -> MemoryFiles:
    copy = MemoryFiles()
    put_back(copy, stored_files(files))
    return copy


@settings(max_examples=300)
@given(changes=CHANGES, version=st.sampled_from([0, 4]))
def test_damaged_entry(whole: MemoryFiles, changes: list[tuple[float, str, bytes]], version: int) -> None:
    """Whatever happened to the bytes of an entry, it is read or refused."""
    files = _copy(whole)
    data = _damaged(files.read(entry_path(version)), changes)
    files.put(entry_path(version), data)
    _read(files)
    assert files.read(entry_path(version)) == data


@settings(max_examples=300)
@given(changes=CHANGES)
def test_damaged_checkpoint(whole: MemoryFiles, changes: list[tuple[float, str, bytes]]) -> None:
    """Whatever happened to the bytes of a checkpoint, it is read or refused."""
    files = _copy(whole)
    handle(files).checkpoint()
    data = _damaged(files.read(checkpoint_path(4)), changes)
    files.put(checkpoint_path(4), data)
    _read(files)
    assert files.read(checkpoint_path(4)) == data


@given(st.binary(max_size=60), st.sampled_from([HINT_PATH, entry_path(5), checkpoint_path(5)]))
def test_any_file(whole: MemoryFiles, data: bytes, path: str) -> None:
    """A file of any content under a name of the log."""
    files = _copy(whole)
    files.put(path, data)
    found = _read(files)
    assert found is None or found.version == 4
