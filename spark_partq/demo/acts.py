"""The acts of the demo: A and B consume, C joins, B is killed, A leaves, and C finishes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from spark_partq import analysis
from spark_partq.core.ids import instance_of
from spark_partq.demo import check, flights, report
from spark_partq.demo.jobs import DemoError, Job, consumer_arguments, producer_arguments
from spark_partq.demo.places import GROUP, Places
from spark_partq.demo.view import View
from spark_partq.spark.jobs import Stop

# Who consumes before each of the acts: C joins, B is killed, A leaves, C finishes.
CAST = ("AB", "ABC", "AC", "C")
# How much of the year is followed before C is started, and before A is told to leave.
JOIN_AFTER, LEAVE_AFTER = 0.1, 0.8
_POLL_S, _AIM_S = 0.7, 0.05


class Interrupted(Exception):
    """SIGINT or SIGTERM came."""


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
                self._start("produce", producer_arguments(self._places))
                for name in CAST[done]:
                    self._start(name, consumer_arguments(self._places, name))
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
        self._start("C", consumer_arguments(self._places, "C"))
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
        given = check.tables(self._places.outputs.deliveries)
        named = report.names(given)
        ends = given[given["application"] == name].groupby("_partition")["end"].max()
        mine = [p for p in now.partitions if p.flow is not None and named.get(instance_of(p.flow)) == name]
        return any(ends.get(p.partition, 0) > p.position for p in mine)
