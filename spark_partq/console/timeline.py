"""Which flow owned which partition when, with the holddowns and handoffs between, and what caused them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa

from spark_partq.analysis import handoffs, ownerships, statuses
from spark_partq.analysis.frames import nullable_frame
from spark_partq.console.looks import Looks
from spark_partq.core.group.facts import Kind
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import instance_of
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.inspect.fact_reader import FactFilter
from spark_partq.storage.rows import Row

# A picture shows at most this number of facts and of rows.
MOST_FACTS = 5_000
MOST_ROWS = 32

Place = tuple[str, int]  # queue, partition
_NAME_FORMER_OWNER = (Kind.RELEASED, Kind.UNASSIGNED, Kind.HANDOFF_STARTED, Kind.HANDOFF_CANCELLED)
_END_OWNERSHIP = (Kind.RELEASED, Kind.UNASSIGNED, Kind.GRANTED)


def timeline_answer(looks: Looks, group: str, seconds: float, first: int, moved: bool) -> dict[str, Any]:
    """The last seconds of a group: a row for each partition from the `first` on, and the statuses of the whole group.

    With `moved` only partitions count that a flow got, gave up or lost in that time.

    A bar is the time for which a flow owned a partition. A bar with `began` None began before the picture; a bar with `ended` None goes
    on. `whole` is False if more facts were decided in that time than the picture has: then the picture begins later.

    Raises
    ------
    PartqError
    """
    looks.checked("group", group)
    opened = looks.watch.group(group) or open_group(looks.store, group)
    now = looks.store.now()
    reader = looks.facts(group)
    facts = reader.since(now - dt.timedelta(seconds=seconds), MOST_FACTS)
    whole = facts.num_rows < MOST_FACTS
    began = now - dt.timedelta(seconds=seconds)
    if facts.num_rows and (not whole or facts["seq"][0].as_py() == 0):  # there were no facts before
        began = facts["at"][0].as_py()
    frame = nullable_frame(facts)
    rows: list[Row] = facts.to_pylist()
    bars = _bars(frame, rows, opened.state)
    handed = _handed(frame)
    places = sorted(place for place in {*bars, *handed} if not moved or place in handed or _moved(bars[place]))
    shown = places[first : first + MOST_ROWS]
    before = rows[0]["seq"] if rows else reader.end
    last_status = reader.page(FactFilter(kinds=(Kind.STATUS_CHANGED,)), before, most=1).facts
    return {
        "from": began.isoformat(),
        "to": now.isoformat(),
        "whole": whole,
        "partitions": len(places),
        "first": first,
        "statuses": _statuses(frame, last_status, facts.schema),
        "rows": [
            {"queue": place[0], "partition": place[1], "bars": bars.get(place, []), "handoffs": handed.get(place, [])}
            for place in shown
        ],
    }


def _bars(facts: pd.DataFrame, rows: Iterable[Row], state: GroupState) -> dict[Place, list[dict[str, Any]]]:
    """Ownerships by partition, including those that began before the first of the facts."""
    found: dict[Place, list[dict[str, Any]]] = {}
    told: set[Place] = set()
    ends: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row["kind"] in _END_OWNERSHIP:
            ends.setdefault((row["queue_id"], row["partition"]), []).append(row)
    for row in rows:  # the first fact of a partition tells who owned it before
        place = (row["queue"], row["partition"])
        if row["partition"] is None or place in told:
            continue
        if row["kind"] in _NAME_FORMER_OWNER and row["flow"] is not None:
            ended = row["kind"] in (Kind.RELEASED, Kind.UNASSIGNED)
            later = (end for end in ends.get((row["queue_id"], row["partition"]), ()) if end["seq"] > row["seq"])
            after = row if ended else next(later, None)
            found[place] = [_bar(row["flow"], None, None if after is None else after["at"], None, "", after)]
            told.add(place)
        elif row["kind"] in (Kind.GRANTED, Kind.PARTITION_ADDED):
            told.add(place)
    for own in ownerships(facts).itertuples():
        place = (own.queue, int(own.partition))
        bar = _bar(own.flow, own.began, None if pd.isna(own.ended) else own.ended, own.seq, own.cause, None)
        bar["end_cause"] = own.end_cause or ""
        found.setdefault(place, []).append(bar)
    for (queue_id, number), now in state.partitions.items():
        place = (state.queues[queue_id].name, number)
        kept = found.setdefault(place, [])
        if now.flow is not None and place not in told and not kept:
            kept.append(_bar(now.flow, None, None, None, "", None))
    return found


def _moved(bars: list[dict[str, Any]]) -> bool:
    return len(bars) > 1 or any(bar["began"] or bar["ended"] for bar in bars)


def _bar(flow: str, began: Any, ended: Any, seq: int | None, cause: str, end: Row | None) -> dict[str, Any]:
    return {
        "flow": flow,
        "instance": instance_of(flow),
        "began": _moment(began),
        "ended": _moment(ended),
        "fact": seq,
        "cause": cause,
        "end_cause": end["cause"] if end else "",
    }


def _handed(facts: pd.DataFrame) -> dict[Place, list[dict[str, Any]]]:
    found: dict[Place, list[dict[str, Any]]] = {}
    for handoff in handoffs(facts).itertuples():
        found.setdefault((handoff.queue, int(handoff.partition)), []).append(
            {
                "from": handoff.from_flow,
                "to": handoff.to_flow,
                "began": _moment(handoff.began),
                "ended": _moment(handoff.ended),
                "outcome": handoff.outcome,
                "fact": int(handoff.seq),
                "cause": handoff.cause,
                "end_cause": handoff.end_cause or "",
            }
        )
    return found


def _statuses(facts: pd.DataFrame, before: list[Row], schema: pa.Schema) -> list[dict[str, Any]]:
    """The group's statuses; the first may have begun before the picture."""
    frame = pd.concat([nullable_frame(pa.Table.from_pylist(before, schema)), facts]) if before else facts
    return [
        {"status": s.status, "began": _moment(s.began), "ended": _moment(s.ended), "cause": s.cause}
        for s in statuses(frame).itertuples()
    ]


def _moment(at: Any) -> str | None:
    return None if at is None or pd.isna(at) else str(at.isoformat())
