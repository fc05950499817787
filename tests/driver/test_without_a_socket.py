"""Queries whose driver cannot listen: all goes over the store, a handoff too."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import Row

from spark_partq.core.group.facts import Status
from spark_partq.storage.group.handle import Group
from spark_partq.storage.store import Store
from tests import queries
from tests.driver.ends import own_driver
from tests.helpers import eventually, group_state, put, two_partitions


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pt", dir="/tmp") as made:
        yield Path(made)


def shared(store: str) -> bool:
    state = group_state(store)
    return state.status is Status.READY and {own.flow for own in state.partitions.values()} == {"a/0", "b/0"}


def test_a_partition_is_handed_over(folder: Path) -> None:
    """The second query gets one of two partitions, none of whose messages comes twice, and before the time for the handoff is over."""
    store = two_partitions(str(folder / "store"), 3)
    first: list[Row] = []
    second: list[Row] = []
    with own_driver(folder / ("x" * 100)) as driver, mock.patch.object(queries, "driver", return_value=driver):
        assert driver.address is None
        queries.running(store, folder / "a", first, group="g", instanceId="a")
        eventually(lambda: len(first) == 6, "the messages that are there")
        queries.running(store, folder / "b", second, group="g", instanceId="b")
        eventually(lambda: shared(store), "the handoff")
        for partition in range(2):
            put(store, partition, [3])
        eventually(lambda: len(first) == 7 and len(second) == 1, "a new message for each")
        queries.stop_all()
    given = [*first, *second]
    assert sorted((row._partition, row._offset) for row in given) == [(p, o) for p in range(2) for o in range(4)]
    assert not any(row._redelivered for row in given)
    facts = Group(Store.at(store), "g").history()
    handed = next(n for n, fact in enumerate(facts) if fact["kind"] == "HandoffStarted")
    granted = next(fact for fact in facts[handed:] if fact["kind"] == "Granted")
    assert granted["flow"] == "b/0" and not granted["forced"]
