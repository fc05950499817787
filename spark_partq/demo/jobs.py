"""The demo's jobs, each a process of its own by spark-submit, and what they are told."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import spark_partq as partq
from spark_partq.demo.places import GROUP, QUEUE, Places
from spark_partq.spark.jobs import GRACE_S

FLOWS = 2  # of each consumer
SESSION_TIMEOUT_MS = 4_000
DAYS_PER_BATCH = 14
FLIGHTS_PER_BATCH = 10_000
_LOG_LINES = 20


class DemoError(partq.PartqError):
    """The demo cannot run here, or one of its jobs has failed."""

    error_class = "DEMO_FAILED"
    next_step = (
        "Run `make demo` in a checkout of the project, one at a time; the message names the log of a job that failed."
    )
    retry = "Yes, once the cause that the message names has gone."


def producer_arguments(places: Places) -> list[str]:
    return [
        *("--store", str(places.store), "--queue", QUEUE, "--format", "parquet", "--path", str(places.landing)),
        *("--max-files-per-trigger", str(DAYS_PER_BATCH), "--order-by", "scheduled,carrier,flight"),
        *("--sink-id", "landing", "--checkpoint", str(places.checkpoints / "produce"), "--trigger", "continuous"),
    ]


def consumer_arguments(places: Places, name: str) -> list[str]:
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
