"""The commands that documents show of the jobs: each job takes its own, and Spark gets what belongs to the jobs (U1)."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from spark_partq.spark.jobs import parser
from tests.core.test_documents import DOCUMENTS
from tests.helpers import ROOT

JOBS = sorted((ROOT / "jobs").glob("*.py"))
# What a line that is run begins with; `submit` is a function of a page.
PROGRAM = re.compile(r"^ *(?:\$ )?(?:SPARK_CONF_DIR=conf )?(?:spark-submit|submit|python) ")
SUBMITS = re.compile(r"spark-submit +(?:--|jobs/|local:)")


def lines(path: Path) -> list[str]:
    """Those of a document, or of the docstring of a job; one that goes on in the next is one."""
    text = path.read_text()
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    return re.sub(r"\\\n *", "", text).splitlines()


def commands(path: Path) -> list[tuple[str, list[str]]]:
    """Each job that is started, by name, with its arguments."""
    found = []
    for line in filter(PROGRAM.match, lines(path)):
        words = shlex.split(line.partition(" #")[0])
        scripts = [place for place, word in enumerate(words) if re.search(r"(?:^|/)jobs/\w+\.py$", word)]
        found += [(Path(words[place]).stem, words[place + 1 :]) for place in scripts]
    return found


def test_a_job_takes_the_commands_that_documents_show() -> None:
    by_job: dict[str, int] = {}
    for path in [*JOBS, *DOCUMENTS]:
        for name, arguments in commands(path):
            if arguments == ["--help"]:
                continue
            command: Any = typer.main.get_command(parser(runpy.run_path(str(ROOT / "jobs" / f"{name}.py"))[name]))
            command.make_context(name, list(arguments))
            by_job[name] = by_job.get(name, 0) + 1
    assert by_job.keys() == {path.stem for path in JOBS}
    assert by_job["produce"] >= 2 and by_job["consume"] >= 5


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_shows_how_it_is_started(path: Path) -> None:
    assert path.stem in [name for name, _ in commands(path)]


def quiet(line: str) -> bool:
    """Whether Spark, started so, takes the settings of conf/ and what it is to log."""
    if "--deploy-mode cluster" in line:
        return "--properties-file conf/spark-defaults.conf" in line and "conf/log4j2.properties" in line
    return "SPARK_CONF_DIR=conf spark-submit" in line and "--properties-file" not in line


def test_spark_gets_the_configuration_of_the_jobs() -> None:
    """`--properties-file` brings the settings alone: Spark then logs hundreds of lines at the level INFO."""
    found = [(path, line) for path in [*JOBS, *DOCUMENTS, *CONFIGURATION] for line in lines(path)]
    submits = [(path, line) for path, line in found if SUBMITS.search(line)]
    assert {"README.md", "kafka.md", "clusters.md", "produce.py", "spark-defaults.conf"} <= {
        path.name for path, _ in submits
    }
    assert [f"{path.name}: {line}" for path, line in submits if not quiet(line)] == []


CONFIGURATION = [ROOT / "conf" / "spark-defaults.conf", ROOT / "conf" / "log4j2.properties"]
