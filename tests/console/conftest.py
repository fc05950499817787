"""A store with a queue that two clients read, and a console that shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import spark_partq as partq
from tests.console import large as large_store
from tests.console.served import Served, console
from tests.groups import Consumer, Lasting
from tests.helpers import put


@pytest.fixture
def first(store: str) -> Consumer:
    """Client `a` of group `g`; queue `q` has 4 partitions with 10 messages each, of which it has read 3 of partition 0."""
    return begun(store)


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A console of such a store, for tests that change nothing."""
    store = str(tmp_path_factory.mktemp("still") / "store")
    begun(store)
    with console(store) as found:
        yield found


def begun(store: str) -> Consumer:
    partq.create_queue(store, "q", "v long", partitions=4, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    for number in range(4):
        put(store, number, range(10))
    member = Lasting(store, "a", 2)
    member.ack(0, 3, delivered=5)
    return member


@pytest.fixture
def served(store: str, first: Consumer) -> Iterator[Served]:
    with console(store) as found:
        yield found


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with 1,024 partitions and 100,000 facts, for tests that change nothing."""
    store = str(tmp_path_factory.mktemp("large") / "store")
    large_store.make(store)
    return store
