"""What consumers wrote exactly once: the rows of a Delta table, and the messages of a queue of results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from spark_partq.testing.resultcheck import Result
from tests.delivering import RESULTS
from tests.scaled import stored


def results(table: Path) -> Iterator[Result]:
    """The rows of a table to which files are only added, each with its commit."""
    for commit, actions in _log(table):
        for path in (action["add"]["path"] for action in actions if "add" in action):
            rows = pq.read_table(table / path, columns=["k", "v", "_partition", "_offset"])
            for row in rows.to_pylist():
                yield Result(row["k"], row["v"], row["_partition"], row["_offset"], commit)


def relayed(store: str) -> Iterator[Result]:
    """The messages of the queue of results, as if one commit had written them."""
    for partition, messages in stored(store, queue=RESULTS).items():
        for offset, (key, value) in enumerate(messages):
            yield Result(key, value, partition, offset, 0)


def positions_rise(table: Path) -> None:
    """No commit goes back, or writes what is there. (Of a partition that was empty when the queue was promoted, position 0 is written.)"""
    last: dict[str, int] = {}
    for commit, actions in _log(table):
        for moved in (action["txn"] for action in actions if "txn" in action):
            app, version = moved["appId"], moved["version"]
            assert version > last.get(app, -1), f"commit {commit} puts {app} from {last.get(app)} to {version}"
            last[app] = version


def _log(table: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for entry in sorted((table / "_delta_log").glob("*.json")):
        yield int(entry.stem), [json.loads(line) for line in entry.read_text().splitlines()]
