"""Manual acknowledgement (H5): the application says which messages of a partition it has finished."""

from __future__ import annotations

from collections.abc import Mapping

from spark_partq.core import arguments
from spark_partq.core.delivery.member import same_lineage
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.group.acks import AckRow
from spark_partq.core.ids import QueuePartition
from spark_partq.storage.group.handle import Group, open_group
from spark_partq.storage.store import Store

Claim = tuple[str, int, int, str]  # queue id, number, epoch, incarnation
_NO_CLAIMS: Mapping[QueuePartition, Claim] = {}


def acknowledge(
    store: Store,
    name: str,
    offsets: Mapping[QueuePartition, int],
    epochs: Mapping[QueuePartition, int] | None = None,
    claims: Mapping[QueuePartition, Claim] = _NO_CLAIMS,
) -> list[QueuePartition]:
    """Commit the offsets under the epochs in which they were delivered; see `spark_partq.acknowledge`.

    Parameters
    ----------
    claims : dict
        The partitions that queries of this driver own.

    Raises
    ------
    InvalidArgumentError
    """
    offsets = arguments.whole_numbers_by_partition("offsets", offsets)
    epochs = arguments.whole_numbers_by_partition("epochs", epochs or {})
    group = open_group(store, name)
    while True:
        rows, refused = _rows(group, offsets, epochs, claims)
        if not rows:
            return refused
        group.acknowledge(rows)
        before = group.state.seq
        group.refresh()
        # An acknowledgement counts under the current epoch only, which may have changed meanwhile.
        if group.state.seq == before:
            return refused


def _rows(
    group: Group,
    offsets: Mapping[QueuePartition, int],
    epochs: Mapping[QueuePartition, int],
    claims: Mapping[QueuePartition, Claim],
) -> tuple[list[AckRow], list[QueuePartition]]:
    """The rows to commit, and the partitions whose acknowledgement is refused, by the group's present state."""
    name, state, acks = group.name, group.state, group.acks
    ids = {queue.name: queue_id for queue_id, queue in state.queues.items()}
    rows: list[AckRow] = []
    refused: list[QueuePartition] = []
    for partition, offset in offsets.items():
        queue, number = partition
        partition_id = (ids.get(queue, ""), number)
        own = state.partitions.get(partition_id)
        was_delivered = partition in claims or (partition in epochs and queue not in ids)
        if own is None and (partition_id in state.removed or was_delivered):
            refused.append(partition)  # the queue no longer has it, or was deleted
            continue
        if own is None and partition in epochs and _had(group, partition):
            refused.append(partition)  # the queue was deleted, and created again with fewer partitions
            continue
        if own is None:
            raise InvalidArgumentError(
                f"group {name!r} has no partition {number} of queue {queue!r}; it reads {', '.join(sorted(ids))}",
                group=name, queue=queue, partition=number,
            )  # fmt: skip
        if partition in epochs:
            epoch, incarnation = epochs[partition], own.incarnation
        elif partition in claims and claims[partition][0] == partition_id[0]:
            _, _, epoch, incarnation = claims[partition]
        elif claims:
            refused.append(
                partition
            )  # the claim is of a query of this driver that has lost it, or of a deleted queue of that name
            continue
        else:
            raise InvalidArgumentError(
                f"no registered query of group {name!r} runs in this driver, so it is not known under which epoch partition "
                f"{number} of queue {queue!r} was delivered; pass epochs={{({queue!r}, {number}): <column _epoch>}}",
                group=name, queue=queue, partition=number,
            )  # fmt: skip
        if own.flow is None or not same_lineage(own, incarnation, epoch):
            refused.append(partition)
            continue
        if not 0 <= offset <= state.delivered(partition_id, acks):
            raise InvalidArgumentError(
                f"offset {offset!r} of partition {number} of queue {queue!r} cannot be acknowledged: give the next offset that the group wants, at most "
                f"{state.delivered(partition_id, acks)}, up to which the partition was delivered",
                group=name, queue=queue, partition=number,
            )  # fmt: skip
        position = state.position(partition_id, acks) or 0
        if offset > max(position, acks.delivered(partition_id, own.lineage_epoch)):
            refused.append(partition)  # delivered to an earlier owner, or before a reset
        elif offset > position:
            rows.append(AckRow(incarnation, 0, *partition_id, own.epoch, offset, offset))
    return rows, refused


def _had(group: Group, partition: QueuePartition) -> bool:
    """Whether the group ever read a partition of that name and number. This reads the whole history, so it is for what would be an error."""
    facts = group.history_table()
    return partition in zip(facts["queue"].to_pylist(), facts["partition"].to_pylist(), strict=True)
