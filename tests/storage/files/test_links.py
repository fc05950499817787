"""Nothing in a store follows a symbolic link."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.storage.files import FileMissing
from spark_partq.storage.files.disk import DiskFiles


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder outside of the store, with a file `n` and a folder `b` with another."""
    folder = tmp_path / "elsewhere"
    (folder / "b").mkdir(parents=True)
    (folder / "n").write_bytes(b"precious")
    (folder / "b" / "m").write_bytes(b"precious")
    return folder


@pytest.fixture
def files(tmp_path: Path, elsewhere: Path) -> DiskFiles:
    """A store with a file `a/n`, a link `a/file` to a file and a link `a/link` to a folder."""
    store = tmp_path / "store"
    (store / "a").mkdir(parents=True)
    (store / "a" / "n").write_bytes(b"x")
    (store / "a" / "file").symlink_to(elsewhere / "n")
    (store / "a" / "link").symlink_to(elsewhere)
    return DiskFiles(str(store))


def whole(elsewhere: Path) -> bool:
    left = {str(path.relative_to(elsewhere)): path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    return left == {"n": b"precious", "b/m": b"precious"}


def test_a_link_to_a_file(files: DiskFiles, elsewhere: Path) -> None:
    for do in (files.read, files.open_input):
        with pytest.raises(FileMissing):
            do("a/file")
    assert files.info("a/file") is None
    assert [info.name for info in files.list_files("a")] == ["n"]
    files.put("a/file", b"mine")  # takes the link's place
    assert files.read("a/file") == b"mine"
    assert whole(elsewhere)


def test_a_link_to_a_file_is_deleted_itself(files: DiskFiles, elsewhere: Path) -> None:
    files.delete("a/file")
    assert not os.path.lexists(f"{files._root}/a/file")
    assert whole(elsewhere)


@pytest.mark.parametrize("folder", ["a/link", "a/link/b"])
def test_behind_a_link_there_is_nothing(files: DiskFiles, elsewhere: Path, folder: str) -> None:
    name = {"a/link": "n", "a/link/b": "m"}[folder]
    missing: list[Callable[[], object]] = [
        lambda: files.read(f"{folder}/{name}"),
        lambda: files.open_input(f"{folder}/{name}"),
        lambda: files.put(f"{folder}/new", b"x"),
        lambda: files.put_if_absent(f"{folder}/new", b"x"),
        lambda: files.open_output(f"{folder}/new"),
    ]
    for do in missing:
        with pytest.raises(FileMissing):
            do()
    assert files.info(f"{folder}/{name}") is None
    assert files.list_files(folder) == [] == files.list_folders(folder)
    files.delete(f"{folder}/{name}")
    assert whole(elsewhere)


def test_deleting_a_folder(files: DiskFiles, elsewhere: Path) -> None:
    """The links in it go, and not what they lead to; so it is with a folder that is itself a link, or lies behind one."""
    files.delete_folder("a/link/b")
    assert whole(elsewhere)
    files.delete_folder("a/link")
    assert not os.path.lexists(f"{files._root}/a/link") and whole(elsewhere)
    os.symlink(elsewhere, f"{files._root}/a/link")
    files.delete_folder("a")
    assert not os.path.lexists(f"{files._root}/a") and whole(elsewhere)


def test_links_are_no_folders(files: DiskFiles, elsewhere: Path) -> None:
    files.make_folder("a/real")
    assert files.list_folders("a") == ["real"]
    assert files.list_folders("") == ["a"]
    for folder in ("a/link", "a/link/b/c", "a/file"):
        with pytest.raises(StoreUnavailableError, match=f"{folder} cannot be written: File exists"):
            files.make_folder(folder)
    assert sorted(os.listdir(elsewhere / "b")) == ["m"]


def test_a_folder_that_becomes_a_link(files: DiskFiles, elsewhere: Path) -> None:
    """A process that has used the folder before notices."""
    assert files.read("a/n") == b"x"
    os.rename(f"{files._root}/a", f"{files._root}/before")
    os.symlink(elsewhere, f"{files._root}/a")
    for do in (files.read, files.open_input):
        with pytest.raises(FileMissing):
            do("a/n")
    assert files.info("a/n") is None
    files.delete("a/n")
    files.delete_folder("a/b")
    assert whole(elsewhere)


def test_a_store_may_be_reached_by_a_link(files: DiskFiles, tmp_path: Path) -> None:
    """Whoever names the store decides where it is."""
    (tmp_path / "name").symlink_to(files._root)
    named = DiskFiles(str(tmp_path / "name"))
    assert named.read("a/n") == b"x"
    named.put_if_absent("a/new", b"y")
    assert [info.name for info in named.list_files("a")] == ["n", "new"]
    named.delete("a/new")
    assert named.list_folders("") == ["a"]


def test_a_pipe_does_not_block(files: DiskFiles) -> None:
    """Nobody writes to it, so whoever opened it as a file would wait for ever."""
    os.mkfifo(f"{files._root}/a/pipe")
    for do in (files.read, files.open_input):
        with pytest.raises(FileMissing):
            do("a/pipe")


def test_a_folder_that_is_swapped_while_it_is_deleted(files: DiskFiles, elsewhere: Path) -> None:
    """Somebody who may write there lets it be a link and a folder in turns; what is outside stays."""
    root, ended = files._root, threading.Event()
    os.mkdir(f"{root}/a/real")

    def swap() -> None:
        while not ended.is_set():
            for name in ("real", "link"):
                os.rename(f"{root}/a/{name}", f"{root}/a/swapped")
                os.rename(f"{root}/a/swapped", f"{root}/a/{name}")
            os.rename(f"{root}/a/real", f"{root}/a/t")
            os.rename(f"{root}/a/link", f"{root}/a/real")
            os.rename(f"{root}/a/real", f"{root}/a/link")
            os.rename(f"{root}/a/t", f"{root}/a/real")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(2_000):
            files.delete("a/real/n")
            files.delete("a/real/b/m")
            assert {info.name for info in files.list_files("a/real")} == set()
    finally:
        ended.set()
        swapping.join()
    assert whole(elsewhere)


def test_too_many_links(files: DiskFiles) -> None:
    """A loop is nothing, too."""
    os.symlink("loop", f"{files._root}/loop")
    assert files.info("loop/n") is None and files.list_files("loop") == []
    with pytest.raises(FileMissing):
        files.read("loop/n")
    with pytest.raises(StoreUnavailableError, match="File exists"):
        files.make_folder("loop/x")
