"""Dead messages go back into the queues from which they came: each once, and messages of one key in their order."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_partq.core.delivery.offsets import Range
from spark_partq.core.delivery.positions import lineage
from spark_partq.core.errors import (
    InvalidArgumentError,
    QueueFencedError,
    QueueNotFoundError,
    QueueNotReadyError,
    ReplicaError,
    SchemaMismatchError,
)
from spark_partq.core.payload.dead_letters import ORIGIN, without_origin
from spark_partq.core.payload.schema import check_same_columns
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.sink_ids import redriven_sink
from spark_partq.storage.arrow import arrow_schema, in_schema, rows_of
from spark_partq.storage.procedures.consume.left_out import DEAD, EXPIRED, HELD
from spark_partq.storage.procedures.deliver_range import Source, deliver_range, delivered_to
from spark_partq.storage.procedures.ingress import ingress_disabled
from spark_partq.storage.procedures.place import write_rows
from spark_partq.storage.procedures.positions_queue import PositionsQueue, read_positions
from spark_partq.storage.procedures.release_keys import release_keys
from spark_partq.storage.queue.clock import checked_ms
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.slices import Slice, slices
from spark_partq.storage.store import Store

# Stands for a group in names of positions: the redrive, which reads the dead-message queue.
_READER = "redrive"
# The reasons of planners that leave a message out. An application that rejects a message may give any reason.
_PUT_ASIDE = DEAD, HELD, EXPIRED


@dataclass(frozen=True)
class DeadMessage:
    """A message of a dead-message queue.

    Attributes
    ----------
    partition : int
        The partition of the dead-message queue that holds the message.
    offset : int
        The offset of the message in that partition of the dead-message queue.
    redriven : bool
        Whether the message was put back into the queue from which it came.
    payload : dict
        The message as it was in the queue from which it came: the value of each column, by name.
    origin : dict
        The values of the other columns of the dead-message queue, by name: where the message came from, and why it is dead.
    """

    partition: int
    offset: int
    redriven: bool
    payload: dict[str, Any]
    origin: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "offset": self.offset,
            "redriven": self.redriven,
            **self.origin,
            "payload": self.payload,
        }


def open_dead_letters(store: Store, name: str) -> Queue:
    """The dead-message queue of that name, or of the queue of that name.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError
    InvalidArgumentError
        If the queue neither is a dead-message queue nor has one.
    """
    queue = open_queue(store, name)
    if without_origin(queue.state.schema) is not None:
        return queue
    dead_letter_queue = queue.state.settings.dead_letter_queue
    if dead_letter_queue is None:
        raise InvalidArgumentError(
            f"queue {name!r} has no dead_letter_queue, and is none; name a queue that has one, or is one", queue=name
        )
    return open_queue(store, dead_letter_queue)


def dead_letters(store: Store, name: str) -> Iterator[DeadMessage]:
    """The messages of a dead-message queue, in the order in which they are put back.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError, InvalidArgumentError
        At once.
    """
    return _messages(open_dead_letters(store, name))


def _messages(queue: Queue) -> Iterator[DeadMessage]:
    store = queue.store
    positions: dict[str, dict[int, int]] = {}
    for table, part in _parts(queue, {}):
        payload = _names_of_payload(queue)  # as of now: the queue may have a new column
        for first, rows in read_slice(store, part, arrow_schema(queue.state.schema)):
            for number, row in enumerate(rows_of(rows, queue.state.schema)):
                origin, offset = row["origin_queue"], part.base_offset + first + number
                if origin not in positions:
                    positions[origin] = _redriven_to(queue, origin)
                yield DeadMessage(
                    table.partition,
                    offset,
                    offset < positions[origin].get(table.partition, 0),
                    {name: row[name] for name in payload},
                    {name: value for name, value in row.items() if name not in payload},
                )


def redrive(store: Store, name: str) -> dict[str, int]:
    """Append the messages of a dead-message queue that were not yet put back to the queues from which they came.

    If `name` is the dead-message queue, it appends all of them; else only those of queue `name`. They are new messages there, behind the messages that the
    queues have by now. The call may be killed and run again, and run twice at once. Keys that were held back are no longer held (`release_keys`).

    Returns
    -------
    dict
        For each queue, by name, how many messages this call has put back.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError, InvalidArgumentError, SchemaMismatchError
    QueueFencedError, ReplicaError
        If a queue is a replica, or its replica took over.
    IngressDisabledError
        If a queue with dead_letter_order=skip takes no messages now, whatever its reject_to_sender says: no dead message is discarded.
    ClockSkewError
        All these errors come before anything is put back and before a key is released. If their cause comes up only later, messages that were put back before
        are not put back again.
    KeysHeldError
        Before anything is put back, if a queue holds keys back, and other messages may come before those that are put back.
    """
    queue = open_dead_letters(store, name)
    # The queue that was named may hold keys although no message is left to put back: dead messages may have been deleted, or removed by
    # age.
    named = {} if name == queue.name else {name: open_queue(store, name)}
    origins, ends, last = _origins(queue, named)
    while True:
        targets = _targets(queue, origins)
        asked = {**named, **targets}
        for target in targets.values():
            _check_takes(target)
        released = release_keys([(target, origins.get(origin, ())) for origin, target in asked.items()])
        if not released:
            break  # messages that are put aside from here on hold their keys
        before, (origins, ends, last) = last, _origins(queue, named)
        # Queues that hold keys back get no more dead messages: their groups have read all messages, and no producer writes.
        holding = [name for name, target in asked.items() if target.state.settings.dead_letter_order != "skip"]
        if all(last.get(name) == before.get(name) for name in holding):
            break
    return {origin: _redrive(queue, target, ends) for origin, target in targets.items()}


def _targets(queue: Queue, origins: Iterable[str]) -> dict[str, Queue]:
    """The queues to which messages are to be put back.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError, SchemaMismatchError
    """
    targets = {origin: open_queue(queue.store, origin) for origin in origins}
    for origin, target in targets.items():
        check_same_columns(
            target.state.schema,
            _payload(queue),
            f"dead-message queue {queue.name!r}",
            f"queue {origin!r}, from which messages came",
            "Read them as a DataFrame, select and cast the columns of the queue, and append them",
            may_lack=target.state.added,
            may_add=queue.state.added,
        )
        _check_nothing_is_cut(queue, target)
    return targets


def _check_takes(origin: Queue) -> None:
    """Refuse what a commit would refuse later, when no key is held any more.

    Raises
    ------
    IngressDisabledError, ClockSkewError
    """
    if _heeds_ingress(origin) and not origin.state.ingress:
        raise ingress_disabled(origin.name)
    checked_ms(origin.store, origin.name, origin.state.settings.max_clock_skew_ms, "nothing is put back")


def _heeds_ingress(origin: Queue) -> bool:
    """Whether a redrive needs the queue's ingress. With `hold` ingress is disabled during a redrive, so that no producer writes in between."""
    return origin.state.settings.dead_letter_order == "skip"


def _check_nothing_is_cut(queue: Queue, origin: Queue) -> None:
    """Refuse to put messages back if they have values in a column that their queue lacks, for example because the queue was created again.

    Raises
    ------
    SchemaMismatchError
    """
    there = {field["name"] for field in origin.state.schema["fields"]}
    others = [name for name in _names_of_payload(queue) if name not in there]
    if not others:
        return
    for _, part in _parts(queue, _redriven_to(queue, origin.name)):
        for _, batch in read_slice(queue.store, part, arrow_schema(queue.state.schema)):
            rows = batch.filter(pc.equal(batch.column("origin_queue"), origin.name))
            cut = [name for name in others if rows.column(name).null_count < rows.num_rows]
            if cut:
                raise SchemaMismatchError(
                    f"dead messages of queue {origin.name!r} have columns that the queue does not have: {', '.join(cut)}. Add them to the queue "
                    "with alter-queue --add-column, and run this again",
                    faults=", ".join(cut),
                    where=f"queue {origin.name!r}",
                )


def _redrive(queue: Queue, origin: Queue, ends: Mapping[int, int]) -> int:
    """Put back messages below these ends. For later ones it is unknown whether groups have read all messages of the queue."""
    target = PositionsQueue(origin, redriven_sink(queue.name), _heeds_ingress(origin))
    put_back = 0
    for table, part in _parts(queue, _redriven_to(queue, origin.name), ends):
        of_part = 0

        def files(first: int, part: Slice = part) -> Sequence[NewFile]:
            nonlocal of_part
            found = write_rows(origin, _rows(queue, origin, part, first))
            of_part = sum(file.rows for file in found)
            return found

        place = queue.state.queue_id, table.partition
        incarnations = lineage(queue.state.incarnation, queue.state.former, table.partition)
        messages = Range(0, part.base_offset + part.first_row, part.base_offset + part.last_row)
        if deliver_range(target, _READER, Source(place, incarnations, messages), files):
            put_back += of_part
    return put_back


def _origins(
    queue: Queue, named: Collection[str]
) -> tuple[dict[str, set[str]], dict[int, int], dict[str, dict[int, int]]]:
    """What the files of a dead-message queue hold: the queues with messages to put back, how far was searched, and the last messages.

    Parameters
    ----------
    named : collection of str
        The queues that are meant; all if empty.

    Returns the queues, each with the groups that put these messages aside (rejected messages count for no group); the ends of
    the partitions that were searched; and, by queue and partition, the offset of the queue's last dead message.
    """
    names = ["origin_queue", "origin_group", "dead_reason"]
    schema = arrow_schema({"type": "struct", "fields": [f for f in ORIGIN["fields"] if f["name"] in names]})
    # For each queue, the offset of its last message: by partition, group, and whether it was put aside or rejected; and by partition
    # alone.
    last: dict[str, dict[tuple[int, str, bool], int]] = {}
    last_of: dict[str, dict[int, int]] = {}
    ends: dict[int, int] = {}
    for table, part in _parts(queue, {}):
        ends[table.partition] = part.base_offset + part.last_row
        for first, rows in read_slice(queue.store, part, schema):
            columns = [rows.column(name).to_pylist() for name in names]
            for at, (name, group, reason) in enumerate(zip(*columns, strict=True), part.base_offset + first):
                last.setdefault(name, {})[table.partition, group, reason in _PUT_ASIDE] = at
                last_of.setdefault(name, {})[table.partition] = at
    found = {}
    for name, of in sorted(last.items()):
        if named and name not in named:
            continue
        _finish(queue, name)
        positions = _redriven_to(queue, name)
        left = [(group, aside) for (number, group, aside), at in of.items() if at >= positions.get(number, 0)]
        if left:
            found[name] = {group for group, aside in left if aside}
    return found, ends, last_of


def _finish(queue: Queue, origin: str) -> None:
    """Place batches that a redrive made durable before it died. They count as put back."""
    takes_nothing = QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError
    with contextlib.suppress(*takes_nothing):
        PositionsQueue(open_queue(queue.store, origin), redriven_sink(queue.name)).refresh()


def _rows(queue: Queue, origin: Queue, part: Slice, from_offset: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The payload of those rows of a file that came from that queue, at or above an offset."""
    payload = arrow_schema(origin.state.schema)
    for first, batch in read_slice(queue.store, part, arrow_schema(queue.state.schema)):
        left_out = max(0, min(batch.num_rows, from_offset - part.base_offset - first))
        rows = batch.slice(left_out)
        rows = rows.filter(pc.equal(rows.column("origin_queue"), origin.name))
        if rows.num_rows:
            yield part.base_offset + first + left_out, in_schema(rows, payload)


def _parts(
    queue: Queue, positions: Mapping[int, int], ends: Mapping[int, int] | None = None
) -> Iterator[tuple[PartitionTable, Slice]]:
    """The files of a dead-message queue: of each partition from its position on, up to its end, or up to `ends`.

    Messages that were written under one partition count come before those under the next one, so messages of a key keep their order.
    """
    queue.control.refresh()
    tables = queue.every_table()
    while queue.control.refresh():  # the state must have every column and partition count of these files
        tables = queue.every_table()
    read = dict(positions)
    for generation in queue.state.generations:
        for table in tables:
            number = table.partition
            is_last = generation is queue.state.generations[-1]
            start = max(table.first_offset, read.get(number, 0))
            end = table.next_offset if is_last else min(generation.cuts.get(number, 0), table.next_offset)
            if ends is not None:
                end = min(end, ends.get(number, 0))
            if start < end:
                read[number] = end
                for part in slices(queue.state, number, table.index, start, end):
                    yield table, part


def _redriven_to(queue: Queue, origin: str) -> dict[int, int]:
    """By partition, how far a dead-message queue was put back into a queue; empty if that queue does not exist."""
    try:
        positions = read_positions(open_queue(queue.store, origin), redriven_sink(queue.name))
    except (QueueNotFoundError, QueueNotReadyError):
        return {}
    return {n: delivered_to(positions, _READER, queue.state, n) for n in queue.state.all_partitions}


def _payload(queue: Queue) -> Any:
    return without_origin(queue.state.schema)


def _names_of_payload(queue: Queue) -> list[str]:
    return [field["name"] for field in _payload(queue)["fields"]]
