"""The demo's consumer: which delayed departures were knocked on by the same aircraft's flight before?

A departure is a **knock-on** when it is 15 minutes or more late and the aircraft's previous flight of that day arrived 15
minutes or more late. Each flight goes into one Delta table, which all applications of the group write. The sink leaves out what is
delivered again, so the table has each flight once. The queue is keyed by the aircraft: all flights of one lie in one
partition, and in order of their offsets they are in the producer's order. That is all that `knock_ons` needs of the table.

Beside it each application records what it was given, before it works on it. That is for the demo's report alone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from deltalake import write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

import spark_partq as partq

LATE_MINUTES = 15

# The payload of the queue. `day` is the local date, `scheduled` the instant of the scheduled departure, delays are minutes.
FLIGHT = (
    "day date, scheduled timestamp, carrier string, flight int, tailnum string, origin string, dest string, "
    "dep_delay int, arr_delay int"
)


@dataclass(frozen=True)
class Outputs:
    """Where the applications write.

    Attributes
    ----------
    followed : str
        A table of all applications: the flights, with the columns of their messages.
    deliveries : str
        A folder with a table of each application: a row for each slice of a partition that it was given, whatever became of it, with the
        columns _partition, first, end (offsets, of which the last is left out), epoch, flow, application, batch, at.
    """

    followed: str
    deliveries: str


def follow(followed: str, deliveries: str, application: str) -> Callable[[DataFrame, int], None]:
    """A ``foreachBatch`` function that records what it is given and keeps the flights.

    Parameters
    ----------
    followed, deliveries : str
        See `Outputs`; what is new is made.
    application : str
        Who writes.
    """
    keep = partq.delta_sink(followed)

    def handle(batch: DataFrame, batch_id: int) -> None:
        _record(batch, batch_id, f"{deliveries}/{application}", application)
        keep(batch, batch_id)

    return handle


def _record(batch: DataFrame, batch_id: int, table: str, application: str) -> None:
    slices = batch.groupBy("_partition").agg(
        sf.min("_offset").alias("first"),
        (sf.max("_offset") + 1).alias("end"),
        sf.max("_epoch").alias("epoch"),
        sf.max("_flow").alias("flow"),
    )
    about = {"application": application, "batch": batch_id, "at": dt.datetime.now(dt.UTC)}
    given = slices.withColumns({name: sf.lit(value) for name, value in about.items()}).toArrow()
    if given.num_rows:  # Spark begins with an empty micro-batch if there is nothing yet
        write_deltalake(table, given, mode="append")


def knock_ons(followed: pd.DataFrame) -> pd.DataFrame:
    """The knock-ons among flights with the columns of their messages; they get a column previous_arr_delay (minutes)."""
    known = followed[followed["tailnum"].notna()].sort_values("_offset")
    before = known.groupby(["tailnum", "day"])["arr_delay"].shift(1)
    found = known.assign(previous_arr_delay=before)
    # A cancelled flight has no delays.
    return found[(found["dep_delay"] >= LATE_MINUTES) & (found["previous_arr_delay"] >= LATE_MINUTES)]
