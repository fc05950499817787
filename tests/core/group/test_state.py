"""The state of a group: what each fact does to it, what counts as acknowledged, and its snapshots."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_partq.core import stored
from spark_partq.core.errors import CorruptTableError
from spark_partq.core.group import snapshot
from spark_partq.core.group.acks import AckRow, Acks, compacted
from spark_partq.core.group.facts import GroupFact, Kind, PartitionState
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.transitions import STATUS_TRANSITIONS, TRANSITIONS
from spark_partq.core.ids import instance_of
from tests.core.group.groups import Decided, at


def drains() -> Decided:
    """Two members; partition 1 drains from a to b."""
    group = Decided(2)
    group.join("a")
    group.join("b")
    return group


# ---- replay
@pytest.mark.parametrize("kind", list(TRANSITIONS))
@pytest.mark.parametrize("held", list(PartitionState))
def test_only_the_declared_transitions_happen(kind: Kind, held: PartitionState) -> None:
    """W2: a fact that cannot follow what went before is refused."""
    group = drains()
    partition_id = {
        PartitionState.UNKNOWN: at(7),
        PartitionState.OWNED: at(0),
        PartitionState.DRAINING: at(1),
        PartitionState.UNASSIGNED: at(1),
    }[held]
    if held is PartitionState.UNASSIGNED:
        group.leave("b")
        group.leave("a")
    state = group.state
    own = state.partitions.get(partition_id)
    epoch = own.epoch if own else 0
    fact = GroupFact(
        kind, "orders", *partition_id, offset=0, delivered=1, epoch_before=epoch, epoch=epoch + 1, lineage_epoch=1, flow="a/0",
        to_flow="b/0", incarnation="x",
    )  # fmt: skip
    assert state.partition_state(partition_id) is held
    allowed = dict(TRANSITIONS[kind])
    if held in allowed:
        state.replay(fact)
        assert state.partition_state(partition_id) is allowed[held]
    else:
        with pytest.raises(CorruptTableError, match=r"CORRUPT_TABLE.*partition"):
            state.replay(fact)


def test_of_a_queue_that_is_gone_nothing_is_left() -> None:
    """Not even which of its keys are held: one of that name may come again."""
    group = Decided(2)
    group.join("a")
    state = group.state
    state.held = {"id": frozenset({7}), "another": frozenset({8})}
    state.floors = {at(0): 3, ("another", 0): 4}
    state.removed = {at(5): (2, 10), ("another", 5): (3, 20)}
    state.replay(GroupFact(Kind.QUEUE_REMOVED, "orders", "id"))
    assert (state.queues, state.partitions, state.held) == ({}, {}, {"another": frozenset({8})})
    assert state.floors == {("another", 0): 4} and state.removed == {("another", 5): (3, 20)}


@pytest.mark.parametrize(("partitions", "taken"), [(4096, True), (4097, False)])
def test_a_queue_of_more_partitions_than_any_has(partitions: int, taken: bool) -> None:
    """Bad input: an edited fact does not make every process count to a billion."""
    group = Decided(2)
    group.join("a")
    body = json.dumps({"partitions": partitions, "rebalance_delay_ms": 1, "max_handoff_time_ms": 1})
    fact = GroupFact(Kind.QUEUE_ADDED, "others", "other", body=body)
    if taken:
        group.state.replay(fact)
        assert group.state.queues["other"].partitions == partitions
    else:
        with pytest.raises(CorruptTableError, match="partitions is 4097"):
            group.state.replay(fact)


@pytest.mark.parametrize(("flows", "taken"), [(stored.MAX_FLOWS, True), (stored.MAX_FLOWS + 1, False)])
def test_a_member_of_more_flows_than_any_has(flows: int, taken: bool) -> None:
    """Bad input: an edited fact does not make every process name a billion flows."""
    group = Decided(2)
    joined = next(fact for fact in group.join("a") if fact.kind == Kind.MEMBER_JOINED)
    fact = replace(joined, instance="b", incarnation="b1", flows=flows)
    if taken:
        group.state.replay(fact)
        assert len(group.state.members["b"].flow_names) == flows
    else:
        with pytest.raises(CorruptTableError, match=f"flows is {flows}"):
            group.state.replay(fact)


@pytest.mark.parametrize(
    "fact",
    [
        GroupFact("Nonsense"),
        GroupFact(Kind.STATUS_CHANGED, status="Resting"),
        GroupFact(Kind.STATUS_CHANGED, status="Holddown"),  # from Holddown
        GroupFact(Kind.MEMBER_LEFT, instance="nobody"),
        GroupFact(Kind.MEMBER_JOINED, instance="c", incarnation="c1", flows=1, body="{}"),
        GroupFact(Kind.QUEUE_REMOVED, "others", "other"),
        GroupFact(Kind.GRANTED, "orders", *at(0), offset=0, delivered=0, epoch_before=7, epoch=8, flow="a/0"),
        GroupFact(Kind.GRANTED, "orders", *at(0), offset=0, delivered=0, epoch_before=1, epoch=1, flow="a/0"),
        GroupFact(Kind.GRANTED, "orders", *at(0), epoch_before=1, epoch=2, flow="a/0"),
    ],
    ids=str,
)
def test_a_table_that_was_edited(fact: GroupFact) -> None:
    """It is named, with the number of the fact."""
    group = Decided(2, 1_000)
    group.join("a")
    group.join("b")
    with pytest.raises(CorruptTableError) as caught:
        group.state.replay(fact)
    assert caught.value.params["seq"] == str(group.state.seq)


# ---- positions
def test_who_may_acknowledge() -> None:
    """W2: the owner's incarnation under the current epoch; nobody else moves the position."""
    group = Decided(1)
    group.join("a")
    own = group.state.partitions[at(0)]
    for incarnation, epoch in (("twin", own.epoch), (own.incarnation, own.epoch - 1), (own.incarnation, own.epoch + 1)):
        group.acks.add(AckRow(incarnation, 1, *at(0), epoch, 9, 9))
    assert group.position(0) == 0
    group.ack(0, 4)
    assert group.position(0) == 4
    group.leave("a")
    group.acks.add(AckRow(own.incarnation, 2, *at(0), own.epoch, 8, 8))
    assert group.position(0) == 4


def test_what_was_handed_out_is_marked_whoever_did_it() -> None:
    """H4: also what a process of an older epoch was given after its time."""
    group = Decided(1)
    group.join("a")
    group.acks.add(AckRow("zombie", 1, *at(0), 0, 0, 6))
    group.join("a")
    assert group.state.partitions[at(0)].delivered == 6
    assert group.position(0) == 0


def test_asking_about_a_partition_that_is_not_there() -> None:
    group = Decided(1)
    assert group.state.position(at(5), group.acks) is None
    assert group.state.partition_state(at(5)) is PartitionState.UNKNOWN
    assert instance_of("billing-a/12") == "billing-a"


# ---- acknowledgements
ROWS = st.lists(
    st.builds(
        AckRow,
        st.sampled_from(["x", "y"]),
        st.integers(1, 5),
        st.just("q"),
        st.integers(0, 1),
        st.integers(1, 3),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    max_size=12,
)


@given(ROWS, st.randoms(use_true_random=False), st.integers(0, 12))
def test_compaction_changes_nothing_that_counts(rows: list[AckRow], rng: object, cut: int) -> None:
    """In any order, any number of times, at any moment."""
    whole = Acks.of(rows)
    shuffled = list(rows)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    again = Acks.of([*compacted([*shuffled[:cut], *rows[:3]], ["x", "y"]), *shuffled[cut:]])
    newest = {
        partition_id: max(epoch for w, epoch, _ in whole.rows if w == partition_id) for partition_id, _, _ in whole.rows
    }
    for partition_id, epoch in newest.items():
        for incarnation in "xy":
            assert again.offset(partition_id, epoch, incarnation) == whole.offset(partition_id, epoch, incarnation)
        assert again.delivered(partition_id) == whole.delivered(partition_id)
    assert again.beats == whole.beats


def test_compaction_is_small() -> None:
    """A partition's rows of the highest epoch, and one heartbeat for each member that has none of them."""
    rows = [AckRow(f"i{n % 3}", n, "q", n % 4, n // 10, n, n) for n in range(200)]
    assert len(compacted(rows, ["i0", "i9"])) <= 12


# ---- snapshots
def test_snapshots_are_exact() -> None:
    """A start from a snapshot is the same as one from the first fact."""
    group = drains()
    group.ack(0, 3)
    group.floors()
    group.join("a")  # again: its lineages go on
    assert any(own.lineage_epoch < own.epoch for own in group.state.partitions.values())
    text = json.dumps(snapshot.to_json(group.state))
    again = snapshot.from_json(json.loads(text))
    assert again == group.state
    assert again.flows == ["a/0", "b/0"]
    assert json.dumps(snapshot.to_json(again)) == text


@pytest.mark.parametrize("number", ["status_seq", "assigned_seq", "last_epoch"])
def test_numbers_of_a_snapshot(number: str) -> None:
    """-1 is that there is none yet."""
    plain = snapshot.to_json(drains().state)
    assert getattr(snapshot.from_json({**plain, number: -1}), number) == -1
    with pytest.raises(ValueError, match=number):
        snapshot.from_json({**plain, number: -2})


def test_the_error_of_a_snapshot_names_the_field() -> None:
    plain = snapshot.to_json(drains().state)
    plain["partitions"][0][3] = "nobody/x"
    with pytest.raises(ValueError, match=r"^last_flow is 'nobody/x', which is no flow"):
        snapshot.from_json(plain)
    plain = snapshot.to_json(drains().state)
    plain["basis"]["nobody/x"] = plain["basis"]["a/0"]
    with pytest.raises(ValueError, match=r"^basis is 'nobody/x', which is no flow"):
        snapshot.from_json(plain)


@pytest.mark.parametrize("cause", ["x" * 20_000, None])
def test_a_state_has_a_snapshot_whatever_set_its_status(cause: Any) -> None:
    """The cause may name a thousand queues, and another program may give none; the merged table must be readable all the same."""
    state = drains().state.copy()
    state.replay(GroupFact(Kind.STATUS_CHANGED, status=_next_status(state), cause=cause))
    assert state.trigger == (cause or "")[:10_000]
    assert snapshot.from_json(json.loads(json.dumps(snapshot.to_json(state)))) == state


def _next_status(state: GroupState) -> str:
    return next(to.value for at, to in STATUS_TRANSITIONS if at is state.status)


@pytest.mark.parametrize("kind", stored.MALFORMED)
def test_whatever_a_field_raises_is_one_error(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: GroupFact) -> None:
        raise kind("odd")

    monkeypatch.setattr("spark_partq.core.group.reading.check_columns", refuse)
    with pytest.raises(CorruptTableError, match=r"fact 0 \(GroupCreated\) cannot follow"):
        GroupState().replay(GroupFact(Kind.GROUP_CREATED))


def test_a_copy_is_apart() -> None:
    """What happens to it does not happen to the original."""
    group = drains()
    before = json.dumps(snapshot.to_json(group.state))
    copy = group.state.copy()
    for partition_id in list(copy.partitions):
        copy.partitions[partition_id] = replace(copy.partitions[partition_id], start=99)
    copy.members.clear()
    copy.floors[at(0)] = 3
    del copy.basis["a/0"]
    assert json.dumps(snapshot.to_json(group.state)) == before
