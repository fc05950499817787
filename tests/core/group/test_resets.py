"""Positions that a person sets (H4, Q8): they hold, whatever comes late of before."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_partq.core.delivery.member import finished, replayed, same_lineage, start
from spark_partq.core.delivery.offsets import Range
from spark_partq.core.errors import CorruptTableError, GroupActiveError
from spark_partq.core.group import snapshot
from spark_partq.core.group.acks import AckRow, Acks, compacted
from spark_partq.core.group.events import Reset, VoidResets
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.invariants import check
from spark_partq.core.invariants import InvariantError
from tests.core.group.groups import Decided, at


def left() -> Decided:
    """A group that nobody is in any more, which has read 30 of the 40 messages that it was given of partition 0."""
    group = Decided(2)
    group.join("a")
    group.ack(0, 30, delivered=40)
    group.floors()
    group.leave("a")
    return group


def reset(group: Decided, offset: int, number: int | None = None) -> list[GroupFact]:
    return group.do(Reset({at(0): offset}, number or group.state.resets + 1, "somewhere"))


@pytest.mark.parametrize("offset", [0, 10, 30, 35, 50])
def test_a_position_is_set_under_a_new_epoch(offset: int) -> None:
    """Backwards and forwards; the floor follows a step back, and what was delivered stays known."""
    group = left()
    epoch = group.state.partitions[at(0)].epoch
    facts = reset(group, offset)
    assert [fact.kind for fact in facts] == [Kind.OFFSETS_RESET, Kind.POSITION_RESET]
    assert all(fact.cause == "reset to somewhere" for fact in facts)
    assert (facts[1].flow, facts[1].instance) == ("a/0", "a")  # who had it last
    own = group.state.partitions[at(0)]
    assert group.position(0) == group.state.committed_floor(at(0)) == offset
    assert own.epoch == own.lineage_epoch == epoch + 1
    assert group.state.delivered(at(0), group.acks) == max(40, offset)
    assert group.state.handed_out(at(0), group.acks) == offset
    assert group.position(1) == 0 and at(1) not in group.state.reset_epochs  # it was not named
    assert snapshot.from_json(json.loads(json.dumps(snapshot.to_json(group.state)))) == group.state


def test_nothing_of_before_sets_it_back() -> None:
    """H4: neither a late acknowledgement, nor the replay or the next plan of a query with the old checkpoint."""
    group = left()
    old = group.state.partitions[at(0)]
    incarnation = "a1"
    reset(group, 10)
    group.acks.add(AckRow(incarnation, 9, *at(0), old.epoch - 1, 40, 40))
    assert group.position(0) == 10
    group.join("a")  # with the checkpoint of before
    incarnation = group.state.members["a"].incarnation
    own = group.state.partitions[at(0)]
    planned = {at(0): Range(old.epoch - 1, 30, 40)}
    assert (own.start, own.delivered) == (10, 40) and not same_lineage(own, incarnation, old.epoch)
    assert replayed(group.state, group.acks, incarnation, planned, False) == {}
    assert finished(group.state, incarnation, planned) == []
    assert start(group.state, group.acks, incarnation, at(0), planned[at(0)]) == 10


def test_an_active_group_is_not_reset() -> None:
    group = Decided(2)
    group.join("a")
    with pytest.raises(GroupActiveError, match="active: a consume in it"):
        reset(group, 0)
    fact = GroupFact(Kind.POSITION_RESET, "orders", *at(0), 0, 0, 1, 2, 2)
    with pytest.raises(CorruptTableError, match="the partition is Owned"):
        group.state.replay(fact)


def test_one_that_was_void_does_nothing() -> None:
    """Whoever measured what the group has settled has made it void; a later one is made."""
    group = left()
    group.do(VoidResets(1))
    assert group.state.resets == 1 and group.position(0) == 30
    assert reset(group, 0, number=1) == [] and group.do(VoidResets(1)) == []
    assert reset(group, 0, number=2) and group.position(0) == 0


def test_resets_are_counted_beyond_a_deletion() -> None:
    """So the number that a queue knows is never that of a group before."""
    from spark_partq.core.group.events import Delete

    group = left()
    reset(group, 5)
    group.do(Delete())
    assert group.state.resets == 1 and group.state.reset_epochs == {}


def test_what_was_delivered_since_outlives_a_compaction() -> None:
    """Of each partition more may have been delivered before the position was set than since."""
    group = left()
    reset(group, 10)
    group.join("a")
    group.ack(0, 12, delivered=15)
    assert group.state.handed_out(at(0), group.acks) == 15
    rows = [
        AckRow(incarnation, 1, *place, epoch, offset, group.acks.by_epoch[place].get(epoch, 0))
        for (place, epoch, incarnation), offset in group.acks.rows.items()
    ]
    group.acks = Acks.of(compacted(compacted(rows, []), []))
    assert group.state.handed_out(at(0), group.acks) == 15
    assert group.state.delivered(at(0), group.acks) == 40 and group.position(0) == 12


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"offset": 11}, "nobody asked for that"),
        ({"delivered": 39}, "H4: .* delivered is 39 instead of 40"),
        ({"lineage_epoch": 1}, "H4: the lineage of partition 0"),
    ],
)
def test_what_must_hold_of_a_reset(changes: dict[str, int], rule: str) -> None:
    group = left()
    before, event = group.state, Reset({at(0): 10}, 1, "somewhere")
    facts = reset(group, 10)
    facts = [facts[0], replace(facts[1], **changes)]
    after = before.copy()
    for fact in facts:
        after.replay(fact)
    with pytest.raises(InvariantError, match=rule):
        check(before, after, facts, group.acks, [event])
    with pytest.raises(InvariantError, match="nobody asked for that"):
        check(before, group.state, group.facts, group.acks)
