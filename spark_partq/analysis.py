"""What the history of a consumer group tells: who owned what when, what handoffs took, what a killed consumer cost (U3).

`history` reads the facts. The other functions are pure: facts in, a DataFrame out, one row for each thing that happened. Times are
those that the deciding processes' clocks said, so differences between clocks of hosts are in them.

    from spark_partq import analysis, plots

    facts = analysis.history("store", "billing")
    analysis.handoffs(facts).groupby("outcome").length_ms.describe()
    plots.ownerships(facts)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from spark_partq.core.errors import QueueNotFoundError, QueueNotReadyError
from spark_partq.core.group.facts import Kind, Status
from spark_partq.core.ids import Flow, PartitionId, instance_of
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.inspect import group_history as _facts
from spark_partq.storage.queue.file_index import enqueued_at
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store

OWNERSHIPS = (
    "queue", "partition", "flow", "instance", "incarnation", "host", "epoch", "lineage_epoch", "seq", "began", "ended", "start", "end",
    "delivered", "cause", "ended_by", "end_cause",
)  # fmt: skip
HANDOFFS = (
    "queue", "partition", "from_flow", "to_flow", "seq", "began", "ended", "length_ms", "outcome", "redelivered", "cause",
    "end_cause",
)  # fmt: skip
MOVES = (
    "began", "ended", "length_ms", "holddown_ms", "trigger", "joined", "left", "flows", "moved", "granted", "handoffs", "forced",
    "redelivered",
)  # fmt: skip
COSTS = (
    "instance", "incarnation", "host", "how", "last_seen", "gone", "reowned", "unowned_ms", "partitions", "redelivered",
)  # fmt: skip

_TIMES = ("at", "began", "ended", "last_seen", "gone", "reowned")
_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype(), pa.bool_(): pd.BooleanDtype()}
_OFFSETS = (Kind.PARTITION_ADDED, Kind.GRANTED, Kind.RELEASED, Kind.UNASSIGNED, Kind.FLOOR)


# ---- reading
def history(
    store: str | os.PathLike[str], group: str, *, storage_options: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Every fact of the group in order, with the columns of its control table; times in UTC. Needs no Spark.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
    """
    return _facts.history(Store.at(store, storage_options), group).to_pandas(types_mapper=_NULLABLE.get)


def acknowledgements(
    store: str | os.PathLike[str], group: str, *, storage_options: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """The acknowledgements and heartbeats that are left: of what is long ago, only the last of each partition."""
    return _facts.acknowledgements(Store.at(store, storage_options), group).to_pandas(types_mapper=_NULLABLE.get)


def enqueued(
    store: str | os.PathLike[str], group: str, *, storage_options: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """When the messages came that are still in the group's queues: a row per file, with its offsets ``[first, end)``."""
    opened = Store.at(store, storage_options)
    rows = []
    for queue_id, known in open_group(opened, group).state.queues.items():
        with contextlib.suppress(QueueNotFoundError, QueueNotReadyError):
            queue = open_queue(opened, known.name)
            if queue.state.queue_id != queue_id:
                continue
            queue.refresh()
            for table in queue.partitions:
                for first, end, micros in zip(table.index.base, table.index.end, table.index.enqueued_us, strict=True):
                    rows.append((enqueued_at(int(micros)), known.name, table.partition, int(first), int(end)))
    return _frame(rows, ("at", "queue", "partition", "first", "end"))


# ---- what happened
def statuses(facts: pd.DataFrame) -> pd.DataFrame:
    """The group's statuses, one after the other (R7); `ended` is NaT for the present one."""
    rows: list[list[Any]] = []
    for fact in _rows(facts):
        if fact.kind == Kind.STATUS_CHANGED or not rows:
            if rows:
                rows[-1][2] = fact.at
            rows.append([fact.status or Status.READY.value, fact.at, None, fact.cause])
    return _frame(rows, ("status", "began", "ended", "cause"))


def ownerships(facts: pd.DataFrame) -> pd.DataFrame:
    """Who owned what when: a row for each epoch in which a partition had an owner.

    Columns
    -------
    start, end : the position at which it began, and that it left; `end` is null while it lasts
    delivered : messages from `end` up to here may have been delivered twice
    ended_by : the kind of fact that ended it
    """
    done: list[dict[str, Any]] = []
    now: dict[PartitionId, dict[str, Any]] = {}

    def end(where: PartitionId, fact: SimpleNamespace) -> None:
        if where in now:
            about = {"ended": fact.at, "ended_by": fact.kind, "end_cause": fact.cause}
            done.append({**now.pop(where), **about, "end": fact.offset, "delivered": fact.delivered})

    for fact in _rows(facts):
        where = (fact.queue_id, fact.partition)
        if fact.kind in (Kind.RELEASED, Kind.UNASSIGNED, Kind.GRANTED):
            end(where, fact)
        if fact.kind == Kind.QUEUE_REMOVED:
            for gone in [w for w in now if w[0] == fact.queue_id]:
                end(gone, fact)
        if fact.kind == Kind.GRANTED:
            now[where] = {name: getattr(fact, name, None) for name in OWNERSHIPS if name not in ("end", "delivered")}
            now[where] |= {"began": fact.at, "start": fact.offset}
    rows = sorted([*done, *now.values()], key=lambda row: int(row["seq"]))
    return _frame([[row.get(name) for name in OWNERSHIPS] for row in rows], OWNERSHIPS)


def handoffs(facts: pd.DataFrame) -> pd.DataFrame:
    """Every handoff: how long it took, how it ended and why (H1, H4).

    Columns
    -------
    to_flow
        who got it; of an eager revocation, in which that is computed last, the flow of the grant that follows
    outcome
        ``released``: its owner had acknowledged everything. ``forced``: the time ran out. ``restarted``: the owner was started again,
        so nobody worked on it any more. ``owner gone``, ``cancelled``, ``queue gone``; ``open`` while it lasts
    redelivered
        messages that may have been delivered again because of it, at most
    """
    rows: list[dict[str, Any]] = []
    now: dict[PartitionId, dict[str, Any]] = {}
    unknown: dict[PartitionId, dict[str, Any]] = {}  # ended, and who gets it is not known yet
    joined: dict[str, int] = {}

    def end(where: PartitionId, fact: SimpleNamespace, outcome: str) -> None:
        twice = 0  # who releases has acknowledged all it was given
        if fact.kind in (Kind.GRANTED, Kind.UNASSIGNED):
            twice = fact.delivered - fact.offset
        ended = now.pop(where)
        ended.update(ended=fact.at, outcome=outcome, redelivered=twice, end_cause=fact.cause)
        if ended["to_flow"] is None and outcome in ("released", "forced", "restarted", "owner gone"):
            unknown[where] = ended

    for fact in _rows(facts):
        where = (fact.queue_id, fact.partition)
        if fact.kind == Kind.MEMBER_JOINED:
            joined[fact.instance] = fact.seq
        elif fact.kind == Kind.HANDOFF_STARTED and where in now:
            now[where]["to_flow"] = fact.to_flow
        elif fact.kind == Kind.HANDOFF_STARTED:
            about = {"queue": fact.queue, "partition": fact.partition, "from_flow": fact.flow, "to_flow": fact.to_flow}
            now[where] = {**about, "seq": fact.seq, "began": fact.at, "outcome": "open", "cause": fact.cause}
            rows.append(now[where])
        elif fact.kind == Kind.QUEUE_REMOVED:
            for gone in [w for w in now if w[0] == fact.queue_id]:
                end(gone, fact, "queue gone")
        elif where not in now:
            if fact.kind == Kind.GRANTED and where in unknown:
                unknown.pop(where)["to_flow"] = fact.flow
        elif fact.kind == Kind.GRANTED:
            restarted = joined.get(instance_of(now[where]["from_flow"]), -1) > now[where]["seq"]
            end(where, fact, "restarted" if restarted else "forced")
        elif fact.kind in (Kind.RELEASED, Kind.UNASSIGNED, Kind.HANDOFF_CANCELLED):
            outcomes = {Kind.RELEASED: "released", Kind.UNASSIGNED: "owner gone", Kind.HANDOFF_CANCELLED: "cancelled"}
            outcome = outcomes[Kind(fact.kind)]
            if fact.kind == Kind.UNASSIGNED:
                restarted = joined.get(instance_of(now[where]["from_flow"]), -1) > now[where]["seq"]
                outcome = "forced" if fact.forced else "restarted" if restarted else "owner gone"
            end(where, fact, outcome)
    for row in rows:
        row["length_ms"] = _ms(row["began"], row.get("ended"))
    return _frame([[row.get(name) for name in HANDOFFS] for row in rows], HANDOFFS)


def moves(facts: pd.DataFrame) -> pd.DataFrame:
    """Each change of who owns what, from its trigger until the group is Ready again: a rebalance, or a standby that takes over.

    Columns
    -------
    holddown_ms : how much of its length was holddown
    joined, left : members that came and went meanwhile
    flows : how many there are after it
    moved : partitions that had an owner before it, and another one (or none) after it
    granted : partitions that had none before it, and have one after it
    handoffs, forced : how many were begun, and how often a partition was taken away that was not acknowledged
    redelivered : messages that may have been delivered again because of it, at most
    """
    rows: list[dict[str, Any]] = []
    status, owners, flows = str(Status.READY), dict[PartitionId, Flow](), dict[str, int]()
    change: dict[str, Any] | None = None
    before: dict[PartitionId, Flow] = {}
    held: Any = None  # when the status became what it is
    released: set[PartitionId] = set()  # by an owner that had acknowledged all, and granted to nobody since
    for commit in _commits(facts):
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
                    change["holddown_ms"] += _ms(held, fact.at)
                status, held = fact.status, fact.at
        if change is not None:
            change["flows"] = sum(flows.values())
            change["moved"] = sum(owners.get(where) != flow for where, flow in before.items())
            change["granted"] = sum(where not in before for where in owners)
            if status == Status.READY:
                change["ended"] = commit[-1].at
                change["length_ms"] = _ms(change["began"], change["ended"])
                change = None
    return _frame([[row.get(name) for name in MOVES] for row in rows], MOVES)


def _count_fact(
    fact: SimpleNamespace,
    owners: dict[PartitionId, Flow],
    flows: dict[str, int],
    released: set[PartitionId],
    change: dict[str, Any] | None,
) -> None:
    counts = change if change is not None else dict.fromkeys(MOVES, 0)
    where = (fact.queue_id, fact.partition)
    if fact.kind == Kind.MEMBER_JOINED:
        flows[fact.instance] = fact.flows
        counts["joined"] += 1
    elif fact.kind == Kind.MEMBER_LEFT:
        flows.pop(fact.instance, None)
        counts["left"] += 1
    elif fact.kind == Kind.HANDOFF_STARTED:
        counts["handoffs"] += 1
    elif fact.kind == Kind.GRANTED:
        owners[where] = fact.flow
        counts["forced"] += bool(fact.forced)
        counts["redelivered"] += 0 if where in released else fact.delivered - fact.offset
        released.discard(where)
    elif fact.kind in (Kind.RELEASED, Kind.UNASSIGNED):
        counts["forced"] += bool(fact.forced)
        owners.pop(where, None)
        (released.add if fact.kind == Kind.RELEASED else released.discard)(where)
    elif fact.kind == Kind.QUEUE_REMOVED:
        for gone in [w for w in owners if w[0] == fact.queue_id]:
            del owners[gone]


def costs(facts: pd.DataFrame, acks: pd.DataFrame | None = None) -> pd.DataFrame:
    """What each process that went has cost: how long its partitions had no owner, and what may have been delivered twice.

    Parameters
    ----------
    acks : DataFrame, optional
        From `acknowledgements`: with it, `last_seen` is the last heartbeat, as far as that is still known.

    Columns
    -------
    how : ``left`` politely, ``expired``: it was not heard of for its session timeout, ``restarted``: a new process took its name
    last_seen : its last sign of life
    gone, reowned : when the group knew, and when the last of its partitions had an owner again
    unowned_ms : from `gone` to `reowned`
    partitions : how many it had
    """
    rows: list[dict[str, Any]] = []
    members: dict[str, dict[str, Any]] = {}
    owners: dict[PartitionId, str] = {}
    waiting: dict[PartitionId, dict[str, Any]] = {}
    for commit in _commits(facts):
        gone: dict[str, dict[str, Any]] = {}
        for fact in commit:
            where = (fact.queue_id, fact.partition)
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
                cost = gone.get(owners.pop(where, ""))
                if cost is not None:
                    cost["partitions"] += 1
                    cost["redelivered"] += fact.delivered - fact.offset
                    if fact.kind == Kind.UNASSIGNED:
                        waiting[where] = cost
                if fact.kind == Kind.GRANTED:
                    owners[where] = fact.incarnation
                    _reowned(waiting.pop(where, None), waiting, fact)
            if fact.by in members:
                members[fact.by]["last_seen"] = fact.at
    for cost in rows:
        cost["reowned"] = None if any(c is cost for c in waiting.values()) else cost["reowned"]
        cost["unowned_ms"] = _ms(cost["gone"], cost["reowned"])
        cost["last_seen"] = min(cost["gone"], max([cost["last_seen"], *_beats(acks, cost["incarnation"])]))
    return _frame([[row.get(name) for name in COSTS] for row in rows], COSTS)


def _reowned(cost: dict[str, Any] | None, waiting: Mapping[PartitionId, dict[str, Any]], fact: SimpleNamespace) -> None:
    if cost is not None and not any(c is cost for c in waiting.values()):
        cost["reowned"] = fact.at


def _beats(acks: pd.DataFrame | None, incarnation: str) -> list[Any]:
    return [] if acks is None else list(acks.loc[acks["incarnation"] == incarnation, "at"])


# ---- positions and lag over time
def positions(facts: pd.DataFrame, acks: pd.DataFrame | None = None) -> pd.DataFrame:
    """The group's position in each partition, at each time at which it is known.

    Facts tell it when an ownership begins or ends and when maintenance fixes it; `acks` (of `acknowledgements`) add what was
    acknowledged lately.
    """
    names: dict[str, str] = {}
    valid: set[tuple[Any, ...]] = set()
    points: list[tuple[Any, PartitionId, int, bool]] = []
    for fact in _rows(facts):
        if fact.kind in _OFFSETS:
            names[fact.queue_id] = fact.queue
            points.append((fact.at, (fact.queue_id, fact.partition), fact.offset, True))
        if fact.kind == Kind.GRANTED:
            valid.add((fact.queue_id, fact.partition, fact.epoch, fact.incarnation))
    if acks is not None:
        for row in _rows(acks):
            if (row.queue_id, row.partition, row.epoch, row.incarnation) in valid:
                points.append((row.at, (row.queue_id, row.partition), row.offset, False))
    known: dict[PartitionId, int] = {}
    rows = []
    for at, where, offset, decided in sorted(points, key=lambda point: point[0]):
        known[where] = offset if decided else max(offset, known.get(where, 0))
        rows.append((at, names[where[0]], where[1], known[where]))
    return _frame(rows, ("at", "queue", "partition", "position"))


def lag(positions: pd.DataFrame, enqueued: pd.DataFrame) -> pd.DataFrame:
    """Messages that were there and not acknowledged, per partition, at each time at which that changed.

    Between two known positions it is the most that it can have been. Where messages have been removed, it begins with the
    first that is still there.
    """
    frames = [_frame([], ("at", "queue", "partition", "end", "position", "lag"))]
    for where, mine in positions.groupby(["queue", "partition"]):
        came = enqueued[(enqueued["queue"] == where[0]) & (enqueued["partition"] == where[1])]
        both = pd.concat([mine[["at", "position"]], came[["at", "end"]]]).sort_values("at", kind="stable")
        both[["position", "end"]] = both[["position", "end"]].ffill()
        if len(came) == 0 or came["first"].iloc[0] == 0:
            both["end"] = both["end"].fillna(0)
        both = both.dropna().drop_duplicates("at", keep="last").astype({"position": "int64", "end": "int64"})
        both["lag"] = np.maximum(both["end"] - both["position"], 0)
        frames.append(both.assign(queue=where[0], partition=where[1])[frames[0].columns])
    return pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)


# ---- helpers
def _rows(frame: pd.DataFrame) -> Iterator[SimpleNamespace]:
    """Rows with None for null and whole numbers, whatever made the frame (pandas, Arrow, Spark)."""
    columns = []
    for name in frame.columns:
        values = frame[name].astype(object).where(frame[name].notna(), None).tolist()
        columns.append([int(v) if isinstance(v, float) else v for v in values])
    for values in zip(*columns, strict=True):
        yield SimpleNamespace(**dict(zip(frame.columns, values, strict=True)))


def _commits(facts: pd.DataFrame) -> Iterator[list[SimpleNamespace]]:
    """Facts that were decided at once: those of one commit have one time."""
    for _, commit in groupby(_rows(facts), key=lambda fact: fact.at):
        yield list(commit)


def _ms(began: Any, ended: Any) -> float | None:
    return None if began is None or ended is None else (ended - began).total_seconds() * 1000


def _frame(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=list(columns))
    for name in columns:
        if name in _TIMES:
            frame[name] = pd.to_datetime(frame[name], utc=True)
        elif name.endswith("_ms"):
            frame[name] = frame[name].astype(float)
        elif name in ("partition", "end", "delivered", "redelivered", "start", "first", "position"):
            frame[name] = frame[name].astype("Int64")
    return frame
