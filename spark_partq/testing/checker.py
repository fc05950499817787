"""Checks what the consumers of a group were really given, against the group's history and what was sent.

Each consumer keeps records (dicts, in the order in which they were made, `at` on one monotonic clock for all processes of the host):

- ``{"kind": "start", "run", "batch", "at"}``  a micro-batch begins; `run` is one start of one query
- ``{"kind": "row", "run", "batch", "at", "instance", "queue", "partition", "offset", "epoch", "flow", "redelivered"}``
- ``{"kind": "end", "run", "batch", "at"}``  the application has finished with it, and only then may it be acknowledged

A **lineage** is an unbroken ownership of a partition: the grants that share a lineage epoch. A lineage covers the offsets from its
first grant to the first grant of the next lineage; what was delivered in a lineage within what it covers is what **counts**, for it
alone can have been acknowledged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from spark_partq.core.group.facts import Kind
from spark_partq.core.ids import instance_of

Record = Mapping[str, Any]
Where = tuple[str, int]  # queue name, partition
_BatchKey = tuple[str, int]  # run, batch id


class Violation(StrEnum):
    LOST = "lost"  # given to nobody who could acknowledge it
    UNFINISHED = "unfinished"  # acknowledged though no micro-batch that had it was finished
    FENCED = "fenced"  # acknowledged by somebody who did not own it any more
    REPEATED = "repeated"  # delivered again though nothing had happened that allows it
    UNMARKED = "unmarked"  # delivered again and not marked as redelivered
    ORDER = "order"  # a later message of a key was delivered before an earlier one
    OVERLAP = "overlap"  # a later message of a key was delivered before the earlier one was finished
    OWNERS = "owners"  # delivered under an epoch that was not the deliverer's
    UNKNOWN = "unknown"  # nobody sent this


@dataclass(frozen=True)
class Finding:
    kind: Violation
    where: Where
    offset: int
    text: str


@dataclass
class Report:
    """What was found.

    Attributes
    ----------
    delivered : int
        Messages that were delivered at least once.
    again : list of (queue, partition, offset)
        Those delivered more than once, each time allowed.
    """

    findings: list[Finding] = field(default_factory=list)
    delivered: int = 0
    again: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        lines = [f"{f.kind}: {f.where[0]}/{f.where[1]} offset {f.offset}: {f.text}" for f in self.findings]
        return "\n".join([f"{self.delivered} delivered, {len(self.again)} of them again as allowed", *lines])


@dataclass(frozen=True)
class _Row:
    run: str
    batch: int
    at: float
    turn: int  # among the rows of its run
    instance: str
    where: Where
    offset: int
    epoch: int
    flow: str
    redelivered: bool
    began: float  # its micro-batch

    @property
    def key(self) -> _BatchKey:
        return self.run, self.batch


class Delivery(NamedTuple):
    """Of one message: under which epoch, whether with the mark, and when its micro-batch began."""

    epoch: int
    redelivered: bool
    began: float


def lacks_mark(row: Delivery | _Row, earlier: Sequence[Delivery | _Row]) -> bool:
    """Whether a delivery has no mark, and is not the one that was planned first; `earlier` are those before it in the order of their epochs."""
    return not row.redelivered and not all(_planned_behind(before, row) for before in earlier)


def _planned_behind(before: Delivery | _Row, row: Delivery | _Row) -> bool:
    """Whether a former owner's micro-batch began after the new one's, and has a mark: it stood still, and saw then what the new one had planned.

    Which of the two micro-batches has its messages first says nothing: both may be read at once.
    """
    return before.epoch < row.epoch and before.redelivered and before.began > row.began


@dataclass(frozen=True)
class _Grant:
    epoch: int
    base: int
    flow: str
    offset: int
    delivered: int
    at: float  # infinite if that is not known


@dataclass
class _Lineage:
    base: int
    start: int
    until: int | None = None  # None: it goes on
    released: int | None = None  # it was handed over at this offset, with nothing outstanding


@dataclass
class _Owned:
    """The history of one partition."""

    first: int = 0
    grants: dict[int, _Grant] = field(default_factory=dict)
    lineages: list[_Lineage] = field(default_factory=list)

    def lineage_of(self, epoch: int) -> _Lineage | None:
        grant = self.grants.get(epoch)
        return (
            None if grant is None else next((lineage for lineage in self.lineages if lineage.base == grant.base), None)
        )


class _Checker:
    def __init__(self, records: Iterable[Record], history: Iterable[Record]) -> None:
        self.report = Report()
        self.ends: dict[_BatchKey, float] = {}
        self.rows: dict[Where, list[_Row]] = defaultdict(list)
        self.owned: dict[Where, _Owned] = defaultdict(_Owned)
        self._take_records(records)
        for fact in sorted(history, key=lambda fact: int(fact["seq"])):
            if fact["partition"] is not None:
                self._take_fact((fact["queue"], fact["partition"]), fact)

    # ---- what was written down
    def _take_records(self, records: Iterable[Record]) -> None:
        starts: dict[_BatchKey, float] = {}
        for turn, r in enumerate(records):
            key = (r["run"], r["batch"])
            if r["kind"] == "start":
                starts[key] = r["at"]
            elif r["kind"] == "end":
                self.ends[key] = r["at"]
            else:
                where = (r["queue"], r["partition"])
                began = starts.get(key, float(r["at"]))
                row = _Row(
                    *key, r["at"], turn, r["instance"], where, r["offset"], r["epoch"], r["flow"], r["redelivered"], began,
                )  # fmt: skip
                self.rows[where].append(row)

    def _take_fact(self, where: Where, fact: Record) -> None:
        own = self.owned[where]
        if fact["kind"] == Kind.PARTITION_ADDED:
            own.first = fact["offset"]
        elif fact["kind"] == Kind.RELEASED and own.lineages:
            own.lineages[-1].released = fact["offset"]
        elif fact["kind"] == Kind.GRANTED:
            at = fact.get("at_s", float("inf"))
            grant = _Grant(fact["epoch"], fact["lineage_epoch"], fact["flow"], fact["offset"], fact["delivered"], at)
            if own.grants and grant.epoch <= max(own.grants):
                text = f"epoch {grant.epoch} was granted to {grant.flow} after epoch {max(own.grants)}"
                self._found(Violation.OWNERS, where, grant.offset, text)
            own.grants[grant.epoch] = grant
            if own.lineages and own.lineages[-1].base == grant.base:
                own.lineages[-1].released = None  # it came back to the instance that had it
                return
            if own.lineages:
                own.lineages[-1].until = grant.offset
            own.lineages.append(_Lineage(grant.base, grant.offset))

    def _found(self, kind: Violation, where: Where, offset: int, text: str) -> None:
        self.report.findings.append(Finding(kind, where, offset, text))

    # ---- checks
    def owners(self, where: Where) -> None:
        """One epoch belongs to one flow of one process (W2)."""
        runs: dict[int, str] = {}
        for row in self.rows[where]:
            grant = self.owned[where].grants.get(row.epoch)
            if grant is None:
                text = f"{row.flow} delivered it under epoch {row.epoch}, which nobody was granted"
                self._found(Violation.OWNERS, where, row.offset, text)
            elif instance_of(grant.flow) != row.instance:
                text = f"{row.flow} delivered it under epoch {row.epoch}, which belongs to {grant.flow}"
                self._found(Violation.OWNERS, where, row.offset, text)
            elif runs.setdefault(row.epoch, row.run) != row.run:
                text = f"two processes of {row.instance} delivered under epoch {row.epoch}"
                self._found(Violation.OWNERS, where, row.offset, text)

    def _by_offset(self, where: Where) -> dict[int, list[_Row]]:
        found: dict[int, list[_Row]] = defaultdict(list)
        for row in self.rows[where]:
            found[row.offset].append(row)
        return found

    def repeated(self, where: Where) -> None:
        """What is delivered twice is marked, and something allows it (H4)."""
        by_offset = self._by_offset(where)
        self.report.delivered += len(by_offset)
        for offset, rows in sorted(by_offset.items()):
            rows.sort(key=lambda row: (row.epoch, row.at))
            for i, row in enumerate(rows[1:], 1):
                why = self._not_allowed(where, rows[:i], row)
                if why:
                    self._found(Violation.REPEATED, where, offset, why)
                if lacks_mark(row, rows[:i]):
                    text = f"{row.flow} got it unmarked under epoch {row.epoch}; {rows[i - 1].flow} had it before"
                    self._found(Violation.UNMARKED, where, offset, text)
            if len(rows) > 1:
                self.report.again.append((*where, offset))

    def _not_allowed(self, where: Where, earlier: Sequence[_Row], row: _Row) -> str:
        own = self.owned[where]
        last = earlier[-1]
        if last.epoch == row.epoch:
            same = "in one micro-batch" if last.key == row.key else f"in micro-batches {last.batch} and {row.batch}"
            return f"{row.flow} got it twice under epoch {row.epoch}, {same}"
        if last.instance == row.instance and last.batch == row.batch and last.run != row.run:
            return ""  # the replay of a micro-batch after a restart
        grant, lineage = own.grants.get(row.epoch), own.lineage_of(row.epoch)
        for before in earlier:
            left = own.lineage_of(before.epoch)
            if left is not None and left is not lineage and left.released is not None and left.released <= row.offset:
                return f"{before.flow} handed the partition over at {left.released} as if it had not been given this"
        behind = grant is not None and row.offset >= grant.delivered and last.at > grant.at
        if behind and (row.redelivered or _planned_behind(last, row)):
            return ""  # a former owner, which stood still, planned it after the grant; whichever of the two planned second marked it
        if grant is not None and not grant.offset <= row.offset < grant.delivered:
            return (
                f"epoch {row.epoch} began at {grant.offset}, with {grant.delivered} as the first that nobody was given"
            )
        return ""

    def counted(self, where: Where, sent: int, position: int | None, manual: bool) -> dict[int, _Row]:
        """Of each message the delivery that counts; what has none is lost, or somebody else acknowledged it."""
        own = self.owned[where]
        by_offset = self._by_offset(where)
        found: dict[int, _Row] = {}
        for row in self.rows[where]:
            if row.offset >= sent:
                self._found(Violation.UNKNOWN, where, row.offset, f"{row.flow} got it; only {sent} were sent")
        for offset in range(own.first, sent):
            lineage = next((x for x in reversed(own.lineages) if x.start <= offset), None)
            others = by_offset.get(offset, [])
            rows = [] if lineage is None else [r for r in others if own.lineage_of(r.epoch) is lineage]
            done = [r for r in rows if r.key in self.ends]
            until = position if lineage is None or lineage.until is None else lineage.until
            acknowledged = until is not None and offset < until
            if not rows:
                if not others:
                    self._found(Violation.LOST, where, offset, "nobody was given it")
                elif acknowledged and any(r.key in self.ends for r in others):
                    text = f"it was acknowledged in the lineage of epoch {lineage.base if lineage else 0}, delivered only by "
                    text += ", ".join(f"{r.flow} under epoch {r.epoch}" for r in others)
                    self._found(Violation.FENCED, where, offset, text)
                else:
                    text = f"only {', '.join(f'{r.flow} under epoch {r.epoch}' for r in others)} had it, and could not keep it"
                    self._found(Violation.LOST, where, offset, text)
                continue
            if acknowledged and not done and not manual:
                text = f"acknowledged, though {rows[-1].flow} did not finish micro-batch {rows[-1].batch}"
                self._found(Violation.UNFINISHED, where, offset, text)
            found[offset] = max(done or rows, key=lambda row: (row.epoch, row.at))
        return found

    def order(self, where: Where, keys: Sequence[Hashable], counted: Mapping[int, _Row], manual: bool) -> None:
        """The messages of a key are processed one after the other (Q4), whoever does it."""
        before: dict[Hashable, _Row] = {}
        for offset, row in sorted(counted.items()):
            key = keys[offset]
            last = before.get(key) if key is not None else None
            if last is not None:
                self._in_order(where, key, last, row, manual)
            before[key] = row

    def _in_order(self, where: Where, key: Hashable, last: _Row, row: _Row, manual: bool) -> None:
        names = f"of key {key!r}, {last.offset} by {last.flow} and {row.offset} by {row.flow}"
        if last.key == row.key:
            if last.turn > row.turn:
                self._found(Violation.ORDER, where, row.offset, f"in one micro-batch {names} came the wrong way round")
            return
        if row.began < last.began:
            self._found(Violation.ORDER, where, row.offset, f"{names} came the wrong way round")
        elif not manual and row.began < self.ends.get(last.key, last.began):
            self._found(Violation.OVERLAP, where, row.offset, f"{names} were processed at once")


def check(
    records: Iterable[Record],
    history: Iterable[Record],
    sent: Mapping[Where, Sequence[Hashable]],
    positions: Mapping[Where, int] | None = None,
    *,
    manual: bool = False,
) -> Report:
    """Compare what was delivered with what should have been.

    Parameters
    ----------
    records : iterable of dict
        Of all consumers; those of one run in order.
    history : iterable of dict
        Every fact of the group's control table; with `at_s` it says when it was decided, by the clock of the records.
    sent : dict
        Per partition the key of each message, by offset; None has no order. All of them must have been delivered.
    positions : dict, optional
        Per partition the offset that the group wants next.
    manual : bool
        The application acknowledges by itself, so possibly before its micro-batch has ended.
    """
    checker = _Checker(records, history)
    for where in sorted({*sent, *checker.rows}):
        keys = sent.get(where, ())
        checker.owners(where)
        checker.repeated(where)
        counted = checker.counted(where, len(keys), (positions or {}).get(where), manual)
        checker.order(where, keys, counted, manual)
    return checker.report


def missed(
    records: Sequence[Record], sent_at: Mapping[Where, Sequence[float]], partitions: Collection[Where], instance: str
) -> list[tuple[Where, int, str]]:
    """Messages of these partitions that a micro-batch of `instance` left waiting (H2, W3).

    Whatever is in the queue when a micro-batch ends belongs into the next one at the latest, unless its partition pauses. Meant
    for queries without limits. `sent_at` says when each message had been committed.
    """
    ends: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for r in records:
        if r["kind"] == "end":
            ends[r["run"]].append((r["at"], r["batch"]))
    found = []
    for r in records:
        if r["kind"] != "row" or r["instance"] != instance or (r["queue"], r["partition"]) not in partitions:
            continue
        where = (r["queue"], r["partition"])
        there = sent_at[where][r["offset"]]
        latest = min((batch for at, batch in ends[r["run"]] if at >= there), default=None)
        if latest is not None and r["batch"] > latest + 1:
            found.append((where, r["offset"], f"was there before micro-batch {latest} ended, and came in {r['batch']}"))
    return found
