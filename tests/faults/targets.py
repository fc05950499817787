"""What consumers wrote exactly once: the rows of a Delta table, and the messages of a queue of results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from spark_partq.storage.store import Store
from spark_partq.testing.resultcheck import Result
from tests.delivering import RESULTS
from tests.scaled import stored


def results(table: Store) -> Iterator[Result]:
    """The rows of a table to which files are only added, each with its commit."""
    for commit, actions in _log(table):
        for path in (action["add"]["path"] for action in actions if "add" in action):
            rows = pq.read_table(table.files.open_input(path), columns=["k", "v", "_partition", "_offset"])
            for row in rows.to_pylist():
                yield Result(row["k"], row["v"], row["_partition"], row["_offset"], commit)


def relayed(store: Store) -> Iterator[Result]:
    """The messages of the queue of results, as if one commit had written them."""
    for partition, messages in stored(store, queue=RESULTS).items():
        for offset, (key, value) in enumerate(messages):
            yield Result(key, value, partition, offset, 0)


def positions_rise(table: Store) -> None:
    """No commit goes back, or writes what is there. (Of a partition that was empty when the queue was promoted, position 0 is written.)"""
    last: dict[str, int] = {}
    for commit, actions in _log(table):
        for moved in (action["txn"] for action in actions if "txn" in action):
            app, version = moved["appId"], moved["version"]
            assert version > last.get(app, -1), f"commit {commit} puts {app} from {last.get(app)} to {version}"
            last[app] = version


def _log(table: Store) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for entry in table.files.list_files("_delta_log"):
        version, _, kind = entry.name.partition(".")
        if kind == "json":
            data = table.files.read(f"_delta_log/{entry.name}")
            yield int(version), [json.loads(line) for line in data.splitlines()]
