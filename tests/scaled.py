"""Queues that are scaled, without Spark: producers and consumers that do what a sink's and a query's driver do, step by step."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.group.acks import AckRow
from spark_partq.core.payload.keys import KeyHash, key_hash, murmur2_hash
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.partition_map import Barrier, target
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.procedures import delete as deletion
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.messages import MessageWriter, read_slice
from spark_partq.storage.queue.slices import slices
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import opened

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
QUICK: dict[str, Any] = {"rebalance_delay_ms": 0, "max_handoff_time_ms": 0}

Message = tuple[str, int]


class Crash(Exception):
    """Stands for a process that dies."""


def half_deleted(store: str, queue: str, part: str, files: int | None = None) -> None:
    """A process dies that deletes a queue, when it has removed one part of it: replica, manifests, partitions or control; or so many files of this part."""
    remove, delete, removed = deletion._remove_tree, DiskFiles.delete, itertools.count()

    def dies(there: Store, path: str) -> None:
        remove(there, path)
        if path.endswith(part):
            raise Crash

    def dies_earlier(disk: DiskFiles, path: str) -> None:
        if f"queues/{queue}/{part}/" in path and next(removed) == files:
            raise Crash
        delete(disk, path)

    with (
        mock.patch.object(deletion, "_remove_tree", dies),
        mock.patch.object(DiskFiles, "delete", dies_earlier),
        pytest.raises(Crash),
    ):
        partq.delete_queue(store, queue)


def make(store: Store | str, partitions: int, **settings: Any) -> None:
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=partitions, **{**QUICK, **settings})


def scale(store: str, partitions: int, mode: Any = "live", **arguments: Any) -> partq.QueueDescription:
    """As somebody does who does not know whether the process that did it before has died: it may be done."""
    try:
        return partq.scale(store, "q", partitions, mode, **arguments)
    except partq.InvalidArgumentError as error:
        if "no change of the count is left to finish" not in str(error):
            raise
        return partq.describe_queue(store, "q")


def messages(first: int, last: int, keys: int = 7) -> list[Message]:
    """Numbered ones, of several keys in turn."""
    return [(f"k{n % keys}", n) for n in range(first, last)]


class Sink:
    """A producer whose batches are lists."""

    def __init__(
        self,
        store: Store | str,
        sink_id: str | None = "s",
        query_id: str | None = None,
        offsets_digest: str | None = None,
    ) -> None:
        self.queue = opened(store)
        self.producer = Producer(self.queue)
        self._sink_id, self._of_query = sink_id, (query_id, offsets_digest)

    def write(self, batch_id: int, rows: Sequence[Message], begun: Callable[[], None] = lambda: None) -> int:
        """Write a batch; `begun` is called each time when its files are written and not committed."""

        def files() -> list[NewFile]:
            found = write_files(self.queue, rows)
            begun()
            return found

        self.producer.refresh()
        record = None if self._sink_id is None else BatchRecord(self._sink_id, batch_id, *self._of_query)
        return self.producer.write(record, files, lambda: len(rows))


def hash_of(key: str, hash_: KeyHash = "xxhash64") -> int:
    return murmur2_hash([key], ["string"]) if hash_ == "murmur2" else key_hash([key], ["string"])


def write_files(queue: Queue, rows: Sequence[Message]) -> list[NewFile]:
    writer = MessageWriter(queue.store, queue.name, SCHEMA, ["k"], sorted_input=False)
    if rows:
        batch = pa.RecordBatch.from_pylist([{"k": k, "v": v} for k, v in rows], SCHEMA)
        places = np.array([target(hash_of(k, queue.state.key_hash), queue.state.partition_count) for k, _ in rows])
        writer.write(batch, places, np.arange(len(rows)))
    return writer.finish()


def read(queue: Queue, number: int, start: int, end: int, schema: pa.Schema = SCHEMA) -> Iterator[Any]:
    """The messages of a partition, as of the last refresh, as tuples."""
    table = queue.table(number)
    for piece in slices(queue.state, number, table.index, start, end):
        for _, batch in read_slice(queue.store, piece, schema):
            yield from (tuple(row.values()) for row in batch.to_pylist())


def stored(store: Store | str, schema: pa.Schema = SCHEMA, queue: str = "q") -> dict[int, list[Any]]:
    """Everything that is in the operating partitions."""
    found = opened(store, queue)
    return {
        t.partition: list(read(found, t.partition, t.first_offset, t.next_offset, schema)) for t in found.partitions
    }


class Reader(Consumer):
    """A consumer that reads everything, in order, as far as the barrier lets it; `seen` gets it."""

    def __init__(self, store: str, instance: str = "r", **options: Any) -> None:
        self.queue = opened(store)
        self.seen: list[Message] = []
        super().__init__(store, instance, **options)

    def turn(self) -> int:
        """One micro-batch; how many messages it had."""
        self.queue.refresh()
        while self.queue.control.refresh():  # the partitions must not be refreshed later than the queue
            self.queue.refresh()
        self.release()
        if self.instance not in self.group.state.members:
            self.start_again()
        state, queue_id = self.queue.state, self.queue.state.queue_id
        group = self.group.state
        barrier = Barrier(state.generations, lambda n: group.committed_floor((queue_id, n)), state.removed_ends)
        acks = []
        count = len(self.seen)
        for (_, number), own in sorted(group.partitions.items()):
            if own.incarnation == self.incarnation and number in state.partition_numbers:
                start = self.group.position((queue_id, number)) or 0
                end = barrier.limit(number, start, self.queue.table(number).next_offset)
                self.seen += read(self.queue, number, start, end)
                acks.append(AckRow(self.incarnation, next(self._beats), queue_id, number, own.epoch, end, end))
        if len(self.seen) > count:
            self.group.acknowledge(acks)
            self.group.refresh()
        self.group.commit_floors(queue_id, barrier.missing)
        return len(self.seen) - count

    def all(self) -> list[Message]:
        """Read until nothing comes any more; a barrier takes a turn to open."""
        idle = 0
        while idle < 3:
            idle = 0 if self.turn() else idle + 1
        return self.seen


def assert_in_order(seen: Iterable[Message], expected: Iterable[Message]) -> None:
    """Each message once, those of a key in the order in which they were written."""
    seen = list(seen)
    assert sorted(seen) == sorted(expected)
    by_key: dict[str, list[int]] = defaultdict(list)
    for k, v in seen:
        by_key[k].append(v)
    assert all(values == sorted(values) for values in by_key.values()), by_key


def while_scaling(scale: Callable[[], Any], turn: Callable[[], Any]) -> Any:
    """Run `scale` in a thread, and `turn` again and again until that has ended; its result, or the error that it raised."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(scale())
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        turn()
    return result[0]


def runs(patch: pytest.MonkeyPatch, function: Callable[[], Any], between: Callable[[], Any] = lambda: None) -> int:
    """Run a function again and again, each time in a process that makes one commit and dies at the next, until it ends.

    So it is seen to go on from every state that it can leave behind. Returns how often it has died.
    """
    for died in range(300):
        with patch.context() as limited:
            _die_after(limited, 1)
            try:
                function()
            except Crash:
                pass
            else:
                return died
        between()
    raise AssertionError("it comes no further")


def _die_after(patch: pytest.MonkeyPatch, commits: int) -> None:
    done, lock = [0], threading.Lock()

    def limited(commit: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with lock:
                if done[0] >= commits:
                    raise Crash
                commit(*args, **kwargs)
                done[0] += 1

        return call

    for name in ("commit", "create"):
        patch.setattr(DeltaLog, name, limited(getattr(DeltaLog, name)))


def known(store: str, group: str = "g") -> list[int]:
    """The partitions that a group knows."""
    return sorted(p.partition for p in partq.describe_group(store, group).partitions)
