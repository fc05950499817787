"""Files that fail on demand do so."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.storage.files import FileAlreadyExists, FileMissing, Files, MemoryFiles, is_temporary
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.testing.faults import CHANGES, FAULTS, READS, Crash, FaultyFiles

CHANCES = {"conflict": 0.1, "repeated": 0.05, "lost": 0.1, "landed": 0.1}


@pytest.fixture
def store() -> MemoryFiles:
    return MemoryFiles()


def written(files: Files, path: str) -> int:
    output = files.open_output(path)
    output.sink.write(b"x")
    return output.close()


PUTS: dict[str, Callable[[Files], object]] = {
    "put_if_absent": lambda files: files.put_if_absent("a/n", b"x"),
    "put": lambda files: files.put("a/n", b"x"),
    "close": lambda files: written(files, "a/n"),
}


# ---- single faults
@pytest.mark.parametrize(
    ("fault", "raised", "is_in"),
    [
        ("conflict", FileAlreadyExists, False),
        ("repeated", FileAlreadyExists, True),
        ("lost", StoreUnavailableError, False),
        ("landed", StoreUnavailableError, True),
        ("crash before", Crash, False),
        ("crash after", Crash, True),
    ],
)
@pytest.mark.parametrize("name", PUTS)
def test_a_fault(store: MemoryFiles, name: str, fault: str, raised: type[BaseException], is_in: bool) -> None:
    """It befalls the operation that the plan says, once."""
    number = 2 if name == "close" else 1
    files = FaultyFiles(store, plan={number: fault})
    if fault in ("conflict", "repeated") and name != "put_if_absent":
        PUTS[name](files)  # no store says so
        assert (files.happened, files.count) == ([], number)
        return
    with pytest.raises(raised):
        PUTS[name](files)
    assert files.happened == [(number, name, "a/n", fault)]
    assert (store.info("a/n") is not None) is is_in
    if raised is not Crash:
        files.put("a/m", b"")
        assert store.info("a/m") is not None


@pytest.mark.parametrize(
    "look",
    [
        lambda files: files.read("a/n"),
        lambda files: files.info("a/n"),
        lambda files: files.list_files("a"),
        lambda files: files.list_folders(""),
        lambda files: files.open_input("a/n"),
        lambda files: files.open_output("a/n"),
    ],
)
def test_faults_of_looks(store: MemoryFiles, look: Callable[[Files], object]) -> None:
    """A read whose answer is lost is a read that was not done."""
    store.put("a/n", b"x")
    files = FaultyFiles(store, plan={1: "lost", 2: "landed", 3: "conflict", 4: "crash after"})
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="no answer about"):
            look(files)
    look(files)
    with pytest.raises(Crash):
        look(files)
    assert store.read("a/n") == b"x"


@pytest.mark.parametrize("fault", ["lost", "landed"])
def test_faults_of_deleting(store: MemoryFiles, fault: str) -> None:
    for path in ("a/1", "a/2"):
        store.put(path, b"x")
    files = FaultyFiles(store, plan=dict.fromkeys((1, 2, 3), fault))
    changes: list[Callable[[], None]] = [
        lambda: files.delete("a/1"), lambda: files.delete_folder("a"), lambda: files.make_folder("b")
    ]  # fmt: skip
    for do in changes:
        with pytest.raises(StoreUnavailableError):
            do()
        assert (store.info("a/1") is None) is (fault == "landed")
    assert (store.list_folders("") == []) is (fault == "landed")


def test_an_answer_that_is_lost_may_have_been_a_refusal(store: MemoryFiles) -> None:
    store.put("a/n", b"theirs")
    files = FaultyFiles(store, plan={1: "landed", 2: "repeated"})
    with pytest.raises(StoreUnavailableError):
        files.put_if_absent("a/n", b"mine")
    with pytest.raises(FileAlreadyExists):
        files.put_if_absent("a/n", b"mine")
    assert store.read("a/n") == b"theirs"


def test_who_crashed_does_nothing_any_more(tmp_path: Path) -> None:
    """Not even clean up; so what he was writing stays."""
    (tmp_path / "a").mkdir()
    files = FaultyFiles(DiskFiles(str(tmp_path)), plan={2: "crash before"})
    output = files.open_output("a/n")
    for _ in range(2):
        with pytest.raises(Crash):
            output.close()
        with pytest.raises(Crash):
            output.discard()
        with pytest.raises(Crash):
            files.read("a/n")
    assert files.happened == [(2, "close", "a/n", "crash before")]
    (litter,) = FaultyFiles(files.files).list_files("a")
    assert is_temporary(litter.name)


def test_faults_that_there_are_not(store: MemoryFiles) -> None:
    with pytest.raises(ValueError, match="no such faults: fire, flood; there are conflict"):
        FaultyFiles(store, chances={"fire": 0.1, "lost": 0.1}, plan={1: "flood"})


# ---- by chance
def happened(seed: int, chances: dict[str, float]) -> list[tuple[int, str, str, str]]:
    """The faults of a long run with every operation."""
    store = MemoryFiles()
    files = FaultyFiles(store, chances=chances, rng=random.Random(seed), latency_s=1.0, sleep=lambda _: None)
    rng = random.Random(0)
    operations: list[Callable[[str], object]] = [
        lambda path: files.put_if_absent(path, b"x"), lambda path: files.put(path, b"x"), files.read, files.info,
        lambda path: files.list_files("a"), lambda path: files.list_folders(""), lambda path: files.make_folder("a"),
        files.delete, lambda path: files.delete_folder("a"), files.open_input, lambda path: written(files, path),
        lambda path: files.open_output(path).discard(),
    ]  # fmt: skip
    for _ in range(2_000):
        with contextlib.suppress(FileAlreadyExists, FileMissing, StoreUnavailableError):
            rng.choice(operations)(f"a/{rng.randrange(5)}")
    return files.happened


def test_the_same_seed_gives_the_same_faults() -> None:
    first = happened(1, CHANCES)
    assert first == happened(1, CHANCES)
    assert first != happened(2, CHANCES)


@pytest.mark.parametrize("seed", range(3))
def test_every_kind_of_fault_happens(seed: int) -> None:
    """As often as it is wanted, to every operation that it may befall."""
    found = happened(seed, CHANCES)
    by_kind = {(name, fault) for _, name, _, fault in found}
    assert by_kind == {(name, fault) for name in READS | CHANGES for fault in ("lost", "landed")} | {
        ("put_if_absent", "conflict"),
        ("put_if_absent", "repeated"),
    }
    counts = Counter(fault for _, _, _, fault in found)
    assert 150 < counts["lost"] < 350 and 150 < counts["landed"] < 350
    assert {fault for fault in FAULTS if not fault.startswith("crash")} == set(CHANCES)


@pytest.mark.parametrize("fault", ["crash before", "crash after"])
def test_a_crash_by_chance(store: MemoryFiles, fault: str) -> None:
    files = FaultyFiles(store, chances={fault: 0.1}, rng=random.Random(3))

    def put() -> None:
        for n in range(1_000):
            files.put(f"a/{n}", b"x")

    with pytest.raises(Crash):
        put()
    assert len(files.happened) == 1
    assert len(store.list_files("a")) == files.count - (fault == "crash before") < 1_000


def test_only_some_operations_fail(store: MemoryFiles) -> None:
    files = FaultyFiles(store, chances={"lost": 1.0}, names={"put"})
    files.put_if_absent("a/n", b"x")
    assert files.read("a/n") == b"x"
    with pytest.raises(StoreUnavailableError):
        files.put("a/n", b"y")


def test_latency(store: MemoryFiles) -> None:
    """Each operation takes its time, before it is done."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        assert len(store.list_files("a")) == len(slept) - 1

    files = FaultyFiles(store, latency_s=0.5, sleep=sleep)
    for n in range(20):
        files.put(f"a/{n}", b"x")
    assert len(set(slept)) == 20
    assert 0 < min(slept) < 0.2 < 0.3 < max(slept) <= 0.5


def test_listings_that_are_late(store: MemoryFiles) -> None:
    """New files show after some operations, also in listings of others; they can be read at once."""
    store.put("a/old", b"x")
    late = FaultyFiles(store, stale=3)
    other = FaultyFiles(late)

    def listed() -> list[str]:
        return [info.name for info in other.list_files("a")]

    late.put_if_absent("a/new", b"x")
    late.put("a/old", b"y")  # replacing a file does not hide it
    assert other.read("a/new") == b"x"
    assert listed() == ["old"]
    assert listed() == ["new", "old"]
    written(late, "a/part")
    other.put("top", b"x")
    assert [info.name for info in other.list_files("")] == []
    assert listed() == ["new", "old"]
    assert listed() == ["new", "old", "part"]
    assert [info.name for info in late.list_files("")] == ["top"]
    late.delete("a/new")
    late.put("a/new", b"z")
    assert listed() == ["old", "part"]
