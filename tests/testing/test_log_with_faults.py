"""A log over files that fail on demand stays whole."""

from __future__ import annotations

import collections
import itertools
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_partq.core.errors import CommitFailedError, StoreUnavailableError
from spark_partq.core.payload.schema import with_columns
from spark_partq.storage.files import Files, MemoryFiles
from spark_partq.storage.log import Conflict, DeltaLog, TableSpec, retrying
from spark_partq.storage.log.entries import Entry
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from spark_partq.testing.faults import CHANGES, READS, Crash, FaultyFiles

SPEC = TableSpec(with_columns({"type": "struct", "fields": []}, ("v", "long")))
CHANCES = {"conflict": 0.1, "repeated": 0.05, "lost": 0.1, "landed": 0.1}


@pytest.fixture
def store() -> MemoryFiles:
    return MemoryFiles()


# ---- writers
def handle(files: Files) -> DeltaLog:
    return DeltaLog(Store.over(files), "t", "the table")


def entries(store: Files) -> list[Entry]:
    """All of them, whose versions are dense and each of which follows the one before it."""
    folder = LogFolder(Store.over(store), "t")
    found = folder.names().entries
    assert found == list(range(len(found)))
    read = [folder.read(version) for version in found]
    for before, after in itertools.pairwise(read):
        assert after.previous_token == before.token
    assert len({entry.token for entry in read}) == len(read)
    return read


class Writer:
    """Counts in the table, and knows of which commits it was told what."""

    def __init__(self, name: str, files: Files) -> None:
        self.name, self.log = name, handle(files)
        self.done: list[str] = []
        self.unknown: list[str] = []

    def count(self, number: int) -> None:
        """Add one, in a commit that has a name of its own."""
        app = f"{self.name}-{number}"

        def attempt() -> None:
            self.log.refresh()
            self.log.commit(transactions={"count": self.log.recorded("count", 0) + 1, app: 1})

        try:
            retrying(SYSTEM, attempt, "the table")
            self.done.append(app)
        except (CommitFailedError, StoreUnavailableError):
            self.unknown.append(app)


def check(store: Files, writers: list[Writer]) -> None:
    """Nothing is lost, nothing is there twice, and the counter is the number of commits."""
    all_entries = entries(store)
    for version, entry in enumerate(all_entries[1:], 1):
        assert entry.transactions["count"].version == version
    found = Counter(app for entry in all_entries for app in entry.transactions if app != "count")
    assert set(found.values()) <= {1}
    done = {app for writer in writers for app in writer.done}
    unknown = {app for writer in writers for app in writer.unknown}
    assert done <= set(found) <= done | unknown
    fresh = handle(store)
    fresh.refresh()
    assert (fresh.version, fresh.recorded("count", 0)) == (len(all_entries) - 1,) * 2


@pytest.mark.parametrize(("names", "often"), [(CHANGES, 0.15), (CHANGES | READS, 0.01)], ids=["changes", "all"])
@pytest.mark.parametrize("seed", range(4))
def test_writers_that_count(store: MemoryFiles, seed: int, names: frozenset[str], often: float) -> None:
    """Three at once, each with faults of its own."""
    handle(store).create(SPEC)
    chances = {"conflict": 0.15, "repeated": 0.15, "lost": often, "landed": often}
    own = [FaultyFiles(store, chances, names=names, rng=random.Random(f"{seed}{n}")) for n in range(3)]
    writers = [Writer(f"w{n}", files) for n, files in enumerate(own)]
    together = threading.Barrier(3)

    def work(writer: Writer) -> None:
        together.wait(60)
        for number in range(40):
            writer.count(number)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, writer) for writer in writers]:
            done.result(60)
    assert {fault for files in own for *_, fault in files.happened} == set(CHANCES)
    assert sum(len(writer.done) for writer in writers) > 10
    check(store, writers)


@pytest.mark.parametrize("seed", range(20))
def test_writers_in_turn(store: MemoryFiles, seed: int) -> None:
    """Another one commits, or tries to, while an operation of one takes its time; each seed is the same each time."""
    handle(store).create(SPEC)
    rng = random.Random(seed)
    busy: set[int] = set()
    numbers = iter(range(10_000))

    def meanwhile(_: float) -> None:
        free = [n for n in range(3) if n not in busy]
        if free and rng.random() < 0.2:
            count(rng.choice(free))

    def count(n: int) -> None:
        busy.add(n)
        writers[n].count(next(numbers))
        busy.discard(n)

    own = [FaultyFiles(store, CHANCES, rng=random.Random(rng.random()), latency_s=1, sleep=meanwhile) for _ in range(3)]
    writers = [Writer(f"w{n}", files) for n, files in enumerate(own)]
    for _ in range(15):
        count(rng.randrange(3))
    check(store, writers)


@pytest.mark.parametrize("fault", ["crash before", "crash after"])
def test_a_writer_that_dies(fault: str) -> None:
    """At any of its operations; who comes after it finds its last commit or not, and nothing else."""
    counts = set()
    for number in range(1, 20):
        store = MemoryFiles()
        handle(store).create(SPEC)
        before = Writer("before", store)
        before.count(1)
        files = FaultyFiles(store, plan={number: fault})
        writer = Writer("dies", files)
        with pytest.raises(Crash):
            collections.deque(map(writer.count, itertools.count()), maxlen=0)
        writer.unknown.append(f"dies-{len(writer.done)}")
        assert files.count == number
        after = Writer("after", store)
        after.count(1)
        check(store, [before, writer, after])
        counts.add((len(writer.done), len(entries(store)) - 3))
    done, there = zip(*counts, strict=True)
    assert max(done) > 1
    assert {a - b for a, b in zip(there, done, strict=True)} == {
        0,
        1,
    }  # the last one, of which nobody was told, is in or not


# ---- outcomes
def knowing(store: Files, files: Files) -> DeltaLog:
    """A handle that knows the table, and whose next operations are with other files."""
    log = handle(store)
    log.refresh()
    log.files = log.log.files = files
    return log


@pytest.mark.parametrize("fault", ["repeated", "landed"])
def test_an_unknown_outcome_is_settled(store: MemoryFiles, fault: str) -> None:
    """The handle finds its own commit by the token."""
    handle(store).create(SPEC)
    log = knowing(store, FaultyFiles(store, plan={1: fault}))
    log.commit(transactions={"count": 1})
    assert (log.version, len(entries(store))) == (1, 2)
    assert not log.refresh()


def test_a_commit_of_another_is_a_conflict_whatever_was_answered(store: MemoryFiles) -> None:
    for fault in ("", "conflict", "repeated", "lost", "landed"):
        log = handle(FaultyFiles(store, names={"put_if_absent"}))
        if not log.exists():
            log.create(SPEC)
        log.refresh()
        other = handle(store)
        other.refresh()
        other.commit()
        assert isinstance(log.files, FaultyFiles)
        log.files.plan = {log.files.count + 1: fault}
        with pytest.raises(Conflict):
            log.commit()
        assert len(entries(store)) == other.version + 1


def test_a_store_that_refuses_every_put(store: MemoryFiles) -> None:
    handle(store).create(SPEC)
    log = knowing(store, FaultyFiles(store, chances={"lost": 1.0}, names={"put_if_absent"}))
    with pytest.raises(CommitFailedError, match=r"no answer about .*; nothing was changed"):
        log.commit()
    assert len(entries(store)) == 1
    log = knowing(store, FaultyFiles(store, chances={"landed": 1.0}))
    with pytest.raises(CommitFailedError, match="whether the commit went through is not known"):
        log.commit()
    assert len(entries(store)) == 2


def test_a_put_that_is_refused_while_others_are_under_way(store: MemoryFiles) -> None:
    """Is a lost race like any other."""
    handle(store).create(SPEC)
    log = knowing(store, FaultyFiles(store, chances={"conflict": 1.0}))
    with pytest.raises(Conflict):
        log.commit()


def test_a_commit_whose_last_look_fails(store: MemoryFiles) -> None:
    """It is in; whoever asked is told that it may be, as `commit` says."""
    handle(store).create(SPEC)
    log = knowing(store, FaultyFiles(store, plan={2: "lost"}))
    with pytest.raises(CommitFailedError):
        log.commit()
    assert len(entries(store)) == 2


@pytest.mark.parametrize("stale", [1, 3, 10])
def test_a_log_whose_listings_are_late(store: MemoryFiles, stale: int) -> None:
    """What is in is found all the same, by who opens the table, too."""
    files = FaultyFiles(store, stale=stale)
    log = handle(files)
    log.create(SPEC)
    for n in range(1, 12):
        log.commit(transactions={"count": n})
        if n % 4 == 0:
            log.checkpoint()
        fresh = handle(files)
        fresh.refresh()
        assert (fresh.version, fresh.recorded("count")) == (n, n)
    check(store, [])
