"""What Prometheus is given: the names, the values, and that the documents, the alerts and the dashboard know no others."""

from __future__ import annotations

import datetime as dt
import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest, parser
from prometheus_client.openmetrics import exposition
from prometheus_client.openmetrics import parser as openmetrics_parser

import spark_partq as partq
from spark_partq.metrics import endpoint
from spark_partq.metrics.collector import StoreCollector
from spark_partq.metrics.names import METRICS
from spark_partq.storage.inspect.watch import StoreWatch
from spark_partq.storage.store import Store
from tests.clocks import wall_clock
from tests.groups import Lasting
from tests.helpers import ROOT, put

CONF = ROOT / "conf" / "monitoring"
OF_A_NAME = re.compile(r"\bpartq_[a-z_]+\b")


@pytest.fixture
def queue(store: str) -> str:
    """Queue `q` of 2 partitions with 5 messages each, which group `g` reads."""
    partq.create_queue(store, "q", "v long", partitions=2, rebalance_delay_ms=0)
    for number in range(2):
        put(store, number, range(5))
    Lasting(store, "a").ack(0, 2, delivered=4)
    return store


@pytest.fixture
def registry(queue: str) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(StoreCollector(queue))
    return made


def scraped(registry: CollectorRegistry) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample, by its name and the values of its labels, which are in the order of `METRICS`."""
    labels = {metric.name: metric.labels for metric in METRICS}
    return {
        (s.name, tuple(s.labels[name] for name in labels[s.name])): s.value
        for family in registry.collect()
        for s in family.samples
    }


# ---- values
def test_values(queue: str, registry: CollectorRegistry) -> None:
    """They are those of describe_queue and describe_group."""
    found = scraped(registry)
    expected = {
        ("partq_up", ()): 1,
        ("partq_queue_status", ("q", "Ready")): 1,
        ("partq_queue_status", ("q", "ScalingUp")): 0,
        ("partq_queue_partitions", ("q", "configured")): 2,
        ("partq_queue_ingress_enabled", ("q",)): 1,
        ("partq_queue_appended_messages_total", ("q", "1")): 5,
        ("partq_queue_depth_messages", ("q", "0")): 3,
        ("partq_queue_files", ("q", "0")): 1,
        ("partq_queue_size_bytes", ("q", "0")): partq.describe_queue(queue, "q").partitions[0].size_bytes,
        ("partq_group_state", ("g", "Ready")): 1,
        ("partq_group_state", ("g", "Expired")): 0,
        ("partq_group_members", ("g",)): 1,
        ("partq_group_expired_members", ("g",)): 0,
        ("partq_group_lag_messages", ("g", "q", "0")): 3,
        ("partq_group_position", ("g", "q", "0")): 2,
        ("partq_group_delivered_messages", ("g", "q", "0")): 2,
        ("partq_group_handoffs_in_progress", ("g",)): 0,
        ("partq_group_rebalances_total", ("g",)): 0,
    }
    assert {key: found[key] for key in expected} == expected
    assert 0 <= found["partq_group_heartbeat_age_seconds", ("g", "a")] < 600
    assert 0 < found["partq_group_oldest_message_age_seconds", ("g", "q", "0")] < 600
    assert all(value >= 0 for value in found.values())


def test_a_queue_that_no_member_reads_any_more(queue: str, registry: CollectorRegistry) -> None:
    """K3: the group keeps its position there; no alert shall say that it falls behind."""
    partq.create_queue(queue, "r", "v long", partitions=1)
    put(queue, 0, range(5), queue="r")
    Lasting(queue, "x", group="late", queues=("q", "r")).ack(0, 2, queue="r")
    assert scraped(registry)["partq_group_subscribed", ("late", "r")] == 1
    Lasting(queue, "x", group="late", queues=("q",))
    found = scraped(registry)
    assert [found["partq_group_subscribed", ("late", name)] for name in "qr"] == [1, 0]
    assert [found[f"partq_group_{what}", ("late", "r", "0")] for what in ("position", "lag_messages")] == [2, 3]


def test_a_rebalance_as_it_goes_on(queue: str, registry: CollectorRegistry) -> None:
    """R7: handoffs in progress, then how they ended."""
    scraped(registry)
    Lasting(queue, "b")
    found = scraped(registry)
    assert found["partq_group_handoffs_in_progress", ("g",)] == found["partq_group_state", ("g", "Rebalancing")] == 1
    assert found["partq_group_rebalances_total", ("g",)] == 1
    with wall_clock(dt.datetime.now(dt.UTC) + dt.timedelta(days=1)):
        found = scraped(registry)
    assert found["partq_group_state", ("g", "Expired")] == 1 and found["partq_group_state", ("g", "Rebalancing")] == 0
    assert found["partq_group_expired_members", ("g",)] == 2


def test_a_group_without_members_and_one_that_was_deleted(queue: str, registry: CollectorRegistry) -> None:
    member = Lasting(queue, "x", group="late")
    assert scraped(registry)["partq_group_members", ("late",)] == 1
    member.leave()
    found = scraped(registry)
    assert (
        found["partq_group_state", ("late", "Empty")] == 1
        and found["partq_group_unassigned_partitions", ("late",)] == 2
    )
    partq.delete_group(queue, "late")
    assert not [labels for _, labels in scraped(registry) if "late" in labels]


def test_a_store_that_is_not_there(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """The endpoint goes on answering, and the log says why, once."""
    registry = CollectorRegistry()
    registry.register(StoreCollector(store))
    for _ in range(3):
        found = scraped(registry)
        assert found.pop(("partq_scrape_duration_seconds", ())) >= 0 and found == {("partq_up", ()): 0}
    assert caplog.text.count("NOT_A_STORE") == 1
    partq.create_queue(store, "q", "v long", partitions=1)
    assert scraped(registry)["partq_up", ()] == 1


def test_what_cannot_be_read_is_named(queue: str, registry: CollectorRegistry) -> None:
    scraped(registry)
    for file in (Path(queue) / "groups/g/control/_delta_log").glob("*.json"):
        file.write_text("{")
    partq.create_queue(queue, "other", "v long", partitions=1)
    found = scraped(registry)
    assert found["partq_unreadable", ("group", "g", "CORRUPT_TABLE")] == 1
    assert found["partq_unreadable", ("queue", "q", "CORRUPT_TABLE")] == 1
    assert found["partq_queue_depth_messages", ("other", "0")] == 0


def test_registering_reads_nothing(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreWatch, "look", lambda _: pytest.fail("it was read"))
    CollectorRegistry().register(StoreCollector(store))


def test_scrapes_at_once_come_one_after_the_other(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they keep is used by one thread at a time."""
    inside, most, collector = 0, 0, StoreCollector(queue)
    look, begun = StoreWatch.look, threading.Barrier(4)

    def watched(watch: StoreWatch) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            return look(watch)
        finally:
            inside -= 1

    def scrape() -> None:
        begun.wait()
        list(collector.collect())

    monkeypatch.setattr(StoreWatch, "look", watched)
    threads = [threading.Thread(target=scrape) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


# ---- names
def test_both_formats(queue: str, registry: CollectorRegistry) -> None:
    """Parsers of both read them, and each metric is there with its kind and its help."""
    for text, parse in (
        (generate_latest(registry), parser.text_string_to_metric_families),
        (exposition.generate_latest(registry), openmetrics_parser.text_string_to_metric_families),
    ):
        families = {family.name: family for family in parse(text.decode())}
        for metric in METRICS:
            family = families[metric.family]
            assert (family.type, family.documentation) == (metric.kind, metric.help)
            assert {s.name for s in family.samples} <= {metric.name}
            assert all(set(s.labels) == set(metric.labels) for s in family.samples)


def test_conventions() -> None:
    """Prometheus': a prefix, base units, `_total` for counters and for nothing else, no label that its servers use themselves."""
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch("partq_[a-z]+(_[a-z]+)*", metric.name) and metric.help.endswith(".")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert not {"instance", "job"} & set(metric.labels)
        assert not re.search("_(ms|minutes|kib|mb|ratio|percent)$", metric.family)
        assert "age" not in metric.family.split("_") or metric.unit == "seconds"


def test_every_metric_has_values(queue: str, registry: CollectorRegistry) -> None:
    """But those that need something special have a test of their own."""
    found = {name for name, _ in scraped(registry)}
    special = {"partq_unreadable", "partq_group_held_keys"}
    of_queries = {metric.name for metric in METRICS if metric.name.startswith("partq_query_")}
    assert {metric.name for metric in METRICS} - found == special | of_queries


def test_the_document_lists_them() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    rows = re.findall(r"^\| `(partq_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", text, re.MULTILINE)
    listed = [(name, kind, tuple(re.findall("`([a-z]+)`", labels)), meaning) for name, kind, labels, meaning in rows]
    assert listed == [(m.name, m.kind, m.labels, m.help) for m in METRICS]
    assert set(OF_A_NAME.findall(text)) <= {metric.name for metric in METRICS}


# ---- conf/monitoring
def selectors(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each metric of an expression, with the labels that it is selected by and their values."""
    for name, braces in re.findall(r"\b(partq_[a-z_]+|up)\b(?:\{([^}]*)\})?", expression):
        yield name, dict(re.findall(r'(\w+)=~?"([^"]*)"', braces))


def assert_known(expression: str) -> None:
    known = {metric.name: metric.labels for metric in METRICS} | {"up": ("job", "instance")}  # Prometheus' own
    used = list(selectors(expression))
    assert used, expression
    for name, labels in used:
        assert name in known, expression
        assert set(labels) <= set(known[name]), expression
    grouped = {
        label.strip() for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(",")
    }
    assert all(any(label in known[name] for name, _ in used) for label in grouped), expression
    assert expression.count("(") == expression.count(")")


def alerts() -> list[dict[str, Any]]:
    rules = yaml.safe_load((CONF / "alerts.yml").read_text())
    return [rule for group in rules["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_alerts(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"} and rule["annotations"]["summary"]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    assert_known(rule["expr"])
    for text in rule["annotations"].values():
        assert text.count("{{") == text.count("}}")


def test_texts_of_alerts() -> None:
    """What `promtool` expects is what the alerts say now: here without Prometheus, which a machine may lack."""
    told = {rule["alert"]: rule["annotations"].get("description") for rule in alerts()}
    tests = yaml.safe_load(Path(__file__).with_name("alerts_test.yml").read_text())["tests"]
    for case in (case for test in tests for case in test["alert_rule_test"]):
        for alert in case.get("exp_alerts", []):
            text = told[case["alertname"]]
            for label, value in alert["exp_labels"].items():
                text = text and text.replace(f"{{{{ $labels.{label} }}}}", value)
            assert alert["exp_annotations"].get("description") == text


def test_alerts_know_the_states() -> None:
    """What they select by is a value that the label has."""
    text = (CONF / "alerts.yml").read_text()
    assert set(re.findall(r'(?:state|reason|result)=~?"([^"]*)"', text)) == {"Expired|Empty", "dead", "forced"}


def test_dashboard() -> None:
    board = json.loads((CONF / "dashboard.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        for target in panel["targets"]:
            assert_known(target["expr"])
    (variable,) = (v for v in board["templating"]["list"] if v["type"] == "query")
    assert_known(variable["query"])


# ---- over HTTP
@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_the_endpoint(queue: str, accept: str) -> None:
    with endpoint.serving(Store(queue), "127.0.0.1", 0) as port:
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith(accept.partition(";")[0])
            text = answer.read().decode()
        assert 'partq_group_lag_messages{group="g",partition="0",queue="q"} 3.0' in text
        assert text.endswith("# EOF\n") == accept.startswith("application")
        with (
            pytest.raises(partq.InvalidArgumentError, match=f"this process cannot listen on 127.0.0.1, port {port}"),
            endpoint.serving(Store(queue), "127.0.0.1", port),
        ):
            pass
    with pytest.raises(OSError):
        urllib.request.urlopen(asked, timeout=5)
