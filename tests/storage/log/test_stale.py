"""Handles that slept while the log went on, and the clean-up beside them: nothing is lost, and nothing grows."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import spark_partq as partq
from spark_partq.core.queue.records import KEPT_MS, expired_records
from spark_partq.storage.files import Files, MemoryFiles, open_files
from spark_partq.storage.log import (
    LONG_LOG,
    Add,
    Conflict,
    DeltaLog,
    Remove,
    Snapshot,
    TableSpec,
    Transaction,
    folder,
    table,
)
from spark_partq.storage.log.checkpoints import encode_checkpoint
from spark_partq.storage.queue.partition_table import CLOCK, NEXT, SEALED, BatchRecord
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.upkeep import UPKEEP
from tests.storage.log.tables import (
    FIELDS,
    FOLDER,
    HINT_PATH,
    HOUR_MS,
    Watched,
    age,
    checkpoint_path,
    count,
    entry_path,
    everything,
    fresh,
    handle,
    looked,
    made,
    once,
    put_back,
    stored_files,
)

DAY_MS = 24 * HOUR_MS
NOON_MS = 1_700_000_000_000


class Died(BaseException):
    """The process ended here."""


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The wall clock of all handles, milliseconds; tests set its one element."""
    time = [NOON_MS]
    monkeypatch.setattr(SYSTEM, "time_ns", lambda: time[0] * 1_000_000)
    monkeypatch.setattr(folder.LogFolder, "_store_ms", lambda _: time[0])
    return time


def go_on(files: MemoryFiles, commits: int = 5) -> None:
    """Others commit, time passes, and the log is cleaned up: only the last version's entry stays."""
    other = handle(files)
    count(other, commits)
    age(files, 2 * HOUR_MS)
    other.checkpoint()
    assert other.log.names().entries == [other.version]


def entries(files: Files) -> list[int]:
    return handle(files).log.names().entries


def assert_same(one: Snapshot, other: Snapshot) -> None:
    for name in ("version", "transactions", "token", "metadata"):
        assert getattr(one, name) == getattr(other, name), name
    # To a checkpoint no file is news.
    one_s, other_s = ({path: add._replace(data_change=False) for path, add in s.files.items()} for s in (one, other))
    assert one_s == other_s


# ---- a handle that slept between a look and the next
@pytest.mark.parametrize("is_local", [True, False])
def test_look_after_a_clean_up(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, is_local: bool) -> None:
    """Whose next entries were cleaned up finds the newest version all the same, and is told of all files."""
    made(files, 3)
    slow = handle(Watched(files, is_local=is_local))
    assert slow.take_changes().reloaded
    looked(files).commit([Add("a", 1, {"base_offset": "0"})])
    go_on(files)
    if not is_local:  # where a look is dear, it is the periodic check that finds out
        monkeypatch.setattr(table, "_CHECK_EVERY_S", -1.0)
    assert slow.may_have_changed()
    assert slow.refresh()
    assert_same(slow.snapshot, fresh(files))
    changes = slow.take_changes()
    assert changes.reloaded and [add.path for add in changes.added] == ["a"]
    count(slow)
    assert_same(slow.snapshot, fresh(files))


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("has_hint", [True, False])
def test_commit_after_a_clean_up(files: MemoryFiles, is_local: bool, has_hint: bool) -> None:
    """A decision that rests on what was long ago is not committed, and its entry does not stay."""
    made(files, 3)
    slow = handle(Watched(files, is_local=is_local))
    slow.refresh()
    go_on(files)
    if not has_hint:
        files.delete(HINT_PATH)
    before = everything(files)
    with pytest.raises(Conflict):
        slow.commit(transactions={"next": 4})
    assert everything(files) == before
    slow.refresh()
    assert_same(slow.snapshot, fresh(files))
    count(slow)
    assert fresh(files).transactions["next"].version == 9


def test_making_a_table_that_is_old(files: MemoryFiles) -> None:
    """Whose look found no table, long ago, makes none over it."""
    slow = handle(files)
    assert not slow.exists()
    made(files, 3)
    go_on(files)
    before = everything(files)
    with pytest.raises(Conflict):
        made(files)
    assert everything(files) == before


# ---- a commit in the middle of which the log is cleaned up
def test_valid_commit_whose_predecessor_is_cleaned_up(files: MemoryFiles) -> None:
    """A commit is in, whatever a checkpoint and others do right behind it."""

    def checkpoint() -> None:
        handle(files).checkpoint()

    def next_and_checkpoint() -> None:
        count(handle(files))
        checkpoint()

    def checkpoint_and_next() -> None:
        checkpoint()
        count(handle(files), 2)

    for then in (checkpoint, next_and_checkpoint, checkpoint_and_next):
        files = MemoryFiles()
        made(files, 3)
        age(files, 2 * HOUR_MS)
        mine = handle(Watched(files, after=once("put_if_absent", entry_path(4), then)))
        mine.refresh()
        mine.commit(transactions={"mine": 1})
        assert 3 not in entries(files) and mine.version == 4
        mine.refresh()
        assert_same(mine.snapshot, fresh(files))
        assert mine.recorded("mine") == 1


def test_bogus_commit_is_taken_back(files: MemoryFiles) -> None:
    """A put that began before the log went on, and landed on a name that had been cleaned up."""
    made(files, 3)
    mine = handle(Watched(files, before=once("put_if_absent", entry_path(4), lambda: go_on(files, 5))))
    mine.refresh()
    with pytest.raises(Conflict):
        mine.commit(transactions={"mine": 1})
    assert entries(files) == [8]
    count(mine)
    assert_same(mine.snapshot, fresh(files))
    assert mine.recorded("mine") == -1 and mine.recorded("next") == 9


def test_bogus_commit_right_before_the_rest_of_the_log(files: MemoryFiles) -> None:
    """The same where the entry behind the name is still there."""

    def act() -> None:
        other = handle(files)
        count(other)
        age(files, 2 * HOUR_MS)
        count(other)
        other.checkpoint()

    made(files, 3)
    mine = handle(Watched(files, before=once("put_if_absent", entry_path(4), act)))
    mine.refresh()
    with pytest.raises(Conflict):
        mine.commit(transactions={"mine": 1})
    assert entries(files) == [5]
    assert "mine" not in fresh(files).transactions


@pytest.mark.parametrize("valid", [True, False])
def test_slept_until_the_own_entry_was_cleaned_up(files: MemoryFiles, valid: bool) -> None:
    """Nobody can tell any more, so nobody claims to; what is read next tells."""
    made(files, 3)
    watched = Watched(files)
    mine = handle(watched)
    mine.refresh()
    if not valid:
        watched.before = once("put_if_absent", entry_path(4), lambda: go_on(files))
    watched.after = once("put_if_absent", entry_path(4), lambda: go_on(files))
    with pytest.raises(partq.CommitFailedError, match=r"the table: .*slept.*not known; what is read next says so"):
        mine.commit(transactions={"mine": 1})
    mine.refresh()
    assert_same(mine.snapshot, fresh(files))
    assert ("mine" in mine.snapshot.transactions) == valid


def test_late_checkpoint_beside_a_bogus_commit(files: MemoryFiles) -> None:
    """A process slept with a commit and a checkpoint under way: the checkpoint of the version before does not vouch for it."""
    made(files, 3)
    mine = handle(files)
    mine.refresh()
    late, _ = encode_checkpoint(mine.log.load(tombstones=True))
    go_on(files)
    files.put_if_absent(checkpoint_path(3), late)
    with pytest.raises(Conflict):
        mine.commit(transactions={"mine": 1})
    assert 4 not in entries(files)


def test_valid_commit_that_is_followed_while_it_is_checked(files: MemoryFiles) -> None:
    """A commit that others have built on is never told to be lost: its caller would commit it again."""
    made(files, 3)
    age(files, 2 * HOUR_MS)
    watched = Watched(files)
    mine = handle(watched)
    mine.refresh()

    def checkpointed() -> None:
        handle(files).checkpoint()
        watched.before = once("read", HINT_PATH, lambda: count(handle(files)))

    watched.after = once("put_if_absent", entry_path(4), checkpointed)
    mine.commit(transactions={"mine": 1})
    assert fresh(files).transactions["mine"].version == 1 and entries(files)[0] == 4


def test_store_fails_right_after_the_put(files: MemoryFiles) -> None:
    """The commit is in, so an error that says nothing of that would mislead; what is only asked for later does no harm."""

    def fail(*_: str) -> None:
        raise partq.StoreUnavailableError("cannot be read: timed out")

    made(files, 3)
    watched = Watched(files)
    mine = handle(watched)
    mine.refresh()
    watched.before = lambda operation, _: fail() if operation == "info" else None
    mine.commit(transactions={"mine": 0})
    watched.before = lambda *_: None
    mine.refresh()
    watched.before = lambda operation, _: fail() if operation == "read" else None
    with pytest.raises(partq.CommitFailedError, match="not known"):
        mine.commit(transactions={"mine": 1})


def test_killed_before_a_bogus_commit_is_taken_back(files: MemoryFiles) -> None:
    """Then it lies about where no log is: it misleads nobody, and goes with the next clean-up."""

    def die(*_: object) -> None:
        raise Died

    made(files, 3)
    old, watched = handle(files), Watched(files)
    old.refresh()
    mine = handle(watched)
    mine.refresh()
    go_on(files)
    watched.after = once("put_if_absent", entry_path(4), die)
    with pytest.raises(Died):
        mine.commit(transactions={"mine": 1})
    assert entries(files) == [4, 8]
    assert fresh(files).version == 8 and "mine" not in fresh(files).transactions
    with pytest.raises(Conflict):
        old.commit(transactions={"mine": 2})
    looked(files).commit(transactions={"next": 9})
    with pytest.MonkeyPatch.context() as patch:  # it has slept, so a check is due
        patch.setattr(table, "_CHECK_EVERY_S", -1.0)
        old.refresh()
    assert_same(old.snapshot, fresh(files))
    go_on(files)
    assert "mine" not in fresh(files).transactions


# ---- a clean-up that ends anywhere
def aged_log(files: MemoryFiles) -> None:
    """Entries, three checkpoints and what a dead process was writing; only the last two entries are young."""
    writer = made(files)
    for _ in range(3):
        count(writer, 4)
        writer.checkpoint()
    files.put(f"{FOLDER}/_delta_log/.dead.tmp", b"x")
    age(files, 2 * HOUR_MS)
    count(writer, 2)
    writer.commit([Add("a", 1, {"base_offset": "0"})])


def test_clean_up_that_dies(files: MemoryFiles) -> None:
    """What is left is one run of entries, every reader reads the same, and the next clean-up finishes it."""
    aged_log(files)
    expected, deletes = fresh(files), 0
    for at in range(100):
        copy = MemoryFiles()
        put_back(copy, stored_files(files))
        left = [at]

        def die(operation: str, _: str, left: list[int] = left) -> None:
            if operation == "delete":
                if left[0] == 0:
                    raise Died
                left[0] -= 1

        dying = handle(Watched(copy, before=die))
        try:
            dying.checkpoint()
        except Died:
            deletes += 1
        found = entries(copy)
        assert found == list(range(found[0], 16))
        assert_same(fresh(copy), expected)
        handle(copy).checkpoint()
        assert entries(copy) == [13, 14, 15]
        assert handle(copy).log.names().checkpoints == [15]
        assert f"{FOLDER}/_delta_log/.dead.tmp" not in everything(copy)
        assert_same(fresh(copy), expected)
        if left[0] > 0:
            break
    assert deletes == 13 + 3 + 2  # entries and checkpoints, what a dead process left, and how late it is


def test_readers_during_a_clean_up(files: MemoryFiles) -> None:
    """At every step of a checkpoint and its clean-up, a new reader and an old one read the same table."""
    aged_log(files)
    old, expected, looks = handle(files), fresh(files), []
    old.refresh()

    def look(operation: str, _: str) -> None:
        looks.append(operation)
        assert_same(fresh(files), expected)
        old.refresh()
        assert_same(old.snapshot, expected)

    handle(Watched(files, look, look)).checkpoint()
    assert looks.count("delete") == 2 * 18


def test_clean_up_during_a_reader_s_steps() -> None:
    """A reader under whom the log goes on and is cleaned up, at any of its steps, reads the newest version."""
    steps = 1
    at = 0
    while at < steps:
        files = MemoryFiles()
        aged_log(files)
        left = [at]

        def act(*_: str, left: list[int] = left, files: MemoryFiles = files) -> None:
            left[0] -= 1
            if left[0] == -1:
                go_on(files)

        reader = handle(watched := Watched(files, before=act))
        reader.refresh()
        steps = max(steps, len(watched.calls))
        assert reader.version in (15, 20)
        with pytest.MonkeyPatch.context() as patch:  # it has slept, so a check is due
            patch.setattr(table, "_CHECK_EVERY_S", -1.0)
            reader.refresh()
        assert_same(reader.snapshot, fresh(files))
        at += 1
    assert steps > 5


def test_clean_up_after_the_store_s_clock_went_back(files: MemoryFiles) -> None:
    """What is left is one run of entries: in a gap a slow handle would take its place for the end of the log."""
    writer = made(files, 5)
    slow = handle(files)
    slow.refresh()
    count(writer, 5)
    age(files, -2 * HOUR_MS)  # from here on the clock is right
    count(writer, 10)
    writer.checkpoint()
    found = entries(files)
    slow.refresh()
    slow.commit(transactions={"mine": 1})
    assert found == list(range(found[0], 21))
    assert fresh(files).transactions["mine"].version == 1


# ---- checkpoints and the hint to the newest
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
    hint = handle(files).log.hint()
    assert hint == (8 if operation == "put_if_absent" else 3)
    late.refresh()
    count(late)
    late.checkpoint()
    assert handle(files).log.hint() == 9 and fresh(files).base == 9


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
    assert handle(files).log.hint() == fresh(files).base == 8


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


# ---- what a look costs
@pytest.mark.parametrize("live", [1, 1000])
def test_look_that_finds_nothing(store: str, live: int) -> None:
    """On a disk it is one or two operations on files, however many files are live."""
    disk = open_files(store, {})
    made(disk).commit([Add(f"a{n}", 1, {"base_offset": str(n)}) for n in range(live)])
    watched = Watched(disk)
    mine = handle(watched)
    assert len(mine.snapshot.files) == live
    for look in (mine.refresh, mine.may_have_changed):
        watched.calls.clear()
        assert not look()
        assert 1 <= len(watched.calls) <= 2, watched.calls
    count(handle(disk))
    watched.calls.clear()
    assert mine.may_have_changed() and mine.refresh()
    assert sum(operation == "read" for operation, _ in watched.calls) == 2  # the new entry, and that there is no other


@pytest.mark.parametrize("live", [1, 1000])
def test_requests_of_a_look_and_a_commit(files: MemoryFiles, live: int) -> None:
    """In an object store a look that finds nothing is one request, and a commit two."""
    made(files).commit([Add(f"a{n}", 1, {"base_offset": str(n)}) for n in range(live)])
    watched = Watched(files, is_local=False)
    mine = handle(watched)
    mine.refresh()
    watched.calls.clear()
    assert not mine.refresh()
    assert watched.calls == [("read", entry_path(2))]
    watched.calls.clear()
    mine.commit(transactions={"next": 1})
    assert watched.calls == [("put_if_absent", entry_path(2)), ("read", entry_path(1))]


# ---- application transactions
SINKS = ("a", "b.c", "by", "1")


def _apps() -> st.SearchStrategy[str]:
    sinks = st.sampled_from(SINKS)
    return st.one_of(
        st.sampled_from([NEXT, CLOCK, SEALED, "partq:cut/0", "partq:cut/7", "other", "partq:sinks"]),
        sinks.map("partq:sink/{}".format),
        st.tuples(sinks, st.integers(0, 3)).map(lambda pair: "partq:sink/{}/{}".format(*pair)),
        st.tuples(sinks, st.sampled_from("qr")).map(lambda pair: "partq:by/{}/{}".format(*pair)),
        sinks.map("partq:discarded/{}".format),
    )


RECORDS = st.dictionaries(
    _apps(),
    st.builds(Transaction, st.integers(0, 5), st.none() | st.integers(0, 70).map(lambda day: NOON_MS + day * DAY_MS)),
    max_size=12,
)


@given(RECORDS, st.integers(-1, 80))
def test_which_records_expire(records: Mapping[str, Transaction], day: int) -> None:
    """A sink's last batch stays while the sink lives; what its newer batches stand for goes, and nothing else ever does."""
    now = NOON_MS + day * DAY_MS
    newest = min(now, max((txn.updated_ms or 0 for txn in records.values()), default=0))
    dead = {app for app, txn in records.items() if txn.updated_ms is not None and newest - txn.updated_ms > KEPT_MS}
    expected = set()
    for app, txn in records.items():
        kind, _, rest = app.partition("/")
        last = f"partq:sink/{rest.split('/')[0]}"
        if kind in ("partq:sink", "partq:by") and rest:
            superseded = last not in records or records[last].version > txn.version
            if superseded or last in dead:
                expected.add(app)
        elif kind == "partq:discarded" and rest and app in dead:
            expected.add(app)
    found = list(expired_records(records, now))
    assert len(found) == len(set(found)) and set(found) == expected
    kept = {app: txn for app, txn in records.items() if app not in expected}
    assert {app for app in records if app in (NEXT, CLOCK, SEALED) or app.startswith("partq:cut/")} <= set(kept)
    assert set(expired_records(kept, now)) <= dead  # with the newest record gone others may count as young again


@given(RECORDS, st.integers(0, 80), st.integers(0, 80))
def test_a_wrong_clock_expires_nothing_of_the_living(records: Mapping[str, Transaction], day: int, later: int) -> None:
    """Time goes on only as far as the table was written; by itself a clock that is ahead ends no sink."""
    last = max((txn.updated_ms or 0 for txn in records.values()), default=0)
    at_last = set(expired_records(records, last))
    assert set(expired_records(records, max(last, NOON_MS + later * DAY_MS))) == at_last
    assert set(expired_records(records, NOON_MS + day * DAY_MS)) <= at_last


def test_checkpoint_forgets_records(files: MemoryFiles, clock: list[int]) -> None:
    """A dead sink's records and superseded ones go with a checkpoint; what the offsets rest on stays."""
    writer = handle(files, expired=expired_records)
    writer.create(TableSpec({"type": "struct", "fields": FIELDS}))
    always = {NEXT: 7, CLOCK: 8, SEALED: 0, "partq:cut/0": 5}
    writer.commit(transactions={**always, **BatchRecord("dead", 3, "q").transactions(0)})
    writer.commit(transactions=BatchRecord("alive", 3, "q").transactions(0))
    clock[0] += KEPT_MS + 1
    writer.commit(transactions=BatchRecord("alive", 4, "r").transactions(1))
    writer.checkpoint()
    left = {app: txn.version for app, txn in fresh(files).transactions.items()}
    assert left == {**always, "partq:sink/alive": 4, "partq:sink/alive/1": 4, "partq:by/alive/r": 4}
    assert fresh(files).base == writer.version


def test_records_of_many_sinks_do_not_pile_up(files: MemoryFiles, clock: list[int]) -> None:
    """3,000 commits by 300 sinks in 90 days: a checkpoint holds those of the last 30 days."""
    writer = handle(files, expired=expired_records)
    writer.create(TableSpec({"type": "struct", "fields": FIELDS}))
    most, last = 0, handle(files, expired=expired_records)
    for n in range(3_000):
        sink, batch = divmod(n, 10)
        record = BatchRecord(f"sink-{sink}", batch, f"query-{sink}-{batch}")
        clock[0] += 90 * DAY_MS // 3_000
        writer.commit(transactions={NEXT: n + 1, **record.transactions(batch)})
        if n % 100 == 99:
            UPKEEP.wait()
            last.checkpoint()
            found = fresh(files)
            assert found.base == found.version == n + 1 and found.transactions[NEXT].version == n + 1
            most = max(most, len(found.transactions))
            newest = [app for app in found.transactions if app.startswith(f"partq:sink/sink-{sink}")]
            assert sorted(newest) == [f"partq:sink/sink-{sink}", f"partq:sink/sink-{sink}/9"]
    assert most <= 1 + 3 * (100 + 1)


# ---- removed files
def test_tombstones(files: MemoryFiles, clock: list[int]) -> None:
    """A checkpoint remembers a removed file as long as the table's setting says."""
    writer = made(files, deletedFileRetentionDuration="interval 2 hours")
    writer.commit([Add("a", 1, {"base_offset": "0"}), Add("b", 1, {"base_offset": "1"})])
    writer.commit(removes=[Remove("a", clock[0], 1, {"base_offset": "0"})])

    def remembered() -> list[str]:
        count(writer)
        writer.checkpoint()
        snapshot = writer.log.load(tombstones=True)
        assert list(snapshot.files) == ["b"] and snapshot.base == writer.version
        return list(snapshot.tombstones or {})

    assert remembered() == ["a"]
    clock[0] += 2 * HOUR_MS
    assert remembered() == ["a"]
    clock[0] += 1
    assert remembered() == []


def test_tombstones_as_other_readers_see_them(store: str) -> None:
    """delta-rs reads a checkpoint with a removed file."""
    writer = made(open_files(store, {}))
    writer.commit([Add("a", 1, {"base_offset": "0"}), Add("b c", 1, {"base_offset": "1"})])
    writer.commit(removes=[Remove("a", SYSTEM.time_ns() // 1_000_000, 1, {"base_offset": "0"})])
    writer.checkpoint()
    for version in range(writer.version):
        Path(store, entry_path(version)).unlink()
    other = DeltaTable(Path(store) / FOLDER)
    assert (other.version(), [Path(uri).name for uri in other.file_uris()]) == (2, ["b c"])


def test_vacuum_keeps_what_was_removed_just_now(files: MemoryFiles, clock: list[int]) -> None:
    """An old file that was removed a moment ago may still be read: the grace counts from then on, across a checkpoint."""
    clock[0] = time.time_ns() // 1_000_000
    writer = handle(files)
    writer.create(TableSpec({"type": "struct", "fields": FIELDS}, configuration=LONG_LOG))
    paths = [f"{FOLDER}/{name}" for name in ("live", "removed", "uncommitted")]
    for path in paths:
        files.put(path, b"x")
    age(files, 2 * DAY_MS, *paths[:2])
    writer.commit([Add("live", 1, {}), Add("removed", 1, {})])
    writer.commit(removes=[Remove("removed", clock[0], 1, {})])
    clock[0] += HOUR_MS // 2
    count(writer)
    writer.checkpoint()
    assert writer.vacuum(HOUR_MS) == 0 and set(paths) <= set(everything(files))
    clock[0] += HOUR_MS
    assert writer.vacuum(HOUR_MS) == 2
    assert set(paths) & set(everything(files)) == {paths[0]}
    assert fresh(files).version == writer.version


# ---- memory
@pytest.mark.parametrize("asked", [True, False])
def test_memory_of_a_handle(store: str, monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    """It grows with the live files and not with the commits, whether or not its owner asks for the changes."""
    monkeypatch.setattr(table, "_MOST_CHANGES", 100)
    writer = made(open_files(store, {}))
    reader = handle(open_files(store, {}))
    reader.take_changes()

    def size_after(commits: int) -> list[int]:
        most = [0, 0]
        for _ in range(commits):
            removes = [Remove(path, 0, 1, {}) for path in writer.snapshot.files]
            writer.commit([Add(f"a{writer.version:08d}", 1, {})], removes)
            reader.refresh()
            if asked:
                reader.take_changes()
            for i, one in enumerate((writer, reader)):
                most[i] = max(most[i], _size(one))
        return most

    before, after = size_after(150), size_after(450)
    assert all(last <= first + 500 for first, last in zip(before, after, strict=True))
    assert_same(reader.snapshot, writer.snapshot)
    changes = reader.take_changes()
    assert changes.reloaded or len(changes.added) <= 100
    UPKEEP.wait()


def _size(one: DeltaLog) -> int:
    return len(pickle.dumps([value for name, value in one.__dict__.items() if not callable(value)]))
