"""Manual acknowledgement (H5): the application says up to where a partition is finished."""

from __future__ import annotations

from collections.abc import Mapping

from spark_partq.core.delivery.member import same_lineage
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.group.acks import AckRow
from spark_partq.storage.group.handle import Group, open_group
from spark_partq.storage.store import Store

Partition = tuple[str, int]  # queue name, number
Holding = tuple[str, int, int, str]
_NOTHING_HELD: Mapping[Partition, Holding] = {}


def acknowledge(
    store: Store,
    name: str,
    offsets: Mapping[Partition, int],
    epochs: Mapping[Partition, int] | None = None,
    held: Mapping[Partition, Holding] = _NOTHING_HELD,
) -> list[Partition]:
    """Commit the offsets under the epochs in which they were delivered; see `spark_partq.acknowledge`.

    Parameters
    ----------
    held : dict
        The partitions that queries of this driver hold: queue id, number, epoch, incarnation.
    """
    group = open_group(store, name)
    while True:
        rows, refused = _rows(group, offsets, epochs, held)
        if not rows:
            return refused
        group.acknowledge(rows)
        before = group.state.seq
        group.refresh()
        # An acknowledgement counts under the current epoch only, and that may have moved meanwhile.
        if group.state.seq == before:
            return refused


def _rows(
    group: Group,
    offsets: Mapping[Partition, int],
    epochs: Mapping[Partition, int] | None,
    held: Mapping[Partition, Holding],
) -> tuple[list[AckRow], list[Partition]]:
    """What to commit as of this look, and what is refused."""
    name, state, acks = group.name, group.state, group.acks
    ids = {queue.name: queue_id for queue_id, queue in state.queues.items()}
    rows: list[AckRow] = []
    refused: list[Partition] = []
    for partition, offset in offsets.items():
        queue, number = partition
        where = (ids.get(queue, ""), number)
        own = state.partitions.get(where)
        if own is None:
            raise InvalidArgumentError(
                f"group {name!r} has no partition {number} of queue {queue!r}; it reads {', '.join(sorted(ids))}",
                group=name, queue=queue, partition=number,
            )  # fmt: skip
        if epochs is not None and partition in epochs:
            epoch, incarnation = epochs[partition], own.incarnation
        elif partition in held:
            _, _, epoch, incarnation = held[partition]
        elif held:
            refused.append(partition)  # of a query of this driver that has lost it
            continue
        else:
            raise InvalidArgumentError(
                f"no query of group {name!r} that was registered runs in this driver, so nothing tells under which epoch partition "
                f"{number} of queue {queue!r} was delivered; pass epochs={{({queue!r}, {number}): <column _epoch>}}",
                group=name, queue=queue, partition=number,
            )  # fmt: skip
        if own.flow is None or not same_lineage(own, incarnation, epoch):
            refused.append(partition)
            continue
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= state.delivered(where, acks):
            raise InvalidArgumentError(
                f"offset {offset!r} of partition {number} of queue {queue!r}: the next offset wanted, at most "
                f"{state.delivered(where, acks)}, up to where it was delivered",
                group=name, queue=queue, partition=number,
            )  # fmt: skip
        if offset > (state.position(where, acks) or 0):
            rows.append(AckRow(incarnation, 0, *where, own.epoch, offset, offset))
    return rows, refused
