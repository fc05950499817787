"""Runs the demo: starts a producer and the consumers of a group as jobs of their own, and checks what came out.

A and B consume, C joins, B is killed, A leaves, and C finishes. Each waits for what the group says of itself, never for a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import spark_partq as partq
from spark_partq import analysis
from spark_partq.core.group.facts import Status
from spark_partq.core.ids import instance_of
from spark_partq.demo import check, flights, report
from spark_partq.demo.knock_on import FLIGHT, Outputs, delivered
from spark_partq.spark.jobs import GRACE_S, Stop
from spark_partq.storage.inspect.describe_queue import QueueDescription

QUEUE, GROUP, PARTITIONS = "flights", "knock-on", 8
FLOWS = 2  # of each consumer
# The waits of the group that everybody would rather see than sit through, and a handoff that a slow machine does not force.
SETTINGS: dict[str, Any] = {"rebalance_delay_ms": 2_000, "max_handoff_time_ms": 30_000}
SESSION_TIMEOUT_MS = 4_000
DAYS_PER_BATCH = 14
FLIGHTS_PER_BATCH = 10_000
_POLL_S, _AIM_S = 0.7, 0.05
_LOG_LINES = 20
_INTERRUPTED = 130  # as a shell says of a program that Ctrl-C ended

# Who consumes before each of the acts: C joins, B is killed, A leaves, C finishes.
CAST = ("AB", "ABC", "AC", "C")
# How much of the year is followed before C is started, and before A is told to leave.
JOIN_AFTER, LEAVE_AFTER = 0.1, 0.8


class DemoError(partq.PartqError):
    """The demo cannot run here, or one of its jobs has failed."""

    error_class = "DEMO_FAILED"


class Interrupted(Exception):
    """SIGINT or SIGTERM came."""


class Places:
    """What lies where in the demo's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.days = root / "days"
        self.landing = root / "landing"
        self.store = root / "store"
        self.checkpoints = root / "checkpoints"
        self.outputs = Outputs(*(str(root / name) for name in ("knock_ons", "aircraft", "deliveries")))
        self.logs = root / "logs"
        self.done = root / "acts_done"
        self.finished = root / "finished"

    @property
    def acts_done(self) -> int:
        """How many acts have happened: with the next one an interrupted run goes on."""
        return int(self.done.read_text()) if self.done.exists() else 0

    @acts_done.setter
    def acts_done(self, number: int) -> None:
        half_done = self.done.with_suffix(".writing")
        half_done.write_text(str(number))
        half_done.rename(self.done)


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
        f"done in {time.monotonic() - started:.0f} s; results in {places.outputs.knock_ons}, logs in {places.logs}"
    )
    return 0 if all(holds for _, holds, _ in checks) else 1


@dataclass(frozen=True)
class View:
    """How far everything is.

    Attributes
    ----------
    followed : int
        Flights that the group has acknowledged.
    owners : frozenset of str
        Instances that own partitions.
    settled : bool
        Whether every partition has an owner and nothing is about to change.
    """

    produced: int
    followed: int
    owners: frozenset[str]
    settled: bool
    status: str
    partitions: tuple[partq.GroupPartition, ...]

    @classmethod
    def of(cls, places: Places) -> View:
        try:
            group = partq.describe_group(places.store, GROUP)
        except partq.GroupNotFoundError:
            queue = partq.describe_queue(places.store, QUEUE)
            return cls(sum(p.next_offset for p in queue.partitions), 0, frozenset(), False, "", ())
        produced = sum(p.end or 0 for p in group.partitions)
        owners = frozenset(instance_of(p.flow) for p in group.partitions if p.flow is not None)
        settled = group.status == Status.READY and not group.unassigned
        return cls(produced, produced - group.lag, owners, settled, group.status, group.partitions)

    def shared_by(self, number: int) -> bool:
        """Whether so many applications share the partitions, and nothing is about to change."""
        return self.settled and len(self.owners) == number


class Show:
    """Starts and ends the jobs, act by act, until every flight is followed.

    More of the year comes with each act, so that however fast the consumers are, none of them meets an empty queue.

    Attributes
    ----------
    facts : DataFrame
        The history of the group at the end, when the last consumer had not left yet.
    took : dict
        Of ``produced`` and ``followed``: how many flights, in how many seconds.
    """

    def __init__(self, places: Places, checkout: Path, year: pd.DataFrame, stop: Stop, console: Console) -> None:
        self._places, self._checkout, self._stop, self._console = places, checkout, stop, console
        self._total, self._until_day = len(year), year.groupby(["month", "day"]).size().cumsum().tolist()
        self._landed = 0
        self._jobs: dict[str, Job] = {}
        self._started = time.monotonic()
        self._before: tuple[int, int] | None = None
        self._status = ""
        self._named: dict[str, str] = {}
        self._doing = Text()
        columns = (TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._bars = [self._progress.add_task(name, total=self._total) for name in ("produced", "followed")]
        self.facts = pd.DataFrame()
        self.took: dict[str, tuple[int, float]] = {}

    def play(self) -> None:
        """All acts that have not happened yet.

        Raises
        ------
        Interrupted
        DemoError
            If a job has failed.
        """
        acts = (self._join, self._kill, self._leave, self._finish)
        done = self._places.acts_done
        try:
            with Live(Group(self._progress, self._doing), console=self._console, refresh_per_second=4):
                self._bring(0.5)
                self._start("produce", _produce(self._places))
                for name in CAST[done]:
                    self._start(name, _consume(self._places, name))
                self._say(f"{' and '.join(CAST[done])} begin to consume" if len(CAST[done]) > 1 else "C goes on")
                for number, act in enumerate(acts[done:], done):
                    act()
                    self._places.acts_done = min(number + 1, len(acts) - 1)
        finally:
            for job in self._jobs.values():
                job.ask()
            for job in self._jobs.values():
                job.end()

    # ---- the acts
    def _join(self) -> None:
        self._wait(lambda now: now.shared_by(2), "A and B are starting")
        self._wait(lambda now: now.followed >= JOIN_AFTER * self._total, "A and B consume")
        self._say("C is started")
        self._start("C", _consume(self._places, "C"))
        self._wait(lambda now: now.shared_by(3), "A and B consume, C joins")

    def _kill(self) -> None:
        self._wait(lambda now: now.shared_by(3), "A, B and C are starting")
        self._bring(0.75)
        doing = "A, B and C consume; the next micro-batch of B will be its last"
        self._wait(lambda now: self._is_at_work("B", now) or now.followed >= self._landed, doing, _AIM_S)
        self._jobs.pop("B").kill()
        self._say("B is killed with kill -9, in the middle of a micro-batch")

    def _leave(self) -> None:
        self._bring(1.0)
        self._wait(lambda now: now.shared_by(2), "A and C consume; what B had waits until its session has expired")
        self._wait(lambda now: now.followed >= LEAVE_AFTER * self._total, "A and C consume")
        self._say("A is told to leave (SIGTERM)")
        self._jobs["A"].ask()
        self._wait(lambda _: self._jobs["A"].has_ended(), "A finishes its micro-batch and leaves")

    def _finish(self) -> None:
        self._bring(1.0)
        self._wait(lambda now: now.followed == now.produced == self._total, "C consumes the rest alone")
        self.facts = analysis.history(self._places.store, GROUP)

    # ---- what they are made of
    def _bring(self, share: float) -> None:
        """More of the year, for the producer to find."""
        days = round(share * len(self._until_day))
        flights.bring(self._places.days, self._places.landing, days)
        self._landed = self._until_day[days - 1]

    def _start(self, name: str, arguments: list[str]) -> None:
        script = "produce" if name == "produce" else "consume"
        log = self._places.logs / ("produce.log" if name == "produce" else f"consume-{name}.log")
        self._jobs[name] = Job.start(name, script, arguments, log, self._checkout)

    def _say(self, what: str) -> None:
        self._console.print(f"{time.monotonic() - self._started:5.1f} s  {what}", highlight=False)

    def _wait(self, condition: Callable[[View], bool], doing: str, every_s: float = _POLL_S) -> None:
        while not condition(self._look(doing)):
            if self._stop.wait(every_s):
                raise Interrupted

    def _look(self, doing: str) -> View:
        for job in self._jobs.values():
            if job.has_ended() and not job.asked:
                raise DemoError(f"{job.name} ended before it was told to", log=job.log)
        now = View.of(self._places)
        counts = (now.produced, now.followed)
        self._before = self._before or counts
        for bar, name, before, count in zip(self._bars, ("produced", "followed"), self._before, counts, strict=True):
            self._progress.update(bar, completed=count)
            if count == self._total and name not in self.took:
                self.took[name] = (count - before, time.monotonic() - self._started)
        if now.status != self._status:
            self._status = now.status
            self._say(f"the group is {now.status}")
        self._doing.plain = f"{doing}; the group is {now.status}" if now.status else doing
        return now

    def _is_at_work(self, name: str, now: View) -> bool:
        """Whether a consumer has been given something that it has not acknowledged yet."""
        if name not in self._named.values():
            self._named = report.names(check.tables(self._places.outputs.deliveries))
        mine = [p for p in now.partitions if p.flow is not None and self._named.get(instance_of(p.flow)) == name]
        return any(delivered(self._places.outputs, p.partition) > p.position for p in mine)


def _produce(places: Places) -> list[str]:
    return [
        *("--store", str(places.store), "--queue", QUEUE, "--format", "parquet", "--path", str(places.landing)),
        *("--max-files-per-trigger", str(DAYS_PER_BATCH), "--order-by", "scheduled,carrier,flight"),
        *("--sink-id", "landing", "--checkpoint", str(places.checkpoints / "produce"), "--trigger", "continuous"),
    ]


def _consume(places: Places, name: str) -> list[str]:
    arguments = {**dataclasses.asdict(places.outputs), "application": name}
    return [
        *("--store", str(places.store), "--queue", QUEUE, "--group", GROUP, "--flows", str(FLOWS)),
        *("--read-option", f"sessionTimeoutMs={SESSION_TIMEOUT_MS}"),
        *("--max-rows-per-trigger", str(FLIGHTS_PER_BATCH)),
        *("--handler", "spark_partq.demo.knock_on:follow"),
        *(part for argument in arguments.items() for part in ("--handler-arg", "=".join(argument))),
        *("--checkpoint", str(places.checkpoints / f"consume-{name}"), "--trigger", "continuous"),
    ]


class Job:
    """A job of `jobs/`, run by spark-submit as a process of its own, its output in a log file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name, self.log, self._process = name, log, process
        self.asked = False

    @classmethod
    def start(cls, name: str, script: str, arguments: list[str], log: Path, checkout: Path) -> Job:
        settings = {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            # Four JVMs that live for minutes: what the optimizing compiler would cost them they never get back.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        confs = [part for setting in settings.items() for part in ("--conf", "=".join(setting))]
        submit = str(Path(sys.executable).parent / "spark-submit")
        # SPARK_CONF_DIR brings conf/spark-defaults.conf and conf/log4j2.properties. The Python of a job is that of the demo.
        environment = {**os.environ, "SPARK_CONF_DIR": str(checkout / "conf"), "PYSPARK_PYTHON": sys.executable}
        for foreign in ("SPARK_HOME", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"):
            environment.pop(foreign, None)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [submit, *confs, str(checkout / "jobs" / f"{script}.py"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                # Ctrl-C in the terminal is the demo's alone; it then ends its jobs in its own time.
                start_new_session=True,
            )
        return cls(name, process, log)

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

    def ask(self) -> None:
        """Ask it to end."""
        self.asked = True
        if self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """``kill -9`` of it and of all that it started."""
        # It leads a process group of its own, so nothing else is met.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Ask it to end and wait until it has, with all that it started."""
        self.ask()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S + 10)
        self.kill()


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
