"""Other processes for tests. They are forked from a server that has imported all that they need, which takes no time."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Mapping
from multiprocessing.synchronize import Barrier
from typing import NoReturn

import numpy as np
import pyarrow as pa

from spark_partq.storage.files import FileAlreadyExists, open_files
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.queue.messages import MessageWriter
from spark_partq.storage.store import Store

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["spark_partq.storage.files.objects", "tests.helpers", __name__])
NOBODY = 65534
_barrier: Barrier


# ---- racing
def race(uri: str, options: Mapping[str, str], names: list[str], count: int) -> list[list[str]]:
    """What each of several processes won that all put the same names; its file says which one it was."""
    with CONTEXT.Pool(count, _meet, (CONTEXT.Barrier(count, timeout=60),)) as pool:
        return pool.starmap(_put_all, [(uri, options, names, number) for number in range(count)], chunksize=1)


def content(number: int) -> bytes:
    return bytes([number]) * (20_000 + number)


def _meet(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 (a pool hands over arguments only so)
    _barrier = barrier


def _put_all(uri: str, options: Mapping[str, str], names: list[str], number: int) -> list[str]:
    files, won = open_files(uri, options), []
    for name in names:
        _barrier.wait()
        try:
            files.put_if_absent(name, content(number))
            won.append(name)
        except FileAlreadyExists:
            pass
    return won


# ---- dying
def put_and_die(root: str, path: str, when: str) -> int:
    """The exit code of a process that is killed while it puts a file: ``writing``, ``linking`` or when it has ``linked``."""
    process = CONTEXT.Process(target=_put_and_die, args=(root, path, when))
    process.start()
    process.join(60)
    code = process.exitcode
    assert code is not None
    return code


def _put_and_die(root: str, path: str, when: str) -> None:
    write, link = os.write, os.link

    def die() -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")

    def half(descriptor: int, data: memoryview) -> int:
        write(descriptor, data[: len(data) // 2])
        die()

    def linking(*names: str) -> None:
        if when == "linked":
            link(*names)
        die()

    if when == "writing":
        os.write = half  # type: ignore[assignment]
    else:
        os.link = linking  # type: ignore[assignment]
    DiskFiles(root).put_if_absent(path, b"x" * 1000)


# ---- without rights, without space
def answers(
    do: Callable[[DiskFiles], list[str]], root: str, *, nobody: bool = False, most_bytes: int = -1
) -> list[str]:
    """What `do` answers in a process that has no rights but everybody's, or whose files cannot grow beyond so many bytes."""
    with CONTEXT.Pool(1) as pool:
        return pool.apply(_answers, (do, root, nobody, most_bytes))


def _answers(do: Callable[[DiskFiles], list[str]], root: str, nobody: bool, most_bytes: int) -> list[str]:
    if most_bytes >= 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
    if nobody and os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    return do(DiskFiles(root))


def said(do: Callable[[], object]) -> str:
    """The class of an error and its text; what it returns if there is none."""
    try:
        return repr(do())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def in_a_folder_that_is_read_only(files: DiskFiles) -> list[str]:
    return [
        said(lambda: files.put_if_absent("a/new", b"x")),
        said(lambda: files.put("a/n", b"x")),
        said(lambda: files.open_output("a/n")),
        said(lambda: files.make_folder("a/b")),
        said(lambda: files.delete("a/n")),
        said(lambda: files.delete_folder("a")),
        said(lambda: [files.read("a/n"), files.info("a/new"), files.list_folders("a"), len(files.list_files("a"))]),
    ]


def in_a_folder_that_is_closed(files: DiskFiles) -> list[str]:
    return [
        said(lambda: files.read("a/n")),
        said(lambda: files.info("a/n")),
        said(lambda: files.open_input("a/n")),
        said(lambda: files.put("a/n", b"x")),
        said(lambda: files.list_files("a")),
        said(lambda: files.list_folders("a")),
    ]


def in_a_folder_that_lists_names_only(files: DiskFiles) -> list[str]:
    return [said(lambda: files.list_files("a"))]


def a_look_at_a_table(files: DiskFiles) -> list[str]:
    return [said(lambda: DeltaLog(Store.over(files), "a", "the table").refresh())]


def with_too_little_space(files: DiskFiles) -> list[str]:
    """In the end, what is in the folder, too."""
    found = [said(lambda: files.put_if_absent("a/new", b"x" * 5_000)), said(lambda: files.put("a/n", b"x" * 5_000))]
    found += [*os.listdir(f"{files._root}/a"), said(lambda: files.put("a/n", b"x" * 1_000))]
    return found


def messages_with_too_little_space(files: DiskFiles) -> list[str]:
    files.make_folder("queues/q/partitions/partition=0")
    store = Store.at(files._root)
    writer = MessageWriter(store, "q", pa.schema([("v", pa.binary())]), [], sorted_input=False)
    rows = pa.RecordBatch.from_pydict({"v": [os.urandom(1_000) for _ in range(100)]})

    def write() -> None:
        writer.write(rows, np.zeros(100, np.int64), np.arange(100))
        writer.finish()

    return [said(write), *os.listdir(f"{files._root}/queues/q/partitions/partition=0")]


def with_too_little_space_for_a_part(files: DiskFiles) -> list[str]:
    output = files.open_output("a/n")
    found = [said(lambda: output.sink.write(b"x" * 5_000)), said(output.discard)]
    return [*found, *os.listdir(f"{files._root}/a")]
