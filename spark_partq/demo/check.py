"""Does what came out of the demo equal what has to come out? Read by delta-rs, compared with one pass over the raw data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from deltalake import DeltaTable

from spark_partq import analysis
from spark_partq.demo import flights
from spark_partq.demo.flights import DEPARTURE_ORDER, in_local_time
from spark_partq.demo.knock_on import Outputs, knock_ons

_PLACE = ["_partition", "_offset"]

Check = tuple[str, bool, str]  # what is checked, whether it holds, and the figures


def checks(store: Path, queue: str, outputs: Outputs, facts: pd.DataFrame, year: pd.DataFrame) -> list[Check]:
    """Compare the queue, the deliveries and the consumers' result with the flights themselves.

    Parameters
    ----------
    outputs : Outputs
        What `knock_on.follow` has written.
    facts : DataFrame
        The history of the group.
    year : DataFrame
        The rows of the data set.
    """
    followed, messages = DeltaTable(outputs.followed).to_pandas(), queue_messages(store, queue)
    delivery = deliveries(tables(outputs.deliveries), messages.groupby("_partition").size().to_dict(), facts)
    found, expected = in_local_time(knock_ons(followed)), flights.knock_ons(year)
    in_result = set(followed[_PLACE].itertuples(index=False, name=None))
    twice = len(followed) - len(in_result)
    missing = len(set(messages[_PLACE].itertuples(index=False, name=None)) - in_result)
    spread = messages[messages["tailnum"].notna()].groupby("tailnum")["_partition"].nunique()
    violations = order_violations(messages)
    produced, wanted = _as_set(in_local_time(messages), DEPARTURE_ORDER), _as_set(year, DEPARTURE_ORDER)
    columns = [*DEPARTURE_ORDER, "tailnum", "dep_delay", "previous_arr_delay"]
    here, there = _as_set(found, columns), _as_set(expected, columns)
    return [
        (
            "nothing lost, nothing twice in the queue",
            produced == wanted and len(messages) == len(year),
            f"{len(messages):,} messages, {len(produced):,} of {len(wanted):,} flights",
        ),
        (
            "each aircraft in one partition",
            bool((spread == 1).all()),
            f"{len(spread):,} aircraft, at most {spread.max()} partition",
        ),
        ("offsets are dense", _dense(messages), "0, 1, 2… in every partition"),
        ("order in the queue", violations == 0, f"{violations} violations"),
        ("nothing lost on the way to the consumers", delivery.lost == 0, f"{delivery.lost:,} lost"),
        (
            "delivered twice only what a killed application was working on",
            delivery.unexplained == 0,
            f"{delivery.twice:,} delivered twice, {delivery.unexplained:,} of them not of the last micro-batch of one that was killed",
        ),
        (
            "order as the consumers met it",
            delivery.out_of_order == 0,
            f"{delivery.out_of_order:,} out of order",
        ),
        (
            "every flight in the result once",
            twice == 0 and missing == 0,
            f"{delivery.twice:,} delivered twice, {twice:,} in the result twice, {missing:,} lost",
        ),
        (
            "knock-on delays as in one pass over the year",
            here == there and len(found) == len(expected),
            f"{len(found):,} found, {len(expected):,} expected, {len(here ^ there):,} differ",
        ),
    ]


@dataclass(frozen=True)
class Delivered:
    """How the messages of a queue reached their consumers, counted in messages.

    Attributes
    ----------
    lost : int
        Never delivered.
    twice : int
        Delivered more than once.
    unexplained : int
        Those of them that had been given to an application that was not killed, or not in its last micro-batch.
    out_of_order : int
        Delivered for the first time when a later one of the partition already was.
    """

    lost: int
    twice: int
    unexplained: int
    out_of_order: int


def deliveries(rows: pd.DataFrame, ends: dict[int, int], facts: pd.DataFrame) -> Delivered:
    """Count what was lost, repeated and out of order.

    Parameters
    ----------
    rows : DataFrame
        Of all applications, as `knock_on.Outputs.deliveries` says.
    ends : dict
        How many messages each partition has.
    facts : DataFrame
        The history of the group, which tells who was killed.
    """
    owned, gone = analysis.ownerships(facts), analysis.costs(facts)
    incarnations = {(o.partition, o.epoch): o.incarnation for o in owned.itertuples()}
    killed = set(gone.loc[gone["how"] != "left", "incarnation"])
    places = zip(rows["_partition"], rows["epoch"], strict=True)
    rows = rows.assign(incarnation=[incarnations.get(place, "") for place in places])
    last_batch = rows["incarnation"].map(rows.groupby("incarnation")["batch"].max())
    rows["excuse"] = rows["incarnation"].isin(killed) & (rows["batch"] == last_batch)
    lost = twice = unexplained = out_of_order = 0
    for partition, end in ends.items():
        times, excused, highest = np.zeros(end, dtype=np.int64), np.ones(end, dtype=bool), 0
        wrong = np.zeros(end, dtype=bool)
        for row in rows[rows["_partition"] == partition].sort_values("at").itertuples():
            part = slice(row.first, row.end)
            again = times[part] > 0
            wrong[part] |= again & ~excused[part]
            out_of_order += int((~again[: max(0, highest - row.first)]).sum())
            times[part] += 1
            excused[part] &= row.excuse
            highest = max(highest, row.end)
        lost, twice, unexplained = (
            total + int(found.sum()) for total, found in ((lost, times == 0), (twice, times > 1), (unexplained, wrong))
        )
    return Delivered(lost, twice, unexplained, out_of_order)


def tables(folder: str) -> pd.DataFrame:
    """All tables in a folder, as one."""
    found = [
        DeltaTable(path).to_pandas() for path in sorted(Path(folder).iterdir()) if DeltaTable.is_deltatable(str(path))
    ]
    return pd.concat(found, ignore_index=True)


def queue_messages(store: Path, queue: str) -> pd.DataFrame:
    """Every message of the queue, read from its partition tables as any Delta reader can: payload, _partition, _offset."""
    parts = []
    for folder in sorted((store / "queues" / queue / "partitions").iterdir()):
        rows = DeltaTable(folder).to_pandas()
        rows["_partition"] = int(folder.name.removeprefix("partition="))
        rows["_offset"] = rows["base_offset"] + rows["_row"]
        parts.append(rows)
    return pd.concat(parts).sort_values(["_partition", "_offset"], ignore_index=True)


def order_violations(messages: pd.DataFrame) -> int:
    """How many messages of an aircraft stand behind one that departs later, by `DEPARTURE_ORDER`."""
    known = messages[messages["tailnum"].notna()]
    order = ["scheduled", "carrier", "flight"]
    rank = known.sort_values(order).groupby(order, sort=True).ngroup()
    return int((rank.reindex(known.index).groupby(known["tailnum"]).diff() < 0).sum())


def _dense(messages: pd.DataFrame) -> bool:
    return bool((messages.groupby("_partition").cumcount() == messages["_offset"]).all())


def _as_set(rows: pd.DataFrame, columns: list[str]) -> set[tuple[object, ...]]:
    return set(rows[columns].itertuples(index=False, name=None))
