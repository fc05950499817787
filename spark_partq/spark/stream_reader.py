"""Queues as a stream (Q7): Spark's streaming reader over the planner, `storage.procedures.consume.planner`."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.payload.schema import payload_of
from spark_partq.spark.address import Address
from spark_partq.spark.channel import DriverClient
from spark_partq.spark.options import Options
from spark_partq.spark.reading import FlowPartition, TaskReader
from spark_partq.spark.worker import in_worker
from spark_partq.storage.procedures.consume.application import no_application
from spark_partq.storage.procedures.consume.planner import Planner


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's side of a consumer group.

    Parameters
    ----------
    driver : Address, optional
        Where the query's driver listens; without it the query works alone.
    """

    def __init__(self, options: Options, schema: StructType, driver: Address | None = None) -> None:
        self._options, self._schema, self._driver = options, schema, driver
        self._planner: Planner | None = None
        self._available_now = False

    def __reduce__(self) -> tuple[Any, ...]:
        return in_worker, (TaskReader, self._schema)  # Spark pickles a reader for its tasks alone

    def initialOffset(self) -> dict[str, Any]:
        # Spark asks at every start until a first micro-batch has been committed, also before it replays that
        # micro-batch. So names that were chosen here would not be those under which it was planned.
        return StreamOffset(self._options.group or "", self._options.instanceId or "", {}, {}).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        planned = StreamOffset.from_json(start)
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._options.consumer.limits
        planner = self._planner_of(planned)
        end = planner.next(planned, limits)
        if end is not None:
            return end.to_json()
        if planned.group:
            return start
        # A group name that was made up is written into the checkpoint with the first micro-batch, even an empty one:
        # the query goes on in that group.
        return replace(planned, group=planner.membership.name, instance=planner.membership.me.instance).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planned = StreamOffset.from_json(end)
        planner = self._planner_of(planned)
        flows = planner.tasks(StreamOffset.from_json(start), planned)
        return [FlowPartition(self._options.store, pieces, planner.flow_name(k)) for k, pieces in enumerate(flows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return TaskReader(self._schema).read(partition)

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark takes one limit; `latestOffset` applies all that are set.
        o = self._options
        if o.maxRowsPerTrigger is not None:
            return ReadMaxRows(o.maxRowsPerTrigger)
        if o.maxBytesPerTrigger is not None:
            return ReadMaxBytes(o.maxBytesPerTrigger)
        if o.maxFilesPerTrigger is not None:
            return ReadMaxFiles(o.maxFilesPerTrigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = True
        if self._planner is not None:
            self._planner.stop_at_current_ends()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        if self._planner is None:
            return None
        return self._planner.latest().to_json()

    def stop(self) -> None:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the JVM may send it while this leaves
        if self._planner is not None:
            self._planner.leave()

    def _planner_of(self, planned: StreamOffset) -> Planner:
        """The planner. The first call makes it, with the names of group and instance in `planned`, or with new names."""
        if self._planner is None:
            group = self._options.group or planned.group or f"query-{uuid.uuid4()}"
            instance = planned.instance or f"{group[:40]}-{uuid.uuid4().hex[:12]}"
            connect = no_application if self._driver is None else functools.partial(DriverClient, self._driver)
            settings = replace(self._options.consumer, payload=payload_of(self._schema.jsonValue()))
            planner = Planner(settings, group, instance, connect)
            planner.check_checkpoint(planned)
            if self._available_now:
                planner.stop_at_current_ends()
            # The JVM ends this process with SIGTERM; `stop` is called when its main thread leaves its loop.
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGTERM, _end)
            self._planner = planner
        return self._planner


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the JVM sends it twice, and leaving takes a moment
    sys.exit(0)
