"""Target: a whole store, small and in memory, with any of its files damaged. Whoever looks at it gets an answer or one of our errors."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable, Sequence
from unittest import mock

import pyarrow as pa

import spark_partq as partq
from spark_partq.core.errors import PartqError
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.inspect.tail import Tail
from spark_partq.storage.procedures.place import write_rows
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.runtime import Runtime
from spark_partq.storage.store import Store
from tests.fuzz.change import changed, damaged
from tests.fuzz.run import Target
from tests.fuzz.runtime import Repeatable
from tests.groups import Consumer
from tests.storage.log.tables import everything

_PRIMARY, _REPLICA = "memory:/primary", "memory:/replica"
Contents = dict[tuple[str, str], bytes]  # by store and path


def _at(beside: Runtime | Store, uri: str) -> Store:
    return Store(uri, runtime=beside.runtime if isinstance(beside, Store) else beside)


def _whole() -> Contents:
    """A queue with messages, which was scaled; a group of two consumers that has read some; and a replica of the queue."""
    runtime = Repeatable()
    store = _at(runtime, _PRIMARY)
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=2, rebalance_delay_ms=0)
    partq.create_queue(store, "other", "v bigint", partitions=0)
    queue = open_queue(store, "q")
    rows = pa.RecordBatch.from_pydict({"k": ["a", "b", None, "d"], "v": [0, 1, 2, 3]}, arrow_schema(queue.state.schema))
    producer = Producer(queue)
    for batch in range(3):
        producer.refresh()
        producer.write(BatchRecord("s", batch), lambda: write_rows(queue, [(0, rows)]), lambda: rows.num_rows)
    with mock.patch("tests.groups._incarnations", itertools.count()):
        reader = Consumer(store, "a")
        for partition in range(2):
            reader.ack(partition, 1, 2)
        second = Consumer(store, "b")
    reader.release()
    second.beat()
    partq.replicate(store, "q", _REPLICA)
    partq.scale(store, "q", 3)
    partq.maintain(store)
    return {(uri, path): data for uri, files in runtime.places.items() for path, data in everything(files).items()}


def _replicate(store: Store) -> None:
    partq.replicate(_at(store, _PRIMARY), "q", _REPLICA)


def _promote(store: Store) -> None:
    partq.promote(_at(store, _REPLICA), "q")


def _promote_by_force(store: Store) -> None:
    """And read what it has then."""
    partq.promote(_at(store, _REPLICA), "q", force=True)
    _read(_at(store, _REPLICA))


def _read(store: Store) -> None:
    Tail(open_queue(store, "q"), {}).last(100)


# What people and programs do with a store; doctor and maintenance read most of it. A pass and a promotion read both stores, whichever is damaged.
_LOOKS: list[Callable[[Store], object]] = [
    diagnose,
    partq.maintain,
    partq.list_queues,
    partq.list_groups,
    lambda store: partq.describe_queue(store, "q"),
    lambda store: partq.describe_group(store, "g"),
    lambda store: partq.replicas(store, "q"),
    _read,
    _replicate,
    _promote,
    _promote_by_force,
]
_WEIGHTS = [3, 3, 1, 1, 2, 2, 1, 2, 3, 3, 2]
Look = tuple[Contents, str, Sequence[Callable[[Store], object]]]  # in which store


def _one_changed(valid: Look, chance: random.Random) -> Look:
    """One or two files are damaged, lost, or have what another one has."""
    contents, uri = dict(valid[0]), chance.choice([_PRIMARY, _REPLICA])
    for _ in range(chance.choice([1, 1, 2])):
        place, how = chance.choice([place for place in sorted(contents) if place[0] == uri]), chance.random()
        if how < 0.1:
            del contents[place]
        elif how < 0.2:
            contents[place] = contents[chance.choice(sorted(contents))]
        elif how < 0.5 and place[1].endswith(".json"):
            with contextlib.suppress(ValueError):  # it is damaged already
                lines = [json.loads(line) for line in contents[place].decode().splitlines()]
                contents[place] = "".join(f"{json.dumps(line)}\n" for line in changed(lines, chance)).encode()
        elif contents[place]:
            contents[place] = damaged(contents[place], chance)
    return contents, uri, chance.choices(_LOOKS, _WEIGHTS)


def _look(at: Look) -> None:
    contents, uri, looks = at
    for look in looks:
        runtime = Repeatable()
        for (place, path), data in contents.items():
            _at(runtime, place).files.put(path, data)
        look(_at(runtime, uri))


TARGETS = {"store": Target(lambda: (_whole(), _PRIMARY, _LOOKS), _one_changed, _look, (PartqError,), one_of=100)}
