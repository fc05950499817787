"""What the facts of a group add up to: rebalances, handoffs and how they ended, messages that come again or are left out."""

from __future__ import annotations

import pytest

import spark_partq as partq
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.inspect.fact_counts import FactCounts
from spark_partq.storage.store import Store
from tests.groups import Lasting
from tests.helpers import put
from tests.storage.procedures.test_held_keys import MANY, Producing, Query, make


class Counting:
    """Counts from now on."""

    def __init__(self, store: str) -> None:
        self._group = open_group(Store(store), "g")
        self.counts = FactCounts.since(self._group.state)

    def now(self) -> FactCounts:
        self._group.refresh()
        new = self._group.state.seq - self.counts.seq
        if new:
            self.counts.add(self._group.recent_facts(new))
        return self.counts


@pytest.fixture
def queue(store: str) -> str:
    """Queue `q` of 4 partitions with 10 messages each."""
    partq.create_queue(store, "q", "v long", partitions=4, rebalance_delay_ms=0)
    for number in range(4):
        put(store, number, range(10))
    return store


def test_handoffs(queue: str) -> None:
    """H1, H4: one is released in time; the other's owner had acknowledged 2 of 6 when its time ran out."""
    a = Lasting(queue, "a")
    a.ack(3, 2, delivered=6)
    counting = Counting(queue)
    Lasting(queue, "b")
    assert counting.now().rebalances == 1 and not counting.counts.handoffs
    a.release(2)
    a.force()
    found = counting.now()
    assert (found.handoffs, found.redelivered, found.rebalances) == ({"released": 1, "forced": 1}, 4, 1)
    assert counting.now() is found and found.handoffs.total() == 2  # nothing counts twice


def test_handoffs_that_had_begun_before(queue: str) -> None:
    """Those that it sees end are counted, also if they began before; a receiver that leaves cancels them."""
    a = Lasting(queue, "a")
    b = Lasting(queue, "b")
    counting = Counting(queue)
    a.release(2)
    b.leave()
    found = counting.now()
    assert found.handoffs == {"released": 1, "cancelled": 1} and found.redelivered == 0


def test_what_a_dead_owner_had_comes_again(queue: str) -> None:
    """R4: when it loses them, not when another gets them; and once more if that one loses them, too, whether or not it was given any."""
    a = Lasting(queue, "a")
    a.ack(0, 3, delivered=7)
    a.ack(1, 0, delivered=5)
    counting = Counting(queue)
    a.expire()
    assert counting.now().redelivered == 9
    b = Lasting(queue, "b")
    assert counting.now().redelivered == 9
    b.ack(0, 7)
    b.leave()
    assert counting.now().redelivered == 9 + 5 and counting.counts.rebalances >= 1


def test_a_group_that_is_deleted_goes_on_counting(queue: str) -> None:
    a = Lasting(queue, "a")
    a.ack(0, 0, delivered=5)
    counting = Counting(queue)
    a.leave()
    partq.delete_group(queue, "g")
    b = Lasting(queue, "b")
    b.ack(0, 0, delivered=3)
    b.leave()
    assert counting.now().redelivered == 8


def test_messages_that_are_left_out(store: str) -> None:
    """By reason; and what was delivered with a dead message comes again until it is found."""
    make(store)
    producing = Producing(store)
    producing.put(*MANY)
    query = Query(store, set())
    query.run()
    counting = Counting(store)
    producing.put(("k2", 100), ("k2", 101), ("k3", 102))
    query.deadly.add(100)
    query.run()
    found = counting.now()
    assert found.skipped == {"dead": 1, "held": 1} and found.redelivered > 0


def test_only_new_files_are_read(queue: str) -> None:
    """The cost of counting is that of the facts since, however many there were."""
    a = Lasting(queue, "a")
    for _ in range(40):
        a.start_again()
    counting = Counting(queue)
    group, read = counting._group, []
    disk = group._control._disk
    reading = disk.read
    disk.read = lambda path, version, most=None: (read.append(path), reading(path, version, most))[1]  # type: ignore[method-assign]
    a.start_again()
    counting.now()
    assert len(read) <= 3 and counting.counts.seq == group.state.seq
