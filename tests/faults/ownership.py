"""What was done to the tables of a group, as operations on a register of each partition: who owns it, and how far the group is.

A commit to the control table is two operations: somebody looked where the group was, and committed what follows from that. Between the
two nobody else may have committed there, but acknowledgements may have come; those do not count. A row of the ack table is one operation:
it says what is finished, and what is planned. What was delivered shows, by its marks, what had been planned before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_partq.core.group.facts import Kind
from spark_partq.core.ids import instance_of
from tests.committing import known_by

Record = Mapping[str, Any]
Operation = dict[str, Any]

_NEVER, _FAR = 0.0, 2**62  # before everything, behind every offset
# Facts that say where the group is in the partition, as their decider saw it.
_POSITIONS = (Kind.GRANTED, Kind.UNASSIGNED, Kind.RELEASED, Kind.FLOOR, Kind.PARTITION_REMOVED)


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def between(began: float, ended: float | None) -> dict[str, int]:
    """When an operation was called and when it returned; who never heard of its end has no return."""
    return {"call": ns(began)} | ({} if ended is None else {"return": ns(ended)})


@dataclass
class Batch:
    """A micro-batch as its consumer wrote it down: when it began, when it had all rows, and when it was finished, if it was."""

    run: str
    number: int
    began: float
    read: float
    ended: float | None
    rows: list[Record]


def batches(records: Iterable[Record]) -> list[Batch]:
    """Those with rows."""
    times: dict[tuple[str, int, str], float] = {}
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for r in records:
        if r["kind"] == "row":
            found[r["run"], r["batch"]].append(r)
        else:
            times[r["run"], r["batch"], r["kind"]] = r["at"]
    made = []
    for (run, number), rows in found.items():
        start = times.get((run, number, "start"))
        began = float(rows[0]["at"]) if start is None else start
        read = max(began, *(r["at"] for r in rows))
        made.append(Batch(run, number, began, read, times.get((run, number, "end")), rows))
    return made


class Ownership:
    """Operations of one group.

    Parameters
    ----------
    records, facts, commits
        As `Evidence` has them.
    """

    def __init__(
        self, group: str, records: Sequence[Record], facts: Sequence[Record], commits: Sequence[Record]
    ) -> None:
        self._group, self._records = group, records
        self._facts = sorted(facts, key=lambda fact: int(fact["seq"]))
        told = {line["id"]: line for line in commits if line["kind"] == "told"}
        self._decided = [(line, told.get(line["id"])) for line in commits if line["kind"] == "decide"]
        self._acknowledged = [(line, told.get(line["id"])) for line in commits if line["kind"] == "acknowledge"]
        self._by_seq = self._commits_of_facts()
        self._stores = list(dict.fromkeys(line["store"] for line, _ in self._by_seq.values()))
        self._lost = self._grants_lost()
        self._instances = self._instance_by_incarnation()

    def _operation(self, partition: int, what: str, times: Mapping[str, int], **about: Any) -> Operation:
        return {"model": "ownership", "register": f"{self._group}/{partition}", "op": what, **times, **about}

    def _commits_of_facts(self) -> dict[int, tuple[Record, Record | None]]:
        """The commit that brought in each fact. Who was killed in the middle may have been it, or not: then the facts decide."""
        known = {int(fact["seq"]): known_by(fact) for fact in self._facts}
        found: dict[int, tuple[Record, Record | None]] = {}
        for line, told in sorted(self._decided, key=lambda commit: commit[1] is None):
            there = all(known.get(fact["seq"]) == known_by(fact) for fact in line["facts"])
            if there and (told is None or told["is_in"]):
                for fact in line["facts"]:
                    found.setdefault(fact["seq"], (line, told))
        return found

    def _grants_lost(self) -> set[tuple[str, int, int, str]]:
        """Grants that a promotion did not copy: nobody knows of them any more, nor of what was done under them."""
        known = {_grant(fact) for fact in self._facts if fact["kind"] == Kind.GRANTED}
        return {
            (line["store"], *_grant(fact))
            for line, told in self._decided
            if told is None or told["is_in"]
            for fact in line["facts"]
            if fact["kind"] == Kind.GRANTED and _grant(fact) not in known  # whoever failed may have come again
        }

    def _instance_by_incarnation(self) -> dict[str, str]:
        facts = [*self._facts, *(fact for line, _ in self._decided for fact in line["facts"])]
        return {
            fact["incarnation"]: instance_of(fact["flow"])
            for fact in facts
            if fact["kind"] == Kind.GRANTED and fact.get("incarnation")
        }

    def _store(self, uri: str) -> int:
        return self._stores.index(uri) if uri in self._stores else 0

    def operations(self) -> list[Operation]:
        plans = list(self._rows())
        return [*self._decisions(), *self._deliveries(plans), *(plan for plan in plans if not plan.pop("lost"))]

    # ---- the control table
    def _decisions(self) -> Iterator[Operation]:
        before: dict[int, int] = defaultdict(lambda: -1)
        stores: dict[int, int] = defaultdict(int)
        of_partitions = [fact for fact in self._facts if fact["partition"] is not None]
        for (_, partition), facts in _together(of_partitions, self._id).items():
            line, told = self._by_seq.get(int(facts[0]["seq"]), (None, None))
            store = stores[partition] if line is None else self._store(line["store"])
            seqs = {"before": before[partition], "seq": int(facts[-1]["seq"])}
            moved, stores[partition] = store != stores[partition], store
            began = _NEVER if line is None else line["at"]
            ended = None if told is None else told["at"]
            seen = next((fact for fact in facts if fact["kind"] in _POSITIONS), None)
            looks = seen is not None and not moved and facts[0]["kind"] != Kind.PARTITION_ADDED
            if seen is not None and looks:
                looked = (_NEVER, ended) if line is None or line["looked"] is None else line["looked"]
                delivered = -1 if seen.get("delivered") is None else seen["delivered"]
                about = {"offset": seen["offset"], "delivered": delivered}
                yield self._operation(partition, "look", between(*looked), **about, **seqs)
            about = {"store": store, "moved": moved, "looked": looks, "changes": [_change(fact) for fact in facts]}
            yield self._operation(partition, "commit", between(began, ended), **about, **seqs)
            before[partition] = int(facts[-1]["seq"])

    def _id(self, fact: Record) -> str:
        """Of the commit that brought it in; one of its own if nobody wrote that down."""
        line = self._by_seq.get(int(fact["seq"]))
        return f"fact {fact['seq']}" if line is None else str(line[0]["id"])

    # ---- the ack table
    def _rows(self) -> Iterator[Operation]:
        for line, told in self._acknowledged:
            for row in line["rows"]:
                planned = row["delivered"] > max(row["offset"], row["start"])
                about = {name: row[name] for name in ("incarnation", "epoch", "offset", "start")}
                about |= {"end": row["delivered"], "planned": planned, "store": self._store(line["store"])}
                lost = (line["store"], row["partition"], row["epoch"], row["incarnation"]) in self._lost
                times = between(line["at"], None if told is None else told["at"])
                yield self._operation(row["partition"], "acknowledge", times, **about, lost=lost)

    # ---- what was given
    def _deliveries(self, plans: Sequence[Operation]) -> Iterator[Operation]:
        """Each micro-batch of a partition; its plan learns from the marks what had been delivered before it."""
        planned: dict[tuple[str, str, int, int, int], list[Operation]] = defaultdict(list)
        for row in plans:
            if row["planned"]:
                instance = self._instances.get(row["incarnation"], "")
                planned[row["register"], instance, row["epoch"], row["start"], row["end"]].append(row)
        for batch in batches(self._records):
            given: dict[tuple[int, int, str], list[Record]] = defaultdict(list)
            for r in batch.rows:
                given[r["partition"], r["epoch"], r["instance"]].append(r)
            for (partition, epoch, instance), rows in given.items():
                offsets = [r["offset"] for r in rows]
                first, end = min(offsets), max(offsets) + 1
                of = planned[f"{self._group}/{partition}", instance, epoch, first, end]
                plan: Operation | None = of.pop(0) if of and offsets == list(range(first, end)) else None
                if plan is None:
                    store = len(self._stores)
                elif plan["lost"]:
                    continue
                else:
                    store, plan["seen"] = plan["store"], _seen(rows)
                about = {"epoch": epoch, "instance": instance, "start": first, "end": end}
                about |= {"planned": plan is not None, "store": store}
                yield self._operation(partition, "deliver", between(batch.began, batch.read), **about)
                if batch.ended is not None:
                    yield self._operation(partition, "finish", between(batch.ended, batch.ended), **about)


def _together(facts: Iterable[Record], commit: Callable[[Record], str]) -> dict[tuple[str, int], list[Record]]:
    """Facts of one commit about one partition, in the order of the first."""
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for fact in facts:
        found[commit(fact), fact["partition"]].append(fact)
    return found


def _grant(fact: Record) -> tuple[int, int, str]:
    return fact["partition"], fact["epoch"], fact.get("incarnation") or ""


def _change(fact: Record) -> Record:
    """What the register is told of a fact."""
    offset = fact.get("offset") or 0
    return {
        "kind": fact["kind"],
        "epoch_before": fact.get("epoch_before"),
        "epoch": fact.get("epoch") or 0,
        "lineage": fact.get("lineage_epoch") or 0,
        "offset": offset,
        "delivered": offset if fact.get("delivered") is None else fact["delivered"],
        "instance": instance_of(fact.get("flow") or "/"),
        "incarnation": fact.get("incarnation") or "",
    }


def _seen(given: Sequence[Record]) -> list[int]:
    """Between which offsets the first one lay that nobody had been given, by the marks of a range."""
    marks = [bool(r["redelivered"]) for r in given]
    first, count = given[0]["offset"], sum(marks)
    if marks != sorted(marks, reverse=True):
        return [1, 0]  # no such offset explains it
    if count in (0, len(marks)):
        return [first + count, _FAR] if count else [0, first]
    return [first + count] * 2
