"""A stateful consumer: which delayed departures were knocked on by the same aircraft's flight before?

A departure is a **knock-on** when it is 15 minutes or more late and the aircraft's previous flight of that day arrived 15
minutes or more late. The queue is keyed by the aircraft, so all flights of one come from one partition, in the
producer's order; this handler relies on that and on nothing else.

What is remembered from one micro-batch to the next lies in a Delta table, one row per aircraft, where any consumer that
is given the partition later finds it. Each row says up to which offset it has counted, so:

- a message that is delivered again is recognized and left out;
- the knock-ons are written first and the state last. A crash in between makes the next try find the same knock-ons
  again, and the merge inserts none twice.
"""

from __future__ import annotations

from collections.abc import Callable

from delta import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

LATE_MINUTES = 15

# The payload of the queue. `day` is the local date, `scheduled` the instant of the scheduled departure, delays are minutes.
FLIGHT = (
    "day date, scheduled timestamp, carrier string, flight int, tailnum string, origin string, dest string, "
    "dep_delay int, arr_delay int"
)
KNOCK_ONS = f"_partition int, _offset long, {FLIGHT}, previous_arr_delay int"
# Flights without a tail number are counted too, in one row per partition.
AIRCRAFT = (
    "_partition int, tailnum string, _offset long, last struct<day: date, scheduled: timestamp, arr_delay: int>, "
    "followed long, out_of_order long"
)


def follow(knock_ons: str, aircraft: str) -> Callable[[DataFrame, int], None]:
    """A ``foreachBatch`` function that follows each aircraft through its day.

    Parameters
    ----------
    knock_ons : str
        Path of the Delta table of results, columns `KNOCK_ONS`; made if it is new.
    aircraft : str
        Path of the Delta table of state, columns `AIRCRAFT`; made if it is new.
    """

    def handle(batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        results = _table(spark, knock_ons, KNOCK_ONS)
        state = _table(spark, aircraft, AIRCRAFT).toDF()
        followed = _with_previous(batch, state).persist()
        try:
            _insert(results, followed.where(_is_knock_on()))
            # One small file: the state has a row per aircraft, not per flight.
            _new_state(state, followed).coalesce(1).write.format("delta").mode("overwrite").save(aircraft)
        finally:
            followed.unpersist()

    return handle


def _with_previous(batch: DataFrame, state: DataFrame) -> DataFrame:
    """The flights not counted yet, each with its aircraft's `previous` one: of this batch, else of the state."""
    known = state.select("_partition", "tailnum", "last", sf.col("_offset").alias("counted_up_to"))
    same = (batch["_partition"] == known["_partition"]) & batch["tailnum"].eqNullSafe(known["tailnum"])
    new = (
        batch.join(sf.broadcast(known), same, "left")
        .select(batch["*"], known["last"], known["counted_up_to"])
        .where("counted_up_to is null or _offset > counted_up_to")
    )
    in_order = Window.partitionBy("_partition", "tailnum").orderBy("_offset")
    return new.withColumn("previous", sf.coalesce(sf.lag(_as_last()).over(in_order), "last"))


def _is_knock_on() -> Column:
    same_day = sf.col("tailnum").isNotNull() & (sf.col("day") == sf.col("previous.day"))
    # A cancelled flight has no delays: as null it passes neither comparison.
    return same_day & (sf.col("dep_delay") >= LATE_MINUTES) & (sf.col("previous.arr_delay") >= LATE_MINUTES)


def _insert(results: DeltaTable, found: DataFrame) -> None:
    columns = [field.name for field in results.toDF().schema]
    rows = found.withColumn("previous_arr_delay", sf.col("previous.arr_delay")).select(columns)
    same = "old._partition = new._partition and old._offset = new._offset"
    results.alias("old").merge(rows.alias("new"), same).whenNotMatchedInsertAll().execute()


def _new_state(state: DataFrame, followed: DataFrame) -> DataFrame:
    out_of_order = sf.col("tailnum").isNotNull() & (sf.col("scheduled") < sf.col("previous.scheduled"))
    counted = followed.select(
        "_partition",
        "tailnum",
        "_offset",
        _as_last().alias("last"),
        sf.lit(1).cast("long").alias("followed"),
        sf.coalesce(out_of_order, sf.lit(False)).cast("long").alias("out_of_order"),
    )
    return (
        state.unionByName(counted)
        .groupBy("_partition", "tailnum")
        .agg(
            sf.max("_offset").alias("_offset"),
            sf.max_by("last", "_offset").alias("last"),
            sf.sum("followed").alias("followed"),
            sf.sum("out_of_order").alias("out_of_order"),
        )
    )


def _as_last() -> Column:
    return sf.struct("day", "scheduled", "arr_delay")


def _table(spark: SparkSession, path: str, columns: str) -> DeltaTable:
    schema = spark.createDataFrame([], columns).schema
    return DeltaTable.createIfNotExists(spark).location(path).addColumns(schema).execute()
