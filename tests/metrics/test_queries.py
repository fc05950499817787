"""What a query has done reaches Prometheus with its heartbeats, without anybody asking the query (R7)."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import spark_partq as partq
from spark_partq.core.group.acks import AckRow
from spark_partq.metrics import endpoint
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.store import Store
from tests import queries
from tests.groups import Consumer
from tests.helpers import eventually, put

RACES = 3


@pytest.fixture
def scrape(store: str) -> Iterator[Callable[[str], dict[tuple[str, str], float]]]:
    """The values of a metric of queries, by group and member, as an endpoint serves them."""
    partq.create_queue(store, "q", "v long", partitions=2, rebalance_delay_ms=0)
    with endpoint.serving(Store(store), "127.0.0.1", 0) as port:

        def scraped(name: str) -> dict[tuple[str, str], float]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                families = list(text_string_to_metric_families(answer.read().decode()))
            samples = [s for family in families for s in family.samples if s.name == f"partq_query_{name}_total"]
            return {(s.labels["group"], s.labels["member"]): s.value for s in samples}

        yield scraped
    queries.stop_all()


def test_what_a_query_tells(
    store: str, scrape: Callable[[str], dict[tuple[str, str], float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its planner's calls and their time, also as it goes on and while it is idle, and the races that it lost against another member."""
    rival, turn, races = Consumer(store, "rival", session_timeout_ms=1_000), threading.Lock(), iter(range(RACES))
    rival.beat()
    real = AckTable.append

    def append(
        table: AckTable,
        rows: Sequence[AckRow],
        live: Any = (),
        gone: Any = (),
        before: Callable[[], None] = lambda: None,
    ) -> None:
        def raced() -> None:
            before()
            if table is not rival.group._acks and next(races, None) is not None:
                with turn:
                    rival.beat()

        real(table, rows, live, gone, raced)

    monkeypatch.setattr(AckTable, "append", append)
    began_s, seen = time.monotonic(), list[Any]()
    assert scrape("planner_calls") == {}  # the rival tells nothing, as a query of an older release
    queries.running(store, tmp_path / "cp", seen, group="g", instanceId="a", sessionTimeoutMs=1_000)
    calls = eventually(lambda: scrape("planner_calls").get(("g", "a")), "the first calls")
    for number in range(2):
        put(store, number, range(5))
    eventually(lambda: len(seen) == 10, "the messages")
    eventually(lambda: scrape("planner_calls")["g", "a"] > calls + 3, "more of them")
    eventually(lambda: scrape("commit_retries")["g", "a"] >= RACES, "the races that it lost")
    assert 0 < scrape("planner_seconds")["g", "a"] < time.monotonic() - began_s
    assert set(scrape("commit_retries")) == {("g", "a")}
