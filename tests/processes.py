"""Driver processes of tests: each is told what to run, one JSON object a line, and can be killed and stopped with all that belongs to it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import psutil

from tests.helpers import ROOT

Kind = Literal["plain", "spark"]

# The master of an application with Spark, if not the usual one.
MASTER = "PARTQ_TEST_MASTER"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
# Where a package with an assignor of a user's is installed.
PLUGINS = ROOT / "tests" / "plugins"


def twice(folder: Path) -> Path:
    """While this file is there, that assignor gives a partition twice."""
    return folder / "twice"


# ---- in the test
class Application:
    """One driver process, with Spark or without. It starts while the test goes on; the first answer waits for it.

    `before` is a command that starts it, as ``setpriv``, and `variables` are added to its environment.
    """

    def __init__(
        self, folder: Path, kind: Kind, before: Sequence[str] = (), variables: Mapping[str, str] | None = None
    ) -> None:
        self._log = folder / f"application-{uuid.uuid4().hex[:6]}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*before, sys.executable, "-m", "tests.drivers", kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": str(PLUGINS),
                    "CONTRARY_TWICE": str(twice(folder)),
                    **(variables or {}),
                },
                start_new_session=True,
            )
        self._numbers = itertools.count()
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self.killed = False
        self.ended = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._arrived:
                self._answers[answer["id"]] = answer
                self._arrived.notify_all()
        with self._arrived:
            self.ended = True
            self._arrived.notify_all()

    def tell(self, command: str, **arguments: Any) -> Answer:
        """Send a command; the result waits for its answer."""
        assert self._process.stdin is not None
        number = next(self._numbers)
        self._process.stdin.write(json.dumps({"id": number, "command": command, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        return Answer(self, number, command)

    def is_there(self, number: int, timeout_s: float) -> bool:
        """Whether the answer of that number, or the end of the application, comes within a time."""
        with self._arrived:
            return self._arrived.wait_for(lambda: number in self._answers or self.ended, timeout_s)

    def take(self, number: int) -> dict[str, Any] | None:
        with self._arrived:
            return self._answers.pop(number, None)

    def ask(self, command: str, **arguments: Any) -> Any:
        return self.tell(command, **arguments)()

    def log(self) -> str:
        """What it wrote since its JVM was up."""
        return self._log.read_text().rpartition("statically registered data source.")[2][-6000:]

    def _signal(self, number: signal.Signals) -> None:
        """To the driver, its JVM, the planners and the workers: all that belong to the session that it began."""
        for process in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, psutil.Error):
                if os.getsid(process.pid) == self._process.pid:
                    os.kill(process.pid, number)

    def executors(self) -> list[psutil.Process]:
        """Those of a `MASTER` that has any."""
        return executors_below(self._process.pid)

    def kill(self) -> None:
        """SIGKILL to everything at once."""
        self.killed = True
        self._signal(signal.SIGSTOP)  # so that nobody notices the end of another
        self._signal(signal.SIGKILL)
        self._process.wait()

    def stop_signals(self) -> None:
        """SIGSTOP: what lives on is a zombie until `cont`."""
        self._signal(signal.SIGSTOP)

    def cont(self) -> None:
        self._signal(signal.SIGCONT)


class Answer:
    """To a command: called, it waits for what came of it."""

    def __init__(self, application: Application, number: int, command: str) -> None:
        self._application, self._number, self._command = application, number, command

    def there(self) -> bool:
        """Whether it need not be waited for."""
        return self._application.is_there(self._number, 0)

    def __call__(self) -> Any:
        log = self._application.log
        there = self._application.is_there(self._number, 120)
        found = self._application.take(self._number)
        assert there and found is not None, f"no answer to {self._command}:\n{log()}"
        assert "error" not in found, f"{self._command}: {found['error']}\n{log()}"
        return found["value"]


class Pool:
    """Applications that all tests share, as each may take many seconds to start: when it is first wanted, and after it was killed."""

    def __init__(
        self, folder: Path, kind: Kind, before: Sequence[str] = (), variables: Mapping[str, str] | None = None
    ) -> None:
        self._folder, self._kind, self._before, self.twice = folder, kind, before, twice(folder)
        self._variables = variables or {}
        # Of a time-out that a query with Spark needs, so much is enough.
        self.pace = 1.0 if kind == "spark" else 0.4
        self._applications: list[Application] = []

    def take(self, count: int) -> list[Application]:
        """So many applications that live, started at the same time if they are not there yet."""
        self._applications = [a for a in self._applications if not a.killed]
        while len(self._applications) < count:
            self._applications.append(self.extra())
        return self._applications[:count]

    def extra(self, variables: Mapping[str, str] | None = None) -> Application:
        """One that is not shared; who asks for it ends it."""
        return Application(self._folder, self._kind, self._before, {**self._variables, **(variables or {})})

    def beside(self, folder: Path, variables: Mapping[str, str]) -> Pool:
        """A pool of its own of such applications, to whose environment these are added."""
        folder.mkdir(parents=True, exist_ok=True)
        return Pool(folder, self._kind, self._before, variables)

    def clear(self) -> None:
        """Stop every query, also of those that were stopped by a signal."""
        alive = [a for a in self._applications if not a.killed]
        for application in alive:
            application.cont()
        for answer in [a.tell("clear") for a in alive]:
            answer()

    def close(self) -> None:
        for application in self._applications:
            if not application.killed:
                application.kill()


def executors_below(pid: int) -> list[psutil.Process]:
    """The executors that a process has started, or one that it has started."""
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if child.is_running() and _EXECUTOR in " ".join(_command(child))]


def python_workers(executor: psutil.Process) -> list[psutil.Process]:
    """The processes in which an executor runs Python, without the one that starts them."""
    with contextlib.suppress(psutil.NoSuchProcess):
        daemons = [child for child in executor.children() if "pyspark.daemon" in _command(child)]
        return [worker for daemon in daemons for worker in daemon.children()]
    return []


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def kill_with_children(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """End these, and whatever those that still run have started."""
    for process in processes:
        left = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        for child in left:
            if child.is_running():
                child.kill()
