"""A process of `kafka_rebalance`, with this package and without Spark: ``consume STORE INSTANCE TIMEOUT_MS BATCH_MS`` or ``produce STORE TICK_MS TICKS``.

It prints what `KafkaRebalance.java` prints, and is told what to do in the same way.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from functools import partial

import numpy as np
import pyarrow as pa

from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.payload.keys import key_hash
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.partition_map import target
from spark_partq.storage.procedures.consume.application import DriverEventHandler, Message
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.queue.messages import MessageWriter, read_slice
from spark_partq.storage.store import Store

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
GROUP = "g"
_telling = threading.Lock()


def tell(what: str, partitions: list[int]) -> None:
    """A line in one piece, as several threads of a planner's process write."""
    if partitions:
        with _telling:
            sys.stdout.write(f"{what}\t{int(time.time() * 1000)}\t{' '.join(map(str, partitions))}\n")
            sys.stdout.flush()


def told() -> threading.Event:
    """Set when the next line is there."""
    came = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        came.set()

    threading.Thread(target=listen, daemon=True).start()
    return came


class Application:
    """What a query's driver is for its planner."""

    connected = True

    def __init__(self) -> None:
        self.planner: DriverEventHandler | None = None

    def connect(self, registration: Message, handler: DriverEventHandler) -> Application:
        self.planner = handler
        return self

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        for what in ("revoked", "lost", "assigned"):
            tell("revoked" if what == "lost" else what, [number for _, number in message.get(what, [])])
        return {}


def consume(store: Store, instance: str, timeout_ms: int, batch_ms: int) -> None:
    """Plan, read and acknowledge one micro-batch after another, each of at least so many milliseconds."""
    application = Application()
    settings = ConsumerSettings(store, ("q",), session_timeout_ms=timeout_ms)
    planner = Planner(settings, GROUP, instance, application.connect)
    print("ready", flush=True)
    sys.stdin.readline()
    leave = told()
    done = StreamOffset(GROUP, instance, {}, {})
    while not leave.is_set():
        until_s = time.monotonic() + batch_ms / 1000
        end = planner.next(done, Limits())
        if end is None:
            continue
        pieces = [piece for flow in planner.tasks(done, end) for piece in flow]
        for piece in pieces:
            for _ in read_slice(store, piece.slice, SCHEMA):
                pass
        tell("delivered", sorted({piece.slice.partition for piece in pieces}))
        done = end
        assert application.planner is not None
        application.planner.batch_finished(done)
        leave.wait(max(0.0, until_s - time.monotonic()))
    if application.planner is not None:
        application.planner.query_terminated()
    planner.leave()


def produce(store: Store, tick_ms: int, ticks: int) -> None:
    """At each tick, write a message to every partition whose turn it is."""
    queue = open_queue(store, "q")
    producer, count = Producer(queue), queue.state.partition_count
    keys: dict[int, str] = {}
    for number in itertools.count():
        if len(keys) == count:
            break
        keys.setdefault(target(key_hash([f"k{number}"], ["string"]), count), f"k{number}")
    print("ready", flush=True)
    sys.stdin.readline()
    stop, due_s = told(), time.monotonic()
    for tick in itertools.count():
        if stop.wait(max(0.001, due_s - time.monotonic())):
            break
        places = range(tick % ticks, count, ticks)
        rows = [{"k": keys[p], "v": tick} for p in places]
        producer.refresh()
        producer.write(None, partial(files, store, rows, places), partial(len, rows))
        due_s += tick_ms / 1000


def files(store: Store, rows: list[dict[str, object]], places: range) -> list[NewFile]:
    """A file for each partition that gets a row."""
    writer = MessageWriter(store, "q", SCHEMA, ["k"], sorted_input=False)
    writer.write(pa.RecordBatch.from_pylist(rows, SCHEMA), np.array(places), np.arange(len(places)))
    return writer.finish()


if __name__ == "__main__":
    role, place, *rest = sys.argv[1:]
    if role == "consume":
        consume(Store(place), rest[0], *map(int, rest[1:]))
    else:
        produce(Store(place), int(rest[0]), int(rest[1]))
