"""What a primary has deleted or put together: its replicas follow, whoever dies meanwhile and however late they come (S7)."""

from __future__ import annotations

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
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.replica.table_copy import SPARE_S, TableCopy
from tests.clocks import no_grace
from tests.helpers import opened
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
    partq.replicate(store, "q", replica)
    before = read(store)
    partq.promote(replica, "q")
    assert read(replica) == before


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
