"""Runs the demo: starts a producer and the consumers of a group as jobs of their own, and checks what came out.

A and B consume, C joins, B is killed, A leaves, and C finishes. Each waits for what the group says of itself, never for a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

import spark_partq as partq
from spark_partq.demo import check, flights, report
from spark_partq.demo.acts import Interrupted, Show
from spark_partq.demo.jobs import DemoError
from spark_partq.demo.knock_on import FLIGHT
from spark_partq.demo.places import QUEUE, Places
from spark_partq.spark.jobs import Stop
from spark_partq.storage.inspect.describe_queue import QueueDescription

PARTITIONS = 8
# The waits of the group that everybody would rather see than sit through, and a handoff that a slow machine does not force.
SETTINGS: dict[str, Any] = {"rebalance_delay_ms": 2_000, "max_handoff_time_ms": 30_000}
_INTERRUPTED = 130  # as a shell says of a program that Ctrl-C ended


def run(folder: Path, console: Console) -> int:
    """Run the demo in `folder`; a run that was interrupted is continued, a finished one is begun afresh.

    Returns
    -------
    int
        0 if every check holds, 1 if one does not, 130 if it was interrupted.

    Raises
    ------
    PartqError
        If it cannot run here, or a job has failed.
    """
    places = Places(folder.resolve())
    checkout = _checkout()
    with _alone(places.root):
        stop = Stop()
        if places.finished.exists():
            _remove(places)
        try:
            return _run(places, checkout, stop, console)
        except Interrupted:
            console.print(f"interrupted; every job has ended. Run it again to go on from there ({places.root})")
            return _INTERRUPTED


def _run(places: Places, checkout: Path, stop: Stop, console: Console) -> int:
    year = flights.load()
    if not places.days.exists():
        console.print(f"writing {len(year):,} flights of 2013 as one Parquet file per day to {places.days}")
        flights.land(year, places.days)
    with contextlib.suppress(partq.QueueAlreadyExistsError):
        partq.create_queue(places.store, QUEUE, FLIGHT, "tailnum", PARTITIONS, **SETTINGS)
    began, started = pd.Timestamp.now("UTC"), time.monotonic()
    show = Show(places, checkout, year, stop, console)
    show.play()
    places.finished.touch()  # whatever the checks say: there is nothing left to continue
    facts, given = show.facts, check.tables(places.outputs.deliveries)
    named = report.names(given)
    console.print("\nwho owned which partition, small while it is handed over", highlight=False)
    console.print(report.painted(report.timeline(facts, given, named, began)))
    console.print(report.changes_table(report.changes(facts, given, named)))
    console.print(_partitions(partq.describe_queue(places.store, QUEUE)))
    for what, (new, seconds) in show.took.items():
        console.print(
            f"{what} {new:,} flights in {seconds:.0f} s, {new / seconds:,.0f} a second, the start of Spark included"
        )
    checks = check.checks(places.store, QUEUE, places.outputs, facts, year)
    for name, holds, what in checks:
        console.print(
            f"[green]ok[/]    {name}: {what}" if holds else f"[bold red]WRONG[/] {name}: {what}", highlight=False
        )
    console.print(
        f"done in {time.monotonic() - started:.0f} s; the result in {places.outputs.followed}, logs in {places.logs}"
    )
    return 0 if all(holds for _, holds, _ in checks) else 1


def _checkout() -> Path:
    checkout = Path(partq.__file__).resolve().parents[1]
    if not (checkout / "jobs" / "produce.py").exists() or not (checkout / "conf").exists():
        raise DemoError(
            f"the demo runs jobs/ and conf/ of a checkout, and {checkout} is none; clone the project and run make demo there"
        )
    return checkout


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"another demo is running in {folder}; wait for it, or choose another --dir") from None
        yield


def _remove(places: Places) -> None:
    """Remove what an earlier run made. The mark goes last, so that an interrupted removal is taken up again."""
    written = (Path(folder) for folder in dataclasses.astuple(places.outputs))
    for made in (places.days, places.landing, places.store, places.checkpoints, places.logs, *written):
        shutil.rmtree(made, ignore_errors=True)
    places.done.unlink(missing_ok=True)
    places.finished.unlink()


def _partitions(queue: QueueDescription) -> Table:
    total = sum(p.next_offset for p in queue.partitions)
    table = Table(title=f"queue {queue.name}, key {', '.join(queue.key)}")
    for column in ("partition", "flights", "share", "depth"):
        table.add_column(column, justify="right")
    for p in queue.partitions:
        table.add_row(str(p.partition), f"{p.next_offset:,}", f"{p.next_offset / max(1, total):.1%}", f"{p.depth:,}")
    return table
