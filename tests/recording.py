"""What the queries of applications write down, each line as soon as it is there, so that the record survives a SIGKILL."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from spark_partq.core.ids import instance_of
from spark_partq.storage.queue.partition_table import PartitionTable

# A micro-batch that was told to wait gives up after this, so that nothing hangs for ever.
HOLD_S = 120.0


class Recorder:
    """A function for ``foreachBatch`` that writes down each row, and holds the batch while the file `hold` is there."""

    def __init__(self, record: str, instance: str, hold: str | None) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.stopping = threading.Event()
        self.finished = -1
        self._instance, self._hold = instance, hold
        self._file = os.fdopen(os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), "w", encoding="utf-8")

    def __call__(self, df: Any, batch_id: int) -> None:
        if self.stopping.is_set():
            raise InterruptedError(f"micro-batch {batch_id} is left to the next start")
        rows, at = self.begin(df, batch_id)
        until = at + HOLD_S
        # Spark begins with a micro-batch without rows when there is nothing yet; that one need not be held.
        while rows and self._hold and os.path.exists(self._hold) and time.monotonic() < until:
            time.sleep(0.02)
        self.end(batch_id)

    def begin(self, df: Any, batch_id: int) -> tuple[int, float]:
        """Write down what was given; how many rows, and when."""
        about = {"run": self.run, "batch": batch_id}
        began = time.monotonic()
        rows = df.collect()
        at = time.monotonic()
        self._write(
            {"kind": "start", **about, "at": began},
            *(
                {
                    "kind": "row", **about, "at": at, "instance": instance_of(r._flow), "queue": r._queue,
                    "partition": r._partition, "offset": r._offset, "epoch": r._epoch, "flow": r._flow,
                    "redelivered": r._redelivered, "key": r.k, "value": r.v,
                }
                for r in rows
            ),
        )  # fmt: skip
        return len(rows), at

    def end(self, batch_id: int) -> None:
        """The application has finished with it."""
        self._write({"kind": "end", "run": self.run, "batch": batch_id, "at": time.monotonic()})
        self.finished = batch_id

    def _write(self, *records: Mapping[str, Any]) -> None:
        self._file.write("".join(json.dumps(r) + "\n" for r in records))
        self._file.flush()


@dataclass(frozen=True)
class Messages:
    """What a producer sends: `rows` in each micro-batch, values from `first` in steps, `keys` keys in turn."""

    prefix: str
    rows: int
    keys: int
    first: int = 0
    step: int = 1

    def of(self, batch: int) -> list[tuple[str, int]]:
        numbers = range(batch * self.rows, (batch + 1) * self.rows)
        return [(f"{self.prefix}-{n % self.keys}", self.first + self.step * n) for n in numbers]


class Sender:
    """A function for ``foreachBatch`` that writes into the queue, and writes down each micro-batch that is in: number, begun, ended.

    The file `hold` may have a number: while it is there, a micro-batch makes so many partitions' commits and no more. The line
    ``["held"]`` says that it stands there.
    """

    def __init__(self, sink: Callable[[Any, int], None], record: str, hold: str | None) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.stopping = threading.Event()
        self.finished = -1
        self._sink, self._record, self._hold = sink, record, hold

    def __call__(self, df: Any, batch_id: int) -> None:
        if self.stopping.is_set():
            raise InterruptedError(f"micro-batch {batch_id} is left to the next start")
        began = time.monotonic()
        with mock.patch.object(PartitionTable, "append", self._held(PartitionTable.append)):
            self._sink(df, batch_id)
        self._write(batch_id, began, time.monotonic())
        self.finished = batch_id

    def _held(self, append: Callable[..., int | None]) -> Callable[..., int | None]:
        turns, lock = itertools.count(), threading.Lock()

        def held(table: PartitionTable, *arguments: Any) -> int | None:
            with lock:
                self._wait(next(turns))
            return append(table, *arguments)

        return held

    def _wait(self, done: int) -> None:
        until, said = time.monotonic() + HOLD_S, False
        while (commits := self._commits()) is not None and done >= commits and time.monotonic() < until:
            if not said:
                self._write("held")
                said = True
            time.sleep(0.01)

    def _commits(self) -> int | None:
        try:
            return int(Path(self._hold).read_text()) if self._hold else None
        except (FileNotFoundError, ValueError):  # gone, or not written yet
            return None

    def _write(self, *what: Any) -> None:
        with open(self._record, "a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")


class Listener:
    """Writes down each call, with the time."""

    def __init__(self, record: str) -> None:
        self._record = record

    def _write(self, what: str, *about: Any) -> None:
        with open(self._record, "a", encoding="utf-8") as file:
            file.write(json.dumps([what, *about, time.monotonic()]) + "\n")

    def on_partitions_assigned(self, partitions: list[tuple[str, int]]) -> None:
        self._write("assigned", [number for _, number in partitions])

    def on_partitions_revoked(self, partitions: list[tuple[str, int]]) -> None:
        self._write("revoked", [number for _, number in partitions])

    def on_partitions_lost(self, partitions: list[tuple[str, int]]) -> None:
        self._write("lost", [number for _, number in partitions])

    def on_active_changed(self, flow: str, active: bool) -> None:
        self._write("active", active)


def whole_lines(path: Path) -> list[Any]:
    """What a process has written so far: it may not have begun, and whoever is killed or still writes leaves half a line."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]
