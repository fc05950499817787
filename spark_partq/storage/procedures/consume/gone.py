"""Messages that no query is given any more, as they were removed or deleted. This acknowledges them, as nothing else would."""

from __future__ import annotations

from collections.abc import Mapping

from spark_partq.core.ids import PartitionId
from spark_partq.storage.procedures.consume.membership import Ack, Membership
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import rows_left
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import slices


class Gone:
    """Used under the lock of `membership`, as of its last refresh."""

    def __init__(self, settings: ConsumerSettings, membership: Membership) -> None:
        self._settings, self._membership = settings, membership

    def acks(
        self,
        queues: Mapping[str, Queue],
        tables: Mapping[PartitionId, PartitionTable],
        starts: Mapping[PartitionId, int],
        acks: list[Ack],
    ) -> list[Ack]:
        """Acknowledgements of messages that were removed before they were read, or deleted, if no earlier message is still to be acknowledged.

        Parameters
        ----------
        starts : dict
            Where the next micro-batch of each partition starts.
        acks : list
            The acknowledgements that are about to be committed.
        """
        if self._settings.fail_on_data_loss and not self._settings.manual_acknowledgement:
            return []  # a removed message fails the query, and a deleted one is acknowledged with its micro-batch
        group, done = self._membership.group, {partition_id: offset for partition_id, _, offset in acks}
        found = []
        for partition_id, first in starts.items():
            read = max(group.position(partition_id) or 0, done.get(partition_id, 0))
            planned = self._membership.last_planned(partition_id)
            settled = read
            if not self._settings.fail_on_data_loss and (planned is None or planned.end <= read):
                settled = first  # else the query fails if the two differ
            elif self._settings.manual_acknowledgement:
                settled = _deleted_end(queues[partition_id[0]], tables[partition_id], read, first)
            if settled > read:
                found.append((partition_id, group.state.partitions[partition_id].epoch, settled))
        return found


def _deleted_end(queue: Queue, table: PartitionTable, start: int, end: int) -> int:
    """The offset up to which all messages of ``[start, end)``, from the first one on, were deleted."""
    at = start
    for part in slices(queue.state, table.partition, table.index, start, end):
        if part.base_offset + part.first_row != at:
            break  # the messages between were removed
        left = rows_left(queue.store, part) if part.deleted else range(part.first_row, part.last_row)
        if len(left):
            return part.base_offset + int(left[0])
        at = part.base_offset + part.last_row
    return at
