"""The doctor and the description of a group tell of messages that are stuck in the parent of a queue that became partitioned (S6)."""

from __future__ import annotations

from pathlib import Path

import spark_partq as partq
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.store import Store
from tests.storage.procedures.test_copy_stuck import with_stuck


def test_messages_that_are_stuck(store: str) -> None:
    """S6: they are told, and where they lie is looked at; what is in a queue's own partitions is not all of it."""
    with_stuck(store, read=12)
    (finding,) = [found for found in diagnose(Store.at(store)).findings if found.about == "queue q"]
    assert finding.what == "48 messages in its parent are stuck: no consumer is given them"
    assert finding.remedy.endswith("spark-partq copy-stuck q")
    told = [warning for warning in partq.describe_group(store, "g").warnings if "stuck" in warning]
    assert told == [
        "queue q: 48 messages in its parent are stuck: no consumer is given them; spark-partq copy-stuck q moves them into the partitions"
    ]
    for file in Path(store, "queues/q/partitions/partition=-1").glob("*.parquet"):
        file.unlink()
    assert any(fault.about == "partition -1 of queue q" for fault in diagnose(Store.at(store)).faults)
    for file in Path(store, "queues/q/partitions/partition=-1/_delta_log").iterdir():
        file.unlink()
    assert partq.describe_group(store, "g").lag == 0
    assert any(fault.about == "partition -1 of queue q" for fault in diagnose(Store.at(store)).faults)
