"""The planner of a streaming source alone, without Spark around it."""

from __future__ import annotations

import spark_partq as partq
from spark_partq.core.admission import Limits
from spark_partq.core.offsets import StreamOffset
from spark_partq.core.rebalance import Leave
from spark_partq.spark.options import Options
from spark_partq.spark.stream_reader import Planner
from spark_partq.storage.groups import Group
from spark_partq.storage.store import Store
from tests.helpers import position, put


def test_session_expires_between_planning_and_delivering(store: str) -> None:
    """R5, H4: the partitions come back when the process joins again, so what it had planned counts, so it must be delivered."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=60_000)
    put(store, 0, range(5))
    planner = Planner(Options.parse({"path": store, "queue": "q", "group": "g", "flows": "2"}), "g", "a")
    try:
        start = StreamOffset("g", "a", {}, {})
        end = planner.next(start, Limits())
        assert end is not None
        group = Group(Store.at(store), "g")
        group.decide(lambda: [Leave("a", planner.membership.incarnation, expired=True)], "b")
        with planner.membership.lock:  # as the planner's other threads do
            planner.membership.group.refresh()
        given = [piece for task in planner.tasks(start, end) for piece in task.pieces]
        assert len(given) == 1
        planner.next(end, Limits())
        assert position(store, "g", 0) == 5
    finally:
        planner.membership.leave()
