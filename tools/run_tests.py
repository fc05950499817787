"""Run lint and the suites of tests in processes side by side; each line tells which of them it is from."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Their queries run in programs with a JVM of their own.
PROGRAMS = "tests/spark/test_jobs.py", "tests/spark/test_readme.py"
# The others leave these the processors, as Spark gives a process that plans a query's micro-batches ten seconds to start.
FIRST = ("spark", "programs")
# Their JVMs start sooner with this file, which takes a minute to make; the other suites run meanwhile.
CLASSES = ".venv/classes.jsa"
SUITES = {
    "spark": ["tests/spark", "--plain=without", *(f"--ignore={path}" for path in PROGRAMS)],
    "programs": [*PROGRAMS],  # a local cluster is four JVMs, which start slowly where all suites run
    "applications": ["tests/spark", "--plain=only"],  # several processes without a JVM
    "simulation": ["tests/testing"],
    # A history of faults waits for its slowest process, while its producers go on: it is no work for a patient suite.
    "storage": ["tests/storage", "--ignore=tests/storage/procedures", "tests/faults"],
    "procedures": ["tests/storage/procedures"],
    "core": ["tests/core"],
    "other": ["tests", *(f"--ignore=tests/{folder}" for folder in ("core", "faults", "spark", "storage", "testing"))],
}
# Linux keeps the files of this folder in memory. The tests write and delete hundreds of thousands of small files; to delete one, some disks
# take two milliseconds.
MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 8 << 30


def main() -> int:
    """Arguments go to all suites; the exit code is 1 if one fails."""
    with temporary_files():
        return run()


def run() -> int:
    said: list[str] = []
    classes = Part("classes", ["make", CLASSES], said)
    running = [classes, Part("lint", ["make", "lint"], said)]
    running += [Part(name, pytest(name), said) for name in SUITES if name not in FIRST]
    with suppress(KeyboardInterrupt):  # the terminal has told the others, too
        classes.code()
        running += [Part(name, pytest(name), said) for name in FIRST]
        for part in running:
            part.code()
    failed = [part.name for part in running if part.code() != 0]
    print(*said, sep="", end="")
    print(f"failed: {', '.join(failed)}" if failed else "all passed", flush=True)
    return 1 if failed else 0


@contextmanager
def temporary_files() -> Iterator[None]:
    """The tests' files are in memory where there is enough, else on the disk."""
    if not holds_all(MEMORY):
        yield
        return
    folder = MEMORY / f"partq-{os.getpid()}"
    folder.mkdir()  # others may enter it: some tests give up the rights of root
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def holds_all(folder: Path) -> bool:
    """There is enough space, and programs that the tests install there may run."""
    if not os.access(folder, os.W_OK):
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= ENOUGH_BYTES and not found.f_flag & os.ST_NOEXEC


def pytest(name: str) -> list[str]:
    """The command that runs a suite, with the arguments of this program."""
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir=.pytest_cache/{name}", "--durations=25"]
    return [*([] if name in FIRST else ["nice", "-n", "5"]), *command, *SUITES[name], *sys.argv[1:]]


class Part:
    """A process; its lines are printed as they come, and those of a test that failed are said once more at the end."""

    def __init__(self, name: str, command: list[str], said: list[str]) -> None:
        # The tests start hundreds of processes: what one has compiled, the others need not compile again.
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self.name, self.said = name, said
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=env
        )
        self.reader = threading.Thread(target=self.tell)
        self.reader.start()

    def tell(self) -> None:
        for line in self.process.stdout or []:
            print(f"{self.name} | {line}", end="", flush=True)
            if line.startswith(("FAILED ", "ERROR ")):
                self.said.append(f"{self.name} | {line}")

    def code(self) -> int:
        """Its exit code, when it has ended."""
        self.reader.join()
        return self.process.wait()


if __name__ == "__main__":
    sys.exit(main())
