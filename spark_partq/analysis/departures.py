"""What each departure of a process has cost."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pandas as pd

from spark_partq.analysis.frames import commits_of, frame_of, milliseconds
from spark_partq.core.group.facts import Kind
from spark_partq.core.ids import PartitionId

COSTS = (
    "instance", "incarnation", "host", "how", "last_seen", "gone", "reowned", "unnoticed_ms", "unowned_ms", "partitions",
    "redelivered",
)  # fmt: skip


def costs(facts: pd.DataFrame, acks: pd.DataFrame | None = None) -> pd.DataFrame:
    """What each departure of a process has cost: how long its partitions had no owner, and what may have been delivered twice.

    Parameters
    ----------
    acks : DataFrame, optional
        From `acknowledgements`: with these, `last_seen` is the process's last heartbeat, as far as it is still known.

    Columns
    -------
    how : ``left``: the process told the group; ``expired``: it was silent for its session timeout; ``restarted``: a new process took its name
    last_seen : the last sign of life of the process
    gone, reowned : when the group knew that the process was gone, and when the last of its partitions had an owner again
    unnoticed_ms : from `last_seen` to `gone`: the longest time for which nobody read its partitions and the group did not know it
    unowned_ms : from `gone` to `reowned`
    partitions : how many partitions the process owned
    """
    rows: list[dict[str, Any]] = []
    members: dict[str, dict[str, Any]] = {}
    owners: dict[PartitionId, str] = {}
    waiting: dict[PartitionId, dict[str, Any]] = {}
    for commit in commits_of(facts):
        gone: dict[str, dict[str, Any]] = {}
        for fact in commit:
            partition_id = (fact.queue_id, fact.partition)
            if fact.kind in (Kind.MEMBER_JOINED, Kind.MEMBER_LEFT):
                old = members.pop(fact.instance, None)
                if old is not None:
                    how = "left" if fact.by == fact.instance else "expired"  # no process declares itself expired
                    how = "restarted" if fact.kind == Kind.MEMBER_JOINED else how
                    old |= {"how": how, "gone": fact.at, "reowned": fact.at, "partitions": 0, "redelivered": 0}
                    if how == "left":
                        old["last_seen"] = fact.at
                    gone[old["incarnation"]] = old
                    rows.append(old)
            if fact.kind == Kind.MEMBER_JOINED:
                about = {"instance": fact.instance, "incarnation": fact.incarnation, "host": fact.host}
                members[fact.instance] = {**about, "last_seen": fact.at}
            elif fact.kind in (Kind.GRANTED, Kind.RELEASED, Kind.UNASSIGNED):
                cost = gone.get(owners.pop(partition_id, ""))
                if cost is not None:
                    cost["partitions"] += 1
                    cost["redelivered"] += fact.delivered - fact.offset
                    if fact.kind == Kind.UNASSIGNED:
                        waiting[partition_id] = cost
                if fact.kind == Kind.GRANTED:
                    owners[partition_id] = fact.incarnation
                    _reowned(waiting.pop(partition_id, None), waiting, fact)
            if fact.by in members:
                members[fact.by]["last_seen"] = fact.at
    for cost in rows:
        cost["reowned"] = None if any(c is cost for c in waiting.values()) else cost["reowned"]
        cost["unowned_ms"] = milliseconds(cost["gone"], cost["reowned"])
        cost["last_seen"] = min(cost["gone"], max([cost["last_seen"], *_beats(acks, cost["incarnation"])]))
        cost["unnoticed_ms"] = milliseconds(cost["last_seen"], cost["gone"])
    return frame_of([[row.get(name) for name in COSTS] for row in rows], COSTS)


def _reowned(cost: dict[str, Any] | None, waiting: Mapping[PartitionId, dict[str, Any]], fact: SimpleNamespace) -> None:
    if cost is not None and not any(c is cost for c in waiting.values()):
        cost["reowned"] = fact.at


def _beats(acks: pd.DataFrame | None, incarnation: str) -> list[Any]:
    return [] if acks is None else list(acks.loc[acks["incarnation"] == incarnation, "at"])
