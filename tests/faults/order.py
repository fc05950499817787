"""What was sent and given, as operations on registers: each partition is a log, and each key of a producer a queue for each group and each target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_partq.testing.resultcheck import Result
from tests.faults.judge import Evidence
from tests.faults.ownership import Batch, Operation, Record, batches, between

Message = tuple[str, int]
Place = tuple[int, int]  # partition, offset

# As if all rows of a target were read, one by one, within this time behind the history.
_READING_S, _ROW_S = 1_000.0, 1e-6


@dataclass(frozen=True)
class Sent:
    """What one micro-batch of a producer holds. Nobody knows when the part of a partition came in: after the micro-batch before was in."""

    began: float
    ended: float | None
    messages: Sequence[Message]


def sent(evidence: Evidence) -> Iterator[Sent]:
    """Of each producer, one after the other; the last one may be one of which it was never told."""
    for messages, told in evidence.sent.values():
        ends: dict[int, float] = {}
        for number, _, ended in told:
            ends[number] = min(ended, ends.get(number, ended))
        before = 0.0
        for number, ended in sorted(ends.items()):
            yield Sent(before, ended, messages.of(number))
            before = ended
        yield Sent(before, None, messages.of(max(ends, default=-1) + 1))


class Order:
    """Operations of all partitions, groups and keys."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._sent = evidence, list(sent(evidence))
        self._places: dict[Message, Place] = {}  # where each was first read
        for records in evidence.records.values():
            for r in records:
                if r["kind"] == "row":
                    self._places.setdefault((r["key"], r["value"]), _place(r))
        self._numbers = self._numbered()

    def operations(self) -> list[Operation]:
        found = list(self._appends())
        for group, records in self._evidence.records.items():
            marked = _marked_under(records)
            for batch in batches(records):
                found += self._reads(batch)
                found += self._processed(group, batch, marked)
            found += self._sent_to(group)
        for target, results in self._evidence.results.items():
            found += self._in_target(f"the {target}", results)
            found += self._sent_to(f"the {target}")
        return found

    # ---- logs
    def _appends(self) -> Iterator[Operation]:
        """A micro-batch is one append to each partition, or several if a resize came in between."""
        for batch in self._sent:
            places = {m: self._places[m] for m in batch.messages if m in self._places}
            for partition, start, run in _runs([(*places[m], m) for m in sorted(places, key=places.__getitem__)]):
                yield _log(partition, "append", between(batch.began, batch.ended), start, run)
            missing = [] if batch.ended is None else [m for m in batch.messages if m not in places]
            if missing:
                yield _log("nowhere", "append", between(batch.began, batch.ended), -1, missing)

    def _reads(self, batch: Batch) -> Iterator[Operation]:
        placed = [(r["partition"], r["offset"], (r["key"], r["value"])) for r in batch.rows]
        for partition, start, run in _runs(placed):
            yield _log(partition, "read", between(batch.began, batch.read), start, run)

    # ---- keys
    def _numbered(self) -> dict[Message, int]:
        """Which message of its key and producer each is."""
        counts: dict[str, int] = defaultdict(int)
        found: dict[Message, int] = {}
        for batch in self._sent:
            for key, value in batch.messages:
                found[key, value] = counts[_stream(key, value)]
                counts[_stream(key, value)] += 1
        return found

    def _number(self, key: str, value: int) -> int:
        """-1 if nobody sent it."""
        return self._numbers.get((key, value), -1)

    def _sent_to(self, group: str) -> Iterator[Operation]:
        names = set()
        for batch in self._sent:
            for name, of_key in _by_stream(batch.messages).items():
                if batch.ended is not None or any(m in self._places for m in of_key):
                    about = {"numbers": [self._number(*m) for m in of_key]}
                    yield _key(group, name, "send", between(batch.began, batch.ended), about)
                    names.add(name)
        for name in names:
            yield _key(group, name, "end", between(self._evidence.end + _READING_S, None), {})

    def _processed(self, group: str, batch: Batch, marked_under: Mapping[Place, int]) -> Iterator[Operation]:
        of_stream: dict[str, list[Record]] = defaultdict(list)
        for r in batch.rows:
            of_stream[_stream(r["key"], r["value"])].append(r)
        for name, given in of_stream.items():
            numbers = {"numbers": [self._number(r["key"], r["value"]) for r in given]}
            marked = {"marked": [r["redelivered"] or marked_under.get(_place(r), 0) > r["epoch"] for r in given]}
            yield _key(group, name, "begin", between(batch.began, batch.began), {**numbers, **marked})
            if batch.ended is not None:
                yield _key(group, name, "finish", between(batch.ended, batch.ended), numbers)

    def _in_target(self, target: str, results: Sequence[Result]) -> Iterator[Operation]:
        """A target is read when all has ended, in the order in which it was written; there nothing comes again, with whatever mark."""
        for i, r in enumerate(sorted(results, key=lambda r: (r.commit, r.partition, r.offset))):
            about = {"numbers": [self._number(str(r.key), r.value)], "marked": [False]}
            for turn, what in enumerate(("begin", "finish")):
                at = self._evidence.end + (2 * i + turn) * _ROW_S
                yield _key(target, _stream(str(r.key), r.value), what, between(at, at), about)


def _place(row: Record) -> Place:
    return row["partition"], row["offset"]


def _marked_under(records: Sequence[Record]) -> dict[Place, int]:
    """The last epoch under which each was delivered with a mark. A former owner that planned it before that may begin with it afterwards, without a mark."""
    found: dict[Place, int] = {}
    for r in records:
        if r["kind"] == "row" and r["redelivered"]:
            found[_place(r)] = max(r["epoch"], found.get(_place(r), 0))
    return found


def _stream(key: str, value: int) -> str:
    """Two producers may write one key, and have no order between them: one has the odd values."""
    return f"{key} of {value % 2}"


def _by_stream(messages: Sequence[Message]) -> dict[str, list[Message]]:
    found: dict[str, list[Message]] = defaultdict(list)
    for key, value in messages:
        found[_stream(key, value)].append((key, value))
    return found


def _runs(placed: Sequence[tuple[int, int, Message]]) -> Iterator[tuple[int, int, list[Message]]]:
    """Partition, first offset and messages of what lies one behind the other, in the order that is given."""
    run: list[Message] = []
    partition = start = 0
    for here, offset, message in placed:
        if run and (here, offset) != (partition, start + len(run)):
            yield partition, start, run
            run = []
        if not run:
            partition, start = here, offset
        run.append(message)
    if run:
        yield partition, start, run


def _log(
    partition: int | str, what: str, times: Mapping[str, int], start: int, messages: Sequence[Message]
) -> Operation:
    values = [f"{key}={value}" for key, value in messages]
    return {"model": "log", "register": str(partition), "op": what, **times, "start": start, "values": values}


def _key(group: str, name: str, what: str, times: Mapping[str, int], about: Mapping[str, Any]) -> Operation:
    return {"model": "keys", "register": f"{group}/{name}", "op": what, **times, **about}
