"""Does what came out of the demo equal what has to come out? Read by delta-rs, compared with one pass over the raw data."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from deltalake import DeltaTable

from spark_partq.demo.flights import DEPARTURE_ORDER, in_local_time, knock_ons

Check = tuple[str, bool, str]  # what is checked, whether it holds, and the figures


def checks(store: Path, queue: str, results: Path, aircraft: Path, year: pd.DataFrame) -> list[Check]:
    """Compare the queue, the consumer's state and its results with the flights themselves.

    Parameters
    ----------
    results, aircraft : path
        The Delta tables that `knock_on.follow` has written.
    year : DataFrame
        The rows of the data set.
    """
    state = DeltaTable(aircraft).to_pandas()
    messages = queue_messages(store, queue)
    found = in_local_time(DeltaTable(results).to_pandas())
    expected = knock_ons(year)
    followed, out_of_order = int(state["followed"].sum()), int(state["out_of_order"].sum())
    unknown = int(state.loc[state["tailnum"].isna(), "followed"].sum())
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
        (
            "every flight followed once",
            followed == len(year) and unknown == int(year["tailnum"].isna().sum()),
            f"{followed:,} followed, {unknown:,} of them without a tail number",
        ),
        ("order as the consumer met it", out_of_order == 0, f"{out_of_order} violations"),
        (
            "knock-on delays as in one pass over the year",
            here == there and len(found) == len(expected),
            f"{len(found):,} found, {len(expected):,} expected, {len(here ^ there):,} differ",
        ),
    ]


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
