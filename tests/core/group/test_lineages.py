"""Lineages that end because a member leaves out of a replay what another instance planned."""

from __future__ import annotations

import pytest

from spark_partq.core.group.events import EndLineage
from spark_partq.core.group.facts import Kind
from tests.core.group.groups import Decided, at


def started_from_anothers_checkpoint() -> tuple[Decided, EndLineage]:
    """Member a has read 10 of the 30 messages that it was given of partition 0; b was started from a's checkpoint."""
    group = Decided(2)
    group.join("a")
    group.ack(0, 10, delivered=30)
    epoch = group.state.partitions[at(0)].epoch
    group.join("b")
    return group, EndLineage(at(0), epoch, "b", group.state.members["b"].incarnation)


def test_the_owner_begins_again_at_the_position() -> None:
    """Q7: it keeps the partition, and acknowledges nothing that it planned before."""
    group, event = started_from_anothers_checkpoint()
    before = group.state.partitions[at(0)]
    (fact,) = group.do(event)
    assert (fact.kind, fact.offset, fact.delivered, fact.flow) == (Kind.ISOLATED, 10, 30, "a/0")
    assert fact.cause == "b was started from a checkpoint of a, and leaves its messages out"
    after = group.state.partitions[at(0)]
    assert (after.flow, after.incarnation, after.state) == (before.flow, before.incarnation, before.state)
    assert after.epoch == after.lineage_epoch == before.epoch + 1
    assert group.do(event) == []


def test_a_partition_without_an_owner() -> None:
    """Q7, R5: the last owner may get it again, but not what it planned before."""
    group = Decided(2, delay_ms=1_000)
    group.join("a")
    group.ack(0, 10, delivered=30)
    group.join("b")
    group.over()
    group.release()
    event = EndLineage(at(0), group.state.partitions[at(0)].epoch, "b", group.state.members["b"].incarnation)
    group.leave("a")
    (fact,) = group.do(event)
    assert (fact.kind, fact.offset, fact.delivered) == (Kind.UNASSIGNED, 10, 30)
    group.join("a")
    own = group.state.partitions[at(0)]
    assert own.flow == "a/0" and not own.continues(event.epoch)


@pytest.mark.parametrize(
    "change",
    [
        {"incarnation": "older"},  # b was started again since
        {"instance": "c"},  # no member
        {"instance": "a", "incarnation": "a1"},  # it has the partition itself, so it leaves nothing out
        {"epoch": 0},  # of a lineage that has ended
        {"partition_id": at(7)},  # which the queue does not have
    ],
)
def test_lineages_that_go_on(change: dict[str, object]) -> None:
    group, event = started_from_anothers_checkpoint()
    assert group.state.members["a"].incarnation == "a1"
    assert group.do(EndLineage(**{**vars(event), **change})) == []  # type: ignore[arg-type]
