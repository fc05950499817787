"""What can be wrong with a disk, and with who writes on it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.storage.files import FileAlreadyExists, FileMissing, is_temporary
from spark_partq.storage.files.disk import DiskFiles
from tests.storage.files import processes


@pytest.fixture
def files(tmp_path: Path) -> DiskFiles:
    """Files with a folder `a`."""
    (tmp_path / "a").mkdir()
    return DiskFiles(str(tmp_path))


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder with a folder `a` and a file `n` in it, to which everybody gets, unlike to those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="partq-"))
    path.chmod(0o755)
    (path / "a").mkdir()
    (path / "a" / "n").write_bytes(b"abc")
    yield path
    (path / "a").chmod(0o755)
    shutil.rmtree(path)


# ---- a process that stands still before it names its file
@pytest.mark.parametrize(("put", "named_by"), [("put", "replace"), ("put_if_absent", "link")])
@pytest.mark.parametrize("remade", [False, True])
def test_its_temporary_file_is_cleaned_up(
    files: DiskFiles, monkeypatch: pytest.MonkeyPatch, put: str, named_by: str, remade: bool
) -> None:
    """It writes the file again, but not into a folder that was made in the place of a deleted one."""
    named, folder, tries = getattr(os, named_by), Path(files._root) / "a", list[str]()

    def stands_still(temporary: str, at: str) -> None:
        tries.append(temporary)
        if len(tries) == 1:
            shutil.rmtree(folder)
            folder.mkdir()
        named(temporary, at)

    def is_slow(temporary: str, at: str) -> None:
        tries.append(temporary)
        if len(tries) == 1:
            os.unlink(temporary)
        named(temporary, at)

    monkeypatch.setattr(os, named_by, stands_still if remade else is_slow)
    with pytest.raises(FileMissing) if remade else contextlib.nullcontext():
        getattr(files, put)("a/n", b"x")
    assert len(tries) == 1 + (not remade)
    assert os.listdir(folder) == ([] if remade else ["n"])


# ---- hard links
@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_hard_links(files: DiskFiles, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """One error that says so and names the store; nothing is left behind."""

    def link(source: str, target: str) -> NoReturn:
        raise OSError(number, os.strerror(number), source, None, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StoreUnavailableError, match=r"cannot make hard links .*in an object store") as raised:
        files.put_if_absent("a/n", b"x")
    assert raised.value.params == {"path": files._root}
    assert files._root in str(raised.value)
    assert files.list_files("a") == []
    files.put("a/n", b"x")  # which needs none


def test_another_error_of_a_link(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO), source, None, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StoreUnavailableError, match="/a/n cannot be written: Input/output error"):
        files.put_if_absent("a/n", b"x")
    assert files.list_files("a") == []


def test_a_link_whose_answer_was_lost(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system that asks again: it is there, because this process has just made it."""
    link = os.link

    def asked_twice(source: str, target: str) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", asked_twice)
    files.put_if_absent("a/n", b"mine")
    assert files.read("a/n") == b"mine"
    with pytest.raises(FileAlreadyExists):
        files.put_if_absent("a/n", b"other")
    assert files.read("a/n") == b"mine"
    assert [info.name for info in files.list_files("a")] == ["n"]


def test_a_backup_that_makes_links(files: DiskFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has one of the file that another process was too fast for: that is no answer that was lost."""
    link = os.link

    def too_late(source: str, target: str) -> None:
        monkeypatch.setattr(os, "link", link)
        files.put_if_absent("a/n", b"other")
        link(source, tmp_path / "backup")
        link(source, target)

    monkeypatch.setattr(os, "link", too_late)
    with pytest.raises(FileAlreadyExists):
        files.put_if_absent("a/n", b"mine")
    assert files.read("a/n") == b"other"


def test_a_folder_that_goes_while_a_file_is_put(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def late(source: str, target: str) -> None:
        shutil.rmtree(Path(target).parent)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(FileMissing):
        files.put_if_absent("a/n", b"x")
    assert files.list_folders("") == []
    files.make_folder("b")
    output = files.open_output("b/n")
    files.delete_folder("b")
    with pytest.raises(FileMissing):
        output.close()
    output.discard()


def test_what_is_written_piece_by_piece(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take, and give, less than it was asked for."""
    write, read = os.write, os.read
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    monkeypatch.setattr(os, "read", lambda descriptor, size: read(descriptor, min(size, 5)))
    data = os.urandom(100)
    files.put_if_absent("a/1", data)
    files.put("a/2", data)
    assert files.read("a/1") == data == files.read("a/2")


# ---- space and rights
def test_a_full_disk(files: DiskFiles) -> None:
    """A write that fails half way leaves what was there before, and no temporary file; the error says what to look at."""
    files.put("a/n", b"before")
    *refused, left, after = processes.answers(processes.with_too_little_space, files._root, most_bytes=2_000)
    for path, text in zip(("a/new", "a/n"), refused, strict=True):
        assert text.startswith(f"StoreUnavailableError: [STORE_UNAVAILABLE] {files._root}/{path} cannot be written: ")
        assert "File too large" in text and "space" in text
    assert (left, after) == ("n", "None")
    assert files.read("a/n") == b"x" * 1_000


def test_a_full_disk_in_the_middle_of_a_file_in_parts(files: DiskFiles) -> None:
    refused, *rest = processes.answers(processes.with_too_little_space_for_a_part, files._root, most_bytes=2_000)
    assert "File too large" in refused
    assert rest == ["None"]  # discarded, and nothing is left


def test_a_full_disk_under_messages(tmp_path: Path) -> None:
    """The task that writes them gets one error of this package, and leaves no half file."""
    told, *left = processes.answers(processes.messages_with_too_little_space, str(tmp_path), most_bytes=20_000)
    assert told.startswith("CommitFailedError: ") and "nothing was changed" in told
    assert left == []


def test_a_folder_that_is_read_only(open_to_all: Path) -> None:
    """It can be read, and every change is refused with one clear error that names the path."""
    (open_to_all / "a").chmod(0o555)
    *refused, read = processes.answers(processes.in_a_folder_that_is_read_only, str(open_to_all), nobody=True)
    for text in refused:
        assert text.startswith(f"NotPermittedError: [NOT_PERMITTED] {open_to_all}/a")
        assert "cannot be written" in text and "ermission denied" in text and "permissions" in text
    assert read == "[b'abc', None, [], 1]"
    assert os.listdir(open_to_all / "a") == ["n"]


def test_a_folder_that_is_closed(open_to_all: Path) -> None:
    """It is not taken for one that is missing, empty or damaged."""
    (open_to_all / "a").chmod(0)
    for text in processes.answers(processes.in_a_folder_that_is_closed, str(open_to_all), nobody=True):
        assert text.startswith(f"NotPermittedError: [NOT_PERMITTED] {open_to_all}/a")
        assert "ermission denied" in text
    (text,) = processes.answers(processes.a_look_at_a_table, str(open_to_all), nobody=True)
    assert text.startswith("NotPermittedError: ") and "ermission denied" in text


def test_a_folder_that_lists_names_only(open_to_all: Path) -> None:
    (open_to_all / "a").chmod(0o744)
    (text,) = processes.answers(processes.in_a_folder_that_lists_names_only, str(open_to_all), nobody=True)
    assert text.startswith("NotPermittedError: ")


# ---- what else lies in a folder
def test_what_is_no_plain_file_is_not_listed(files: DiskFiles, tmp_path: Path) -> None:
    """Symbolic links, wherever they lead, pipes and sockets."""
    files.put("a/n", b"x")
    folder = tmp_path / "a"
    (folder / "link").symlink_to(folder / "n")
    (folder / "to-folder").symlink_to(tmp_path)
    (folder / "to-nowhere").symlink_to(tmp_path / "nowhere")
    (folder / "to-device").symlink_to("/dev/null")
    (folder / "to-itself").symlink_to(folder / "to-itself")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.open(folder, os.O_RDONLY)  # the name of a socket is short
        try:
            listening.bind(f"/proc/self/fd/{here}/socket")
        finally:
            os.close(here)
        assert len(os.listdir(folder)) == 8
        assert [info.name for info in files.list_files("a")] == ["n"]
        for name in os.listdir(folder):
            assert (files.info(f"a/{name}") is not None) == (name == "n")
    assert [info.name for info in DiskFiles("/dev").list_files("") if info.name == "null"] == []


def test_a_folder_in_the_place_of_a_file(files: DiskFiles) -> None:
    """Is an error of the store, and stays."""
    files.make_folder("a/n/deeper")
    for do in (
        lambda: files.read("a/n"),
        lambda: files.put("a/n", b"x"),
        lambda: files.delete("a/n"),
        lambda: files.open_output("a/n").close(),
    ):
        with pytest.raises(StoreUnavailableError, match=r"/a/n cannot be (read|written)"):
            do()
    with pytest.raises(FileAlreadyExists):
        files.put_if_absent("a/n", b"x")
    assert files.list_folders("a/n") == ["deeper"]


def test_a_file_in_the_place_of_a_folder(files: DiskFiles) -> None:
    files.put("a/n", b"x")
    with pytest.raises(StoreUnavailableError, match="/a/n cannot be written: File exists"):
        files.make_folder("a/n")
    with pytest.raises(FileMissing):
        files.put("a/n/deeper", b"x")
    files.delete("a/n/deeper")
    assert files.read("a/n") == b"x"


# ---- processes that die, and others that go on
@pytest.mark.parametrize("when", ["writing", "linking", "linked"])
def test_a_process_that_dies_while_it_puts(files: DiskFiles, when: str) -> None:
    """There is the whole file or none, and at most one that says that it is temporary."""
    assert processes.put_and_die(files._root, "a/n", when) == -9
    found = {info.name: info.size for info in files.list_files("a")}
    litter = [name for name in found if is_temporary(name)]
    assert len(litter) == 1
    assert [found[name] for name in litter] == [500 if when == "writing" else 1_000]
    assert {name: size for name, size in found.items() if name not in litter} == (
        {"n": 1_000} if when == "linked" else {}
    )
    if when == "linked":
        with pytest.raises(FileAlreadyExists):
            files.put_if_absent("a/n", b"other")
    else:
        files.put_if_absent("a/n", b"other")
    files.delete(f"a/{litter[0]}")
    assert files.read("a/n") == (b"x" * 1_000 if when == "linked" else b"other")


def test_listing_while_files_come_and_go(files: DiskFiles) -> None:
    """Whatever stays is listed each time."""
    for name in ("0", "stays", "zz"):
        files.put(f"a/{name}", b"x")
    over = threading.Event()

    def come_and_go(thread: int) -> None:
        while not over.is_set():
            for n in range(30):
                files.put(f"a/{thread}-{n}", b"x")
            for n in range(30):
                files.delete(f"a/{thread}-{n}")

    threads = [threading.Thread(target=come_and_go, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            listed = [info.name for info in files.list_files("a")]
            assert {"0", "stays", "zz"} <= set(listed)
            assert listed == sorted(listed)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert [info.name for info in files.list_files("a")] == ["0", "stays", "zz"]


def test_a_file_that_goes_while_it_is_listed(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        files.put(f"a/{n}", b"x")
    entries = files._entries

    def then_deleted(folder: str) -> list[os.DirEntry[str]]:
        found = entries(folder)
        files.delete("a/1")
        return found

    monkeypatch.setattr(files, "_entries", then_deleted)
    assert [info.name for info in files.list_files("a")] == ["0", "2"]


def test_a_file_that_is_replaced_by_another_while_it_is_listed(
    files: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two is always there, as of the manifests of a sink; so one of them is listed."""
    files.put("a/1", b"x")
    entries, left = files._entries, [2, 3]

    @contextlib.contextmanager
    def then_replaced(folder: str) -> Iterator[list[os.DirEntry[str]]]:
        with entries(folder) as found:
            listed = list(found)
            if left:
                files.put(f"a/{left[0]}", b"x")
                files.delete(f"a/{left.pop(0) - 1}")
            yield listed

    monkeypatch.setattr(files, "_entries", then_replaced)
    assert [info.name for info in files.list_files("a")] == ["3"]


@pytest.mark.parametrize("replaced", [1, 2])
def test_files_that_are_replaced_while_a_large_folder_is_read_in_pieces(
    files: DiskFiles, monkeypatch: pytest.MonkeyPatch, replaced: int
) -> None:
    """The second is put into a piece that was read, and the first is deleted before its piece is read."""
    for n in range(3):
        files.put(f"a/other~{n}", b"x")
    files.put("a/sink~1", b"x")
    entries, left = files._entries, list(range(1, 1 + replaced))

    @contextlib.contextmanager
    def in_pieces(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        def pieces(listed: list[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
            yield from listed[:3]
            if left:
                was = left.pop(0)
                files.put(f"a/sink~{was + 1}", b"x")
                files.delete(f"a/sink~{was}")
                listed = [entry for entry in listed if entry.name != f"sink~{was}"]
            yield from listed[3:]

        with entries(folder) as found:
            yield pieces(sorted(found, key=lambda entry: entry.name))

    monkeypatch.setattr(files, "_entries", in_pieces)
    assert [info.name for info in files.list_files("a", prefix="sink~")] == [f"sink~{1 + replaced}"]


def test_a_file_that_goes_while_its_folder_is_deleted(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest goes, too."""
    for n in range(5):
        files.put(f"a/{n}", b"x")
    unlink, others = os.unlink, iter([True])

    def after_somebody_else(path: str, *, dir_fd: int | None = None) -> None:
        if next(others, False):
            unlink(path, dir_fd=dir_fd)
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", after_somebody_else)
    files.delete_folder("a")
    assert files.list_folders("") == []
