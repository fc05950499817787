"""A mutant and its tests, in a process of their own.

The process is forked from one that has loaded the product and collected the tests, so it takes no longer than the tests do. In
it the mutated function gets other code; whoever has the function has the mutant.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutants import ROOT
from tests.mutants.choice import Choice
from tests.mutants.mutations import Mutant, files

MOST_BYTES = 6 << 30  # of memory, for a mutant that does not stop to make lists
# By the wall clock a test, or a seed, may take so long, and so many times what it took when it was recorded: many that hang only wait.
MOST_S, MOST_TIMES = 20.0, 20.0

CAUGHT, HUNG, SURVIVED, NOT_RUN = "caught", "hung", "survived", "not run"
_PASSED, _FAILED, _BROKEN = range(3)  # exit codes


@dataclass(frozen=True)
class Verdict:
    """Whether a mutant was caught; by which test, or the simulation's seed."""

    outcome: str
    by: str = ""
    seconds: float = 0.0


class BrokenTrial(Exception):
    """A mutant could not be tried."""


@dataclass
class Trials:
    """Trials in a session of pytest that has collected all tests.

    Parameters
    ----------
    seeds
        Of the simulation, for a mutant that no test catches.
    seed_s
        How long one takes, seconds.
    """

    session: pytest.Session
    choice: Choice
    seeds: int
    seed_s: float

    def run(self, mutants: Iterable[tuple[Mutant, str]], jobs: int = 1) -> Iterator[tuple[Mutant, Verdict]]:
        """Each mutant with its verdict, in the order in which they end; so many processes at once.

        Parameters
        ----------
        mutants
            With the code of the file that has the mutant.
        """
        running: list[_Child] = []
        try:
            for mutant, code in mutants:
                tests, tests_s, simulated = self.choice.tests(mutant)
                seeds = self.seeds if simulated else 0
                if not tests and not seeds:
                    yield mutant, Verdict(NOT_RUN)
                    continue
                child = _Child(mutant, 20 + 4 * (tests_s + seeds * self.seed_s))
                if child.is_forked():
                    child.work(lambda: self._tried(mutant, code, tests, seeds))  # noqa: B023  # at once
                running.append(child)
                while len(running) >= jobs:
                    yield from _ended(running)
            while running:
                yield from _ended(running)
        finally:
            for child in running:
                child.kill()

    def _tried(self, mutant: Mutant, code: str, tests: list[str], seeds: int) -> str:
        """What fails; nothing if nothing does."""
        for function, instead in self._replaced(mutant.path, code):
            function.__code__ = instead
        items = [self._items[test] for test in tests]
        for place, item in enumerate(items):
            _hangs_after(self.choice.seconds(item.nodeid))
            following = items[place + 1] if place + 1 < len(items) else None
            self.session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.session.testsfailed:
                return item.nodeid
        return simulated(seeds, self.seed_s)

    def _replaced(self, path: str, code: str) -> list[tuple[FunctionType, CodeType]]:
        """The functions whose code is another, each with its new one."""
        functions = self._functions[str(ROOT / path)]
        found = []
        for new in _functions_of(compile(code, str(ROOT / path), "exec", dont_inherit=True)):
            for function in functions.get((new.co_qualname, new.co_firstlineno), []):
                if function.__code__ != new:
                    found.append((function, new))
        return found

    @cached_property
    def _items(self) -> dict[str, pytest.Item]:
        return {item.nodeid: item for item in self.session.items}

    @cached_property
    def _functions(self) -> dict[str, dict[tuple[str, int], list[FunctionType]]]:
        """All functions of the product that there are, by file, name and line."""
        found: dict[str, dict[tuple[str, int], list[FunctionType]]] = {}
        gc.unfreeze()  # what is frozen is not among them
        for thing in gc.get_objects():
            if type(thing) is FunctionType:
                code = thing.__code__
                by_name = found.setdefault(code.co_filename, {})
                by_name.setdefault((code.co_qualname, code.co_firstlineno), []).append(thing)
        return found

    def prepare(self) -> None:
        """Load all that has mutants, and look for its functions, before the first process is forked."""
        for path in files():
            importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        if self.seeds:
            import spark_partq.testing.simulation.__main__  # noqa: F401
        assert self._items and self._functions
        gc.collect()
        gc.freeze()


def _hangs_after(seconds: float) -> None:
    """The process is killed if what comes next, which usually takes so long, takes far longer."""
    signal.setitimer(signal.ITIMER_REAL, MOST_S + MOST_TIMES * seconds)


def simulated(seeds: int, seed_s: float = 1.0) -> str:
    """What goes wrong in the simulation; nothing if nothing does."""
    from spark_partq.testing.simulation.__main__ import execute
    from spark_partq.testing.simulation.draws import draw
    from spark_partq.testing.simulation.known import known

    logging.disable(logging.CRITICAL)
    for seed in range(seeds):
        setup = draw(seed)
        _hangs_after(seed_s)
        try:
            problem = execute(setup).problem
        except Exception as error:
            problem = repr(error)
        if problem and not known(setup, problem):
            return f"seed {seed}: {problem.splitlines()[0]}"
    return ""


def _functions_of(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module and of its classes; not those within functions, which come with them."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & 2:  # it has local variables of its own: a function, not a class
                yield inner
            else:
                yield from _functions_of(inner)


class _Child:
    """A process that is forked, with what it tells and how long it may take."""

    def __init__(self, mutant: Mutant, most_s: float) -> None:
        self._mutant, self._most_s, self._began_s = mutant, most_s, time.monotonic()
        self._folder = tempfile.mkdtemp(prefix="mutant-")
        Path(self._folder).chmod(0o755)  # tests become users without rights, who have to reach their folders
        self._told, self._tells = os.pipe()
        self._process = os.fork()
        if self._process:
            os.close(self._tells)

    def is_forked(self) -> bool:
        return self._process == 0

    def work(self, run) -> None:  # type: ignore[no-untyped-def]
        """In the process: it ends with this."""
        status = _BROKEN
        try:
            for number in (signal.SIGTERM, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(self._most_s), int(self._most_s) + 5))
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
            tempfile.tempdir = self._folder
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            wrong = run()
            os.write(self._tells, wrong.encode()[:1000])
            status = _FAILED if wrong else _PASSED
        except BaseException as error:
            os.write(self._tells, repr(error).encode()[:1000])
        finally:
            os._exit(status)

    def verdict(self) -> Verdict | None:
        """None while it runs. A process that takes far too long is killed."""
        late = time.monotonic() > self._began_s + 4 * self._most_s  # of the wall clock: others use the machine, too
        if late:
            self._signal()
        done, status = os.waitpid(self._process, 0 if late else os.WNOHANG)
        if not done:
            return None
        told = os.read(self._told, 1000).decode(errors="replace")
        self._clean()
        seconds = time.monotonic() - self._began_s
        code = os.waitstatus_to_exitcode(status)
        if late or code in (-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGALRM):
            return Verdict(HUNG, "", seconds)
        if code == _BROKEN:
            raise BrokenTrial(f"{self._mutant.name}: {told}")
        return Verdict(SURVIVED if code == _PASSED else CAUGHT, told, seconds)

    @property
    def mutant(self) -> Mutant:
        return self._mutant

    def kill(self) -> None:
        self._signal()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process, 0)
        self._clean()

    def _signal(self) -> None:
        for send in (os.killpg, os.kill):  # also what it has started; alone, if it has not got so far
            with contextlib.suppress(ProcessLookupError):
                send(self._process, signal.SIGKILL)

    def _clean(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.close(self._told)
        shutil.rmtree(self._folder, ignore_errors=True)


def _ended(running: list[_Child]) -> Iterator[tuple[Mutant, Verdict]]:
    """Wait a moment, and take what has ended out of the list."""
    time.sleep(0.01)
    for child in list(running):
        verdict = child.verdict()
        if verdict:
            running.remove(child)
            yield child.mutant, verdict
