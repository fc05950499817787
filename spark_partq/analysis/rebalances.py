"""Each change of the partitions' owners, as a whole: how long it took, and how many partitions it moved."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd

from spark_partq.analysis.frames import commits_of, frame_of, milliseconds
from spark_partq.core.group.facts import Kind, Status
from spark_partq.core.ids import Flow, PartitionId

MOVES = (
    "began", "ended", "length_ms", "holddown_ms", "trigger", "joined", "left", "flows", "moved", "granted", "handoffs", "forced",
    "redelivered",
)  # fmt: skip


def moves(facts: pd.DataFrame) -> pd.DataFrame:
    """Each change of the partitions' owners, from its trigger until the group is Ready again: a rebalance, or a standby that takes over.

    Columns
    -------
    holddown_ms : how much of the change's length was holddown
    joined, left : how many members joined and left during the change
    flows : how many flows the group has after the change
    moved : partitions that had an owner before the change, and another owner (or none) after it
    granted : partitions that had no owner before the change, and have an owner after it
    handoffs, forced : how many handoffs began, and how often a partition was taken away that was not acknowledged
    redelivered : how many messages may have been delivered again because of the change, at most
    """
    rows: list[dict[str, Any]] = []
    status, owners, flows = str(Status.READY), dict[PartitionId, Flow](), dict[str, int]()
    change: dict[str, Any] | None = None
    before: dict[PartitionId, Flow] = {}
    status_since: Any = None
    released: set[PartitionId] = set()  # released by an owner that had acknowledged all, and not granted since then
    for commit in commits_of(facts):
        matters = [f for f in commit if f.kind in (Kind.STATUS_CHANGED, Kind.GRANTED, Kind.UNASSIGNED)]
        if change is None and matters:
            before = dict(owners)
            first = next((f for f in commit if f.kind == Kind.STATUS_CHANGED), matters[0])
            change = {"began": commit[0].at, "trigger": first.cause, **dict.fromkeys(MOVES[3:4] + MOVES[5:], 0)}
            rows.append(change)
        for fact in commit:
            _count_fact(fact, owners, flows, released, change)
            if fact.kind == Kind.STATUS_CHANGED:
                if status == Status.HOLDDOWN and change is not None:
                    change["holddown_ms"] += milliseconds(status_since, fact.at)
                status, status_since = fact.status, fact.at
        if change is not None:
            change["flows"] = sum(flows.values())
            change["moved"] = sum(owners.get(partition_id) != flow for partition_id, flow in before.items())
            change["granted"] = sum(partition_id not in before for partition_id in owners)
            if status == Status.READY:
                change["ended"] = commit[-1].at
                change["length_ms"] = milliseconds(change["began"], change["ended"])
                change = None
    return frame_of([[row.get(name) for name in MOVES] for row in rows], MOVES)


def _count_fact(
    fact: SimpleNamespace,
    owners: dict[PartitionId, Flow],
    flows: dict[str, int],
    released: set[PartitionId],
    change: dict[str, Any] | None,
) -> None:
    counts = change if change is not None else dict.fromkeys(MOVES, 0)
    partition_id = (fact.queue_id, fact.partition)
    if fact.kind == Kind.MEMBER_JOINED:
        flows[fact.instance] = fact.flows
        counts["joined"] += 1
    elif fact.kind == Kind.MEMBER_LEFT:
        flows.pop(fact.instance, None)
        counts["left"] += 1
    elif fact.kind == Kind.HANDOFF_STARTED:
        counts["handoffs"] += 1
    elif fact.kind == Kind.GRANTED:
        owners[partition_id] = fact.flow
        counts["forced"] += bool(fact.forced)
        counts["redelivered"] += 0 if partition_id in released else fact.delivered - fact.offset
        released.discard(partition_id)
    elif fact.kind in (Kind.RELEASED, Kind.UNASSIGNED):
        counts["forced"] += bool(fact.forced)
        owners.pop(partition_id, None)
        (released.add if fact.kind == Kind.RELEASED else released.discard)(partition_id)
    elif fact.kind == Kind.QUEUE_REMOVED:
        for gone in [w for w in owners if w[0] == fact.queue_id]:
            del owners[gone]
