"""Change what a queue was created with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spark_partq.core.queue import alter
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.procedures.create import check_dead_letter_queue, provide_dead_letter_queue
from spark_partq.storage.procedures.partition_map import update_groups
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.queue.clock import measured_ms
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.partition_table import PartitionTable


def alter_queue(queue: Queue, settings: Mapping[str, Any], reset: Collection[str] = ()) -> QueueState:
    """Change settings of a queue while it is in use; what is so already stays so.

    One fact is the decision: producers, consumers and maintenance heed it once they have read it. Then the partitions' tables and the
    groups are told of what they keep themselves. Who calls this again after an interruption finishes that, as does maintenance.

    Parameters
    ----------
    reset : collection of str
        Settings that get their default.

    Raises
    ------
    InvalidArgumentError
        With every wrong setting named; nothing is changed.
    QueueFencedError, ReplicaError
    """
    wanted = QueueSettings.changes(dict(settings), reset)

    def facts(state: QueueState) -> Sequence[QueueFact]:
        check_primary(queue, opening=True)
        store_ms = measured_ms(queue.store, queue.name) if alter.lowers_grace(state, wanted) else 0
        return alter.alter_settings(state, wanted, store_ms)

    if wanted.get("dead_letter_queue") is not None or wanted.get("dead_letter_order") == "hold":
        before = queue.state
        new = before.settings.model_copy(update=wanted).check_together().check_columns(before.schema)
        check_primary(queue, opening=True)
        check_dead_letter_queue(queue.name, before.schema, before.key, new)
        provide_dead_letter_queue(queue.store, queue.name, before.schema, before.key, new)
    state = queue.control.decide(facts)
    follow_settings(queue, [queue.table(number) for number in state.all_partitions])
    update_groups(queue, "alter-queue")
    return queue.state


def follow_settings(queue: Queue, tables: Sequence[PartitionTable]) -> None:
    """Let tables of partitions remember what was removed from them for as long as the queue's grace asks for, as of its last refresh."""
    grace_ms = queue.state.settings.vacuum_grace_ms
    queue.store.map(lambda table: table.follow(grace_ms), tables)
