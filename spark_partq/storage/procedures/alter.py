"""Change what a queue was created with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spark_partq.core.payload.schema import Struct, new_columns
from spark_partq.core.queue import alter
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.procedures.create import check_dead_letter_queue, provide_dead_letter_queue
from spark_partq.storage.procedures.partition_map import update_groups
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.queue.clock import measured_ms
from spark_partq.storage.queue.handle import Queue, open_queue, queue_state
from spark_partq.storage.queue.partition_table import PartitionTable


def alter_queue(queue: Queue, settings: Mapping[str, Any], reset: Collection[str] = ()) -> QueueState:
    """Change settings of a queue while it is in use. A setting that has the wanted value already stays as it is.

    One fact is the decision: producers, consumers and maintenance heed it once they have read it. Then the partitions' tables and the
    groups get the settings that they keep themselves. After an interruption, another call finishes this, and so does maintenance.

    Parameters
    ----------
    reset : collection of str
        Settings that get their default value.

    Raises
    ------
    InvalidArgumentError
        The error names every wrong setting; nothing is changed.
    QueueFencedError, ReplicaError
    """
    wanted = QueueSettings.changes(dict(settings), reset)

    def facts(state: QueueState) -> Sequence[QueueFact]:
        check_primary(queue, opening=True)
        if wanted.get("dead_letter_queue") is not None or wanted.get("dead_letter_order") == "hold":
            _provide_dead_letter_queue(queue, state, wanted)
        store_ms = measured_ms(queue.store, queue.name) if alter.lowers_grace(state, wanted) else 0
        return alter.alter_settings(state, wanted, store_ms)

    state = queue.control.decide(facts)
    follow_queue(queue, [queue.table(number) for number in state.all_partitions])
    update_groups(queue, "alter-queue")
    return queue.state


def _provide_dead_letter_queue(queue: Queue, state: QueueState, wanted: Mapping[str, Any]) -> None:
    """Make the dead-message queue of a queue, with all columns that the queue has by now, before the queue's settings name it."""
    new = state.settings.model_copy(update=dict(wanted)).check_together().check_columns(state.schema)
    check_dead_letter_queue(queue.name, state.schema, state.key, new)
    provide_dead_letter_queue(queue.store, queue.name, state.schema, state.key, new, state.added)
    if new.dead_letter_queue is not None and state.added:
        added = [field for field in state.schema["fields"] if field["name"] in state.added]
        add_columns(open_queue(queue.store, new.dead_letter_queue), {"type": "struct", "fields": added})


def add_columns(queue: Queue, columns: str | Struct) -> QueueState:
    """Add columns to a queue, and before that to its dead-message queue.

    Columns that exist already stay as they are. The call may be killed and repeated.

    Raises
    ------
    InvalidArgumentError, SchemaMismatchError
        If one of the columns cannot be added; nothing is changed.
    QueueFencedError, ReplicaError, QueueNotFoundError
        Likewise.
    """
    wanted = new_columns(columns)

    def facts(state: QueueState) -> Sequence[QueueFact]:
        check_primary(queue, opening=True)
        decided = alter.add_columns(state, wanted)
        dead_letter_queue = state.settings.dead_letter_queue
        if state.usable and dead_letter_queue is not None:
            add_columns(open_queue(queue.store, dead_letter_queue), wanted)
        return decided

    state = queue.control.decide(facts)
    follow_queue(queue, [queue.table(number) for number in state.all_partitions])
    return queue.state


def follow_queue(queue: Queue, tables: Sequence[PartitionTable], as_of_ms: int = 0) -> None:
    """Give tables of partitions the queue's columns, and let them remember removed files for as long as the queue's grace asks for.

    Parameters
    ----------
    as_of_ms : int
        A moment by the store's clock. A former, longer grace still counts if it was not over at that moment.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError
        If the queue was deleted meanwhile.
    """

    def asked(state: QueueState) -> tuple[int, Struct]:
        return state.grace_ms(as_of_ms), state.schema

    known = asked(queue.state)
    with queue.explained():
        queue.store.map(lambda table: table.follow(known, lambda: asked(queue_state(queue.store, queue.name))), tables)
