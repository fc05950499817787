"""Dead messages in a queue that is used as any other: whatever is done with it, what nobody has put back stays (S2, S3, S6)."""

from __future__ import annotations

import pytest

import spark_partq as partq
from spark_partq.core.errors import IngressDisabledError, InvalidArgumentError
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from tests.groups import Lasting
from tests.helpers import eventually, opened, put
from tests.storage.procedures.test_dead_letters import Query, dead

DEAD = 30


def test_a_reset_in_an_exclusive_queue_that_becomes_partitioned_and_exclusive_again(store: str) -> None:
    """H4, S6: the group reads its messages again, so one that dies again goes to the dead-message queue again."""
    settings = {"key": "v", "rebalance_delay_ms": 0, "dead_letter_queue": "dead", "max_deliveries": 2}
    partq.create_queue(store, "q", "v bigint", partitions=0, min_retention_ms=3_600_000, **settings)
    put(store, -1, range(20))

    def read(deadly: set[int]) -> list[int]:
        query = Query(store, deadly, session_timeout_ms=500)
        while not query.run():
            assert query.starts < 30
        query.planner.leave()
        return sorted(query.done)

    assert read({12}) == [v for v in range(20) if v != 12]
    eventually(lambda: partq.reset_offsets(store, "g", "earliest") or True, "the reset")
    for count in (2, 0):
        partq.scale(store, "q", count)
    assert read({5, 12}) == [v for v in range(20) if v not in (5, 12)]
    assert sorted(value for value, _, _ in dead(store)) == [5, 12, 12]


def made(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, dead_letter_queue="dead", rebalance_delay_ms=0)
    put(store, 0, range(DEAD))


def put_aside(store: str, start: int = 0, end: int = DEAD) -> None:
    found = opened(store)
    DeadLetters(found.store, "dead", "g").send(found, found.table(0), 1, DeadMessages(start, end, "dead", 1))


def read_by_a_group(store: str) -> None:
    """All that is in the dead-message queue, as by an archive."""
    reader = Lasting(store, "a", group="archive", queues=("dead",))
    for table in opened(store, "dead").partitions:
        reader.ack(table.partition, table.next_offset, queue="dead")


def put_back(store: str) -> list[int]:
    """What comes back, by its value."""
    before = opened(store).table(0).next_offset
    partq.redrive(store, "q")
    table = opened(store).table(0)
    assert table.next_offset >= before
    return [m.payload["v"] for m in partq.dead_letters(store, "q") if m.redriven]


@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 3), (0, 2)])
def test_a_resize_removes_none(store: str, before: int, after: int) -> None:
    """Also if a group has read them all; and maintenance removes none of the partitions that go, or of the parent."""
    made(store)
    partq.scale(store, "dead", before, timeout_s=60) if before != 1 else None
    put_aside(store)
    read_by_a_group(store)
    partq.scale(store, "dead", after, timeout_s=60)
    for _ in range(2):
        partq.maintain(store, "dead")
    assert partq.describe_queue(store, "dead").lost == partq.describe_queue(store, "dead").stuck == 0
    assert sorted(put_back(store)) == list(range(DEAD))
    assert partq.redrive(store, "q") == {}


def test_what_is_lost_with_delete_is_asked_for(store: str) -> None:
    made(store)
    partq.scale(store, "dead", 3, timeout_s=60)
    put_aside(store)
    read_by_a_group(store)
    going = sum(p.next_offset for p in partq.describe_queue(store, "dead").partitions if p.partition > 0)
    with pytest.raises(InvalidArgumentError, match=f"would lose {going} messages"):
        partq.scale(store, "dead", 1, "delete")


def test_what_is_in_the_parent_is_not_copied(store: str) -> None:
    """It is put back from there; a copy would be put back once more."""
    made(store)
    partq.scale(store, "dead", 0, timeout_s=60)
    put_aside(store)
    assert sorted(put_back(store)) == list(range(DEAD))
    partq.scale(store, "dead", 2, timeout_s=60)
    with pytest.raises(InvalidArgumentError, match="redrive also puts back those in its parent"):
        partq.copy_stuck(store, "dead")
    assert partq.redrive(store, "q") == {}


@pytest.mark.parametrize("setting", ["on", "off"])
def test_none_is_discarded(store: str, setting: str) -> None:
    """S3: else the history would say that it is there."""
    made(store)
    partq.alter_queue(store, "dead", reject_to_sender=setting)
    partq.set_ingress(store, "dead", False)
    with pytest.raises(IngressDisabledError):
        put_aside(store)
    assert partq.describe_queue(store, "dead").discarded == 0
    partq.set_ingress(store, "dead", True)
    put_aside(store)
    assert len(put_back(store)) == DEAD


def test_a_key_of_its_own_keeps_no_order(store: str) -> None:
    """Two queues may share a dead-message queue, but not if its key is another one and the order of each key is to be kept."""
    partq.create_queue(store, "a", "k string, j string", key="k", dead_letter_queue="dead")
    partq.create_queue(store, "b", "k string, j string", key="j", dead_letter_queue="dead")
    with pytest.raises(InvalidArgumentError, match=r"places them by another key \(k\) than queue 'c' \(j\)"):
        partq.create_queue(
            store, "c", "k string, j string", key="j", dead_letter_queue="dead", dead_letter_order="hold",
            max_deliveries=3,
        )  # fmt: skip
    assert "c" not in partq.list_queues(store)
    with pytest.raises(InvalidArgumentError, match="another key"):
        partq.alter_queue(store, "b", dead_letter_order="hold", max_deliveries=3)
    assert partq.alter_queue(store, "a", dead_letter_order="hold", max_deliveries=3).settings["max_deliveries"] == 3
