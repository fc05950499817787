"""What the folder of a log tells: which commits it holds, and from where it is listed."""

from __future__ import annotations

from typing import Any

import pytest

from spark_partq.storage.files import MemoryFiles
from tests.storage.log.tables import count, entry_path, made, refreshed


@pytest.mark.parametrize("is_skipped", [False, True])
def test_which_commit_a_version_is(files: MemoryFiles, is_skipped: bool) -> None:
    """S7: a copy that skipped a version has only a checkpoint of it, which also says which commit that was."""
    table = made(files, 3)
    table.checkpoint()
    token = table.log.read(3).token
    if is_skipped:
        files.delete(entry_path(3))
    assert token is not None
    assert [table.log.holds(3, known) for known in (token, None, "another")] == [True, True, False]
    assert not table.log.holds(4, None)


def test_a_log_is_listed_from_its_last_checkpoint_on(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """So opening a table does not take longer as its log grows."""
    table = made(files, 3)
    table.checkpoint()
    count(table, 2)
    after, list_files = list[object](), files.list_files

    def listed(folder: str, **named: Any) -> Any:
        after.append(named.get("after"))
        return list_files(folder, **named)

    monkeypatch.setattr(files, "list_files", listed)
    assert refreshed(files).version == 5
    assert after == [f"{3:020d}"]
