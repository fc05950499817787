"""Tests that need a store, as tests of planted bugs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import spark_partq as partq
from tests.clocks import no_grace
from tests.planners import Query


def in_a_store(test: Callable[..., object], *arguments: Any) -> None:
    """Run a test with a store that does not exist yet."""
    with tempfile.TemporaryDirectory() as folder:
        test(str(Path(folder) / "store"), *arguments)


def with_queries(test: Callable[..., object], *arguments: Any) -> None:
    """Run a test with a store that does not exist yet, and a list of queries, which leave after it."""
    queries: list[Query] = []

    def tested(store: str) -> None:
        try:
            test(store, queries, *arguments)
        finally:
            for query in queries:
                query.leave()

    in_a_store(tested)


def in_two_stores(test: Callable[..., object]) -> None:
    """Run a test with a store that has a queue, and the path of another."""
    with tempfile.TemporaryDirectory() as folder:
        store, there = (str(Path(folder) / name) for name in ("store", "there"))
        partq.create_queue(store, "q", "v bigint", partitions=2)
        with no_grace():
            test(store, there)
