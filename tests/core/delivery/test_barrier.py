"""What opens the barrier of a resize where members acknowledge by hand (S5, H5)."""

from __future__ import annotations

import pytest

from spark_partq.core.delivery.barrier import Deliverable, Waits, counted, deliverable, replayable, waiting
from spark_partq.core.delivery.member import DeliveryTracker
from spark_partq.core.delivery.offsets import Range
from spark_partq.core.group.events import Reset
from spark_partq.core.queue.partition_map import Barrier, Generation
from tests.core.group.groups import Decided, at

# 2 → 4: partitions 0 and 2 wait for 0, 1 and 3 for 1. Later messages lie at or above the cuts.
GENERATIONS = [Generation(2, {0: 5, 1: 3, 2: 0, 3: 0}), Generation(4)]


def barrier(settled: dict[int, int] | None = None) -> Barrier:
    return Barrier(GENERATIONS, lambda number: (settled or {}).get(number, 0), {})


def two(manual: bool = True) -> tuple[Decided, str, str]:
    """Member a owns partitions 0 and 1, b has 2 and 3; with their incarnations."""
    group = Decided(4)
    group.join("a", manual=manual)
    group.join("b", manual=manual)
    group.release()
    owners = {number: own.flow for (_, number), own in group.state.partitions.items()}
    assert owners == {0: "a/0", 1: "a/0", 2: "b/0", 3: "b/0"}
    return group, group.state.members["a"].incarnation, group.state.members["b"].incarnation


def test_what_the_process_was_given_counts_at_once() -> None:
    """H5: of what it owns, up to the cut; nothing is let go by that."""
    assert deliverable(barrier(), {0: 5}, {}, 2, 0, 4) == Deliverable(4, {})
    assert deliverable(barrier(), {0: 4}, {}, 2, 0, 4) == Deliverable(0, {})
    assert deliverable(barrier(), {0: 5}, {}, 3, 0, 4) == Deliverable(0, {})
    assert deliverable(barrier(), {0: 5}, {}, 0, 5, 8) == Deliverable(8, {})


def test_what_it_was_given_counts_in_the_lineage_and_after_the_micro_batch() -> None:
    """A range counts once it is recorded, as long as its ownership is unbroken, and only for a member that acknowledges by hand."""
    group, a, b = two()
    tracker = DeliveryTracker()
    epoch = group.state.partitions[at(0)].epoch
    assert tracker.given(group.state, a) == {}
    tracker.record({at(0): Range(epoch, 0, 5)})
    assert tracker.given(group.state, a) == {at(0): 5}
    assert counted(group.state, tracker.given(group.state, a)) == {at(0): 5}
    assert tracker.given(group.state, b) == {}
    tracker.record({at(0): Range(epoch - 1, 0, 5)})
    assert tracker.given(group.state, a) == {}
    by_batch, a, _ = two(manual=False)
    assert counted(by_batch.state, {at(0): 5}) == {}


def test_others_are_waited_for_until_the_time_is_over() -> None:
    """The time runs from when all below the cut was handed out, as this process saw it; never for what is its own."""
    group, a, b = two()
    waits, barriers = Waits(), {"id": barrier()}

    def overdue(incarnation: str, now_ms: int) -> dict[tuple[str, int], int]:
        return waits.overdue(group.state, group.acks, incarnation, barriers, now_ms, 1_000)

    group.ack(0, 2, delivered=4)
    assert overdue(b, 0) == {} == overdue(b, 5_000)
    group.ack(0, 2, delivered=5)
    assert overdue(b, 6_000) == {} == overdue(b, 6_999)
    assert overdue(b, 7_000) == {at(0): 5}
    assert overdue(a, 9_000) == {}
    barriers["id"] = barrier({0: 5})
    assert overdue(b, 9_000) == {}


def test_a_new_owner_is_given_a_new_time() -> None:
    """Its messages come to it again; and nobody's are waited for without one that owns them."""
    group, _, b = two()
    group.ack(0, 0, delivered=5)
    waits, barriers = Waits(), {"id": barrier()}

    def overdue(now_ms: int) -> dict[tuple[str, int], int]:
        return waits.overdue(group.state, group.acks, b, barriers, now_ms, 1_000)

    assert overdue(0) == {} and overdue(1_000) == {at(0): 5}
    group.join("a", manual=True)  # a new process
    assert overdue(1_500) == {} == overdue(2_500)
    ends = {0: 5, 1: 3, 2: 4}
    assert waiting(group.state, group.acks, "id", barrier(), ends)[2] == {0: 5}
    group.ack(0, 0, delivered=5)
    assert overdue(3_000) == {} == overdue(3_999)
    assert overdue(4_000) == {at(0): 5}
    group.leave("a")
    assert overdue(9_000) == {}


def test_members_that_acknowledge_by_micro_batch_are_waited_for() -> None:
    """Nothing changes for them, however long they take."""
    group, _, b = two(manual=False)
    group.ack(0, 0, delivered=5)
    waits = Waits()
    for now_ms in (0, 10**6):
        assert waits.overdue(group.state, group.acks, b, {"id": barrier()}, now_ms, 0) == {}


def test_what_is_let_go_is_told() -> None:
    """Of what is delivered now, and only what was waited for in vain."""
    assert deliverable(barrier(), {}, {0: 5, 1: 3}, 2, 0, 4) == Deliverable(4, {0: 5})
    assert deliverable(barrier(), {0: 5}, {0: 5}, 2, 0, 4) == Deliverable(4, {})
    assert deliverable(barrier(), {}, {0: 5}, 2, 0, 0) == Deliverable(0, {})
    assert deliverable(barrier({0: 5}), {}, {0: 5}, 2, 0, 4) == Deliverable(4, {})


def test_a_replay_ends_at_the_barrier() -> None:
    """What a new process was not given yet it waits for; a range of which nothing is left is not replayed."""
    ranges = {at(0): Range(3, 1, 8), at(1): Range(3, 3, 5), at(2): Range(3, 0, 4)}
    assert replayable({"id": barrier()}, ranges) == {at(0): Range(3, 1, 5)}
    assert replayable({"id": barrier({0: 5, 1: 3})}, ranges) == ranges == replayable({}, ranges)


def test_what_partitions_wait_for() -> None:
    """For people: each partition whose next message waits."""
    group, _, _ = two()
    group.ack(0, 2, delivered=5)
    ends = {0: 9, 1: 9, 2: 4, 3: 0}
    assert waiting(group.state, group.acks, "id", barrier(), ends) == {2: {0: 5}}
    group.ack(1, 0, delivered=3)
    assert waiting(group.state, group.acks, "id", barrier(), {**ends, 3: 1}) == {2: {0: 5}, 3: {1: 3}}
    assert waiting(group.state, group.acks, "id", barrier({0: 5, 1: 3}), ends) == {}


@pytest.mark.parametrize("ends", [{}, {0: 4}, {0: 5}, {0: 5, 1: 3}])
def test_a_barrier_that_counts_more_is_the_barrier_of_those_that_have_settled_it(ends: dict[int, int]) -> None:
    more, settled = barrier().counting(ends), barrier(ends)
    assert (more.missing, more.open_cuts, more.first_open) == (settled.missing, settled.open_cuts, settled.first_open)
    for number in range(4):
        assert more.limit(number, 0, 9) == settled.limit(number, 0, 9)
        waits = more.waits(number, 0, 9)
        assert waits == settled.waits(number, 0, 9) and bool(waits) == (more.limit(number, 0, 9) < 9)


def test_what_came_before_a_reset_is_waited_for() -> None:
    """What was handed out up to the cut comes again when the position is set back; till then its later messages wait."""
    group, _, _ = two()
    group.ack(0, 0, delivered=5)
    group.leave("a")
    group.leave("b")
    group.do(Reset({at(0): 1}, 1, "earliest"))
    group.join("a", manual=True)
    group.join("b", manual=True)
    group.release()
    b, waits = group.state.members["b"].incarnation, Waits()
    assert group.state.partitions[at(0)].flow == "a/0" and group.state.delivered(at(0), group.acks) == 5
    assert waits.overdue(group.state, group.acks, b, {"id": barrier()}, 0, 0) == {}
    assert waiting(group.state, group.acks, "id", barrier(), {0: 5, 2: 4}) == {2: {0: 5}}
    group.ack(0, 1, delivered=5)
    assert waits.overdue(group.state, group.acks, b, {"id": barrier()}, 1, 0) == {at(0): 5}
