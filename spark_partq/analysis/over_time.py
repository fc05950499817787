"""Positions and lag over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from spark_partq.analysis.frames import frame_of, rows_of
from spark_partq.core.group.facts import Kind
from spark_partq.core.ids import PartitionId

# Facts that give the group's position as their `offset`. `Skipped` gives it as `delivered`.
_OFFSETS = (
    Kind.PARTITION_ADDED, Kind.GRANTED, Kind.RELEASED, Kind.UNASSIGNED, Kind.FLOOR, Kind.POSITION_RESET, Kind.ISOLATED,
)  # fmt: skip
# Facts that begin an epoch under which the owner acknowledges.
_EPOCHS = (Kind.GRANTED, Kind.ISOLATED)


def positions(facts: pd.DataFrame, acks: pd.DataFrame | None = None) -> pd.DataFrame:
    """The group's position in each partition, at each time at which it is known.

    Facts tell the position when an ownership begins or ends, when maintenance fixes the position, and when messages are left out as dead or
    expired; `acks` (from `acknowledgements`) add what was acknowledged lately.
    """
    names: dict[str, str] = {}
    valid: set[tuple[Any, ...]] = set()
    points: list[tuple[Any, PartitionId, int, bool]] = []
    for fact in rows_of(facts):
        if fact.kind in (*_OFFSETS, Kind.SKIPPED):
            names[fact.queue_id] = fact.queue
            offset = fact.delivered if fact.kind == Kind.SKIPPED else fact.offset
            points.append((fact.at, (fact.queue_id, fact.partition), offset, True))
        if fact.kind in _EPOCHS:
            valid.add((fact.queue_id, fact.partition, fact.epoch, fact.incarnation))
    if acks is not None:
        for row in rows_of(acks):
            if (row.queue_id, row.partition, row.epoch, row.incarnation) in valid:
                points.append((row.at, (row.queue_id, row.partition), row.offset, False))
    known: dict[PartitionId, int] = {}
    rows = []
    for at, partition_id, offset, decided in sorted(points, key=lambda point: point[0]):
        queue_id, number = partition_id
        known[partition_id] = offset if decided else max(offset, known.get(partition_id, 0))
        rows.append((at, names[queue_id], number, known[partition_id]))
    return frame_of(rows, ("at", "queue", "partition", "position"))


def lag(positions: pd.DataFrame, enqueued: pd.DataFrame) -> pd.DataFrame:
    """The lag (messages that were stored and not acknowledged) of each partition, at each time at which it changed.

    Between two known positions this is the highest lag that is possible. If messages have been removed, the lag begins with the first
    message that is still stored.
    """
    frames = [frame_of([], ("at", "queue", "partition", "end", "position", "lag"))]
    for (queue, partition), mine in positions.groupby(["queue", "partition"]):
        came = enqueued[(enqueued["queue"] == queue) & (enqueued["partition"] == partition)]
        both = pd.concat([mine[["at", "position"]], came[["at", "end"]]]).sort_values("at", kind="stable")
        both[["position", "end"]] = both[["position", "end"]].ffill()
        if len(came) == 0 or came["first"].iloc[0] == 0:
            both["end"] = both["end"].fillna(0)
        both = both.dropna().drop_duplicates("at", keep="last").astype({"position": "int64", "end": "int64"})
        both["lag"] = np.maximum(both["end"] - both["position"], 0)
        frames.append(both.assign(queue=queue, partition=partition)[frames[0].columns])
    return pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)
