"""Texts about members whose queries may give wrong results, for the log and for descriptions of the group; and about a damaged group."""

from __future__ import annotations

from collections.abc import Sequence

from spark_partq.core.ids import QueuePartition

# For a group whose tables are damaged: nothing is removed before another group keeps the messages.
ANOTHER_GROUP = (
    "go on with a group of another name, with new checkpoints and the startingOffsets at which it is to begin, and delete the damaged group only "
    "when the other one has begun"
)


def begun_anew(instances: Sequence[str]) -> str:
    """About queries that began with a fresh checkpoint in a group that had read messages before."""
    return (
        f"{_named(instances)} began with a fresh checkpoint, while the group had read messages before: micro-batches are numbered from 0 "
        "again, so a sink that skips batch ids that it has had drops rows silently. Write with partq.delta_sink, or keep "
        "partq.positions with the results"
    )


def state_stays_behind(instance: str, partitions: Sequence[QueuePartition], when: str = "") -> str:
    """About a query with keyed state that has gained or lost partitions. `when` says how often and when."""
    return (
        f"{_named([instance])} keeps state by key in Spark, and {_partitions(partitions)} came to it or went from it{when and f' ({when})'}: the "
        "state of their keys stays in the query that had them, so what is computed from it is wrong. Keep such state in a table, by key and "
        "partition (see docs/exactly-once.md, Totals and other state by key)"
    )


def _named(instances: Sequence[str]) -> str:
    return f"quer{'y' if len(instances) == 1 else 'ies'} {', '.join(instances)}"


def _partitions(partitions: Sequence[QueuePartition]) -> str:
    queues = sorted({queue for queue, _ in partitions})
    return " and ".join(
        f"partition{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))} of queue {queue}"
        for queue in queues
        for numbers in [sorted(number for name, number in partitions if name == queue)]
    )
