"""What a producer of a simulated world reads, and how it writes it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from zlib import crc32

import pyarrow as pa

from spark_partq.core.queue.manifest import NewFile
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures.place import key_hashes, write_rows
from spark_partq.storage.queue.handle import Queue
from spark_partq.testing.simulation.notes import COLUMN, note_of
from spark_partq.testing.simulation.setup import ProducerSetup, Setup
from spark_partq.testing.simulation.stored import Message

# What the messages say where that counts.
_LIFETIMES_MS = None, 400, 1_500, 5_000


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
    """Write the files of a batch."""
    columns = {"k": [m.key for m in batch], "id": [m.id for m in batch], "ttl": [_own_ms(m.id) for m in batch]}
    schema = arrow_schema(queue.state.schema)
    if COLUMN in schema.names:
        columns[COLUMN] = [note_of(m.id) for m in batch]
    table = pa.RecordBatch.from_pydict(columns, schema)
    others = [crc32(m.id.encode()) for m in batch]
    return write_rows(queue, [(0, table)], lambda _, rows_: key_hashes(queue.state, rows_, others))


def _own_ms(id_: str) -> int | None:
    """What a message says of its time."""
    return _LIFETIMES_MS[crc32(f"lifetime {id_}".encode()) % len(_LIFETIMES_MS)]


def lives_ms(setup: Setup, id_: str) -> int:
    """After which time a message is too old."""
    given = setup.message_ttl_ms, _own_ms(id_) if setup.lifetimes else None
    return min((ms for ms in given if ms is not None), default=sys.maxsize)
