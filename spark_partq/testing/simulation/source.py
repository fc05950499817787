"""What a producer reads, and the files that it writes of it."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import pyarrow as pa

from spark_partq.core.queue.manifest import NewFile
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures.place import key_hashes, write_rows
from spark_partq.storage.queue.handle import Queue
from spark_partq.testing.simulation.setup import ProducerSetup
from spark_partq.testing.simulation.stored import Message


@dataclass
class Source:
    """What a producer reads, and how far it is: its checkpoint."""

    setup: ProducerSetup
    batches: list[list[Message]]
    done: int = 0
    refused: bool = False

    def is_exhausted(self) -> bool:
        return self.done >= len(self.batches) or self.refused


def files_of(queue: Queue, batch: list[Message]) -> list[NewFile]:
    """Write these messages, placed by the map in force."""
    columns = {"k": [m.key for m in batch], "id": [m.id for m in batch]}
    table = pa.RecordBatch.from_pydict(columns, arrow_schema(queue.state.schema))
    others = [crc32(m.id.encode()) for m in batch]
    return write_rows(queue, [(0, table)], lambda _, rows_: key_hashes(queue.state, rows_, others))
