"""What happens while a process writes a file of messages again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from spark_partq.storage.queue.partition_table import PartitionTable


def before_the_commit(act: Callable[[], object], queue: str = "q") -> Any:
    """Call `act` once between the first new file of the queue and its commit."""
    replace, acts = PartitionTable.replace, [act]

    def later(table: PartitionTable, *arguments: Any) -> bool:
        if acts and table.queue == queue:
            acts.pop()()
        return replace(table, *arguments)

    return mock.patch.object(PartitionTable, "replace", later)
