"""What is built from the sources, installed where nothing else of the project is: it runs, and its types are known (U1)."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.core.format import RELEASE
from tests.core.test_documents import section
from tests.helpers import ROOT, finished
from tests.spark.test_readme import ORDER, THREE, code

PYRIGHT = "1.1.414"
ALONE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # which may lead to these sources
VERSION = RELEASE.removeprefix("spark_partq ")


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=ALONE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(sources: Path, folder: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution."""
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=sources)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return built(ROOT, tmp_path_factory.mktemp("dist"))


def environment(folder: Path) -> Path:
    """The Python of a new one, which has nothing."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", *what, cwd=ROOT)


@pytest.fixture(scope="module")
def python(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment that has the wheel, and sees the packages of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    found = environment(folder)
    install(found, "--no-index", "--no-deps", distributions[0])
    (site,) = folder.glob("lib/python*/site-packages")
    # Packages are looked up there; what is installed there as an editable project is not.
    (site / "dependencies.pth").write_text(str(Path(pytest.__file__).parents[1]))
    return found


@pytest.fixture(scope="module")
def locked(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment that has the wheel and what `requirements.lock` names, and nothing else, as on a cluster."""
    found = environment(tmp_path_factory.mktemp("locked"))
    install(found, "--require-hashes", "-r", "requirements.lock")
    install(found, "--no-index", "--no-deps", distributions[0])
    return found


def test_a_wheel_has_the_package_alone(distributions: tuple[Path, Path]) -> None:
    wheel, sources = distributions
    names = zipfile.ZipFile(wheel).namelist()
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "spark_partq").rglob("*.py")}
    page = {str(path.relative_to(ROOT)) for path in (ROOT / "spark_partq/console/page").iterdir()}  # what browsers load
    assert modules | page | {"spark_partq/py.typed", "pyspark_partq.py"} == {n for n in names if ".dist-info/" not in n}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert wheel.name.startswith(f"spark_partq-{VERSION}-") and sources.name == f"spark_partq-{VERSION}.tar.gz"


def test_the_sources_are_enough_to_build_it(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(distributions[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    wheel, _ = built(tmp_path / f"spark_partq-{VERSION}", tmp_path)
    assert sorted(zipfile.ZipFile(wheel).namelist()) == sorted(zipfile.ZipFile(distributions[0]).namelist())


def test_the_command_runs(python: Path, tmp_path: Path) -> None:
    command = python.parent / "spark-partq"
    assert VERSION in run(command, "--version", cwd=tmp_path)
    run(
        command,
        "--store",
        "queues",
        "create-queue",
        "orders",
        "--schema",
        "k string",
        "--key",
        "k",
        "--partitions",
        "2",
        cwd=tmp_path,
    )
    assert "orders" in run(command, "--store", "queues", "list", cwd=tmp_path)
    where = run(python, "-c", "import spark_partq; print(spark_partq.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(python.parents[1])


TYPED = """
import spark_partq as partq

store = partq.Store.at("queues")
count: int = partq.describe_queue(store, "orders").configured_partitions
reveal_type(partq.describe_group("queues", "g").members)
partq.scale("queues", "orders", "many")
"""


@pytest.mark.long
def test_types_are_known(python: Path, tmp_path: Path) -> None:
    """A checker of types sees those of the package, and finds what is wrong in a program that uses it."""
    (tmp_path / "program.py").write_text(TYPED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "program.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1 and 'expected "int"' in errors[0], done.stdout
    assert "MemberDescription" in done.stdout


@pytest.mark.long
def test_pyright_knows_them_too(python: Path, tmp_path: Path) -> None:
    """The examples of the documents are right, and a wrong call is found. Node's npm fetches pyright."""
    assert shutil.which("npm"), "install Node.js with npm, as Debian's package npm does"
    run(
        "npm",
        "install",
        "--silent",
        "--no-fund",
        "--no-audit",
        "--prefix",
        tmp_path,
        f"pyright@{PYRIGHT}",
        cwd=tmp_path,
    )
    examples = {"readme.py": code("README.md"), "quickstart.py": code("docs/quickstart.md"), "program.py": TYPED}
    for name, text in examples.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [tmp_path / "node_modules" / ".bin" / "pyright", "--outputjson", "--pythonpath", python, *examples],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = json.loads(done.stdout)["generalDiagnostics"]
    (error,) = [one for one in told if one["severity"] != "information"]
    assert Path(error["file"]).name == "program.py" and error["rule"] == "reportArgumentType"
    assert any("MemberDescription" in one["message"] for one in told)


def test_the_supported_versions_are_those_that_it_asks_for() -> None:
    document, lock = ((ROOT / name).read_text() for name in ("docs/upgrading.md", "requirements.lock"))
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]+) \| ([^|]+) \|$", document, re.MULTILINE)
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert len(rows) == 6
    for name, supported, tested in rows:
        numbers = re.fullmatch(r"([\d.]+)( and newer)?(?:, below (\d+))?", supported)
        assert numbers is not None
        least, newer, below = numbers.groups()
        assert f"{name}{'>=' if newer else '=='}{least}{f',<{below}' if below else ''}" in asked
        assert f"\n{name}=={tested} " in lock


def the_ten_lines(python: Path, folder: Path) -> None:
    """The README's example, twice, in an empty folder."""
    program = folder / "example.py"
    program.write_text(code("README.md") * 2)
    process = subprocess.Popen(
        [python, program], cwd=folder, env=ALONE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert sorted(re.findall(ORDER, finished(process))) == sorted(THREE * 3)


@pytest.mark.long
def test_the_ten_lines_run(python: Path, tmp_path: Path) -> None:
    the_ten_lines(python, tmp_path)


@pytest.mark.long
def test_the_locked_versions_are_enough(locked: Path, tmp_path: Path) -> None:
    """U1: the README's example, then its commands, where nothing but the locked versions is installed."""
    installed = json.loads(run(sys.executable, "-m", "pip", "--python", locked, "list", "--format=json", cwd=tmp_path))
    lock = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert {one["name"].lower().replace("_", "-") for one in installed} == {*lock, "spark-partq"}
    the_ten_lines(locked, tmp_path)
    told = re.findall(
        r"^    spark-partq ([^#\n]*)", section((ROOT / "README.md").read_text(), "From the shell"), re.MULTILINE
    )
    metrics = told.pop()
    for line in told:
        run(locked.parent / "spark-partq", *shlex.split(line.replace(" --watch", "")), cwd=tmp_path)
    settings = partq.describe_queue(tmp_path / "store", "orders").settings
    assert len(told) > 7 and settings["max_handoff_time_ms"] == 10_000
    refused = subprocess.run(
        [locked.parent / "spark-partq", *shlex.split(metrics)],
        cwd=tmp_path, env=ALONE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 1 and "pip install 'spark_partq[metrics]'" in refused.stderr
