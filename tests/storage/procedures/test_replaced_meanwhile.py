"""Maintenance and deletions that stand still while another process rewrites their files, or deletes these, or lowers the grace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.errors import CorruptTableError
from spark_partq.storage.procedures import delete_messages, make_segments
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.runtime import SYSTEM
from tests.clocks import no_grace
from tests.storage.procedures.test_added_columns import make
from tests.storage.procedures.test_make_segments import HOUR, ago, commit, fill, live, read


@pytest.fixture
def old(store: str) -> str:
    fill(store)
    return store


def before_it_reads(module: ModuleType, others: Callable[[], object]) -> Any:
    """Let a procedure stand still before it reads the first file, while others act."""
    read_timed, left = module.read_timed, [others]

    def later(*arguments: Any) -> Iterator[Any]:
        if left:
            left.pop()()
        yield from read_timed(*arguments)

    return mock.patch.object(module, "read_timed", later)


def merged_and_deleted(store: str) -> None:
    first, second = (partq.maintain(store, "q")[0] for _ in range(2))
    assert (first.merged_files, second.vacuumed_files) == (9, 10)


def test_others_put_the_files_together_and_delete_them(old: str) -> None:
    """Q8: it leaves the rest to the next pass. Nothing is damaged, and nothing is said to be."""
    before = read(old)
    with no_grace(), before_it_reads(make_segments, lambda: merged_and_deleted(old)):
        assert [report.merged_files for report in partq.maintain(old, "q")] == [0]
    assert read(old) == before and live(old) == 3


def test_a_deletion_searches_again(old: str) -> None:
    with no_grace(), before_it_reads(delete_messages, lambda: merged_and_deleted(old)):
        assert partq.delete_messages(old, "q", {"k": "b"}) == 6
    assert {key for *_, key, _ in read(old)} == {"a", "c", "z"}


@pytest.mark.parametrize("module", [make_segments, delete_messages])
def test_a_file_that_the_queue_has_and_nobody_finds(old: str, module: ModuleType) -> None:
    """It is missing; that is reported as before."""

    def lose(*_: Any) -> Iterator[Any]:
        raise CorruptTableError("a file is missing", path=old)
        yield

    run = (
        partial(partq.maintain, old, "q")
        if module is make_segments
        else partial(partq.delete_messages, old, "q", {"k": "b"})
    )
    with mock.patch.object(module, "read_timed", lose), pytest.raises(CorruptTableError, match="a file is missing"):
        run()


def test_the_grace_counts_from_when_it_was_read(store: str) -> None:
    """Q8: it may have been lowered since. A pass that stands still for half of it between two segments commits the second one in the next pass."""
    make(store, partitions=1)
    for hours in (4, 3):
        for n in range(3):
            commit(store, "a", ago(hours) + n)
    commit(store, "z", ago(0))
    replace, monotonic_s, gone_s = PartitionTable.replace, SYSTEM.monotonic_s, [0.0]

    def stands_still(*arguments: Any) -> bool:
        was_put = replace(*arguments)
        gone_s[0] += 12 * HOUR / 1000  # half of the grace
        return was_put

    def later(_: object) -> float:
        return monotonic_s() + gone_s[0]

    with mock.patch.object(type(SYSTEM), "monotonic_s", later):
        with mock.patch.object(PartitionTable, "replace", stands_still):
            partq.maintain(store, "q")
        assert live(store) == 5
        partq.maintain(store, "q")
        assert live(store) == 3
