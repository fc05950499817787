"""Runs the demo: lands the flights, starts a producer and a consumer as jobs of their own, and checks what came out."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import spark_partq as partq
from spark_partq.demo import check, flights
from spark_partq.demo.knock_on import FLIGHT
from spark_partq.spark.jobs import GRACE_S, Stop
from spark_partq.storage.queues import QueueDescription

QUEUE, GROUP, FLOWS, PARTITIONS = "flights", "knock-on", 3, 8
DAYS_PER_BATCH = 7
FLIGHTS_PER_BATCH = 30_000
_POLL_S = 0.5
_LOG_LINES = 20
_INTERRUPTED = 130  # as a shell says of a program that Ctrl-C ended


class DemoError(partq.PartqError):
    """The demo cannot run here, or one of its jobs has failed."""

    error_class = "DEMO_FAILED"


class Interrupted(Exception):
    """SIGINT or SIGTERM came."""


class Places:
    """What lies where in the demo's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.landing = root / "landing"
        self.store = root / "store"
        self.checkpoints = root / "checkpoints"
        self.knock_ons = root / "knock_ons"
        self.aircraft = root / "aircraft"
        self.logs = root / "logs"
        self.finished = root / "finished"


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
            console.print(f"interrupted; both jobs have ended. Run it again to go on from there ({places.root})")
            return _INTERRUPTED


def _run(places: Places, checkout: Path, stop: Stop, console: Console) -> int:
    year = flights.load()
    if not places.landing.exists():
        console.print(f"landing {len(year):,} flights of 2013 as one Parquet file per day in {places.landing}")
        flights.land(year, places.landing)
    with contextlib.suppress(partq.QueueAlreadyExistsError):
        partq.create_queue(places.store, QUEUE, FLIGHT, "tailnum", PARTITIONS)
    before = _counts(places)
    started = time.monotonic()
    took = _stream(places, checkout, len(year), stop, console)
    places.finished.touch()  # whatever the checks say: there is nothing left to continue
    queue = partq.describe_queue(places.store, QUEUE)
    console.print(_partitions(queue))
    for what, there, seconds in zip(("produced", "followed"), before, took, strict=True):
        new = len(year) - there
        console.print(
            f"{what} {new:,} flights in {seconds:.0f} s, {new / seconds:,.0f} a second, the start of Spark included"
        )
    checks = check.checks(places.store, QUEUE, places.knock_ons, places.aircraft, year)
    for name, holds, what in checks:
        console.print(
            f"[green]ok[/]    {name}: {what}" if holds else f"[bold red]WRONG[/] {name}: {what}", highlight=False
        )
    console.print(f"done in {time.monotonic() - started:.0f} s; results in {places.knock_ons}, logs in {places.logs}")
    return 0 if all(holds for _, holds, _ in checks) else 1


def _stream(places: Places, checkout: Path, total: int, stop: Stop, console: Console) -> tuple[float, float]:
    """Run both jobs at the same time until every flight is followed; returns the seconds until each was through."""
    columns = (TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    started = time.monotonic()
    with contextlib.ExitStack() as jobs, Progress(*columns, console=console) as progress:
        bars = [progress.add_task(name, total=total) for name in ("produced", "followed")]
        producer = jobs.enter_context(_job("produce", _produce(places), places, checkout))
        consumer = jobs.enter_context(_job("consume", _consume(places), places, checkout))
        produced_s = 0.0
        while True:
            ended = producer.has_ended()
            if consumer.has_ended():
                raise DemoError("consume ended before it was told to", log=consumer.log)
            produced, followed = _counts(places)
            progress.update(bars[0], completed=produced)
            progress.update(bars[1], completed=followed)
            now_s = time.monotonic() - started
            if ended and not produced_s:
                produced_s = now_s
            if ended and followed == produced:
                consumer.end()
                return produced_s, now_s
            if stop.wait(_POLL_S):
                raise Interrupted


def _counts(places: Places) -> tuple[int, int]:
    """Flights in the queue, and those of them that the group has acknowledged."""
    queue = partq.describe_queue(places.store, QUEUE)
    produced = sum(p.next_offset for p in queue.partitions)
    return produced, produced - queue.depth


def _produce(places: Places) -> list[str]:
    return [
        *("--store", str(places.store), "--queue", QUEUE, "--format", "parquet", "--path", str(places.landing)),
        *("--max-files-per-trigger", str(DAYS_PER_BATCH), "--order-by", "scheduled,carrier,flight"),
        *("--sink-id", "landing", "--checkpoint", str(places.checkpoints / "produce")),
    ]


def _consume(places: Places) -> list[str]:
    return [
        *("--store", str(places.store), "--queue", QUEUE, "--group", GROUP, "--flows", str(FLOWS)),
        *("--instance-id", "demo", "--max-rows-per-trigger", str(FLIGHTS_PER_BATCH)),
        *("--handler", "spark_partq.demo.knock_on:follow"),
        *("--handler-arg", f"knock_ons={places.knock_ons}", "--handler-arg", f"aircraft={places.aircraft}"),
        *("--checkpoint", str(places.checkpoints / "consume")),
    ]


class Job:
    """A job of `jobs/`, started by spark-submit as a process of its own, its output in a log file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name, self.log, self._process = name, log, process

    def has_ended(self) -> bool:
        """Whether it has ended well.

        Raises
        ------
        DemoError
            If it has failed, with the last lines of its log.
        """
        code = self._process.poll()
        if code:
            lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            raise DemoError(f"{self.name} failed with exit code {code}; the end of {self.log}:\n" + "\n".join(lines))
        return code == 0

    def end(self) -> None:
        """Ask it to end and wait until it has, with all that it started."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S + 10)
        # It leads a process group of its own, so nothing else is met.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def _job(name: str, arguments: list[str], places: Places, checkout: Path) -> Iterator[Job]:
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    settings["spark.databricks.delta.snapshotPartitions"] = "1"
    confs = [part for setting in settings.items() for part in ("--conf", "=".join(setting))]
    submit = str(Path(sys.executable).parent / "spark-submit")
    # SPARK_CONF_DIR brings conf/spark-defaults.conf and conf/log4j2.properties. The Python of a job is that of the demo.
    environment = {**os.environ, "SPARK_CONF_DIR": str(checkout / "conf"), "PYSPARK_PYTHON": sys.executable}
    for foreign in ("SPARK_HOME", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"):
        environment.pop(foreign, None)
    places.logs.mkdir(parents=True, exist_ok=True)
    log = places.logs / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [submit, *confs, str(checkout / "jobs" / f"{name}.py"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            # Ctrl-C in the terminal is the demo's alone; it then ends its jobs in its own time.
            start_new_session=True,
        )
    job = Job(name, process, log)
    try:
        yield job
    finally:
        job.end()


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
    for made in (places.landing, places.store, places.checkpoints, places.knock_ons, places.aircraft, places.logs):
        shutil.rmtree(made, ignore_errors=True)
    places.finished.unlink()


def _partitions(queue: QueueDescription) -> Table:
    total = sum(p.next_offset for p in queue.partitions)
    table = Table(title=f"queue {queue.name}, key {', '.join(queue.key)}")
    for column in ("partition", "flights", "share", "depth"):
        table.add_column(column, justify="right")
    for p in queue.partitions:
        table.add_row(str(p.partition), f"{p.next_offset:,}", f"{p.next_offset / max(1, total):.1%}", f"{p.depth:,}")
    return table
