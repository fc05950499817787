"""U1: the section about YARN in docs/clusters.md, on a real resource manager and a real node manager."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import spark_partq as partq
from tests import yarn
from tests.helpers import ROOT, eventually, finished
from tests.howto import section
from tests.yarn import Yarn

pytestmark = pytest.mark.long

PARTS = ("conf", "jobs", "spark_partq")
COLUMNS = "order_id string, customer string, amount double"
ORDERS = [(f"o{n}", f"c{n % 5}", float(n)) for n in range(60)]
Shell = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def cluster(spark: SparkSession, tmp_path: Path) -> Iterator[Yarn]:
    with yarn.running(spark, tmp_path / "yarn") as found:
        yield found


@pytest.fixture
def shell(cluster: Yarn, tmp_path: Path) -> Iterator[Shell]:
    """shell(text) -> process, in a copy of the repository: the section makes an environment in there."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name in PARTS:
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.is_file() and not path.name.startswith("."):
            shutil.copy(path, folder)
    # PYTHONPATH would be passed on to the containers, before what the archive has.
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHONPATH", "SPARK_"))
    }
    env |= {
        "HADOOP_CONF_DIR": str(cluster.configuration),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_SUBMIT_OPTS": cluster.settings,
        "STORE": str(tmp_path / "store"),
        "WORK": str(tmp_path),
    }
    started: list[subprocess.Popen[str]] = []

    def start(text: str) -> subprocess.Popen[str]:
        command = ["bash", "-c", f"set -e\n{text}"]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    shutil.rmtree(folder)


def test_the_section(cluster: Yarn, shell: Shell, spark: SparkSession, tmp_path: Path) -> None:
    """U1, K6: each message is in the result once, though the driver dies: YARN starts it again, and no partition moves."""
    environment, produce, consume = section("clusters.md", "YARN")
    create = section("clusters.md", "Standalone")[0].splitlines()[0]
    submit = environment[environment.index("submit()") :]
    store, billed, landing = (str(tmp_path / name) for name in ("store", "billed", "landing"))

    def add(first: int, last: int) -> None:
        partq.append(spark.createDataFrame(ORDERS[first:last], COLUMNS).coalesce(1), store, "orders")

    def read() -> list[str]:
        found: list[str] = DeltaTable(billed).to_pyarrow_table().column("order_id").to_pylist()
        return sorted(found)

    def await_result(count: int) -> None:
        def there() -> bool:
            return DeltaTable.is_deltatable(billed) and len(read()) >= count

        def over() -> bool:
            return job.poll() is not None or (there() and partq.describe_group(store, "billing").lag == 0)

        eventually(over, f"{count} messages in the result", 900)
        assert job.poll() is None, job.communicate()[0][-4000:]

    def owners() -> list[str | None]:
        return [partition.flow for partition in partq.describe_group(store, "billing").partitions]

    def facts() -> list[str]:
        return [row.kind for row in partq.history(spark, store, group="billing").collect()]

    Path(landing).mkdir()
    rows = [json.dumps({"order_id": order, "customer": who, "amount": amount}) for order, who, amount in ORDERS[:40]]
    Path(landing, "orders.json").write_text("\n".join(rows))
    finished(shell(environment), timeout_s=1200)
    finished(shell(f"PYTHONPATH={ROOT} {create}"))
    finished(shell(f"{submit}\n{produce}"), timeout_s=900)
    job = shell(f"{submit}\n{consume}")
    await_result(40)
    owned, known = owners(), len(facts())
    (driver,) = cluster.drivers()
    processes = driver.children(recursive=True)  # its Python and the planner
    add(40, 50)
    driver.kill()
    _, alive = psutil.wait_procs(processes, timeout=120)
    assert not alive
    add(50, 60)
    await_result(60)
    assert owners() == owned == ["billing-a/0"] * 4
    assert sorted(facts()[known:]) == ["Granted"] * 4 + ["MemberJoined"]  # under a new epoch, to the same flow
    (driver,) = cluster.drivers()
    driver.send_signal(signal.SIGTERM)
    finished(job, timeout_s=180)
    assert read() == sorted(order for order, _, _ in ORDERS)
    first, second = cluster.applications()
    assert [first["finalStatus"], second["finalStatus"]] == ["SUCCEEDED"] * 2
    assert [cluster.attempts(first["id"]), cluster.attempts(second["id"])] == [1, 2]
    said = cluster.said(first["id"]) | cluster.said(second["id"])
    assert any("40 messages written to queue orders" in text for text in said.values())
    assert len(said) >= 4 and not any(" INFO " in text for text in said.values())  # log4j2.properties is in force
