"""Messages that are given in pieces or not at all: what their group decides, and of whom (dead messages)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_partq.core.group import snapshot
from spark_partq.core.group.events import Isolate, Skip
from spark_partq.core.group.facts import GroupFact, Kind
from tests.core.group.groups import Decided, at


def reading() -> tuple[Decided, str]:
    """A group whose member a has read 10 of the 30 messages that it was given of partition 1; and a's process."""
    group = Decided(2)
    group.join("a")
    group.ack(1, 10, delivered=30)
    return group, group.state.members["a"].incarnation


def test_a_new_lineage_begins_at_the_position() -> None:
    group, incarnation = reading()
    own = group.state.partitions[at(1)]
    (fact,) = group.do(Isolate(at(1), incarnation, "they come again"))
    assert fact == GroupFact(
        Kind.ISOLATED, "orders", *at(1), 10, 30, own.epoch, own.epoch + 1, own.epoch + 1, "a/0",
        instance="a", incarnation=incarnation, by="test",
        cause="they come again",
    )  # fmt: skip
    after = group.state.partitions[at(1)]
    assert (after.start, after.delivered, after.flow, after.incarnation) == (10, 30, "a/0", incarnation)
    assert after.epoch == after.lineage_epoch == own.epoch + 1


@pytest.mark.parametrize(
    ("end", "why", "dead_letter_queue", "cause"),
    [
        (11, "dead", "dead", "1 message from offset 10 on are now in queue 'dead': delivered too often without being acknowledged"),
        (12, "expired", None, "2 messages from offset 10 on are discarded: too old"),
    ],
)  # fmt: skip
def test_a_group_goes_on_behind_what_is_left_out(end: int, why: str, dead_letter_queue: str | None, cause: str) -> None:
    group, incarnation = reading()
    epoch = group.state.partitions[at(1)].epoch
    (fact,) = group.do(Skip(at(1), incarnation, 10, end, why, dead_letter_queue))
    assert fact.body is not None
    assert json.loads(fact.body) == {"why": why, "dead_letter_queue": dead_letter_queue}
    assert replace(fact, body=None, lineage_epoch=None) == GroupFact(
        Kind.SKIPPED, "orders", *at(1), 10, end, epoch, epoch, flow="a/0", instance="a", cause=cause, by="test"
    )
    assert group.position(1) == end and group.position(0) == 0
    assert group.state.partitions[at(1)].epoch == epoch


def test_a_snapshot_has_the_keys_that_are_held() -> None:
    """Else the later messages of a key would be given before those that are put back."""
    group, incarnation = reading()
    group.do(Skip(at(1), incarnation, 10, 12, "dead", "dead", frozenset({3, -(2**63), 7})))
    again = snapshot.from_json(json.loads(json.dumps(snapshot.to_json(group.state))))
    assert again.held == group.state.held and set(again.held.values()) == {frozenset({3, -(2**63), 7})}


def test_a_key_that_is_held_already_is_not_told_again() -> None:
    """Each fact names only the keys that it adds."""
    group, incarnation = reading()
    facts = [
        *group.do(Skip(at(1), incarnation, 10, 12, "dead", "dead", frozenset({3}))),
        *group.do(Skip(at(1), incarnation, 12, 13, "dead", "dead", frozenset({3, 7}))),
    ]
    assert [json.loads(fact.body or "")["holds"] for fact in facts] == [[3], [7]]
    assert set(group.state.held.values()) == {frozenset({3, 7})}


def test_only_what_lies_at_the_position_is_left_out() -> None:
    group, incarnation = reading()
    for start in (9, 11):
        assert group.do(Skip(at(1), incarnation, start, start + 1, "dead", None)) == []


def test_only_the_owner_decides() -> None:
    """Neither a former process, nor one of a partition that is not there, that nobody owns, or, to leave out, that is being given up."""
    group, incarnation = reading()

    def both(number: int, process: str) -> list[list[GroupFact]]:
        return [
            group.do(Isolate(at(number), process, "why")),
            group.do(Skip(at(number), process, 10, 11, "dead", None)),
        ]

    assert both(1, "another") == both(7, incarnation) == [[], []]
    group.join("b")
    group.over()
    (given_up,) = group.draining()
    group.ack(given_up, 10, delivered=10)
    assert group.do(Skip(at(given_up), incarnation, 10, 11, "dead", None)) == []
    assert [fact.kind for fact in group.do(Isolate(at(given_up), incarnation, "why"))] == [Kind.ISOLATED]
    group = Decided(1, delay_ms=1_000)
    group.join("a")
    group.over()
    group.ack(0, 10)
    group.leave("a")
    assert group.state.partitions[at(0)].flow is None
    assert [group.do(Isolate(at(0), "", "why")), group.do(Skip(at(0), "", 10, 11, "dead", None))] == [[], []]
