"""Streaming queries without a JVM: what Spark's engine does around a streaming reader, in a thread of this process.

Spark writes the end of a micro-batch into its offset log before it runs it, and its number into its commit log after that. At a restart it
runs the last one again, if that is not in the commit log, with the same start and end. The reader, its planner, the channel between
planner and driver, and the tasks are the real ones; the tests of `tests/spark` show that Spark itself calls them like this.
"""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, DataSourceStreamReader, InputPartition

from spark_partq.core.errors import PartqError
from spark_partq.spark import channel
from spark_partq.spark.driver import Driver
from spark_partq.spark.source import PartqDataSource
from spark_partq.spark.stream_reader import StreamReader

# How soon an idle query is asked again, as `spark.sql.streaming.pollingDelay` says.
_POLLING_S = 0.01


def driver() -> Driver:
    """The driver's side of this process."""
    return Driver.of_process()


def source(store: str, queue: str = "q", **options: Any) -> PartqDataSource:
    """What ``format("partq")`` makes of options."""
    given = {"path": store, "queue": queue, **options}
    return PartqDataSource(
        CaseInsensitiveDict({name: str(value) for name, value in given.items() if value is not None})
    )


def rows_of(reader: DataSourceReader | DataSourceStreamReader, tasks: list[InputPartition]) -> list[Row]:
    """What the tasks give; as on executors, to which Spark sends reader and partitions pickled."""
    found: list[Row] = []
    for task in pickle.loads(pickle.dumps(tasks)):
        for batch in pickle.loads(pickle.dumps(reader)).read(task):
            found += [Row(**row) for row in batch.to_pylist()]
    return found


def read(store: str, queue: str = "q", **options: Any) -> list[Row]:
    """The messages of a queue as a batch read gives them."""
    made = source(store, queue, **options)
    reader = made.reader(made.schema())
    return rows_of(reader, list(reader.partitions()))


class Batch:
    """A micro-batch, for functions that are written for a DataFrame: each call reads its messages."""

    def __init__(
        self, reader: DataSourceStreamReader, tasks: list[InputPartition], end: Mapping[str, Any] | None = None
    ) -> None:
        self._reader, self.tasks, self.end = reader, tasks, end

    def collect(self) -> list[Row]:
        return rows_of(self._reader, self.tasks)

    def count(self) -> int:
        return len(self.collect())

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """What the tasks give, as it comes."""
        return (rows for task in self.tasks for rows in self._reader.read(task))


Take = Callable[[Any, int], None]
_started: list[Engine] = []


class Checkpoint:
    """The offset log and the commit log of a query, in a folder as Spark has them."""

    def __init__(self, folder: str | Path) -> None:
        self._offsets, self._commits = Path(folder) / "offsets", Path(folder) / "commits"
        for log in (self._offsets, self._commits):
            log.mkdir(parents=True, exist_ok=True)

    def last_planned(self) -> int:
        return max((int(path.name) for path in self._offsets.glob("[0-9]*")), default=-1)

    def last_committed(self) -> int:
        return max((int(path.name) for path in self._commits.glob("[0-9]*")), default=-1)

    def end(self, batch: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self._offsets / str(batch)).read_text())
        return found

    def plan(self, batch: int, end: Mapping[str, Any]) -> None:
        written = self._offsets / f".{batch}"
        written.write_text(json.dumps(end))
        os.rename(written, self._offsets / str(batch))

    def commit(self, batch: int) -> None:
        (self._commits / str(batch)).touch()


class Engine(ABC):
    """A streaming query: micro-batch after micro-batch, in a thread of its own.

    Parameters
    ----------
    available_now : bool
        End when everything that is there now is read.
    every_s : float
        The interval of ``Trigger.ProcessingTime``.
    """

    def __init__(self, checkpoint: str | Path, take: Take, available_now: bool, every_s: float) -> None:
        self.checkpoint, self._take = Checkpoint(checkpoint), take
        self._available_now, self._every_s = available_now, every_s
        self.stopped, self._leaving = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        # A reader takes the signals of its process, but only in the main thread.
        self._thread = threading.Thread(target=self._run, daemon=True)
        _started.append(self)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def exception(self) -> BaseException | None:
        return self._error

    def awaitTermination(self) -> None:
        """Wait for its end.

        Raises
        ------
        BaseException
            The one that ended it.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End it at once: a micro-batch that runs is not committed."""
        self.stopped.set()
        self.leave()

    def leave(self) -> None:
        """End it behind the micro-batch that runs."""
        self._leaving.set()
        self._thread.join()

    @abstractmethod
    def first(self) -> Mapping[str, Any]:
        """Where the first micro-batch starts."""

    @abstractmethod
    def latest(self, done: Mapping[str, Any]) -> Mapping[str, Any]:
        """The end of the next micro-batch; `done` if there is nothing to do."""

    @abstractmethod
    def batch(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Any:
        """What the function is given."""

    @abstractmethod
    def committed(self, end: Mapping[str, Any]) -> None:
        """A micro-batch has ended."""

    @abstractmethod
    def ended(self) -> None:
        """The query has ended."""

    def _run(self) -> None:
        try:
            self._run_batches()
        except BaseException as error:
            self._error = error

    def _run_batches(self) -> None:
        try:
            batch = self.checkpoint.last_planned()
            if batch > self.checkpoint.last_committed():
                self._execute(batch)
            while not self._leaving.is_set():
                began_s = time.monotonic()
                if not self._next() and self._available_now:
                    break
                self._leaving.wait(max(0.0, began_s + self._every_s - time.monotonic()))
        finally:
            self.ended()

    def _next(self) -> bool:
        """Run the next micro-batch; False if there is nothing to do."""
        batch = self.checkpoint.last_planned() + 1
        done = self._end(batch - 1)
        end = self.latest(done)
        if end == done:
            self._leaving.wait(_POLLING_S)
            return False
        self.checkpoint.plan(batch, end)
        self._execute(batch)
        return True

    def _end(self, batch: int) -> Mapping[str, Any]:
        return self.first() if batch < 0 else self.checkpoint.end(batch)

    def _execute(self, batch: int) -> None:
        end = self._end(batch)
        self._take(self.batch(self._end(batch - 1), end), batch)
        if not self.stopped.is_set():
            self.checkpoint.commit(batch)
            self.committed(end)


class Query(Engine):
    """A query that reads queues."""

    def __init__(
        self,
        store: str,
        checkpoint: str | Path,
        take: Take,
        *,
        queue: str = "q",
        available_now: bool = False,
        every_s: float = 0.0,
        **options: Any,
    ) -> None:
        made = source(store, queue, **options)
        made.driver = driver().address
        found = made.streamReader(made.schema())
        assert isinstance(found, StreamReader)
        self._reader = found
        self._member: tuple[str, str] | None = None
        if available_now:
            found.prepareForTriggerAvailableNow()
        super().__init__(checkpoint, take, available_now, every_s)

    def first(self) -> Mapping[str, Any]:
        return self._reader.initialOffset()

    def latest(self, done: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._reader.latestOffset(dict(done), self._reader.getDefaultReadLimit())

    def batch(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Batch:
        return Batch(self._reader, list(self._reader.partitions(dict(start), dict(end))), end)

    def committed(self, end: Mapping[str, Any]) -> None:
        self._member = end["group"], end["instance"]
        driver().finished(dict(end))

    def ended(self) -> None:
        if self._member is not None:
            driver().terminated(self._member)
        self._reader.stop()
        planner = self._reader._planner
        client = None if planner is None else planner.membership._reports.application
        if isinstance(client, channel.DriverClient) and client._connection is not None:
            client._connection.close()  # as the end of a planner's process does


class Generator(Engine):
    """A query over a source that always has more; the function is given nothing."""

    def __init__(self, checkpoint: str | Path, take: Take, every_s: float) -> None:
        super().__init__(checkpoint, take, False, every_s)

    def first(self) -> Mapping[str, Any]:
        return {"batches": 0}

    def latest(self, done: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"batches": done["batches"] + 1}

    def batch(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> None:
        pass

    def committed(self, end: Mapping[str, Any]) -> None:
        pass

    def ended(self) -> None:
        pass


def stop_all() -> None:
    """Stop whatever was started."""
    while _started:
        _started.pop().stop()


def consume(
    store: str, checkpoint: str | Path, *, each: Take | None = None, queue: str = "q", **options: Any
) -> list[list[Row]]:
    """All that is there now, as a list of micro-batches; `each` is called with every batch after its rows were taken."""
    batches: list[list[Row]] = []

    def take(batch: Batch, number: int) -> None:
        batches.append(batch.collect())
        if each:
            each(batch, number)

    Query(store, checkpoint, take, queue=queue, available_now=True, **options).awaitTermination()
    return [rows for rows in batches if rows]


def running(store: str, checkpoint: str | Path, seen: list[Row], **options: Any) -> Query:
    """A query that goes on until it is stopped; `seen` gets its rows."""
    return Query(store, checkpoint, lambda batch, _: seen.extend(batch.collect()), **options)


def failed(run: Callable[[], Any]) -> str:
    """The text of the error of ours with which it ends."""
    with pytest.raises(PartqError) as caught:
        run()
    return str(caught.value)
