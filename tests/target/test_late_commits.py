"""A sink that stands still between its look at a user's Delta table and its commit, or its look for a position."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable

import spark_partq as partq
from spark_partq.core.payload.schema import payload_schema
from spark_partq.storage.log import Conflict
from spark_partq.storage.store import Store
from spark_partq.target.table import DeltaTarget
from tests.target.conftest import COLUMNS
from tests.target.test_table import files


def stands_still(target: DeltaTarget, others: Callable[[], None]) -> Any:
    """Before it puts its next entry: the entry that delta-rs puts is taken away, and put after what others do."""
    put, log = target._table.create_write_transaction, Path(target._place.uri) / "_delta_log"
    entry = log / f"{target._table.version() + 1:020}.json"

    def later(*arguments: Any, **options: Any) -> None:
        put(*arguments, **options)
        content = entry.read_bytes()
        entry.unlink()
        others()
        entry.write_bytes(content)

    return mock.patch.object(target._table, "create_write_transaction", later)


def test_an_entry_below_a_log_that_was_cleaned_up_meanwhile(place: Store, target: DeltaTarget) -> None:
    """Q5: it is put, and no reader ever sees it; so the commit is tried again."""

    def others() -> None:
        other = DeltaTarget(place)
        for end in range(1, 4):
            other.commit(files(place, [end]), {"partq:g/id/1": end})
            other.refresh()
        DeltaTable(place.uri).create_checkpoint()
        for version in range(3):
            (Path(place.uri) / "_delta_log" / f"{version:020}.json").unlink()

    added = files(place, [7])
    with stands_still(target, others), pytest.raises(Conflict):
        target.commit(added, {"partq:g/id/0": 5})
    target.refresh()
    assert target.recorded("partq:g/id/0") is None and target.recorded("partq:g/id/1") == 3
    target.commit(added, {"partq:g/id/0": 5})
    assert sorted(DeltaTable(place.uri).to_pyarrow_table()["v"].to_pylist()) == [1, 2, 3, 7]


def test_an_entry_in_the_log_of_a_table_that_came_in_its_place(place: Store, target: DeltaTarget) -> None:
    """It says that the new table may have the commit, and as which version."""

    def others() -> None:
        shutil.rmtree(place.uri)
        DeltaTarget.create(place, payload_schema(COLUMNS), ["k"])

    with (
        stands_still(target, others),
        pytest.raises(partq.UnsupportedTableError, match="this commit as version 1, with"),
    ):
        target.commit(files(place, [7]), {"partq:g/id/0": 5})


def test_a_log_that_is_cleaned_up_between_look_and_position(place: Store, target: DeltaTarget) -> None:
    target.commit([], {"partq:g/id/0": 5})
    target.refresh()
    other = DeltaTarget(place)
    other.commit([], {"partq:g/id/0": 6})
    DeltaTable(place.uri).create_checkpoint()
    for version in range(2):
        (Path(place.uri) / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(Conflict):
        target.recorded("partq:g/id/0")
    target.refresh()
    assert target.recorded("partq:g/id/0") == 6
