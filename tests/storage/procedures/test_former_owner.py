"""A consumer that stood still between its look at the group and the commit of its plan, while another one became the owner."""

from __future__ import annotations

from functools import partial
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.group.events import Leave
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.acknowledge import acknowledge
from spark_partq.storage.store import Store
from tests.helpers import put
from tests.planners import Query

Given = list[tuple[int, int, bool]]


def given(query: Query) -> Given:
    """First and last offset of each piece of its last micro-batch, and whether it is marked."""
    pieces = [piece for task in query.planner.tasks(query.started, query.done) for piece in task]
    return [
        (p.slice.base_offset + p.slice.first_row, p.slice.base_offset + p.slice.last_row, p.redelivered) for p in pieces
    ]


@pytest.mark.parametrize("first", [True, False], ids=["it plans first", "the new owner plans first"])
def test_who_plans_second_marks_what_both_deliver(store: str, first: bool) -> None:
    """H4: a message that comes twice is marked the second time, also for a consumer that does not know yet that it lost the partition."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0, max_handoff_time_ms=0)
    put(store, 0, range(5))
    former, owner = Query(store, "a"), Query(store, "b")
    former.next()
    put(store, 0, range(5, 8))
    commit, others = former.planner.membership.group.acknowledge, list[Given]()

    def taken_over() -> None:
        group = Group(Store(store), "g")
        group.refresh()
        group.decide(lambda: [Leave("a", former.planner.membership.incarnation, expired=True)], "b")
        owner.next()
        others.append(given(owner))

    def stands_still(*rows: object) -> None:
        if first:
            commit(*rows)
            taken_over()
        else:
            taken_over()
            commit(*rows)

    with mock.patch.object(former.planner.membership.group, "acknowledge", stands_still):
        former.next()
    # With its plan the former owner acknowledges the first micro-batch.
    assert others == [[(5, 8, True)] if first else [(0, 5, True), (5, 8, False)]]
    assert given(former) == [(5, 8, not first)]
    owner.leave()


def test_what_it_puts_aside_hides_nothing_of_what_the_new_owner_does(store: str) -> None:
    """H4: its last acknowledgement came too late to count. So what it has finished comes again, and may be dead or too old then."""
    expired = {"message_ttl_column": "v", "expired_messages": "dead_letter", "dead_letter_queue": "dead"}
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0, max_handoff_time_ms=0, **expired)
    for lives_ms in (60_000, 0):
        put(store, 0, [lives_ms])
    former, owner = Query(store, "a"), Query(store, "b")
    assert former.next() == {0: (0, 1)}
    commit = former.planner.membership.group.acknowledge

    def too_late(*rows: object) -> None:
        group = Group(Store(store), "g")
        group.refresh()
        group.decide(lambda: [Leave("a", former.planner.membership.incarnation, expired=True)], "b")
        assert owner.next() == {0: (0, 1)}
        commit(*rows)

    with mock.patch.object(former.planner.membership.group, "acknowledge", too_late):
        former.next()
    owner.leave()
    now_ms, late = Store.now_ms, Query(store, "c")
    with mock.patch.object(Store, "now_ms", lambda self: now_ms(self) + 61_000):
        assert late.next() == {}
    assert [message.payload["v"] for message in partq.dead_letters(store, "q")] == [60_000, 0]
    late.leave()


@pytest.mark.parametrize("counts", [True, False], ids=["refused", "accepted, too late to count"])
def test_an_acknowledgement_by_hand_while_the_session_is_over(store: str, counts: bool) -> None:
    """H5: the messages come again, as whoever is refused is told, though the same query gets the partition back."""
    partq.create_queue(store, "q", "v bigint", partitions=1)  # it is back within the rebalance delay
    put(store, 0, range(5))
    query = Query(store, "a", manual_acknowledgement=True)
    assert query.next() == {0: (0, 5)}
    group = Group(Store(store), "g")
    group.refresh()
    (own,) = group.state.partitions.values()
    acknowledged = partial(acknowledge, Store(store), "g", {("q", 0): 3}, {("q", 0): own.epoch})

    def expire() -> None:
        group.decide(lambda: [Leave("a", query.planner.membership.incarnation, expired=True)], "b")

    if counts:
        expire()
        assert acknowledged() == [("q", 0)]
    else:
        commit = group._control.commit

        def late(*facts: object) -> None:
            assert acknowledged() == []
            commit(*facts)

        with mock.patch.object(group._control, "commit", late):
            expire()
    assert query.next() == {0: (0, 5)}
    assert ("lost", [["q", 0]]) in query.told
    query.leave()
