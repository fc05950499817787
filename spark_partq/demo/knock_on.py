"""A stateful consumer: which delayed departures were knocked on by the same aircraft's flight before?

A departure is a **knock-on** when it is 15 minutes or more late and the aircraft's previous flight of that day arrived 15
minutes or more late. The queue is keyed by the aircraft, so all flights of one come from one partition, in the
producer's order; this handler relies on that and on nothing else.

What is remembered lies outside the application, where whoever is given a partition next finds it: a Delta table of state and
one of results for each partition of the queue. Any number of applications may write them, as every write is a
compare-and-set, and with it the table's log records, in the same commit, how far it has got:

- ``end``: the offset after the last message that is in. A message that is delivered again is recognized and left out.
- ``epoch``: the highest `_epoch` that was seen. Who still works under a lower one has lost the partition meanwhile, and
  writes nothing.

The results are written first and the state last. After a crash in between, the state lets the same results be found again,
and ``end`` of the results keeps them from being added again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.sql import DataFrame

Row = dict[str, Any]
T = TypeVar("T")

LATE_MINUTES = 15
_ATTEMPTS = 20

# The payload of the queue. `day` is the local date, `scheduled` the instant of the scheduled departure, delays are minutes.
FLIGHT = (
    "day date, scheduled timestamp, carrier string, flight int, tailnum string, origin string, dest string, "
    "dep_delay int, arr_delay int"
)
_INSTANT = pa.timestamp("us", tz="UTC")
_FLIGHT = [
    *(("day", pa.date32()), ("scheduled", _INSTANT), ("carrier", pa.string()), ("flight", pa.int32())),
    *(("tailnum", pa.string()), ("origin", pa.string()), ("dest", pa.string())),
    *(("dep_delay", pa.int32()), ("arr_delay", pa.int32())),
]
_WHERE = [("_partition", pa.int32()), ("_offset", pa.int64())]
MESSAGE = pa.schema([*_WHERE, ("_redelivered", pa.bool_()), ("_flow", pa.string()), ("_epoch", pa.int64()), *_FLIGHT])
KNOCK_ONS = pa.schema([*_WHERE, *_FLIGHT, ("previous_arr_delay", pa.int32())])
# The last flight of each aircraft. Those without a tail number are counted too, in one row per partition.
AIRCRAFT = pa.schema(
    [
        *(("_partition", pa.int32()), ("tailnum", pa.string()), ("day", pa.date32()), ("scheduled", _INSTANT)),
        *(("arr_delay", pa.int32()), ("followed", pa.int64()), ("out_of_order", pa.int64())),
    ]
)
# A row for each slice of a partition that was handed over, in the order of `seq`, whatever became of it.
DELIVERIES = pa.schema(
    [
        *(("_partition", pa.int32()), ("seq", pa.int64()), ("first", pa.int64()), ("end", pa.int64())),
        *(("rows", pa.int64()), ("redelivered", pa.int64()), ("epoch", pa.int64()), ("flow", pa.string())),
        *(("application", pa.string()), ("batch", pa.int64()), ("at", _INSTANT)),
    ]
)


@dataclass(frozen=True)
class Outputs:
    """Folders or URIs with a table for each partition, with the columns `KNOCK_ONS`, `AIRCRAFT` and `DELIVERIES`."""

    knock_ons: str
    aircraft: str
    deliveries: str


def follow(knock_ons: str, aircraft: str, deliveries: str, application: str = "") -> Callable[[DataFrame, int], None]:
    """A ``foreachBatch`` function that follows each aircraft through its day.

    Parameters
    ----------
    knock_ons, aircraft, deliveries : str
        See `Outputs`; what is new is made.
    application : str
        Who writes, for the record of deliveries.
    """
    outputs = Outputs(knock_ons, aircraft, deliveries)

    def handle(batch: DataFrame, batch_id: int) -> None:
        def one(messages: pa.Table) -> pa.Table:
            return pa.table({"counted": [follow_slice(messages, outputs, application, batch_id)]})

        # In Arrow and not in pandas, which has an instant only as a clock on the wall, and no integer that may be null.
        slices = batch.select(*MESSAGE.names).groupBy("_partition").applyInArrow(one, "counted long")
        slices.write.format("noop").mode("overwrite").save()

    return handle


def follow_slice(messages: pa.Table, outputs: Outputs, application: str = "", batch_id: int = 0) -> int:
    """Follow what a micro-batch has of one partition; runs in an executor.

    Returns
    -------
    int
        How many of the messages were new.
    """
    rows = messages.select(MESSAGE.names).cast(MESSAGE).sort_by("_offset").to_pylist()
    _again_if_late(lambda: _record(rows, outputs, application, batch_id))
    return _again_if_late(lambda: _count(rows, outputs))


def _count(rows: list[Row], outputs: Outputs) -> int:
    partition, epoch, end = rows[0]["_partition"], rows[0]["_epoch"], rows[-1]["_offset"] + 1
    state = PartitionTable(outputs.aircraft, partition, AIRCRAFT)
    if epoch < state.recorded("epoch"):
        return 0  # somebody else has the partition by now
    results = PartitionTable(outputs.knock_ons, partition, KNOCK_ONS)
    counted, written = state.recorded("end"), results.recorded("end")
    aircraft = {row["tailnum"]: row for row in state.rows()}
    new = [row for row in rows if row["_offset"] >= counted]
    found = [flight for flight in new if _is_knock_on(flight, _followed(flight, aircraft))]
    if end > written:
        results.commit([flight for flight in found if flight["_offset"] >= written], "append", end=end)
    if new or epoch > state.recorded("epoch"):
        state.commit(list(aircraft.values()), "overwrite", end=max(end, counted), epoch=epoch)
    return len(new)


def _followed(flight: Row, aircraft: dict[str | None, Row]) -> Row | None:
    """Remember the flight as its aircraft's last one; returns the one before."""
    tail = flight["tailnum"]
    previous = aircraft.get(tail)
    late = previous is not None and tail is not None and flight["scheduled"] < previous["scheduled"]
    aircraft[tail] = {
        **{name: flight[name] for name in ("_partition", "tailnum", "day", "scheduled", "arr_delay")},
        "followed": (previous["followed"] if previous else 0) + 1,
        "out_of_order": (previous["out_of_order"] if previous else 0) + late,
    }
    return previous


def _is_knock_on(flight: Row, previous: Row | None) -> bool:
    if previous is None or flight["tailnum"] is None or flight["day"] != previous["day"]:
        return False
    flight["previous_arr_delay"] = previous["arr_delay"]
    # A cancelled flight has no delays.
    return min(flight["dep_delay"] or 0, previous["arr_delay"] or 0) >= LATE_MINUTES


def _record(rows: list[Row], outputs: Outputs, application: str, batch_id: int) -> None:
    first, end = rows[0]["_offset"], rows[-1]["_offset"] + 1
    deliveries = PartitionTable(outputs.deliveries, rows[0]["_partition"], DELIVERIES)
    row = {
        **{"_partition": rows[0]["_partition"], "seq": deliveries.version, "first": first, "end": end},
        **{"rows": len(rows), "redelivered": sum(row["_redelivered"] for row in rows), "epoch": rows[0]["_epoch"]},
        **{"flow": rows[0]["_flow"], "application": application, "batch": batch_id, "at": dt.datetime.now(dt.UTC)},
    }
    deliveries.commit([row], "append", end=end)


def delivered(outputs: Outputs, partition: int) -> int:
    """The offset after the last message of a partition that was handed over."""
    uri = f"{outputs.deliveries}/partition={partition}"
    return (DeltaTable(uri).transaction_version("end") or 0) if DeltaTable.is_deltatable(uri) else 0


class PartitionTable:
    """One partition's table as it was when it was read; a commit succeeds only if nobody else has committed since."""

    def __init__(self, folder: str, partition: int, schema: pa.Schema) -> None:
        uri = f"{folder}/partition={partition}"
        if not DeltaTable.is_deltatable(uri):
            with contextlib.suppress(DeltaError):  # somebody else was first
                DeltaTable.create(uri, schema, commit_properties=_compare_and_set())
        self._table, self._schema = DeltaTable(uri), schema
        self.version = int(self._table.version())

    def rows(self) -> list[Row]:
        found: list[Row] = self._table.to_pyarrow_table().to_pylist()
        return found

    def recorded(self, what: str) -> int:
        """What the last commit that told it said; 0 if none did."""
        return self._table.transaction_version(what) or 0

    def commit(self, rows: Sequence[Row], mode: str, **recorded: int) -> None:
        """Add rows, or replace all, and record how far that is.

        Raises
        ------
        CommitFailedError
            If somebody else has committed since the table was read; nothing was written.
        """
        data = pa.Table.from_pylist(list(rows), self._schema)
        write_deltalake(self._table, data, mode=mode, commit_properties=_compare_and_set(recorded))  # type: ignore[call-overload]


def _compare_and_set(recorded: Mapping[str, int] | None = None) -> CommitProperties:
    transactions = [Transaction(what, value) for what, value in (recorded or {}).items()]
    return CommitProperties(max_commit_retries=0, app_transactions=transactions)


def _again_if_late(action: Callable[[], T]) -> T:
    """`action`, repeated with a fresh read whenever somebody else was first."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(CommitFailedError):
            return action()
    return action()
