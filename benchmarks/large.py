"""Large stores: ``python -m benchmarks.large``. Many partitions, many queues, many members. No Spark runs: only what the package does is timed.

Nobody opens the files of messages, so there are none; their log entries are real.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated
from unittest import mock

import typer
from deltalake import DeltaTable

import spark_partq as partq
from benchmarks.peak import peak_kb
from benchmarks.report import Figure, at_most, in_turn, known, median, show, spread
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.queue.manifest import NewFile
from spark_partq.storage.inspect.watch import StoreWatch
from spark_partq.storage.procedures.consume.application import DriverEventHandler, Message
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.create import create_queue
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store, partition_folder

COLUMNS, KEY = "id bigint, k string, body string", "k"
STATS = '{"numRecords": 1000, "minValues": {"id": 0}, "maxValues": {"id": 1000000}}'  # of any file
_UNLIMITED = Limits()


def main(
    partitions: Annotated[int, typer.Option(help="of the widest queue")] = 4_096,
    commits: Annotated[int, typer.Option(help="to a queue of 1,024 partitions, in all")] = 100_000,
    queues: Annotated[int, typer.Option(help="in one store")] = 1_000,
    members: Annotated[int, typer.Option(help="of one group, with two flows each")] = 200,
    out: Annotated[Path, typer.Option(help="where the JSON goes")] = Path("benchmarks/results/large.json"),
) -> None:
    """Exit code 1 if a bound is not reached."""
    logging.getLogger("spark_partq").setLevel(logging.ERROR)  # each member begins with a checkpoint of its own
    figures: list[Figure] = []
    for measured, size in (
        (many_partitions, partitions), (long_history, commits), (many_queues, queues), (many_members, members),
    ):  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="partq-bench-") as folder:
            for figure in measured(Store.at(folder), size):
                print(json.dumps(asdict(figure)), flush=True)
                figures.append(figure)
    raise typer.Exit(0 if show(figures, out) else 1)


def many_partitions(store: Store, partitions: int) -> Iterator[Figure]:
    """A queue is made, gets a file in each partition, and is read."""
    told = f"{partitions:,} partitions"
    yield known(f"create a queue, s, {told}", "", _seconds(lambda: create_queue(store, "q", COLUMNS, KEY, partitions)))
    yield known(f"a commit to each partition, s, {told}", "", _seconds(lambda: _commit(store, "q", partitions)))
    reader = _Reader(store, "a")
    yield known(f"a group begins, s, {told}", "", _seconds(lambda: reader.read(partitions)))
    _commit(store, "q", partitions)
    yield known(f"plan news of each partition, s, {told}", "", _seconds(lambda: reader.read(partitions)))
    yield known(f"look and find nothing, s, {told}", "", median([_seconds(lambda: reader.read(0)) for _ in range(5)]))
    yield known(f"acknowledged by then, s, {told}", "", _seconds(lambda: _await_depth(store, 0)))
    reader.planner.leave()
    yield known(f"peak of this process, MB, {told}", "", peak_kb() / 1000)


def long_history(store: Store, commits: int, partitions: int = 1_024) -> Iterator[Figure]:
    """A queue is opened after so many commits; in turn, delta-rs opens the same tables and lists their files."""
    create_queue(store, "q", COLUMNS, KEY, partitions)
    rounds = -(-commits // partitions)
    _commit(store, "q", partitions, rounds)
    told = f"{partitions:,} partitions, {rounds * partitions:,} commits"

    tables = [store.uri_of(partition_folder("q", number)) for number in range(partitions)]

    def by_partq() -> int:
        queue = open_queue(Store(store.uri), "q")
        queue.refresh()
        return sum(len(table.index) for table in queue.partitions)

    def by_delta_rs() -> int:
        return sum(DeltaTable(table).get_add_actions().num_rows for table in tables)

    def timed(opened: Callable[[], int]) -> float:
        began = time.perf_counter()
        files = opened()
        seconds = time.perf_counter() - began
        if files != rounds * partitions:
            raise RuntimeError(f"{files:,} files instead of {rounds * partitions:,}")
        return seconds

    subjects = {"partq": partial(timed, by_partq), "delta-rs": partial(timed, by_delta_rs)}
    took = in_turn("opening a queue", subjects, runs=5, warm_up=1)
    ours, theirs = map(median, took.values())
    yield at_most(f"open a queue, s, {told}", "", ours, 3.0)
    yield at_most(f"time to open a queue, {told}", "delta-rs", ours / theirs, 1.0, spread(took))


def many_queues(store: Store, queues: int) -> Iterator[Figure]:
    """What a look at one queue, and at all of them, costs in a store with few and with many."""
    found: dict[str, list[float]] = {}
    for below, count in ((0, 10), (10, queues)):
        for n in range(below, count):
            create_queue(store, f"q{n}", COLUMNS, KEY, 2)
        _commit(store, "q0", 2)
        watch = StoreWatch(store)
        reader = _Reader(store, f"g{count}", queue="q0")
        for what, act in (
            ("list the queues", lambda: partq.list_queues(store)),
            ("describe one", lambda: partq.describe_queue(store, "q0")),
            ("a group of one begins", partial(reader.read, 2)),
            ("first look of a monitor", watch.look),
            ("next look of a monitor", watch.look),
        ):
            found.setdefault(what, []).append(_seconds(act))
        reader.planner.leave()
    for what, (few, many) in found.items():
        yield known(f"{what}, s, of {queues:,} queues", "of 10", many, f"{few:.4f} s, {many / few:.1f} times")


def many_members(store: Store, members: int) -> Iterator[Figure]:
    """Members join one after another, each of two flows; then all look for what is new."""
    partitions = 4 * members
    create_queue(store, "q", COLUMNS, KEY, partitions, rebalance_delay_ms=0, max_handoff_time_ms=0)
    _commit(store, "q", partitions)
    # In applications of their own their threads would not share one Python.
    with mock.patch.object(Planner, "_start_threads"):
        yield from _members_of(store, partitions, members)


def _members_of(store: Store, partitions: int, members: int) -> Iterator[Figure]:
    readers = [_Reader(store, "g", f"m{n:03}", flows=2) for n in range(members)]
    joins = [_seconds(partial(reader.read, None)) for reader in readers]
    few, many = median(joins[5:15]), median(joins[-10:])
    told = f"of {members} members and {partitions} partitions"
    yield known(f"a member joins, s, {told}", "the 6th to 15th", many, f"{few:.3f} s, {many / few:.1f} times")
    for _ in range(2):  # all know the last assignment, and have what is theirs
        for reader in readers:
            reader.read(None)
    looks = [_seconds(partial(reader.read, None)) for reader in readers]
    yield known(f"look and find nothing, s, {told}", "", median(looks))
    owners = partq.describe_group(store, "g").members
    shares = {sum(len(own) for own in member.partitions.values()) for member in owners}
    yield known(f"partitions of a member, most, {told}", "", max(shares), f"least {min(shares)}")
    for reader in readers:
        reader.planner.leave()


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _commit(store: Store, queue: str, partitions: int, rounds: int = 1) -> None:
    """Commit so many files to each partition, one after another."""
    state = open_queue(store, queue).state

    def fill(number: int) -> None:
        table = PartitionTable(store, queue, number, state.schema, state.queue_id)
        for n in range(rounds):
            table.append([NewFile(number, f"part-{uuid.uuid4().hex}.parquet", 1000, 50_000, STATS, n)], None)

    store.map(fill, range(partitions))


def _await_depth(store: Store, depth: int) -> None:
    while partq.describe_queue(store, "q").depth > depth:
        time.sleep(0.01)


class _Reader:
    """A consumer that finishes each micro-batch at once."""

    connected = True

    def __init__(self, store: Store, group: str, instance: str = "a", queue: str = "q", flows: int = 1) -> None:
        settings = ConsumerSettings(Store(store.uri), (queue,), flows=flows, session_timeout_ms=600_000)
        self.planner = Planner(settings, group, instance, self._connect)
        self._done = StreamOffset(group, instance, {}, {})

    def read(self, partitions: int | None) -> None:
        """Plan the next micro-batch, which has messages of so many partitions."""
        end = self.planner.next(self._done, _UNLIMITED)
        found = 0 if end is None else len(list(self.planner.tasks(self._done, end)))
        if partitions is not None and (found > 0) != (partitions > 0):
            raise RuntimeError(f"it has {found} tasks, and should have messages of {partitions} partitions")
        if end is not None:
            self._done = end
            self.planner.membership.batch_finished(end)

    def _connect(self, _: Message, handler: DriverEventHandler) -> _Reader:
        handler.query_terminated()
        return self

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        return {}


if __name__ == "__main__":
    typer.run(main)
