"""The example alerts and the example dashboard in a real Prometheus, with the configuration that docs/monitoring.md gives (R7)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

import spark_partq as partq
from tests.cli.queues import PROGRAM
from tests.groups import Lasting
from tests.helpers import ROOT, eventually, put

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="the programs prometheus and promtool are missing: run apt-get install prometheus",
    ),
]

CONF = ROOT / "conf" / "monitoring"
OF_ALERTS = Path(__file__).with_name("alerts_test.yml")
LEFT, DOWN = ("PartqGroupWithoutLiveMember", "g"), ("PartqExporterDown", "")
# What has no value in the store of these tests.
EMPTY = {'partq_group_held_keys{group=~"$group"}'}


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *map(str, arguments)], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def documented() -> dict[str, Any]:
    """The configuration in the document."""
    text = (ROOT / "docs" / "monitoring.md").read_text()
    (block,) = (block for block in re.findall("```yaml\n(.*?)```", text, re.DOTALL) if "rule_files:" in block)
    found: dict[str, Any] = yaml.safe_load(block)
    return found


def expressions() -> list[str]:
    """Those of the dashboard's panels."""
    panels = json.loads((CONF / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


class Prometheus:
    def __init__(self, address: str) -> None:
        self._address = address

    def is_ready(self) -> bool:
        """It listens before it can answer: then it says 503."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=60):
                return True
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return False

    def ask(self, path: str, **asked: str) -> Any:
        """The data of an answer without an error."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found = json.load(answer)
        assert found["status"] == "success" and not found.get("warnings"), (url, found)
        return found["data"]

    def found(self, expression: str) -> list[Any]:
        """The series of an expression, as the dashboard asks for it with all groups chosen."""
        found: list[Any] = self.ask("query", query=expression.replace("$group", ".*"))["result"]
        return found

    def firing(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The alerts of now by their names and groups."""
        found = [alert for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"]
        return {(alert["labels"]["alertname"], alert["labels"].get("group", "")): alert for alert in found}


class Exporter(NamedTuple):
    process: subprocess.Popen[str]
    address: str


@pytest.fixture
def exporter(store: str) -> Iterator[Exporter]:
    """`spark-partq metrics` of a store where group `g` has read a part of queue `q`, and its last member has left."""
    partq.create_queue(store, "q", "v long", partitions=2, rebalance_delay_ms=0)
    for number in range(2):
        put(store, number, range(5))
    member = Lasting(store, "a")
    member.ack(0, 2)
    member.beat()
    Lasting(store, "b", group="busy").beat()
    member.leave()
    arguments = [*PROGRAM, "--store", store, "metrics", "--port", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            said = re.search("at http://(.*)/metrics", process.stdout.readline())
            assert said is not None
            yield Exporter(process, said[1])
        finally:
            process.terminate()


@pytest.fixture
def prometheus(exporter: Exporter, tmp_path: Path) -> Iterator[Prometheus]:
    """It is configured as documented, but does each second what it does there in minutes."""
    config = documented()
    (job,) = config["scrape_configs"]
    job["scrape_interval"] = "1s"
    job["static_configs"][0]["targets"] = [exporter.address]
    config["global"] = {"evaluation_interval": "1s"}
    for name in config["rule_files"]:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(re.sub(r"for: \d+m", "for: 1s", (ROOT / name).read_text()))
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    promtool("check", "config", file)
    arguments = [
        "prometheus", f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]  # fmt: skip
    # Into a file, as nobody reads on when the address is known, and a pipe would be full.
    log = tmp_path / "prometheus.log"
    with log.open("w") as out, subprocess.Popen(arguments, stderr=out) as process:
        try:
            address = eventually(
                lambda: re.search(r'"Listening on" address=(\S+)', log.read_text()), "an address", timeout_s=60
            )
            found = Prometheus(address[1])
            eventually(found.is_ready, "the end of its start", timeout_s=60)
            yield found
        finally:
            process.terminate()


def test_rules() -> None:
    """Each alert comes when it should and not before, with the texts that it should have."""
    promtool("check", "rules", CONF / "alerts.yml")
    promtool("test", "rules", OF_ALERTS)
    rules = [rule for group in yaml.safe_load((CONF / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
    tried = [case for test in yaml.safe_load(OF_ALERTS.read_text())["tests"] for case in test["alert_rule_test"]]
    for come in (True, False):
        assert {case["alertname"] for case in tried if bool(case.get("exp_alerts")) == come} == {
            rule["alert"] for rule in rules
        }


def test_a_group_without_members(prometheus: Prometheus) -> None:
    """R4: the alert comes for the group that was left, and no other; and nothing is wrong with the rules themselves."""
    alert = eventually(lambda: prometheus.firing().get(LEFT), "the alert")
    assert alert["labels"]["state"] == "Empty" and (LEFT[0], "busy") not in prometheus.firing()
    assert alert["annotations"]["summary"] == "Group g has messages to read, and is Empty"
    (group,) = prometheus.ask("rules")["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}


def test_an_exporter_that_ends(prometheus: Prometheus, exporter: Exporter) -> None:
    """The alerts of its store end with it, and one tells why."""
    eventually(lambda: LEFT in prometheus.firing(), "an alert of the store")
    exporter.process.terminate()
    eventually(lambda: list(prometheus.firing()) == [DOWN], "the alert that takes its place")
    assert prometheus.firing()[DOWN]["labels"]["instance"] == exporter.address


def test_dashboard(prometheus: Prometheus) -> None:
    """Each expression is answered, also by a value, where the store has one."""
    for expression in expressions():
        if expression in EMPTY:
            assert prometheus.found(expression) == []
        else:
            eventually(lambda e=expression: prometheus.found(e), expression)
    assert prometheus.ask("label/group/values", **{"match[]": "partq_group_members"}) == ["busy", "g"]
