"""The judge of histories finds each fault that is planted in one, and nothing in one that is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_partq.testing.resultcheck import Result
from tests.faults.judge import (
    ENDED,
    KINDS,
    LOST,
    MISORDERED,
    OWNERS,
    PHANTOM,
    STALLED,
    TWICE,
    Evidence,
    Record,
    judge,
)
from tests.recording import Messages

SENT = [Messages("k", 4, 2, which, 2) for which in range(2)]  # two producers, with the same keys
BATCHES = 3


def fact(seq: int, kind: str, partition: int, **columns: Any) -> Record:
    return {"seq": seq, "kind": kind, "queue": "q", "partition": partition, **columns}


def facts() -> list[Record]:
    """Each producer's messages lie in a partition of their own; `a` owns both."""
    found = []
    for partition in range(2):
        grant = {"epoch": 1, "lineage_epoch": 1, "flow": "a/0", "incarnation": "i-a", "offset": 0, "delivered": 0}
        found += [fact(2 * partition, "PartitionAdded", partition, offset=0)]
        found += [fact(2 * partition + 1, "Granted", partition, **grant)]
    return found


def records() -> list[Record]:
    """A second after a micro-batch was in, a consumer has it, and finishes it half a second later."""
    found: list[Record] = []
    for number in range(BATCHES):
        about = {"run": "r", "batch": number, "at": number + 1.0}
        found.append({"kind": "start", **about})
        for partition, messages in enumerate(SENT):
            for i, (key, value) in enumerate(messages.of(number)):
                place = {"queue": "q", "partition": partition, "offset": 4 * number + i, "epoch": 1}
                who = {"instance": "a", "flow": "a/0", "redelivered": False}
                found.append({"kind": "row", **about, **place, **who, "key": key, "value": value})
        found.append({"kind": "end", **about, "at": number + 1.5})
    return found


def history() -> Evidence:
    rows = [r for r in records() if r["kind"] == "row"]
    results = [Result(r["key"], r["value"], r["partition"], r["offset"], r["batch"]) for r in rows]
    batches = [(number, number - 0.1, float(number)) for number in range(BATCHES)]
    return Evidence(
        sent={f"p{i}": (messages, batches) for i, messages in enumerate(SENT)},
        records={"g": records(), "h": records()},
        facts={"g": facts(), "h": facts()},
        ends={0: 4 * BATCHES, 1: 4 * BATCHES},
        results={"table": list(results), "queue": list(results)},
        marks=[],
        in_force=[],
        end=9.0,
        bound_s=2.0,
    )


def test_nothing_in_a_whole_history() -> None:
    verdict = judge(history())
    assert verdict.findings == []
    assert verdict.figures == {
        "messages": 24, "given to g": 24, "given to h": 24, "in the table": 24, "in the queue": 24, "longest wait s": 1.5,
        "bound s": 3.0, "longest micro-batch s": 0.5,
    }  # fmt: skip


def row(evidence: Evidence, value: int, group: str = "h") -> Record:
    return next(r for r in evidence.records[group] if r["kind"] == "row" and r["value"] == value)


def at(evidence: Evidence, value: int) -> int:
    return next(i for i, result in enumerate(evidence.results["table"]) if result.value == value)


# ---- what is planted
def drop_a_delivery(e: Evidence) -> None:
    e.records["h"].remove(row(e, 6))


def never_end_a_batch(e: Evidence) -> None:
    e.records["h"].remove(e.records["h"][-1])


def deliver_again(e: Evidence) -> None:
    e.records["h"].append({**row(e, 6), "batch": 7, "at": 4.0})


def deliver_again_unmarked_to_another(e: Evidence) -> None:
    grant = {"epoch": 2, "lineage_epoch": 2, "flow": "b/0", "offset": 10, "delivered": 12}
    e.facts["h"].append(fact(9, "Granted", 0, **grant))
    e.records["h"].append({**row(e, 20), "run": "s", "epoch": 2, "flow": "b/0", "instance": "b", "at": 4.0})


def put_a_message_twice_into_the_queue(e: Evidence) -> None:
    e.records["h"].append({**row(e, 6), "batch": 7, "at": 4.0, "offset": 12})
    e.records["h"].append({"kind": "end", "run": "r", "batch": 7, "at": 4.5})
    e.ends = {0: 13, 1: 12}


def swap_two_of_a_batch(e: Evidence) -> None:
    found, first, second = e.records["h"], row(e, 0), row(e, 4)
    i, j = found.index(first), found.index(second)
    found[i], found[j] = second, first


def begin_a_batch_before_the_last_has_ended(e: Evidence) -> None:
    next(r for r in e.records["h"] if r["kind"] == "start" and r["batch"] == 1)["at"] = 1.2


def invent_a_delivery(e: Evidence) -> None:
    e.records["h"].append({**row(e, 6), "offset": 99, "value": 1_000, "batch": 2})


def change_a_message(e: Evidence) -> None:
    found = row(e, 6)
    e.records["h"].append({**found, "value": 8, "batch": 2, "redelivered": True})


def give_two_owners(e: Evidence) -> None:
    found = row(e, 6)
    found |= {"run": "s", "instance": "b", "flow": "b/0"}


def stretch_a_gap(e: Evidence) -> None:
    for r in e.records["h"]:
        r["at"] += 3.0 * (r["batch"] == BATCHES - 1)


def end_a_query(e: Evidence) -> None:
    e.ended.append("p0 ended: [CORRUPT_TABLE] …")


def drop_a_result(e: Evidence) -> None:
    del e.results["table"][at(e, 6)]


def repeat_a_result(e: Evidence) -> None:
    e.results["table"].append(e.results["table"][at(e, 6)]._replace(commit=9))


def invent_a_result(e: Evidence) -> None:
    e.results["table"].append(e.results["table"][at(e, 6)]._replace(value=1_000, commit=9))


def swap_two_results(e: Evidence) -> None:
    found, i = e.results["table"], at(e, 4)
    found[i] = found[i]._replace(commit=2, offset=10_000)


PLANTED: list[tuple[Callable[[Evidence], None], str]] = [
    (drop_a_delivery, LOST),
    (never_end_a_batch, LOST),
    (deliver_again, TWICE),
    (deliver_again_unmarked_to_another, TWICE),
    (put_a_message_twice_into_the_queue, TWICE),
    (swap_two_of_a_batch, MISORDERED),
    (begin_a_batch_before_the_last_has_ended, MISORDERED),
    (invent_a_delivery, PHANTOM),
    (change_a_message, PHANTOM),
    (give_two_owners, OWNERS),
    (stretch_a_gap, STALLED),
    (end_a_query, ENDED),
    (drop_a_result, LOST),
    (repeat_a_result, TWICE),
    (invent_a_result, PHANTOM),
    (swap_two_results, MISORDERED),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=lambda x: getattr(x, "__name__", ""))
def test_what_is_planted_is_found(plant: Callable[[Evidence], None], kind: str) -> None:
    evidence = history()
    plant(evidence)
    assert judge(evidence).counts()[kind] > 0, judge(evidence).findings


def test_every_kind_is_planted() -> None:
    assert {kind for _, kind in PLANTED} == set(KINDS)


@pytest.mark.parametrize("again", [2, 3])
@pytest.mark.parametrize("marked", [True, False])
def test_a_grant_that_no_promotion_copied(again: int, marked: bool) -> None:
    """`b` was given the last messages at the primary. The replica does not know it, and grants them with an epoch of its own, which may be the same."""
    evidence = history()
    lost = {"epoch": 2, "lineage_epoch": 2, "flow": "b/0", "offset": 8, "delivered": 8, "at_s": 2.9}
    grant = {"epoch": again, "lineage_epoch": again, "flow": "c/0", "offset": 8, "delivered": 12, "at_s": 3.9}
    evidence.former = {"h": [[*facts(), fact(4, "Granted", 0, **lost)]]}
    evidence.facts["h"] += [fact(4, "MemberLeft", 0), fact(5, "Granted", 0, **grant)]
    given = [r for r in evidence.records["h"] if r["kind"] == "row" and r["partition"] == 0 and r["batch"] == 2]
    for r in given:
        r |= {"run": "s", "instance": "b", "flow": "b/0", "epoch": 2}
    who = {"run": "t", "instance": "c", "flow": "c/0", "epoch": again, "redelivered": marked, "at": 4.0}
    evidence.records["h"] += [{**r, **who} for r in given]
    evidence.records["h"] += [
        {"kind": kind, "run": run, "batch": 2, "at": at}
        for run, at in (("s", 3.0), ("t", 4.0))
        for kind in ("start", "end")
    ]
    assert {kind for kind, _ in judge(evidence).findings} == (set() if marked else {TWICE})
    evidence.former = {}
    assert OWNERS in {kind for kind, _ in judge(evidence).findings}


def test_a_wait_during_a_fault_is_none() -> None:
    evidence = history()
    stretch_a_gap(evidence)
    evidence.in_force = [(2.6, 6.0)]
    assert judge(evidence).counts()[STALLED] == 0
