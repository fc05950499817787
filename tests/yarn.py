"""YARN on this machine: a resource manager and one node manager, whose JARs Spark fetches by name."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import psutil
import pyspark
from pyspark.sql import SparkSession

from benchmarks.maven import jars, java
from tests.helpers import eventually
from tests.jvm import QUICK, SMALL
from tests.processes import kill_with_children
from tools.ports import free_ports

_JARS = Path(pyspark.__file__).parent / "jars"
(_VERSION,) = [path.stem.rpartition("-")[2] for path in _JARS.glob("hadoop-client-api-*.jar")]
_DAEMONS = f"org.apache.hadoop:hadoop-client-minicluster:{_VERSION}"
_KEYS = "org.bouncycastle:bcpkix-jdk18on:1.82"  # the resource manager does not start without it, and nothing brings it
_SERVER = "org.apache.hadoop.yarn.server"
_DRIVER = "org.apache.spark.deploy.yarn.ApplicationMaster"
_ADDRESSES = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
_LOG = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass
class Yarn:
    configuration: Path  # for HADOOP_CONF_DIR
    _logs: Path
    _web: str
    _node: subprocess.Popen[bytes]

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self._web}/ws/v1/cluster/{path}", timeout=30) as answer:
            return json.load(answer)

    def applications(self) -> list[dict[str, Any]]:
        """As the resource manager describes them, oldest first."""
        found = (self.ask("apps")["apps"] or {}).get("app", [])
        return sorted(found, key=lambda application: str(application["id"]))

    def attempts(self, application: str) -> int:
        """How often the driver of an application was started."""
        return len(self.ask(f"apps/{application}/appattempts")["appAttempts"]["appAttempt"])

    def said(self, application: str) -> dict[str, str]:
        """What each container of an application wrote to stderr, by its name."""
        return {path.parent.name: path.read_text() for path in self._logs.glob(f"{application}/*/stderr")}

    def drivers(self) -> list[psutil.Process]:
        """The JVMs of the drivers that run; each has its Python as a child."""
        return [p for p in psutil.Process(self._node.pid).children(recursive=True) if _is_driver(p)]

    @property
    def settings(self) -> str:
        """For SPARK_SUBMIT_OPTS: Spark is not copied into each container, and there are few of those, which start fast."""
        small = {name: value for name, value in SMALL.items() if not name.startswith("spark.driver.")}
        given = small | {
            "spark.yarn.jars": f"local:{_JARS}/*",
            "spark.yarn.stagingDir": f"file:{self.configuration.parent}",
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executor.instances": "1",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.driver.extraJavaOptions": QUICK,
        }
        return " ".join([QUICK, *(shlex.quote(f"-D{name}={value}") for name, value in given.items())])


def _is_driver(process: psutil.Process) -> bool:
    try:
        command = process.cmdline()
    except psutil.Error:
        return False
    return _DRIVER in command and Path(command[0]).name == "java"


@contextmanager
def running(spark: SparkSession, folder: Path) -> Iterator[Yarn]:
    """Start both on loopback; whatever they started is ended with them."""
    folder.mkdir()
    configuration = folder / "configuration"
    addresses = dict(zip(_ADDRESSES, (f"127.0.0.1:{port}" for port in free_ports(len(_ADDRESSES))), strict=True))
    _configure(configuration, folder, addresses)
    (folder / "log4j2.properties").write_text(_LOG)
    classpath = [str(configuration), *jars(spark, _DAEMONS, transitive=False), *jars(spark, _KEYS), f"{_JARS}/*"]
    command = [java(), *QUICK.split(), "-Xmx256m", f"-Dlog4j2.configurationFile=file:{folder}/log4j2.properties"]
    command += ["-cp", os.pathsep.join(classpath)]
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        with (folder / f"{name.rpartition('.')[2]}.log").open("wb") as out:
            process = subprocess.Popen(
                [*command, f"{_SERVER}.{name}"], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder
            )
        started.append(process)
        return process

    try:
        start("resourcemanager.ResourceManager")
        yarn = Yarn(configuration, folder / "logs", addresses["webapp.address"], start("nodemanager.NodeManager"))

        def ready() -> bool:
            for process in started:
                assert process.poll() is None, "\n".join(log.read_text()[-3000:] for log in folder.glob("*.log"))
            try:
                nodes = yarn.ask("nodes")["nodes"] or {}
            except OSError:
                return False
            return [node["state"] for node in nodes.get("node", [])] == ["RUNNING"]

        eventually(ready, "a node that the resource manager knows", every_s=0.2)
        yield yarn
    finally:
        kill_with_children(reversed(started))
        shutil.rmtree(folder / "local", ignore_errors=True)  # copies of the archive, each unpacked


def _configure(configuration: Path, folder: Path, addresses: Mapping[str, str]) -> None:
    configuration.mkdir()
    site = {
        **{f"yarn.resourcemanager.{name}": address for name, address in addresses.items()},
        "yarn.resourcemanager.am.max-attempts": "4",
        "yarn.nodemanager.hostname": "127.0.0.1",
        **{
            f"yarn.nodemanager.{name}": "127.0.0.1:0"
            for name in ("address", "localizer.address", "collector-service.address", "webapp.address")
        },
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.resource.memory-mb": "6144",
        "yarn.scheduler.minimum-allocation-mb": "128",
        # A disk of a machine that tests is often full enough for a node to be called unhealthy.
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
    }
    scheduler = {
        "yarn.scheduler.capacity.root.queues": "default",
        "yarn.scheduler.capacity.root.default.capacity": "100",
        "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
    }
    files = {"core-site": {"fs.defaultFS": "file:///"}, "yarn-site": site, "capacity-scheduler": scheduler}
    for name, values in files.items():
        lines = [f"<property><name>{n}</name><value>{escape(v)}</value></property>" for n, v in values.items()]
        text = "\n".join(["<configuration>", *lines, "</configuration>", ""])
        (configuration / f"{name}.xml").write_text(text)
