"""Assignors against Kafka's own, which run in a Java process beside ours on the same input."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from pyspark.sql import SparkSession

from benchmarks.maven import jars, java
from benchmarks.report import Figure, at_least, at_most, in_turn, known, median

KAFKA = "org.apache.kafka:kafka-clients:4.4.0"
HARNESS = Path(__file__).parent / "java" / "KafkaAssignors.java"
SIZES = ((100, 100, 100), (100, 1000, 1000), (1000, 1000, 2000))
STICKY = ("sticky", "cooperative-sticky")
LARGE_MB, LARGE_S = 500, 1.0
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Case:
    """Some queues of equal size, and members that subscribe to all of them or to a random half.

    After a departure (`left`) the others still have what they had before it, which is what Kafka's `sticky` gave them.
    """

    queues: int
    partitions: int
    members: int
    left: bool = False
    half: bool = False

    def __str__(self) -> str:
        size = f"{self.queues}×{self.partitions}×{self.members}"
        return (
            f"{size}{', half of the queues each' if self.half else ''}, {'one leaves' if self.left else 'from nothing'}"
        )

    def write(self, folder: Path, theirs: Process) -> Path:
        """The file of this case, as both sides read it."""
        file = folder / f"{self.queues}-{self.partitions}-{self.members}-{self.left}-{self.half}.tsv"
        if file.exists():
            return file
        owned: dict[str, str] = {}
        if self.left:
            before = replace(self, left=False).write(folder, theirs)
            theirs.ask("case", str(before), "sticky")
            theirs.ask("write", str(folder / "owned.tsv"))
            owned = dict(line.split("\t") for line in (folder / "owned.tsv").read_text().splitlines())
        rng = random.Random(0)
        indexes = list(range(self.queues))
        with file.open("w") as out:
            out.writelines(f"queue\tq{i}\t{self.partitions}\n" for i in indexes)
            for i in range(self.members):
                wanted = sorted(rng.sample(indexes, self.queues // 2)) if self.half else indexes
                if self.left and i == self.members // 2:
                    continue
                has = owned.get(f"m{i}", "").replace("q", "")  # a queue's name is its index
                out.write(f"member\tm{i}\t{1 if has else -1}\t{','.join(map(str, wanted))}\t{has}\n")
        return file


class Process:
    """A process that assigns on request."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def ask(self, *words: str) -> str:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"{self._process.args!r} ended at {words}")
        return answer

    def seconds(self, what: str) -> float:
        return int(self.ask(what).split()[0]) / 1e9

    def sizes(self, what: str) -> list[str]:
        """Number of partitions assigned, the fewest and the most that a member got."""
        return self.ask(what).split()[1:]


def _ms(seconds: dict[str, list[float]]) -> str:
    """Each subject's median and range; these times lie too far apart for one number of decimals."""
    return "; ".join(
        f"{name} {median(s) * 1000:.3g} ms ({min(s) * 1000:.3g} to {max(s) * 1000:.3g})" for name, s in seconds.items()
    )


def ours() -> Process:
    return Process([sys.executable, "-m", "benchmarks.assignor_worker"], ONE_THREAD)


def kafka(spark: SparkSession) -> Process:
    return Process([java(), "-Xmx6g", "-cp", os.pathsep.join(jars(spark, KAFKA)), str(HARNESS)], {})


def run(spark: SparkSession, folder: Path, count: int, runs: int) -> Iterator[Figure]:
    with kafka(spark) as theirs, ours() as mine:
        for size in SIZES:
            for name in ("range", "roundrobin", *STICKY):
                yield from _against_kafka(theirs, mine, folder, Case(*size), name, runs)
            for name in STICKY:
                yield from _against_kafka(theirs, mine, folder, Case(*size, left=True), name, runs)
        half = Case(*SIZES[0], half=True)
        yield from _against_kafka(theirs, mine, folder, half, "sticky", runs)
        for name in STICKY:
            yield from _against_kafka(theirs, mine, folder, Case(*SIZES[0], left=True, half=True), name, runs)
        yield from _large(theirs, folder, runs)
        yield from _growth(theirs, folder, runs)


def _against_kafka(theirs: Process, mine: Process, folder: Path, case: Case, name: str, runs: int) -> Iterator[Figure]:
    file = str(case.write(folder, theirs))
    theirs.ask("case", file, name)
    mine.ask("case", file, name)
    small = case.queues * case.partitions <= 10_000 and not (case.half and not case.left)
    subjects = {
        "Kafka": lambda: theirs.seconds("run"),
        "ours": lambda: mine.seconds("arrays"),
        "ours with names": lambda: mine.seconds("names"),
    }
    # The small cases come first, and Java's compiler needs many runs of them.
    seconds = in_turn(f"{name}, {case}", subjects, *((5 * runs, 40) if small else (runs, 2)))
    ratio = {subject: median(seconds["Kafka"]) / median(taken) for subject, taken in seconds.items()}
    sizes = f"; sizes {'/'.join(mine.sizes('arrays')[1:])}, Kafka's {'/'.join(theirs.sizes('run')[1:])}"
    yield at_least(f"{name}, {case}", "Kafka", ratio["ours"], 1, _ms(seconds) + sizes)
    yield known(f"{name}, {case}, with names", "Kafka", ratio["ours with names"])


def _large(theirs: Process, folder: Path, runs: int) -> Iterator[Figure]:
    """A million partitions after a departure: time, and the memory of a process that does this alone."""
    case = Case(*SIZES[-1], left=True)
    file = str(case.write(folder, theirs))
    with ours() as empty:
        base_mb = int(empty.ask("peak")) / 1000
    for what in ("arrays", "names"):
        with ours() as mine:
            mine.ask("case", file, "cooperative-sticky")
            read_mb = int(mine.ask("peak")) / 1000
            seconds = in_turn(f"{case}, {what}", {what: lambda m=mine, w=what: m.seconds(w)}, runs, 1)  # type: ignore[misc]
            peak_mb = int(mine.ask("peak")) / 1000
        detail = f"{base_mb:.0f} MB after the imports, {read_mb:.0f} MB with the input"
        yield at_most(f"cooperative-sticky, {case}, {what}, s", "-", median(seconds[what]), LARGE_S, _ms(seconds))
        yield at_most(f"cooperative-sticky, {case}, {what}, peak MB", "-", peak_mb, LARGE_MB, detail)


def _growth(theirs: Process, folder: Path, runs: int) -> Iterator[Figure]:
    """A hundred times the partitions must not take more than a hundred times as long."""
    queues, partitions, members = SIZES[-1]
    seconds: dict[str, dict[int, float]] = {"arrays": {}, "names": {}}
    for each in (partitions // 100, partitions // 10, partitions):
        case = Case(queues, each, members, left=True)
        with ours() as mine:
            mine.ask("case", str(case.write(folder, theirs)), "sticky")
            for what, taken in seconds.items():
                taken[each] = median(in_turn(str(case), {what: lambda m=mine, w=what: m.seconds(w)}, runs, 1)[what])  # type: ignore[misc]
    for what, taken in seconds.items():
        detail = "; ".join(f"{queues * each:,}: {s * 1000:.1f} ms" for each, s in taken.items())
        name = f"sticky, one leaves, time of 1,000,000 partitions, {what}"
        yield at_most(name, "10,000 partitions", taken[partitions] / taken[partitions // 100], 100, detail)
