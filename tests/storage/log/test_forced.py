"""A log of which what is written is forced to the disk: nobody goes by what another process may not have forced yet."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.core.errors import StoreUnavailableError
from spark_partq.core.group.events import Leave
from spark_partq.storage.files import FileAlreadyExists
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.group.handle import Group
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.scaled import Reader, Sink, make, messages
from tests.storage.log.tables import FOLDER, handle, made


@pytest.fixture
def files(tmp_path: Path) -> DiskFiles:
    files = DiskFiles(str(tmp_path))
    files.force_writes(seen=False)
    return files


def test_nobody_relies_on_what_is_not_forced(store: str, forced: list[str]) -> None:
    make(store, 1, durability="disk")
    other = opened(store)
    Sink(store).write(0, messages(0, 3))
    forced.clear()
    other.refresh()
    assert [path for path in forced if path.endswith("partition=0/_delta_log")]
    forced.clear()
    other.refresh()
    assert forced == []  # it is once


@pytest.mark.parametrize("commits", [0, 1])
def test_a_young_log_is_no_exception(files: DiskFiles, tmp_path: Path, forced: list[str], commits: int) -> None:
    made(DiskFiles(str(tmp_path)), commits)
    reader = handle(files)
    for _ in range(2):  # it is once
        reader.refresh()
        assert forced == [str(tmp_path / FOLDER / "_delta_log")]


def test_who_is_told_that_a_name_is_taken_may_rely_on_it(files: DiskFiles, tmp_path: Path, forced: list[str]) -> None:
    (tmp_path / "n").write_bytes(b"x")
    with pytest.raises(FileAlreadyExists):
        files.put_if_absent("n", b"y")
    assert forced[-1] == str(tmp_path)


def test_a_file_before_its_name(files: DiskFiles, tmp_path: Path, forced: list[str]) -> None:
    """Of a put: the temporary file, then the folder that has its name."""
    files.put_if_absent("n", b"y")
    files.put("n", b"z")
    out = files.open_output("m")
    out.sink.write(b"x")
    out.close()
    assert [Path(path).name.endswith(".tmp") for path in forced] == [True, False] * 3
    assert set(forced[1::2]) == {str(tmp_path)}


def test_a_disk_that_does_not_take_it(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether such a put landed is not known; nothing is confirmed."""

    def fails(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreUnavailableError, match="Input/output error"):
        files.put_if_absent("n", b"y")


def test_a_process_forces_what_it_writes_from_when_it_knows(store: str, forced: list[str]) -> None:
    """The setting is heeded by who runs, and by the groups that read the queue."""
    make(store, 2)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 3))
    reader.all()
    assert forced == []
    partq.alter_queue(store, "q", durability="disk")
    forced.clear()
    sink.write(1, messages(3, 6))
    assert forced.index("") < [path.endswith(".tmp") for path in forced].index(True)  # what it had seen comes first
    assert any("/manifests/" in path for path in forced) and any("partition=0" in path for path in forced)
    forced.clear()
    reader.all()
    assert any("/groups/g/acks" in path for path in forced)
    partq.alter_queue(store, "q", durability="process")
    assert "forcedWrites" in opened(store).state.format.features
    forced.clear()
    Sink(store).write(2, messages(6, 9))
    Reader(store).all()
    assert forced == []


def test_a_store_is_sent_as_it_is_forced(store: str) -> None:
    make(store, 1, durability="disk")
    queue = opened(store)
    assert pickle.loads(pickle.dumps(queue.store)).files._forces
    assert not pickle.loads(pickle.dumps(Store(store))).files._forces


def test_who_only_reads_forces_nothing_but_names(store: str, forced: list[str]) -> None:
    make(store, 1, durability="disk")
    Sink(store).write(0, messages(0, 3))
    Reader(store).all()
    forced.clear()
    partq.describe_group(store, "g")
    partq.describe_queue(store, "q")
    assert "" not in forced


def test_a_group_is_known_to_be_forced_by_its_own_facts(store: str, forced: list[str]) -> None:
    make(store, 1, durability="disk")
    reader = Reader(store)
    group = Group(Store(store), "g")
    group.refresh()
    forced.clear()
    group.decide(lambda: [Leave(reader.instance, reader.incarnation)], "test")
    assert "" in forced and any("/groups/g/control" in path for path in forced)
