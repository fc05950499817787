"""The README's example runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_partq as partq

README = Path(__file__).parents[2] / "README.md"


def test_ten_lines(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U1, U2: what a newcomer pastes produces and consumes."""
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(partq, "session", lambda app: spark)
    landing = tmp_path / "landing"
    landing.mkdir()
    lines = [f'{{"order_id": "o{i}", "customer": "c{i % 7}", "amount": {i}.5}}' for i in range(100)]
    (landing / "orders.json").write_text("\n".join(lines))
    # relative paths are those of the JVM's working directory for Spark; the example's reader is in its own
    example = re.sub(r'"(landing|billed|store|checkpoints/\w+)"', lambda m: repr(str(tmp_path / m[1])), example)
    before = {query.id for query in spark.streams.active}
    try:
        exec(compile(example, str(README), "exec"), {})  # the document is the program
        produced, consumed = [query for query in spark.streams.active if query.id not in before]
        produced.processAllAvailable()
        consumed.processAllAvailable()
    finally:
        for query in spark.streams.active:
            if query.id not in before:
                query.stop()
    billed = spark.read.format("delta").load(str(tmp_path / "billed"))
    assert {row.order_id for row in billed.collect()} == {f"o{i}" for i in range(100)}
    assert partq.describe_queue(tmp_path / "store", "orders").groups == ("billing",)
