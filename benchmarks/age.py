"""What a micro-batch costs as a queue grows old: ``python -m benchmarks.age``. No Spark runs: only what the package itself does is timed."""

from __future__ import annotations

import contextlib
import enum
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated
from unittest import mock

import pyarrow as pa
import typer

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.log import LONG_LOG, unnamed
from spark_partq.storage.log.unnamed import unnamed_files
from spark_partq.storage.procedures.consume.application import DriverEventHandler, Message
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.place import write_rows
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue import partition_table, table_spec
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store

PARTITIONS, WRITERS, GROUPS = 8, 2, ("a", "b")
ROWS = 4 * PARTITIONS
READ_EVERY, MAINTAIN_EVERY, WARM_UP, SAMPLE = 5, 250, 200, 1_000
# An hour of a queue with a micro-batch a second has 3,600 of them, as has about a minute here. So what is kept for an hour elsewhere
# is kept for a minute: entries of logs, former files, and what is put together.
HOUR_MS = 60_000
SHORT_LOG = {
    "delta.logRetentionDuration": "interval 1 minutes",
    "delta.deletedFileRetentionDuration": "interval 2 minutes",
}
SAMPLES_OF_AN_HOUR = 5  # at most
_UNLIMITED = Limits()


@dataclass(frozen=True)
class Sample:
    """A part of the run: medians in milliseconds, and what there was at its end. `alone_ms` is of writes beside which no `maintain` ran."""

    batches: int
    write_ms: float
    alone_ms: float
    read_ms: float
    maintain_ms: float
    live_files: int
    log_files: int
    log_bytes: int
    group_files: int
    rss_mb: float


class Messages(enum.StrEnum):
    """What becomes of messages that both groups have read."""

    REMOVED = "removed"
    KEPT = "kept"


def main(
    batches: Annotated[int, typer.Option(help="micro-batches of all producers together", min=4_000)] = 100_000,
    folder: Annotated[Path | None, typer.Option(help="a folder on the disk to measure; else a temporary one")] = None,
    messages: Annotated[list[Messages], typer.Option(help="which queues to run")] = [*Messages],  # noqa: B006
    out: Annotated[Path, typer.Option(help="the folder for the JSON")] = Path("benchmarks/results"),
) -> None:
    """Print, for a queue whose messages are removed and for one that keeps them, the last tenth of the micro-batches against earlier ones."""
    out.mkdir(parents=True, exist_ok=True)
    for name in messages:
        with short_hours(), tempfile.TemporaryDirectory(prefix="partq-bench-", dir=folder) as place:
            samples = [*run(f"{place}/store", batches, kept=name is Messages.KEPT)]
        (out / f"age-{name}.json").write_text(json.dumps([asdict(sample) for sample in samples]))
        tenth = max(1, len(samples) // 10)
        last = samples[-tenth:]
        for what in ("write_ms", "alone_ms", "read_ms", "maintain_ms"):
            after = _median(last, what)
            for told, before in (
                ("1st thousand", samples[:1]),
                ("after an hour", samples[SAMPLES_OF_AN_HOUR:][:tenth]),
            ):
                if before:
                    print(f"{name:>8} {what:12} {told:>15} {_median(before, what):8.2f} -> {after:8.2f}", end="  ")
                    print(f"{after / _median(before, what):.2f} times", flush=True)
        print(f"{name:>8} {asdict(samples[-1])}", flush=True)


def _median(samples: Sequence[Sample], what: str) -> float:
    return float(statistics.median(getattr(sample, what) for sample in samples))


@contextlib.contextmanager
def short_hours() -> Iterator[None]:
    """Within it, queues that are created and maintained keep things for `HOUR_MS`."""
    settings = {**LONG_LOG, **SHORT_LOG}
    with (
        mock.patch.object(partition_table, "table_settings", return_value=settings),
        mock.patch.object(table_spec, "table_settings", return_value=settings),
        mock.patch.object(unnamed, "unnamed_files", lambda log, _, *rest: unnamed_files(log, HOUR_MS, *rest)),
    ):
        yield


def run(uri: str, batches: int, kept: bool) -> Iterator[Sample]:
    """A sample of each `SAMPLE` micro-batches, but those that warm up."""
    partq.create_queue(
        uri, "q", "k string, v bigint", key="k", partitions=PARTITIONS, rebalance_delay_ms=0, segment_ms=HOUR_MS
    )
    if kept:  # somebody who is away keeps all
        reader = _Reader(uri, "away")
        reader.read()
        reader.planner.leave()
    writers = [_Writer(uri, f"s{n}") for n in range(WRITERS)]
    readers = [_Reader(uri, group) for group in GROUPS]
    try:
        with _maintenance(uri) as maintenance:
            yield from _samples(uri, batches, writers, readers, maintenance)
    finally:
        for reader in readers:
            reader.planner.leave()


@contextlib.contextmanager
def _maintenance(uri: str) -> Iterator[Connection]:
    """A process that maintains the queue when it is sent something, and then sends how many milliseconds that took."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_maintain, args=(uri, there))
    process.start()
    try:
        yield here
    finally:
        here.send(False)
        process.join()


def _maintain(uri: str, connection: Connection) -> None:
    with short_hours():
        while connection.recv():
            began = time.perf_counter()
            partq.maintain(uri, "q")
            connection.send(1000 * (time.perf_counter() - began))


def _samples(
    uri: str, batches: int, writers: Sequence[_Writer], readers: Sequence[_Reader], maintenance: Connection
) -> Iterator[Sample]:
    times: dict[str, list[float]] = {}

    def timed(what: str, act: Callable[[], object]) -> float:
        began = time.perf_counter()
        act()
        took_ms = 1000 * (time.perf_counter() - began)
        times.setdefault(what, []).append(took_ms)
        return took_ms

    for n in range(1, WARM_UP + batches + 1):
        took_ms = timed("write", writers[n % WRITERS].write)
        if n < MAINTAIN_EVERY or maintenance.poll():
            times.setdefault("alone", []).append(took_ms)
        if n % READ_EVERY == 0:
            for reader in readers:
                timed("read", reader.read)
        if n % MAINTAIN_EVERY == 0:
            if n > MAINTAIN_EVERY:
                times.setdefault("maintain", []).append(maintenance.recv())  # of the one before, which has long ended
            maintenance.send(True)
        if n == WARM_UP:
            times.clear()
        elif (n - WARM_UP) % SAMPLE == 0:
            yield _sample(uri, n - WARM_UP, times)
            times.clear()
    maintenance.recv()


class _Writer:
    """A producer with a sink of its own, whose batches have a few messages for each partition."""

    def __init__(self, uri: str, sink: str) -> None:
        self._queue, self._sink, self._batch = open_queue(Store(uri), "q"), sink, 0
        self._producer = Producer(self._queue)
        rows = [{"k": f"k{n}", "v": n} for n in range(ROWS)]
        self._rows = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(self._queue.state.schema))

    def write(self) -> None:
        record = BatchRecord(self._sink, self._batch)
        self._batch += 1
        self._producer.refresh()
        self._producer.write(record, lambda: write_rows(self._queue, [(0, self._rows)]), lambda: ROWS)


def _sample(uri: str, batches: int, times: Mapping[str, Sequence[float]]) -> Sample:
    queue = open_queue(Store(uri), "q")
    queue.refresh()
    log = [size for path, size in _files(Path(uri, "queues")) if "_delta_log" in path]
    write, alone, read, maintain = (
        round(statistics.median(times[what]), 3) for what in ("write", "alone", "read", "maintain")
    )
    return Sample(
        batches,
        write,
        alone,
        read,
        maintain,
        live_files=sum(len(table.index) for table in queue.partitions),
        log_files=len(log),
        log_bytes=sum(log),
        group_files=len(list(_files(Path(uri, "groups")))),
        rss_mb=round(_rss_mb(), 1),
    )


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Each with its bytes. Logs are cleaned up in the background, so one may be gone meanwhile."""
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _files(Path(entry.path))
            continue
        with contextlib.suppress(FileNotFoundError):
            yield entry.path, entry.stat().st_size


def _rss_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class _Reader:
    """A group with one member, which acknowledges everything at once."""

    connected = True

    def __init__(self, uri: str, group: str) -> None:
        self.planner = Planner(ConsumerSettings(Store(uri), ("q",)), group, group, self._connect)
        self._done = StreamOffset(group, group, {}, {})

    def read(self) -> None:
        end = self.planner.next(self._done, _UNLIMITED)
        if end is not None:
            self.planner.tasks(self._done, end)
            self._done = end

    def _connect(self, _: Message, handler: DriverEventHandler) -> _Reader:
        handler.query_terminated()
        return self

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        return {}


if __name__ == "__main__":
    typer.run(main)
