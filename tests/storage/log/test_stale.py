"""Handles that slept while the log went on and was cleaned up: nothing is lost."""

from __future__ import annotations

import pytest

import spark_partq as partq
from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log import Add, Conflict, table
from spark_partq.storage.log.checkpoints import encode_checkpoint
from tests.storage.log.tables import (
    HINT_PATH,
    HOUR_MS,
    Died,
    Watched,
    age,
    assert_same,
    checkpoint_path,
    count,
    entries,
    entry_path,
    everything,
    fresh,
    go_on,
    handle,
    made,
    once,
    refreshed,
)


# ---- a handle that slept between a refresh and the next
@pytest.mark.parametrize("is_local", [True, False])
def test_look_after_a_clean_up(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, is_local: bool) -> None:
    """Whose next entries were cleaned up finds the newest version all the same, and is told of all files."""
    made(files, 3)
    slow = handle(Watched(files, is_local=is_local))
    assert slow.take_changes().reloaded
    refreshed(files).commit([Add("a", 1, {"base_offset": "0"})])
    go_on(files)
    if not is_local:  # where a request is dear, it is the periodic check that finds out
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
    """Whose refresh found no table, long ago, makes none over it."""
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
    refreshed(files).commit(transactions={"next": 9})
    with pytest.MonkeyPatch.context() as patch:  # it has slept, so a check is due
        patch.setattr(table, "_CHECK_EVERY_S", -1.0)
        old.refresh()
    assert_same(old.snapshot, fresh(files))
    go_on(files)
    assert "mine" not in fresh(files).transactions
