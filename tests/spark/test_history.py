"""The history of a group as a DataFrame (U3)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import spark_partq as partq
from spark_partq import analysis
from spark_partq.core.group.facts import GroupFact
from spark_partq.storage.group import control
from spark_partq.storage.group.control import COLUMNS, ControlTable
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.group_history import control_log
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import two_partitions
from tests.queries import consume


@pytest.fixture
def queue(store: str) -> str:
    return two_partitions(store, 5)


def test_history(spark: SparkSession, queue: str) -> None:
    """U3, R7: every fact in order, each column of the control table with its type, times in UTC whatever the session's zone."""
    a = Consumer(queue, "a")
    for _ in range(66):  # facts are merged into larger files meanwhile, beside a snapshot that is no fact
        a.start_again()
    found = partq.history(spark, queue, group="g")
    assert [(field.name, field.dataType.simpleString()) for field in found.schema] == [
        (name, {"long": "bigint", "integer": "int"}.get(type_, type_)) for name, type_ in COLUMNS
    ]
    expected = Group(Store.at(queue), "g").history()
    rows = found.select("*", f.unix_micros("at").alias("micros")).collect()
    assert len(rows) == len(expected) > 200
    for row, fact in zip(rows, expected, strict=True):
        values = row.asDict()
        assert values.pop("micros") == round(fact["at"].timestamp() * 1_000_000)
        assert {**values, "at": fact["at"]} == fact
    assert found.where("kind = 'Granted' and partition = 1").count() == 67
    as_pandas = found.toPandas()
    assert len(analysis.ownerships(as_pandas)) == len(analysis.ownerships(analysis.history(queue, "g"))) == 134


def test_history_in_archives(spark: SparkSession, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fact that was decided, whatever kind of file it lies in by now."""
    monkeypatch.setattr(control, "MERGE_AFTER", 3)
    monkeypatch.setattr(control, "ARCHIVE_AFTER", 3)
    decided: list[GroupFact] = []
    commit = ControlTable.commit

    def recorded(table: ControlTable, facts: Sequence[GroupFact]) -> None:
        commit(table, facts)
        decided.extend(facts)

    monkeypatch.setattr(ControlTable, "commit", recorded)
    a = Consumer(queue, "a")
    for _ in range(30):
        a.start_again()
    files = Counter(control.kind_of(path) for path in control_log(Store.at(queue), "g").snapshot.files)
    assert files[control.ARCHIVE] > 1 and files[control.HISTORY] and files[control.FACTS]
    rows = [row.asDict() for row in partq.history(spark, queue, group="g").collect()]
    assert [row.pop("seq") for row in rows] == list(range(len(decided)))
    assert all(row.pop("at") for row in rows)
    assert [GroupFact(**row) for row in rows] == decided


def test_statuses(spark: SparkSession, queue: str) -> None:
    """R7: a user reads when the group was what."""
    partq.alter_queue(queue, "q", rebalance_delay_ms=3_600_000)
    a, b = Consumer(queue, "a"), Consumer(queue, "b")
    b.end_holddown()
    a.release()
    changes = partq.history(spark, queue, group="g").where("kind = 'StatusChanged'").orderBy("seq").collect()
    assert [row.status for row in changes][-3:] == ["Holddown", "Rebalancing", "Ready"]
    times = [row["at"] for row in changes]
    assert times == sorted(times) and changes[-1].cause


def test_history_of_a_real_run(queue: str, tmp_path: Path) -> None:
    """U3, K8: what a query did can be told from the group's tables alone, after it has ended."""
    consume(queue, tmp_path / "checkpoint", group="g", instanceId="i", flows=2, sessionTimeoutMs=500)
    facts = analysis.history(queue, "g")
    owned = analysis.ownerships(facts)
    assert sorted(owned["flow"]) == ["i/0", "i/1"]
    positions = analysis.positions(facts, analysis.acknowledgements(queue, "g"))
    assert positions.groupby("partition")["position"].last().to_dict() == {0: 5, 1: 5}
    found = partq.describe_group(queue, "g")
    assert found.lag == 0
    assert json.loads(facts[facts["kind"] == "MemberJoined"]["body"].iloc[0])["session_timeout_ms"] == 500


def test_refused(spark: SparkSession, queue: str, tmp_path: Path) -> None:
    with pytest.raises(partq.GroupNotFoundError, match="'g'"):
        partq.history(spark, queue, group="g")
    with pytest.raises(partq.NotAStoreError):
        partq.history(spark, tmp_path, group="g")
