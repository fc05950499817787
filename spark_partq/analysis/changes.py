"""What changed, one after the other: statuses of the group, ownerships and handoffs of its partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd

from spark_partq.analysis.frames import frame_of, milliseconds, rows_of
from spark_partq.core.group.facts import Kind, Status
from spark_partq.core.ids import PartitionId, instance_of

OWNERSHIPS = (
    "queue", "partition", "flow", "instance", "incarnation", "host", "epoch", "lineage_epoch", "seq", "began", "ended", "start", "end",
    "delivered", "cause", "ended_by", "end_cause",
)  # fmt: skip
HANDOFFS = (
    "queue", "partition", "from_flow", "to_flow", "seq", "began", "ended", "length_ms", "outcome", "redelivered", "cause",
    "end_cause",
)  # fmt: skip


def statuses(facts: pd.DataFrame) -> pd.DataFrame:
    """The group's statuses, one after the other (R7); `ended` is NaT for the present one."""
    rows: list[list[Any]] = []
    for fact in rows_of(facts):
        if fact.kind == Kind.STATUS_CHANGED or not rows:
            if rows:
                rows[-1][2] = fact.at
            rows.append([fact.status or Status.READY.value, fact.at, None, fact.cause])
    return frame_of(rows, ("status", "began", "ended", "cause"))


def ownerships(facts: pd.DataFrame) -> pd.DataFrame:
    """Which flow owned which partition when: a row for each epoch in which a partition had an owner.

    Columns
    -------
    start, end : the group's position when the ownership began, and when it ended; `end` is null while the ownership lasts
    delivered : messages from `end` up to here may have been delivered twice
    ended_by : the kind of fact that ended the ownership
    """
    done: list[dict[str, Any]] = []
    now: dict[PartitionId, dict[str, Any]] = {}

    def end(partition_id: PartitionId, fact: SimpleNamespace) -> None:
        if partition_id in now:
            about = {"ended": fact.at, "ended_by": fact.kind, "end_cause": fact.cause}
            done.append({**now.pop(partition_id), **about, "end": fact.offset, "delivered": fact.delivered})

    for fact in rows_of(facts):
        partition_id = (fact.queue_id, fact.partition)
        if fact.kind in (Kind.RELEASED, Kind.UNASSIGNED, Kind.GRANTED):
            end(partition_id, fact)
        if fact.kind == Kind.QUEUE_REMOVED:
            for gone in [w for w in now if w[0] == fact.queue_id]:
                end(gone, fact)
        if fact.kind == Kind.GRANTED:
            now[partition_id] = {
                name: getattr(fact, name, None) for name in OWNERSHIPS if name not in ("end", "delivered")
            }
            now[partition_id] |= {"began": fact.at, "start": fact.offset}
    rows = sorted([*done, *now.values()], key=lambda row: int(row["seq"]))
    return frame_of([[row.get(name) for name in OWNERSHIPS] for row in rows], OWNERSHIPS)


def handoffs(facts: pd.DataFrame) -> pd.DataFrame:
    """Every handoff: how long it took, how it ended and why (H1, H4).

    Columns
    -------
    to_flow
        the flow that got the partition; after an eager revocation, which computes this flow last, the flow of the grant that follows
    outcome
        ``released``: the owner had acknowledged everything. ``forced``: the time ran out. ``restarted``: the owner was started again,
        so no process worked on the partition any more. ``owner gone``, ``cancelled``, ``queue gone``; ``open`` while the handoff lasts
    redelivered
        how many messages may have been delivered again because of the handoff, at most
    """
    rows: list[dict[str, Any]] = []
    now: dict[PartitionId, dict[str, Any]] = {}
    unknown: dict[PartitionId, dict[str, Any]] = {}  # ended handoffs whose receiver is not known yet
    joined: dict[str, int] = {}

    def end(partition_id: PartitionId, fact: SimpleNamespace, outcome: str) -> None:
        twice = 0  # an owner that releases has acknowledged all that it was given
        if fact.kind in (Kind.GRANTED, Kind.UNASSIGNED):
            twice = fact.delivered - fact.offset
        ended = now.pop(partition_id)
        ended.update(ended=fact.at, outcome=outcome, redelivered=twice, end_cause=fact.cause)
        if ended["to_flow"] is None and outcome in ("released", "forced", "restarted", "owner gone"):
            unknown[partition_id] = ended

    for fact in rows_of(facts):
        partition_id = (fact.queue_id, fact.partition)
        if fact.kind == Kind.MEMBER_JOINED:
            joined[fact.instance] = fact.seq
        elif fact.kind == Kind.HANDOFF_STARTED and partition_id in now:
            now[partition_id]["to_flow"] = fact.to_flow
        elif fact.kind == Kind.HANDOFF_STARTED:
            about = {"queue": fact.queue, "partition": fact.partition, "from_flow": fact.flow, "to_flow": fact.to_flow}
            now[partition_id] = {**about, "seq": fact.seq, "began": fact.at, "outcome": "open", "cause": fact.cause}
            rows.append(now[partition_id])
        elif fact.kind == Kind.QUEUE_REMOVED:
            for gone in [w for w in now if w[0] == fact.queue_id]:
                end(gone, fact, "queue gone")
        elif partition_id not in now:
            if fact.kind == Kind.GRANTED and partition_id in unknown:
                unknown.pop(partition_id)["to_flow"] = fact.flow
        elif fact.kind == Kind.GRANTED:
            restarted = joined.get(instance_of(now[partition_id]["from_flow"]), -1) > now[partition_id]["seq"]
            end(partition_id, fact, "restarted" if restarted else "forced")
        elif fact.kind in (Kind.RELEASED, Kind.UNASSIGNED, Kind.HANDOFF_CANCELLED):
            outcomes = {Kind.RELEASED: "released", Kind.UNASSIGNED: "owner gone", Kind.HANDOFF_CANCELLED: "cancelled"}
            outcome = outcomes[Kind(fact.kind)]
            if fact.kind == Kind.UNASSIGNED:
                restarted = joined.get(instance_of(now[partition_id]["from_flow"]), -1) > now[partition_id]["seq"]
                outcome = "forced" if fact.forced else "restarted" if restarted else "owner gone"
            end(partition_id, fact, outcome)
    for row in rows:
        row["length_ms"] = milliseconds(row["began"], row.get("ended"))
    return frame_of([[row.get(name) for name in HANDOFFS] for row in rows], HANDOFFS)
