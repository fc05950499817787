"""Which sinks keep positions of a group, and the numbers of their batches (Q5, H4)."""

from __future__ import annotations

import pytest

from spark_partq.core.names import is_name
from spark_partq.core.queue.sink_ids import STUCK_SINK, is_sink_id, keeps_positions, next_batch, positions_sink


def test_sinks_of_groups_are_apart_from_all_others() -> None:
    """Whatever the group's name, and the sink's."""
    names = ["g", "G", "0", "a.b-c_d", "x" * 128]
    ids = {positions_sink(group, None) for group in names} | {positions_sink("g", sink_id) for sink_id in names}
    assert len(ids) == 2 * len(names)
    for found in ids:
        assert keeps_positions(found) and is_sink_id(found) and not is_name(found)


@pytest.mark.parametrize("sink_id", ["g", "group.g", STUCK_SINK, "_group.", "_group", "_sink.", "_group._group.g", "_other.g", "_group.g/h", "_group.g~"])  # fmt: skip
def test_others_keep_none(sink_id: str) -> None:
    assert not keeps_positions(sink_id)


@pytest.mark.parametrize(
    ("last", "promotions", "number"),
    [(-1, 0, 0), (0, 0, 1), (7, 1, 10**12), (10**12, 1, 10**12 + 1), (10**12 + 5, 2, 2 * 10**12), (-1, 3, 3 * 10**12)],
)
def test_batches_follow_each_other(last: int, promotions: int, number: int) -> None:
    """Those of a promoted queue come after all that its primary can have written."""
    assert next_batch(last, promotions) == number
