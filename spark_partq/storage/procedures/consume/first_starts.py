"""Where a group starts in partitions that it has never had."""

from __future__ import annotations

from collections.abc import Iterable

from spark_partq.core.delivery.offsets import EARLIEST, JsonOffsets, parse_offsets, resolve
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.stored import MAX_PARTITIONS
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.queue.handle import Queue, first_left
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.starting import offset_at_time

_ANY = range(PARENT, MAX_PARTITIONS)


def first_starts(
    settings: ConsumerSettings, queues: Iterable[Queue], state: GroupState, opened: Iterable[str], is_back: bool
) -> dict[PartitionId, int]:
    """The first offset of each partition that the group has never had. If the group reads the queue already, it is the partition's beginning.

    Parameters
    ----------
    opened : iterable of str
        Names of the queues that the query began with. Some may be deleted by now.
    is_back : bool
        The query was a member before: partitions that it finds now were made while it ran.

    Raises
    ------
    OffsetOutOfRangeError, InvalidArgumentError
        `starting_offsets` or `starting_timestamp_ms` name no message. For a queue that the group reads already, they may name
        partitions that the queue had once.
    """
    queues = list(queues)
    known = {queue.name for queue in queues if queue.state.queue_id in state.queues}
    of_new = {queue.name: queue.state.partition_numbers for queue in queues if queue.name not in known}
    numbers = {**dict.fromkeys([*opened, *known], _ANY), **of_new}
    offsets = parse_offsets("startingOffsets", settings.starting_offsets, numbers)
    first: dict[PartitionId, int] = {}
    for queue in queues:
        is_read = is_back or queue.name in known or any(m.subscribes(queue.name) for m in state.members.values())
        for table in queue.partitions:
            partition_id = queue.state.queue_id, table.partition
            if partition_id not in state.partitions:
                found = first_left(queue, table) if is_read else _first_start(settings, queue, table, offsets)
                first[partition_id] = found
    return first


def _first_start(settings: ConsumerSettings, queue: Queue, table: PartitionTable, offsets: int | JsonOffsets) -> int:
    if settings.starting_timestamp_ms is not None:
        first = offset_at_time(table, settings.starting_timestamp_ms, settings.starting_timestamp_strategy)
        return max(first, first_left(queue, table))
    number, strict = table.partition, settings.fail_on_data_loss
    offset = offsets if isinstance(offsets, int) else offsets.get(queue.name, {}).get(number, EARLIEST)
    bounds = first_left(queue, table), table.next_offset
    return resolve("startingOffsets", offset, *bounds, queue.name, number, fail_on_data_loss=strict)
