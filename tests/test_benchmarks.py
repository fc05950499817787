"""Benchmarks, with small numbers: they run to their end on the package as it is. What they measure is not looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from unittest import mock

import pytest

from benchmarks import age, large, steps
from benchmarks.report import Figure
from spark_partq.storage.store import Store
from tests.helpers import opened


@pytest.mark.parametrize("kept", [True, False])
def test_old_queues(store: str, kept: bool) -> None:
    with mock.patch.multiple(age, SAMPLE=60, WARM_UP=20, MAINTAIN_EVERY=20), age.short_hours():
        (sample,) = age.run(store, 60, kept)
    for table in opened(store).partitions:
        settings = table._log.snapshot.metadata.configuration
        assert settings["delta.logRetentionDuration"] == "interval 1 minutes"
        assert settings["delta.deletedFileRetentionDuration"] == "interval 2 minutes"
    assert sample.batches == 60
    assert (sample.live_files == 80 * age.PARTITIONS) is kept


@pytest.mark.parametrize(
    ("measured", "size"),
    [
        (large.many_partitions, 8),
        (partial(large.long_history, partitions=4), 40),
        (large.many_queues, 12),
        (large.many_members, 16),
    ],
)
def test_large_stores(store: str, measured: Callable[[Store, int], Iterator[Figure]], size: int) -> None:
    assert list(measured(Store.at(store), size))


def test_steps_of_a_write_are_functions() -> None:
    assert all(callable(getattr(owner, function)) for owner, function in steps.STEPS.values())
