"""The doctor finds a resize whose record was edited: without a partition's cut nobody knows which map placed its messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.store import Store
from tests.scaled import Sink, make, messages


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda cuts: cuts.pop("1"), "cuts: not those of both maps: see [1]"),
        (lambda cuts: cuts.clear(), "cuts: not those of both maps: see [0, 1, 2]"),
        (lambda cuts: cuts.update({"0": -1}), "cuts is -1 and not a whole number"),
    ],
    ids=["one", "all", "negative"],
)
def test_a_resize_that_lacks_a_cut(store: str, change: Callable[[dict[str, int]], object], said: str) -> None:
    """The finding names the queue, the fact and the partitions, and says what to restore."""
    make(store, 2)
    Sink(store).write(0, messages(0, 20))
    partq.scale(store, "q", 3)
    assert diagnose(Store(store)).findings == []
    control = open_control(Store(store), "q")
    rows: list[dict[str, Any]] = [{**row, "body": json.loads(row["body"])} for row in control.history()]
    (opened,) = [row["body"] for row in rows if row["kind"] == "GenerationOpened"]
    change(opened["cuts"])
    control._rows.append([{**row, "body": json.dumps(row["body"])} for row in rows], replace=True)
    (fault,) = diagnose(Store(store)).faults
    assert fault.about == "queue q" and "its control table cannot be read" in fault.what
    assert f"GenerationOpened: {said}" in fault.what
    assert fault.remedy == "restore queues/q/control from a backup, while no program uses the store"
