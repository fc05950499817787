"""Checks that what producers wrote was processed once and in each key's order, whichever partitions it went through (S5).

`testing.checker` judges partitions by their history; this judges keys, whose messages move to other partitions when a queue is
scaled. It takes the same records, whose rows also carry ``"key"`` and ``"value"``: a key's values rise as its producer wrote them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
Message = tuple[Hashable, int]  # key, value


@dataclass
class KeyReport:
    """Messages that nobody finished; that were finished twice; of which a later one of the key began before they were finished."""

    processed: int
    lost: list[Message]
    twice: list[Message]
    out_of_order: list[Message]

    @property
    def ok(self) -> bool:
        return not (self.lost or self.twice or self.out_of_order)

    def __str__(self) -> str:
        return (
            f"{self.processed} processed, {len(self.lost)} lost {self.lost[:5]}, {len(self.twice)} twice {self.twice[:5]}, "
            f"{len(self.out_of_order)} out of order {self.out_of_order[:5]}"
        )


def check_keys(records: Iterable[Record], sent: Iterable[Message], again: bool = False) -> KeyReport:
    """Compare what was processed with what was sent.

    Parameters
    ----------
    records : iterable of dict
        Of all consumers; those of one run in order.
    sent : iterable of (key, value)
        All of it, and nothing else, must have been processed.
    again : bool
        A consumer was killed: what is marked as redelivered may come twice.
    """
    spans: dict[tuple[str, int], list[float]] = defaultdict(lambda: [float("inf"), float("inf")])
    rows: dict[Message, list[tuple[int, Record]]] = defaultdict(list)
    for turn, record in enumerate(records):
        span = spans[record["run"], record["batch"]]
        if record["kind"] == "row":
            rows[record["key"], record["value"]].append((turn, record))
        else:
            span[record["kind"] == "end"] = record["at"]

    def ended(record: Record) -> float:
        return spans[record["run"], record["batch"]][1]

    def epoch(record: Record) -> int:
        return int(record.get("epoch", 0))

    wanted = set(sent)
    twice, counted = [], {}
    for message, deliveries in rows.items():
        finished = sorted(
            (d for d in deliveries if ended(d[1]) < float("inf")), key=lambda d: (epoch(d[1]), ended(d[1]))
        )
        if finished:
            # What the last owner has done: a former one, that stood still or was too slow, may end after it has begun.
            counted[message] = next(d for d in finished if epoch(d[1]) == epoch(finished[-1][1]))
        if len(finished) > 1 and not (again and all(d[1]["redelivered"] for d in finished[1:])):
            twice.append(message)
        elif message not in wanted:
            twice.append(message)  # nobody sent it, or it was sent under another value before
    out_of_order = []
    last: dict[Hashable, tuple[int, Record]] = {}
    for message in sorted(counted, key=lambda m: m[1]):
        turn, record = counted[message]
        before = last.get(message[0])
        last[message[0]] = (turn, record)
        if before is None:
            continue
        if (before[1]["run"], before[1]["batch"]) == (record["run"], record["batch"]):
            if before[0] > turn:
                out_of_order.append(message)
        elif spans[record["run"], record["batch"]][0] < ended(before[1]):
            out_of_order.append(message)
    return KeyReport(len(counted), sorted(wanted - counted.keys(), key=str), twice, out_of_order)
