"""The stores in memory behave as those on disk, and fail on demand."""

from __future__ import annotations

import random

import pytest

from spark_partq.core.errors import CommitFailedError
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.storage.log import Conflict
from spark_partq.testing.memory import AckLog, ControlLog, Faults, MemoryAcks, MemoryControl
from tests.core.group.groups import Decided

FIRST = Decided(2)
FIRST.join("a")
FACTS = FIRST.facts


def floor(offset: int) -> GroupFact:
    return GroupFact(Kind.FLOOR, "orders", "id", 0, offset=offset, epoch_before=1, epoch=1)


def test_compare_and_set() -> None:
    """A commit rests on the last look; who comes too late looks again."""
    log = ControlLog()
    one, two = MemoryControl(log), MemoryControl(log)
    assert not one.exists() and not one.refresh()
    one.commit(FACTS)
    assert one.exists() and one.state.seq == len(FACTS)  # what it committed it knows
    with pytest.raises(Conflict):
        two.commit(FACTS)
    assert two.state.seq == 0
    assert two.refresh() and not two.refresh()
    two.commit([floor(3)])
    with pytest.raises(Conflict):
        one.commit([floor(4)])
    assert one.refresh()
    assert one.state.floors == {("id", 0): 3}


def test_history() -> None:
    """All facts ever, with number and time."""
    times = iter((10, 20))
    log = ControlLog(clock=lambda: next(times))
    table = MemoryControl(log)
    table.commit(FACTS)
    table.refresh()
    table.commit([floor(1)])
    history = table.history()
    assert [row["seq"] for row in history] == list(range(len(FACTS) + 1))
    assert (history[0]["at"], history[-1]["at"], history[-1]["kind"]) == (10, 20, "Floor")


@pytest.mark.parametrize(
    ("fault", "raised", "landed"),
    [("conflict", Conflict, False), ("lost", CommitFailedError, False), ("landed", CommitFailedError, True)],
)
def test_faults(fault: str, raised: type[Exception], landed: bool) -> None:
    """A conflict out of nowhere; an unknown outcome that is one thing or the other."""
    log = ControlLog(Faults(random.Random(1), **{fault: 1.0}))
    table = MemoryControl(log)
    with pytest.raises(raised):
        table.commit(FACTS)
    assert table.refresh() is landed


def test_states_go_through_snapshots() -> None:
    """Now and then, as that of a process that starts."""
    log = ControlLog(snapshot_every=1)
    table = MemoryControl(log)
    table.commit(FACTS)
    table.refresh()
    assert table.state == FIRST.state


def test_acknowledgements() -> None:
    """Appends never conflict; a row may come twice; old rows are compacted away."""
    log = AckLog(Faults(random.Random(1), landed=1.0), compact_every=3)
    one, two = MemoryAcks(log), MemoryAcks(log)
    assert not one.exists()
    for beat in range(1, 6):
        one.append([AckRow("x", beat, "q", 0, 1, beat, beat), AckRow("gone", beat)], ["x"])
    assert two.refresh() and not two.refresh()
    assert two.acks.offset(("q", 0), 1, "x") == 5
    assert len(log.rows) == 1 + 2 * 4
