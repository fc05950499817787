"""Files in memory, and clocks, for tests of the log."""

from __future__ import annotations

import pytest

from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log import folder, table
from spark_partq.storage.runtime import SYSTEM
from tests.storage.log.tables import NOON_MS


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The wall clock of all handles, milliseconds; tests set its one element."""
    time = [NOON_MS]
    monkeypatch.setattr(SYSTEM, "time_ns", lambda: time[0] * 1_000_000)
    monkeypatch.setattr(folder.LogFolder, "store_ms", lambda _: time[0])
    return time


@pytest.fixture
def always_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each refresh the handle asks whether it was left behind."""
    monkeypatch.setattr(table, "_CHECK_EVERY_S", -1.0)
