"""The stores in memory and those on disk tell the same story."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.state import GroupState
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.log import Conflict
from spark_partq.storage.store import Store
from spark_partq.testing.memory import AckLog, ControlLog, MemoryAcks, MemoryControl
from tests.core.group.groups import Decided


@pytest.fixture(params=["memory", "disk"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any, Any, Any]:
    """Two handles on one control table, two on one ack table."""
    if request.param == "memory":
        log, acks = ControlLog(), AckLog()
        return MemoryControl(log), MemoryControl(log), MemoryAcks(acks), MemoryAcks(acks)
    store = Store.at(str(tmp_path / "store"))
    return ControlTable(store, "g"), ControlTable(store, "g"), AckTable(store, "g"), AckTable(store, "g")


def test_a_control_table(tables: tuple[Any, Any, Any, Any]) -> None:
    """A decision rests on the last look; who made it knows it at once, the others at their next look."""
    one, two, _, _ = tables
    group = Decided(3)
    assert not one.exists()
    for instance in "abc":
        group.join(instance)
        if one.exists():
            one.refresh()
        one.commit(group.facts)
        assert one.state == group.state and not one.refresh()
        with pytest.raises(Conflict):
            two.commit(group.facts)
        before = two.state.seq
        assert two.refresh() and not two.refresh()
        assert two.state == group.state
        assert two.state.seq > before
    assert one.state == two.state
    rows = two.history()
    assert [row["seq"] for row in rows] == list(range(group.state.seq))
    again = GroupState()
    for row in rows:
        again.replay(GroupFact(**{name: row[name] for name in GroupFact.__dataclass_fields__}))
    assert again == group.state
    assert {Kind(row["kind"]) for row in rows} >= {Kind.GRANTED, Kind.HANDOFF_STARTED}


def test_an_ack_table(tables: tuple[Any, Any, Any, Any]) -> None:
    """Everybody's rows come in, whoever looked when."""
    _, _, one, two = tables
    one.append([AckRow("x", 1, "q", 0, 1, 0, 5)], ["x"])
    for beat in range(1, 4):
        two.append([AckRow("y", beat)], ["x", "y"])
        one.append([AckRow("x", beat, "q", 0, 1, beat, 5), AckRow("x", beat, "q", 1, 1, 0, beat)], ["x", "y"])
    two.refresh()
    one.refresh()
    assert one.acks == two.acks
    assert two.acks.offset(("q", 0), 1, "x") == 3
    assert two.acks.delivered(("q", 1)) == 3
    assert two.acks.beats == {"x": 3, "y": 3}
