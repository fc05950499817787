"""What `Files` promises, wherever a store lies."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from functools import partial

import pytest

from spark_partq.storage.files import FileAlreadyExists, FileMissing, Files, FileTooLarge, is_temporary
from tests.storage.files.places import LARGE, Place, at_once, names
from tests.storage.files.processes import content, race

LOG = "queues/q/partitions/partition=-1/_delta_log"


# ---- putting
def test_one_of_several_puts_wins(files: Files) -> None:
    """The others are told, and the file is the winner's, whole, for whoever reads it meanwhile."""
    paths, count = [f"a/{n}" for n in range(8)], 6
    contents = [bytes([n]) * (40_000 + n) for n in range(count)]
    barrier = threading.Barrier(count + 1)
    winners: dict[str, list[int]] = {path: [] for path in paths}
    losers: dict[str, list[int]] = {path: [] for path in paths}

    def put(number: int) -> None:
        for path in paths:
            barrier.wait(60)
            try:
                files.put_if_absent(path, contents[number])
                winners[path].append(number)
            except FileAlreadyExists:
                losers[path].append(number)

    def read() -> None:
        for path in paths:
            barrier.wait(60)
            while True:
                try:
                    assert files.read(path) in contents
                    break
                except FileMissing:
                    pass

    at_once(*[partial(put, n) for n in range(count)], read)
    for path in paths:
        (winner,) = winners[path]
        assert sorted([winner, *losers[path]]) == list(range(count))
        assert files.read(path) == contents[winner]
    assert [info.name for info in files.list_files("a")] == [path.removeprefix("a/") for path in paths]


def test_a_name_is_taken_until_its_file_is_deleted(files: Files) -> None:
    """Also if the same is put again, or the file is empty."""
    for data in (b"", b"x"):
        files.put_if_absent("a/n", data)
        with pytest.raises(FileAlreadyExists):
            files.put_if_absent("a/n", data)
        assert files.read("a/n") == data
        files.delete("a/n")
    files.put("a/n", b"put")
    with pytest.raises(FileAlreadyExists):
        files.put_if_absent("a/n", b"other")
    assert files.read("a/n") == b"put"


def test_replaced_in_one_step(files: Files) -> None:
    """Who reads while a file is replaced has the one or the other."""
    contents = [bytes([n]) * (100_000 + 50_000 * n) for n in range(3)]
    files.put("a/n", contents[0])
    over = threading.Event()

    def replace() -> None:
        n = 0
        while not over.is_set():
            n += 1
            files.put("a/n", contents[n % 3])

    def read() -> None:
        try:
            for _ in range(40):
                assert files.read("a/n") in contents
                info = files.info("a/n")
                assert info is not None and info.size in map(len, contents)
                listed = [info.size for info in files.list_files("a") if not is_temporary(info.name)]
                assert set(listed) <= set(map(len, contents))
        finally:
            over.set()

    at_once(replace, read)
    assert [info.name for info in files.list_files("a")] == ["n"]


def test_large_files(files: Files) -> None:
    data = os.urandom(LARGE)
    files.put("a/put", data)
    files.put_if_absent("a/first", data)
    assert files.read("a/put") == data == files.read("a/first")
    assert [info.size for info in files.list_files("a")] == [LARGE, LARGE]


def test_a_file_that_is_larger_than_asked_for(files: Files) -> None:
    files.put("a/n", b"12345")
    assert files.read("a/n", 5) == b"12345"
    with pytest.raises(FileTooLarge, match="it has 5 bytes, more than 4"):
        files.read("a/n", 4)


def test_a_missing_folder(place: Place) -> None:
    """Where there are folders, it is said; elsewhere none is needed."""

    def written(path: str) -> int:
        output = place.files.open_output(path)
        output.sink.write(b"x")
        return output.close()

    for put in (lambda p: place.files.put_if_absent(p, b"x"), lambda p: place.files.put(p, b"x"), written):
        if place.has_folders:
            with pytest.raises(FileMissing):
                put("no/where/n")
            assert place.files.list_folders("") == []
        else:
            put(f"no/where/{put}")
    place.files.make_folder("no/where")
    place.files.make_folder("no/where")
    place.files.put("no/where/n", b"x")
    assert place.files.read("no/where/n") == b"x"


# ---- reading and listing
def test_what_is_not_there(files: Files) -> None:
    """A folder is no file, and neither is what would lie below a file."""
    files.put("a/deep", b"x")
    for path in ("a/n", "z/n", "n", "a", "a/deep/n"):
        if path != "a":
            with pytest.raises(FileMissing):
                files.read(path)
            with pytest.raises(FileMissing):
                files.open_input(path)
        assert files.info(path) is None
    for folder in ("z", "a/z", "a/deep"):
        assert files.list_files(folder) == []
        assert files.list_files(folder, "0") == []
        assert files.list_folders(folder) == []
    assert files.list_folders("b") == [] == files.list_files("b")


def test_size_and_time(files: Files) -> None:
    """The time is the store's, and about now; it does not go back."""
    before = time.time()
    files.put("a/1", b"abc")
    first = files.info("a/1")
    files.put_if_absent("a/2", b"")
    second = files.info("a/2")
    files.put("a/1", b"abcd")
    third = files.info("a/1")
    assert first is not None and second is not None and third is not None
    assert [(i.name, i.size) for i in (first, second, third)] == [("1", 3), ("2", 0), ("1", 4)]
    assert first.modified_ns <= second.modified_ns <= third.modified_ns
    for info in (first, second, third):
        assert before - 2 <= info.modified_ns / 1e9 <= time.time() + 2  # an object store tells whole seconds
    assert files.list_files("a") == [third, second]


def test_a_change_shows_in_what_is_told_of_a_file(place: Place) -> None:
    """Where a request costs little, its answer tells whether a file was replaced by one of the same size."""
    if not place.files.is_local:
        return
    place.files.make_folder("a")
    place.files.put("a/n", b"1")
    before, until = place.files.info("a/n"), time.monotonic() + 10
    while place.files.info("a/n") == before and time.monotonic() < until:  # the clock of a file system ticks slowly
        place.files.put("a/n", b"2")
    assert place.files.info("a/n") != before


def test_listing(files: Files) -> None:
    """By name, only what lies directly in the folder, no folders, and also what somebody is writing."""
    files.make_folder("a/sub/deeper")
    files.make_folder("ab")
    own = ["-1.json", "00000000000000000009.json", "00000000000000000010.json", "B", "_last", "a", "a.b", "é"]
    for name in [*reversed(own), ".12.tmp", "sub/n", "sub/deeper/n"]:
        files.put(f"a/{name}", b"x")
    files.put("ab/n", b"x")
    files.put("top", b"x")
    assert [info.name for info in files.list_files("a")] == sorted([*own, ".12.tmp"])
    assert names(files, "a") == own
    assert names(files, "a", after="00000000000000000009.json") == own[2:]
    assert names(files, "a", after="00000000000000000009") == own[1:]
    assert names(files, "a", after="a") == own[6:]
    assert names(files, "a", after="zz") == ["é"]
    assert names(files, "a", after="ü") == []
    assert names(files, "") == ["top"]
    assert names(files, "", after="to") == ["top"]
    assert names(files, "", after="top") == []
    assert files.list_folders("a") == ["sub"]
    assert files.list_folders("a/sub") == ["deeper"]
    assert {"a", "ab"} <= set(files.list_folders(""))
    assert files.list_folders("") == sorted(files.list_folders(""))


def test_long_listings(files: Files) -> None:
    """An object store answers in pages of 1,000."""
    all_names = [f"{n:020d}.json" for n in range(1_010)]

    def put(some: Sequence[str]) -> None:
        for name in some:
            files.put(f"a/{name}", b"")

    at_once(*[partial(put, all_names[n::4]) for n in range(4)])
    assert names(files, "a") == all_names
    assert names(files, "a", after=all_names[10]) == all_names[11:]
    files.delete_folder("a")
    assert names(files, "a") == []


def test_names_with_a_prefix_behind_many_others(files: Files) -> None:
    """Q5: the manifests of sink `s` are found though names of sinks like `s-1` fill the first pages behind `s`, and others follow."""
    for name in [*(f"s-{n:03d}~1" for n in range(120)), "s~1", "s~2", "t~1"]:
        files.put(f"a/{name}", b"")
    assert [info.name for info in files.list_files("a", after="s", prefix="s~")] == ["s~1", "s~2"]
    assert files.list_files("a", after="r", prefix="r~") == []


def test_names_of_stores(place: Place) -> None:
    files = place.files
    files.make_folder(LOG)
    paths = [
        f"{LOG}/{0:020d}.json",
        f"{LOG}/{99:020d}.checkpoint.parquet",
        f"{LOG}/_last_checkpoint",
        f"{LOG.rpartition('/')[0]}/part-0a1b.parquet",
    ]
    for path in paths:
        files.put_if_absent(path, path.encode())
    for path in paths:
        assert files.read(path) == path.encode()
        with files.open_input(path) as source:
            assert source.read() == path.encode()
    assert files.list_folders("queues/q/partitions") == ["partition=-1"]
    assert files.list_folders(LOG.rpartition("/")[0]) == ["_delta_log"]
    assert [f"{LOG}/{name}" for name in names(files, LOG)] == paths[:3]


# ---- deleting
def test_deleting_twice(files: Files) -> None:
    files.put("a/1", b"x")
    files.put("a/2", b"x")
    for _ in range(2):
        files.delete("a/1")
        files.delete("z/1")
        assert names(files, "a") == ["2"]
    for _ in range(2):
        files.delete_folder("a")
        files.delete_folder("z/z")
        assert "a" not in files.list_folders("") and files.info("a/2") is None


def test_a_folder_goes_with_all_that_is_in_it(files: Files) -> None:
    """And nothing besides."""
    files.make_folder("a/b/c")
    files.make_folder("ab")
    for path in ("a/1", "a/b/2", "a/b/c/3", "ab/1", "b/1"):
        files.put(path, b"x")
    files.delete_folder("a/b")
    assert (names(files, "a"), files.list_folders("a")) == (["1"], [])
    files.delete_folder("a")
    assert files.list_folders("") == ["ab", "b"]
    assert files.read("ab/1") == files.read("b/1") == b"x"


# ---- several processes
def test_processes_race(place: Place) -> None:
    """Each name has one winner, and his content."""
    if not place.uri:
        return  # in the memory of one process
    wanted = [f"a/{n:020d}.json" for n in range(50)]
    place.files.make_folder("a")
    won = race(place.uri, place.options, wanted, 4)
    assert sorted(name for names in won for name in names) == wanted
    for number, theirs in enumerate(won):
        for name in theirs:
            assert place.files.read(name) == content(number)
    assert [f"a/{info.name}" for info in place.files.list_files("a")] == wanted
