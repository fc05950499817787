"""Any history of our commits, as delta-rs reads it; and bugs that are planted, which the histories must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from spark_partq.storage.files import FileAlreadyExists
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.log import Add, Conflict, Snapshot, checkpoints, entries, folder, table
from spark_partq.storage.log.entries import Entry
from spark_partq.storage.log.folder import LogFolder
from tests.storage.log.histories import PARTITION_BY, Histories


@pytest.mark.parametrize("histories", [10, pytest.param(300, marks=pytest.mark.long)])
def test_any_history_is_read_alike(histories: int) -> None:
    """Q6: delta-rs reads every history of our commits, checkpoints, clean-ups and crashes as we do."""
    run_state_machine_as_test(Histories, settings=settings(max_examples=histories, stateful_step_count=30))


def removes_are_ignored(patch: pytest.MonkeyPatch) -> None:
    apply = Snapshot.apply
    patch.setattr(Snapshot, "apply", lambda self, entry: apply(self, replace(entry, removes=())))


def checkpoints_drop_transactions(patch: pytest.MonkeyPatch) -> None:
    encode = checkpoints.encode_checkpoint
    patch.setattr(folder, "encode_checkpoint", lambda snapshot: encode(replace(snapshot, transactions={})))


def checkpoints_drop_statistics(patch: pytest.MonkeyPatch) -> None:
    array = checkpoints._adds_array
    patch.setattr(checkpoints, "_adds_array", lambda adds: array([add._replace(stats=None) for add in adds]))


def checkpoints_revive_removed_files(patch: pytest.MonkeyPatch) -> None:
    encode = checkpoints.encode_checkpoint

    def revived(snapshot: Snapshot) -> tuple[bytes, int]:
        dead = (snapshot.tombstones or {}).values()
        files = {t.path: Add(t.path, t.size or 0, t.partition_values or dict.fromkeys(PARTITION_BY)) for t in dead}
        return encode(replace(snapshot, files=snapshot.files | files, tombstones={}))

    patch.setattr(folder, "encode_checkpoint", revived)


def names_are_not_encoded(patch: pytest.MonkeyPatch) -> None:
    """Our readers cannot notice: they do not decode names, either."""
    for module, function in ((entries, "quote"), (entries, "unquote"), (checkpoints, "quote")):
        patch.setattr(module, function, str)


def commits_overwrite(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DiskFiles, "put_if_absent", DiskFiles.put)


def any_free_name_will_do(patch: pytest.MonkeyPatch) -> None:
    """Whoever slept while the log was cleaned up takes the name of an entry that was removed."""

    def put_entry(log: LogFolder, version: int, entry: Entry, *_: object) -> None:
        try:
            log.files.put_if_absent(log.entry_path(version), entries.encode(entry))
        except FileAlreadyExists:
            raise Conflict from None

    patch.setattr(table, "put_entry", put_entry)


PLANTED: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    removes_are_ignored: "a fresh handle differs from delta-rs",
    checkpoints_drop_transactions: "delta-rs differs from the model",
    checkpoints_drop_statistics: "delta-rs differs from the model",
    checkpoints_revive_removed_files: "delta-rs differs from the model",
    names_are_not_encoded: "a fresh handle differs from delta-rs",
    commits_overwrite: "somebody committed upon an old version|somebody made a table that is there",
    any_free_name_will_do: "somebody committed upon an old version|somebody made a table that is there",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_bugs_are_found(monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    """The histories find each of these bugs, so they would find one of its kind."""
    plant(monkeypatch)
    quick = settings(max_examples=100, stateful_step_count=30, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises(AssertionError, match=PLANTED[plant]):
        run_state_machine_as_test(Histories, settings=quick)
