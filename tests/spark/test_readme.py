"""The examples of README.md and docs/quickstart.md run as they stand there."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import spark_partq as partq
from spark_partq import analysis
from tests.helpers import ROOT, driver, eventually, finished

README = ROOT / "README.md"
IN_FOLDER = (
    "import os, sys; os.chdir(sys.argv[1]); exec(compile(sys.argv[2], 'README.md', 'exec'), {'__name__': '__main__'})"
)
COMMAND = "import os, sys; os.chdir(sys.argv.pop(1)); from spark_partq.cli import main; main()"
ORDER = r"\| +(o\d)\| +(\w+)\| +([\d.]+)\|orders\|"
NEXT = "the quickstart begins"


def blocks(document: str) -> list[tuple[str, str]]:
    """Language and text of each block."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


def code(document: str) -> str:
    return "".join(text for language, text in blocks(document) if language == "python")


@dataclass(frozen=True)
class Newcomer:
    """Who pastes all of it into one Python, in an empty folder: the README's example twice, then the quickstart's."""

    folder: Path
    readme: str
    quickstart: str


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    folder = tmp_path_factory.mktemp("empty")
    program = f"{code('README.md') * 2}\nprint({NEXT!r})\n{code('docs/quickstart.md')}"
    readme, quickstart = finished(driver(IN_FOLDER, str(folder), program)).split(NEXT)
    return Newcomer(folder, readme, quickstart)


THREE = [("o1", "ada", "9.5"), ("o2", "joe", "3.0"), ("o3", "ada", "20.25")]


def test_ten_lines(newcomer: Newcomer) -> None:
    """U1, U2: what a newcomer pastes, twice, into an empty folder produces and consumes, and ends."""
    assert sorted(re.findall(ORDER, newcomer.readme)) == sorted(THREE * 3)  # one time those of the first run, then all
    look_at_the_queue(newcomer.folder, depth=3)  # which the quickstart wrote for the other pages


@pytest.mark.long
def test_ten_lines_in_two_processes(tmp_path: Path) -> None:
    for times in (1, 2):
        out = finished(driver(IN_FOLDER, str(tmp_path), code("README.md")))
        assert sorted(re.findall(ORDER, out)) == sorted(THREE * times)
    look_at_the_queue(tmp_path)


@pytest.mark.long
def test_two_consumers(spark: SparkSession, tmp_path: Path) -> None:
    """W1, W3: the job that is started twice; one gets a signal and leaves, and the other goes on. Each message is in the table once."""
    for name in ("conf", "jobs"):
        (tmp_path / name).symlink_to(ROOT / name)
    finished(driver(IN_FOLDER, str(tmp_path), code("README.md")))
    section = README.read_text().partition("\n## Two consumers\n")[2].partition("\n## ")[0]
    define, *starts = re.findall(r"^    (consume.*)$", section, re.MULTILINE)
    store, path = str(tmp_path / "store"), f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    jobs = [
        subprocess.Popen(
            ["bash", "-c", f"{define}\n{line.removesuffix('&')}"], cwd=tmp_path, env=environment, start_new_session=True
        )
        for line in starts
    ]

    def sent(first: int, last: int) -> None:
        rows = [(f"o{n}", f"c{n % 40}", float(n)) for n in range(first, last)]
        partq.append(spark.createDataFrame(rows, "order_id string, customer string, amount double"), store, "orders")

    def owned(members: int) -> bool:
        found = partq.describe_group(store, "billing")
        return (found.status, len(found.members), found.unassigned, found.lag) == ("Ready", members, 0, 0)

    try:
        eventually(lambda: owned(2), "two members that have read everything", 180)
        sent(0, 200)
        eventually(lambda: owned(2), "that both have read what was sent", 60)
        os.killpg(jobs[0].pid, signal.SIGTERM)
        sent(200, 300)
        eventually(lambda: owned(1), "that the other one has read the rest", 120)
    finally:
        for job in jobs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    facts = analysis.history(store, "billing")
    *_, cause = facts.loc[facts["kind"] == "MemberLeft", "cause"]
    assert cause.endswith(" left"), "not expired"
    billed = DeltaTable(tmp_path / "shared").to_pandas()
    assert sorted(billed["order_id"]) == sorted(f"o{n}" for n in range(300))


def look_at_the_queue(folder: Path, depth: int = 0) -> None:
    found = partq.describe_queue(folder / "store", "orders")
    assert found.groups == ("billing",)
    assert (found.operating_partitions, found.depth) == (8, depth)


def test_quickstart(newcomer: Newcomer) -> None:
    """U1, U2: each block does what the page says, and prints what stands below it."""
    printed, commands, results = newcomer.quickstart, 0, 0
    for language, text in blocks("docs/quickstart.md"):
        if language == "sh" and "spark-partq" in text:
            printed = "".join(command(newcomer.folder, line) for line in text.splitlines())
            commands += len(text.splitlines())
        elif language == "text":
            assert text in printed
            results += 1
    assert (commands, results) == (4, 3)
    assert newcomer.quickstart.count("payment_id") == 2
    assert partq.describe_queue(newcomer.folder / "store", "payments").depth == 0


def command(folder: Path, line: str) -> str:
    name, *arguments = shlex.split(line)
    assert name == "spark-partq"
    return finished(driver(COMMAND, str(folder), *arguments, env={"COLUMNS": "120"}))


def test_install(tmp_path: Path) -> None:
    """The block of the quickstart that installs, without what is installed already: package and command are there."""
    (line,) = [text for language, text in blocks("docs/quickstart.md") if language == "sh" and "pip" in text]
    pip, *arguments = shlex.split(line)
    assert pip == "pip"
    here = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(tmp_path)]
    subprocess.run([sys.executable, "-m", pip, *arguments, *here], cwd=ROOT, check=True)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    said = subprocess.check_output([tmp_path / "bin" / "spark-partq", "--version"], env=env, cwd=tmp_path, text=True)
    assert said == f"spark_partq {partq.__version__}\n"
    where = [sys.executable, "-c", "import spark_partq; print(spark_partq.__file__)"]
    assert Path(subprocess.check_output(where, env=env, cwd=tmp_path, text=True).strip()).is_relative_to(tmp_path)
