"""Checks that what producers wrote was processed once and in each key's order, whichever partitions it went through (S5).

`testing.checker` judges partitions by their history; this judges keys, whose messages move to other partitions when a queue is
scaled. It takes the same records, whose rows also carry ``"key"`` and ``"value"``: a key's values rise as its producer wrote them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_partq.testing.checker import Delivery, lacks_mark

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

    def delivery(record: Record) -> Delivery:
        return Delivery(epoch(record), record["redelivered"], spans[record["run"], record["batch"]][0])

    wanted = set(sent)
    twice = []
    # What counts is what was finished first, or what the last owner has done: a former one, that stood still or was too slow, may end
    # after it has begun. (A group that is set back may get the earlier messages of a key again, and not the later ones: their partition
    # may be gone.) So messages are in order if they are so by the one or by the other.
    first: dict[Message, tuple[int, Record]] = {}
    last: dict[Message, tuple[int, Record]] = {}
    for message, deliveries in rows.items():
        finished = sorted(
            (d for d in deliveries if ended(d[1]) < float("inf")), key=lambda d: (epoch(d[1]), ended(d[1]))
        )
        if finished:
            first[message] = min(finished, key=lambda d: ended(d[1]))
            last[message] = next(d for d in finished if epoch(d[1]) == epoch(finished[-1][1]))
        given = [delivery(d[1]) for d in finished]
        if len(given) > 1 and (not again or any(lacks_mark(one, given[:i]) for i, one in enumerate(given))):
            twice.append(message)
        elif message not in wanted:
            twice.append(message)  # nobody sent it, or it was sent under another value before
    by_owner = set(_out_of_order(last, spans))
    out_of_order = [message for message in _out_of_order(first, spans) if message in by_owner]
    return KeyReport(len(first), sorted(wanted - first.keys(), key=str), twice, out_of_order)


def _out_of_order(
    counted: Mapping[Message, tuple[int, Record]], spans: Mapping[tuple[str, int], Sequence[float]]
) -> Iterator[Message]:
    """Messages that began before the earlier one of their key had ended."""
    before: dict[Hashable, tuple[int, Record]] = {}
    for message in sorted(counted, key=lambda m: m[1]):
        turn, record = counted[message]
        earlier = before.get(message[0])
        before[message[0]] = (turn, record)
        if earlier is None:
            continue
        if (earlier[1]["run"], earlier[1]["batch"]) == (record["run"], record["batch"]):
            if earlier[0] > turn:
                yield message
        elif spans[record["run"], record["batch"]][0] < spans[earlier[1]["run"], earlier[1]["batch"]][1]:
            yield message
