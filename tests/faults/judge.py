"""What a history shows: everything that producers were told and consumers were given, compared with what should have been."""

from __future__ import annotations

import itertools
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_partq.testing.checker import Violation, check
from spark_partq.testing.keycheck import check_keys
from spark_partq.testing.progresscheck import Wait, longest_wait
from spark_partq.testing.resultcheck import Result, check_results
from tests.faults.promoted import with_lost_grants
from tests.recording import Messages

Record = dict[str, Any]
Message = tuple[str, int]  # key, value

LOST, TWICE, MISORDERED, PHANTOM, OWNERS, STALLED, ENDED = KINDS = (
    "lost", "twice", "misordered", "phantom", "two owners", "stalled", "ended",
)  # fmt: skip
# The cross-check and this judge say different things (`crosscheck`).
DISAGREED = "disagreed"
_KIND = {
    Violation.LOST: LOST,
    Violation.UNFINISHED: LOST,
    Violation.FENCED: LOST,
    Violation.REPEATED: TWICE,
    Violation.UNMARKED: TWICE,
    Violation.ORDER: MISORDERED,
    Violation.OVERLAP: MISORDERED,
    Violation.OWNERS: OWNERS,
    Violation.UNKNOWN: PHANTOM,
}


@dataclass
class Evidence:
    """What is known of a history when it has ended; times are seconds of the one monotonic clock of the machine.

    Attributes
    ----------
    sent : dict
        Of each producer what it sends, and the micro-batches that it was told are in: number, begun, ended.
    records, facts : dict
        Of each group, as `testing.checker` wants them.
    ends : dict
        How many messages each partition ever had.
    results : dict
        Of each target what is in it.
    marks, in_force : list
        See `testing.progresscheck`.
    bound_s : float
        How long messages may wait beside the micro-batches.
    ended : list of str
        Queries that ended with an error for which there was no reason.
    commits : dict
        Of each group what its processes invoked on its tables, as `tests.committing` writes it down.
    former : dict
        Of each group its facts in each store whose place another one has taken.
    """

    sent: Mapping[str, tuple[Messages, Sequence[tuple[int, float, float]]]]
    records: Mapping[str, list[Record]]
    facts: Mapping[str, list[Record]]
    ends: Mapping[int, int]
    results: Mapping[str, list[Result]]
    marks: list[float]
    in_force: list[tuple[float, float]]
    end: float
    bound_s: float
    ended: list[str] = field(default_factory=list)
    commits: dict[str, list[Record]] = field(default_factory=dict)
    former: dict[str, list[list[Record]]] = field(default_factory=dict)


@dataclass
class Verdict:
    """Figures of a history, and each finding with its kind."""

    figures: dict[str, Any]
    findings: list[tuple[str, str]] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        found = Counter(kind for kind, _ in self.findings)
        return {kind: found[kind] for kind in (*KINDS, DISAGREED)}


def judge(evidence: Evidence) -> Verdict:
    """Every check of everything."""
    in_at = _in_at(evidence)
    verdict = Verdict({"messages": len(in_at)})
    found = verdict.findings
    found += [(ENDED, text) for text in evidence.ended]
    given = {group: [_by_producer(r) for r in records] for group, records in evidence.records.items()}
    for group, records in given.items():
        rows = [r for r in records if r["kind"] == "row"]
        verdict.figures[f"given to {group}"] = len(rows)
        found += _partitions(group, records, evidence)
        found += _keys(group, check_keys(records, in_at, again=True), in_at)
    found += _one_message_a_place(r for records in given.values() for r in records if r["kind"] == "row")
    for target, results in evidence.results.items():
        made = [r._replace(key=_stream(r.key, r.value)) for r in results]
        verdict.figures[f"in the {target}"] = len(made)
        found += _keys(f"the {target}", check_results(made, in_at), in_at)
    wait, batch_s = _waited(given, in_at, evidence), _longest_batch_s(given, evidence)
    bound_s = evidence.bound_s + 2 * batch_s  # one that runs when the message comes, and the one that has it
    verdict.figures |= {"longest wait s": round(wait.seconds, 2), "bound s": round(bound_s, 2)}
    verdict.figures["longest micro-batch s"] = round(batch_s, 2)
    if wait.seconds > bound_s:
        text = (
            f"nothing of {wait.where} was finished for {wait.seconds:.1f} s, from {wait.since:.3f} to {wait.until:.3f}"
        )
        found.append((STALLED, text))
    return verdict


def _stream(key: Any, value: int) -> str:
    """Two producers may write one key, and have no order between them: one has the odd values."""
    return f"{key} of {value % 2}"


def _by_producer(record: Record) -> Record:
    return {**record, "key": _stream(record["key"], record["value"])} if record["kind"] == "row" else record


def _in_at(evidence: Evidence) -> dict[Message, float]:
    """When the producer of each message knew that it is in."""
    found: dict[Message, float] = {}
    for messages, batches in evidence.sent.values():
        for number, _, ended in batches:
            for key, value in messages.of(number):
                found.setdefault((_stream(key, value), value), ended)
    return found


def _keys(where: str, report: Any, sent: Mapping[Message, float]) -> Iterable[tuple[str, str]]:
    told = {LOST: report.lost, MISORDERED: report.out_of_order}
    told[PHANTOM] = [m for m in report.twice if m not in sent]
    told[TWICE] = [m for m in report.twice if m in sent]
    for kind, messages in told.items():
        yield from ((kind, f"{kind} in {where}: {key}, {value}") for key, value in messages)


def _partitions(group: str, records: Sequence[Record], evidence: Evidence) -> Iterable[tuple[str, str]]:
    """By partition, against the history of the group. Which key a place has is known from whoever was given it."""
    keys: dict[tuple[str, int], list[Hashable]] = {("q", p): [None] * end for p, end in evidence.ends.items()}
    for r in records:
        if r["kind"] == "row" and r["offset"] < evidence.ends.get(r["partition"], 0):
            keys["q", r["partition"]][r["offset"]] = r["key"]
    report = check(*with_lost_grants(records, evidence.facts[group], evidence.former.get(group, [])), keys)
    for f in report.findings:
        yield _KIND[f.kind], f"{f.kind} in {group}: partition {f.where[1]} offset {f.offset}: {f.text}"


def _one_message_a_place(rows: Iterable[Record]) -> Iterable[tuple[str, str]]:
    """A place has the same message whenever it is given, to whichever group, and a message one place."""
    places: dict[tuple[int, int], set[Message]] = defaultdict(set)
    messages: dict[Message, set[tuple[int, int]]] = defaultdict(set)
    for r in rows:
        place, message = (r["partition"], r["offset"]), (r["key"], r["value"])
        places[place].add(message)
        messages[message].add(place)
    for place, several in places.items():
        if len(several) > 1:
            yield PHANTOM, f"consumers were given {sorted(several)} at partition {place[0]} offset {place[1]}"
    for message, found in messages.items():
        if len(found) > 1:
            yield TWICE, f"{message} is in the queue at {sorted(found)}, as consumers were given it"


def _waited(given: Mapping[str, list[Record]], in_at: Mapping[Message, float], evidence: Evidence) -> Wait:
    """Of each partition of each group: from when its producer knew of a message to the end of the first micro-batch that had it."""
    waits: dict[tuple[str, int], list[tuple[float, float | None]]] = defaultdict(list)
    for group, records in given.items():
        ends = {(r["run"], r["batch"]): r["at"] for r in records if r["kind"] == "end"}
        done: dict[Message, float] = {}
        where: dict[Message, int] = {}
        for r in records:
            if r["kind"] == "row":
                message = (r["key"], r["value"])
                where.setdefault(message, r["partition"])
                if (r["run"], r["batch"]) in ends:
                    done[message] = min(done.get(message, float("inf")), ends[r["run"], r["batch"]])
        for message, there in in_at.items():
            at = done.get(message)
            waits[group, where.get(message, -1)].append((min(there, at if at is not None else there), at))
    return longest_wait(waits, evidence.marks, evidence.in_force, evidence.end)


def _longest_batch_s(given: Mapping[str, list[Record]], evidence: Evidence) -> float:
    """Of the micro-batches that no fault befell."""
    marks = sorted([*evidence.marks, *itertools.chain.from_iterable(evidence.in_force)])
    longest = 0.0
    for records in given.values():
        begun = {(r["run"], r["batch"]): r["at"] for r in records if r["kind"] == "start"}
        for r in records:
            began = begun.get((r["run"], r["batch"])) if r["kind"] == "end" else None
            if began is not None and bisect(marks, began) == bisect(marks, r["at"]):
                longest = max(longest, r["at"] - began)
    return longest
