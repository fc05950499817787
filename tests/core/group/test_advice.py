"""What people are told of members whose queries may give wrong results."""

from __future__ import annotations

from spark_partq.core.group.advice import begun_anew, state_stays_behind


def test_a_fresh_checkpoint() -> None:
    assert begun_anew(["a"]).startswith(
        "query a began with a fresh checkpoint, while the group had read messages before: "
    )
    assert begun_anew(["a", "b"]).startswith("queries a, b began with")
    assert begun_anew(["a"]).endswith("Write with partq.delta_sink, or keep partq.positions with the results")


def test_state_by_key() -> None:
    told = state_stays_behind("a", [("r", 3), ("q", 2), ("q", 0)], "twice, last at noon")
    assert told.startswith(
        "query a keeps state by key in Spark, and partitions 0, 2 of queue q and partition 3 of queue r came to it or went from it "
        "(twice, last at noon): the state of their keys stays in the query that had them, so"
    )
    assert told.endswith("(see docs/exactly-once.md, Totals and other state by key)")
    assert "came to it or went from it: the state" in state_stays_behind("a", [("q", 0)])
