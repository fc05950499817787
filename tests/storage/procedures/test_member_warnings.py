"""Queries whose results may be wrong: their log and the description of their group say so."""

from __future__ import annotations

import logging

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.store import Store
from tests.helpers import put

NOTHING = StreamOffset("", "", {}, {})
ANEW, STATEFUL = "began with a fresh checkpoint", "keeps state by key in Spark"


@pytest.fixture
def queue(store: str) -> str:
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    for partition in range(2):
        put(store, partition, range(5))
    return store


def planner(store: str, instance: str) -> Planner:
    return Planner(ConsumerSettings(Store(store), ("q",), instance_id=instance), "g", instance)


def told(store: str, what: str) -> list[str]:
    return [warning for warning in partq.describe_group(store, "g").warnings if what in warning]


def logged(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    found = [record.getMessage() for record in caplog.records if what in record.getMessage()]
    caplog.clear()
    return found


def test_a_fresh_checkpoint(queue: str, caplog: pytest.LogCaptureFixture) -> None:
    """The first query of a group has one, too, and who goes on with its own has none."""
    first = planner(queue, "a")
    with caplog.at_level(logging.WARNING):
        end = first.next(NOTHING, Limits())
        assert end is not None and not logged(caplog, ANEW) and not told(queue, ANEW)
        again = planner(queue, "a")
        again.next(end, Limits())
        assert not logged(caplog, ANEW) and not told(queue, ANEW)
        anew = planner(queue, "a")
        anew.next(StreamOffset("g", "a", {}, {}), Limits())
        (line,) = logged(caplog, ANEW)
        assert line.startswith("group g: query a began") and "partq.delta_sink" in line
        (warning,) = told(queue, ANEW)
        assert warning in line
        anew.membership.refresh()
        planner(queue, "b").next(NOTHING, Limits())
        assert told(queue, ANEW) == [warning.replace("query a", "queries a, b")]
        planner(queue, "a").next(end, Limits())
        assert told(queue, ANEW) == [warning.replace("query a", "query b")]


def test_state_by_key(queue: str, caplog: pytest.LogCaptureFixture) -> None:
    """Who has it loses a partition; who gains that is warned of when it is known to have state, too."""
    first, limits = planner(queue, "a"), Limits()
    with caplog.at_level(logging.WARNING):
        end = first.next(NOTHING, limits)
        assert end is not None
        first.membership.stopping.set()  # so that no other thread acknowledges
        first.membership.batch_finished(end, stateful=True)
        first.next(end, limits)
        assert not logged(caplog, STATEFUL) and not told(queue, STATEFUL)
        second = planner(queue, "b")
        second.next(NOTHING, limits)
        first.next(end, limits)  # releases
        (line,) = logged(caplog, STATEFUL)
        assert line.startswith("group g: query a keeps") and "came to it or went from it: the state" in line
        (warning,) = told(queue, STATEFUL)
        assert "query a" in warning and "of queue q came to it or went from it (once, on " in warning
        for partition in range(2):
            put(queue, partition, range(5))
        planned = second.next(NOTHING, limits)
        assert planned is not None and len(told(queue, STATEFUL)) == 1
        second.membership.batch_finished(planned, stateful=True)
        second.next(planned, limits)
        assert len(told(queue, STATEFUL)) == 2


def test_state_by_key_of_a_queue_in_another_store(queue: str) -> None:
    """One query reads queues of the same names in two stores: each planner hears of both, and only one of them is of this group."""
    query = planner(queue, "a")
    query.next(NOTHING, Limits())
    query.membership.batch_finished(StreamOffset("g", "a", {"q": "of another store"}, {}), stateful=True)
    query.membership.refresh()
    assert not query.membership.group.state.members["a"].stateful
