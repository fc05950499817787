"""What a primary has deleted or put together: its replicas follow, whoever dies meanwhile and however late they come (S7)."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

import spark_partq as partq
from spark_partq.storage.log import VACUUMED, DeltaLog
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.replica.table_copy import SPARE_S, TableCopy
from spark_partq.storage.store import Store
from tests.clocks import no_grace, wall_clock
from tests.helpers import opened
from tests.replicas import clean_log
from tests.scaled import Sink
from tests.storage.procedures.test_added_columns import make
from tests.storage.procedures.test_make_segments import ago, commit, fill, merged, read


class Killed(BaseException): ...


def time_goes_by(store: str) -> None:
    """The messages' files that are there are old."""
    for path in Path(store).rglob("part-*.parquet"):
        os.utime(path, (time.time() - 2 * SPARE_S,) * 2)


def keys_on_disk(store: str) -> list[str]:
    files = Path(store, "queues/q/partitions/partition=0").glob("part-*.parquet")
    return sorted(key for path in files for key in pq.ParquetFile(path).read(columns=["k"])["k"].to_pylist())


def killed_before_the_end(log: DeltaLog, *about: Any, **more: Any) -> None:
    if more.get("operation") == VACUUMED:
        raise Killed
    return _commit(log, *about, **more)


_commit = DeltaLog.commit


@pytest.mark.parametrize("died", ["nobody", "who copies", "who maintains", "nobody, and the copy is young"])
def test_a_persons_messages_go(store: str, tmp_path: Path, died: str) -> None:
    replica = str(tmp_path / "replica")
    make(store, partitions=1, segment_ms=None)
    commit(store, "ab", ago(0))
    partq.replicate(store, "q", replica)
    partq.delete_messages(store, "q", {"k": "a"})
    partq.replicate(store, "q", replica)
    if "young" not in died:
        time_goes_by(replica)
    with no_grace():
        if died == "who maintains":
            with mock.patch.object(DeltaLog, "commit", killed_before_the_end), pytest.raises(Killed):
                partq.maintain(store, "q")
        partq.maintain(store, "q")
    if died == "who copies":
        with mock.patch.object(TableCopy, "tidy", side_effect=Killed), pytest.raises(Killed):
            partq.replicate(store, "q", replica)
    partq.replicate(store, "q", replica)
    time_goes_by(replica)
    partq.replicate(store, "q", replica)
    assert keys_on_disk(store) == keys_on_disk(replica) == ["b"]


def assert_the_next_pass_has_all(store: str, replica: str) -> None:
    """What is read there after a promotion is what was read at the primary."""
    partq.replicate(store, "q", replica)
    before = read(store)
    partq.promote(replica, "q")
    assert read(replica) == before


@pytest.mark.parametrize("how", ["deleted", "put together"])
def test_a_pass_that_follows_some_commits_and_then_lacks_a_file(store: str, tmp_path: Path, how: str) -> None:
    """It goes on at a checkpoint, whose history it compares with that of the version that it has come to."""
    replica = str(tmp_path / "replica")
    make(store, partitions=1)
    commit(store, "z", ago(9))
    partq.replicate(store, "q", replica)
    commit(store, "aa", ago(7))
    for n in range(3):
        commit(store, "b", ago(3) + n)
    if how == "deleted":
        assert partq.delete_messages(store, "q", {"k": "b"}) == 3
    else:
        assert merged(store) == 2
    partq.maintain(store, "q")
    with no_grace():
        assert partq.maintain(store, "q")[0].vacuumed_files
    assert_the_next_pass_has_all(store, replica)


def test_the_last_checkpoint_names_a_file_that_is_gone(store: str, tmp_path: Path) -> None:
    """The pass writes a newer one, and goes on there."""
    replica = str(tmp_path / "replica")
    make(store, partitions=1, segment_ms=None)
    commit(store, "z", ago(2))
    partq.replicate(store, "q", replica)
    commit(store, "ab", ago(1))
    log = LogFolder(Store.at(store), "queues/q/partitions/partition=0")
    log.write_checkpoint()
    assert partq.delete_messages(store, "q", {"k": "a"}) == 1
    with no_grace():
        assert partq.maintain(store, "q")[0].vacuumed_files == 1
    last = max(log.names().checkpoints)
    assert last == 3  # maintenance puts one before it deletes files: here the pass has not seen it
    log.files.delete(log.checkpoint_path(last))
    assert_the_next_pass_has_all(store, replica)


def test_a_pass_after_deletions_from_the_last_file_to_the_first(store: str, tmp_path: Path) -> None:
    """It takes a checkpoint, whose files do not stand in the order of their messages."""
    replica = str(tmp_path / "replica")
    make(store, partitions=1, segment_ms=None)
    commit(store, "ab", ago(1))
    commit(store, "cd", ago(0))
    partq.replicate(store, "q", replica)
    for key in "ca":
        assert partq.delete_messages(store, "q", {"k": key}) == 1
    clean_log(store, "queues/q/partitions/partition=0")
    assert_the_next_pass_has_all(store, replica)


@pytest.mark.parametrize(
    ("feature", "act"),
    [("segments", merged), ("deletedMessages", lambda store: partq.delete_messages(store, "q", {"k": "a"}))],
)
def test_the_format_is_what_the_files_ask_for(
    store: str, tmp_path: Path, feature: str, act: Callable[[str], int]
) -> None:
    """The last pass had read the control table when the format was raised, and the partitions later; then the primary was lost."""
    replica = str(tmp_path / "replica")
    fill(store)
    partq.replicate(store, "q", replica)
    capture = Replicator._capture

    def behind_it(replicator: Replicator, *about: Any) -> Any:
        found = capture(replicator, *about)
        assert act(store)
        return found

    with mock.patch.object(Replicator, "_capture", behind_it):
        partq.replicate(store, "q", replica)
    before = read(store)
    shutil.rmtree(store)
    partq.promote(replica, "q")
    assert opened(replica).state.format.features == (feature,)
    assert read(replica) == before


def cleaned_up(store: str) -> None:
    """Only a checkpoint is left of the partition's log."""
    opened(store).partitions[0].checkpoint()
    log = Path(store, "queues/q/partitions/partition=0/_delta_log")
    newest = max(log.glob("*.checkpoint.parquet")).name[:20]
    for entry in log.glob("0*.*"):
        if entry.name[:20] < newest:
            entry.unlink()


@pytest.mark.parametrize("how", ["segment", "rewritten"])
def test_other_messages_at_the_same_offsets(store: str, tmp_path: Path, how: str) -> None:
    """A partition was put back to an older state and written again: what only the replica has is not dropped for a file in its place."""
    replica, backup = str(tmp_path / "replica"), tmp_path / "backup"
    make(store, partitions=1)
    commit(store, "abc", ago(5))
    shutil.copytree(store, backup)
    commit(store, "LOST", ago(5) + 1)
    partq.replicate(store, "q", replica)
    partition = "queues/q/partitions/partition=0"
    shutil.rmtree(f"{store}/{partition}")
    shutil.copytree(f"{backup}/{partition}", f"{store}/{partition}")
    commit(store, "othe" if how == "segment" else "other", ago(5) + 2)
    commit(store, "r", ago(5) + 3)
    if how == "segment":
        assert merged(store) == 2
    else:
        partq.delete_messages(store, "q", {"k": "e"})
    cleaned_up(store)
    with pytest.raises(partq.OtherHistoryError, match="lacks the messages from 3 on"):
        partq.replicate(store, "q", replica)
    assert "".join(key for *_, key, _ in read(replica)) == "abcLOST"


def test_the_same_messages_put_together_and_deleted(store: str, tmp_path: Path) -> None:
    """Segments of the copy, and files of one time, are known again in segments of some of their messages, also of none."""
    replica = str(tmp_path / "replica")
    make(store, partitions=1)
    for n, keys in enumerate(["abc", "xx", "xyx", "a"]):
        commit(store, keys, ago(5) + n)
    partq.replicate(store, "q", replica)
    assert merged(store) == 3
    partq.delete_messages(store, "q", {"k": "x"})
    cleaned_up(store)
    partq.replicate(store, "q", replica)
    assert "".join(key for *_, key, _ in read(replica)) == "abcya"
    partq.delete_messages(store, "q", {"k": "a"})
    cleaned_up(store)
    partq.replicate(store, "q", replica)
    assert "".join(key for *_, key, _ in read(replica)) == "bcy" and read(replica) == read(store)


@pytest.mark.parametrize("days", [31, 0])
def test_a_sink_that_was_forgotten_begins_again(store: str, tmp_path: Path, days: int) -> None:
    """Its batches have lower numbers than a late copy knows. No other record goes back, nor does a sink's that is young."""
    replica = str(tmp_path / "replica")
    make(store, partitions=1)
    with wall_clock(dt.datetime.now(dt.UTC) - dt.timedelta(days=days)):
        Sink(store).write(7, [("a", 1)])
    partq.replicate(store, "q", replica)
    (table,) = opened(store).partitions
    for _ in range(2):
        table._log.commit(transactions={"partq:sink/s": 0, "partq:sink/s/0": 0})
    cleaned_up(store)
    if days:
        partq.replicate(store, "q", replica)
        assert opened(replica).partitions[0].recorded("partq:sink/s") == 0
    else:
        with pytest.raises(partq.OtherHistoryError, match="lacks what partq:sink/s says"):
            partq.replicate(store, "q", replica)
