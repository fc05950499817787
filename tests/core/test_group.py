"""Q7: who owns a partition, where it goes on, and which acknowledgements count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core.group import GroupFact, GroupState, counted, floors, join

ORDERS = [("orders", "id-1", 0), ("orders", "id-1", 1)]
P0, P1 = ("id-1", 0), ("id-1", 1)
Acks = dict[tuple[tuple[str, int], int], int]


def joined(
    state: GroupState,
    instance: str,
    incarnation: str,
    acks: Acks | None = None,
    starts: dict[tuple[str, int], int] | None = None,
) -> list[GroupFact]:
    facts = join(state, instance, incarnation, ORDERS, acks or {}, starts or {P0: 0, P1: 0})
    for fact in facts:
        state.replay(fact)
    return facts


def test_first_start() -> None:
    """Q7: a partition that the group never had starts where the options say."""
    state = GroupState()
    facts = joined(state, "a", "a1", starts={P0: 7, P1: 0})
    assert [(f.partition, f.offset, f.epoch_before, f.epoch, f.base_epoch) for f in facts] == [
        (0, 7, 0, 1, 1),
        (1, 0, 0, 1, 1),
    ]
    assert state.position(P0, {}) == 7
    assert state.position(("id-1", 2), {}) is None


def test_rejoin_continues_the_ownership() -> None:
    """Q7: the same instance goes on where it acknowledged, and what it planned before is still its own."""
    state = GroupState()
    joined(state, "a", "a1")
    facts = joined(state, "a", "a2", {(P0, 1): 5})
    assert [(f.offset, f.epoch, f.base_epoch, f.incarnation) for f in facts] == [(5, 2, 1, "a2"), (0, 2, 1, "a2")]
    assert "rejoined" in facts[0].cause


def test_takeover_breaks_the_line() -> None:
    """Q7: another instance begins a new line, also for the first one when it comes back."""
    state = GroupState()
    joined(state, "a", "a1")
    taken = joined(state, "b", "b1", {(P0, 1): 5})
    assert [(f.offset, f.epoch, f.base_epoch) for f in taken] == [(5, 2, 2), (0, 2, 2)]
    assert "took over from a" in taken[0].cause
    back = joined(state, "a", "a2", {(P0, 1): 5, (P0, 2): 9})
    assert [(f.offset, f.epoch, f.base_epoch) for f in back] == [(9, 3, 3), (0, 3, 3)]


def test_acknowledgement_of_an_older_epoch_does_not_count() -> None:
    """Q7: what a fenced process still sends changes nothing."""
    state = GroupState()
    joined(state, "a", "a1")
    joined(state, "b", "b1", {(P0, 1): 5})
    assert state.position(P0, {(P0, 1): 50}) == 5
    assert state.position(P0, {(P0, 1): 50, (P0, 2): 6}) == 6
    assert state.position(P0, {(P0, 3): 99}) == 5


def test_partition_of_a_queue_made_anew_starts_afresh() -> None:
    """Q7: positions belong to the queue's id, not to its name."""
    state = GroupState()
    joined(state, "a", "a1", {(P0, 1): 5})
    facts = join(state, "a", "a2", [("orders", "id-2", 0)], {(P0, 1): 5}, {("id-2", 0): 0})
    assert [(f.queue_id, f.offset, f.epoch) for f in facts] == [("id-2", 0, 1)]


def test_floors_only_rise() -> None:
    """Q8: a floor is the position at that time, is recorded once, and holds for every later owner."""
    state = GroupState()
    joined(state, "a", "a1")
    acks = {(P0, 1): 5}
    facts = floors(state, acks, "id-1")
    assert [(f.kind, f.partition, f.offset) for f in facts] == [("Floor", 0, 5)]
    for fact in facts:
        state.replay(fact)
    assert floors(state, acks, "id-1") == []
    assert floors(state, {(P0, 1): 3}, "id-1") == []
    assert state.position(P0, {}) == 5
    assert floors(state, {(P0, 1): 9}, "id-2") == []


def test_counted() -> None:
    assert counted([(P0, 1, 5), (P0, 1, 3), (P0, 2, 1), (P1, 1, 4)]) == {(P0, 1): 5, (P0, 2): 1, (P1, 1): 4}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from("abc")),
        st.tuples(st.just("ack"), st.integers(0, 1), st.integers(0, 6), st.integers(0, 100)),
        st.tuples(st.just("floor")),
    ),
    max_size=25,
)


@given(steps)
def test_position_never_goes_back(steps: list[tuple]) -> None:
    """Q7, Q8: whatever joins, acknowledges (late or not) and is maintained, no position ever falls."""
    state, acks, facts = GroupState(), {}, []
    joined(state, "a", "0")
    positions = {P0: 0, P1: 0}
    epochs = {P0: 1, P1: 1}
    for number, step in enumerate(steps):
        if step[0] == "join":
            facts = joined(state, step[1], str(number), acks)
            assert [f.epoch for f in facts] == [f.epoch_before + 1 for f in facts]
        elif step[0] == "ack":
            where = ORDERS[step[1]][1:]
            acks[where, step[2]] = max(step[3], acks.get((where, step[2]), 0))
        else:
            for fact in floors(state, acks, "id-1"):
                state.replay(fact)
        for where in (P0, P1):
            position, epoch = state.position(where, acks), state.grants[where].epoch
            assert position is not None and position >= positions[where]
            assert epoch >= epochs[where]
            assert state.grants[where].base_epoch <= epoch
            positions[where], epochs[where] = position, epoch
