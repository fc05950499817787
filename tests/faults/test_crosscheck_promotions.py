"""The second judge knows what a promotion may lose: acknowledgements, and what was decided, after the last pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.committing import known_by
from tests.faults.crosscheck import cross_check, explained
from tests.faults.judge import Evidence
from tests.faults.test_crosscheck import acknowledged, decided, handed_over, line, program  # noqa: F401
from tests.faults.test_judge import fact

pytestmark = pytest.mark.usefixtures("program")

REPLICA = "/replica"


def promoted(evidence: Evidence, position: int, delivered: int = 12, epoch: int = 3) -> Evidence:
    """The replica goes on at `position` of partition 1, whose next owner `c` finishes it, from there to the end, all marked."""
    facts, records, commits = (found["h"] for found in (evidence.facts, evidence.records, evidence.commits))
    seq = facts[-1]["seq"] + 1
    new: dict[str, Any] = {"epoch_before": epoch - 1, "epoch": epoch, "lineage_epoch": epoch}
    left = fact(seq, "Unassigned", 1, **new, flow="b/0", offset=position, delivered=delivered)
    new = {"epoch_before": epoch, "epoch": epoch + 1, "lineage_epoch": epoch + 1, "flow": "c/0", "incarnation": "i-c"}
    granted = fact(seq + 1, "Granted", 1, **new, offset=position, delivered=delivered)
    facts += [left, granted]
    there = [
        *decided(8, (5.0, 5.1), 5.2, 5.3, left),
        *decided(9, (5.4, 5.5), 5.6, 5.7, granted),
        *acknowledged("c0", 5.8, 5.9, ("i-c", 1, epoch + 1, 0, position, 12)),
        *acknowledged("c1", 6.6, 6.7, ("i-c", 1, epoch + 1, 12, 0, 12)),
    ]
    commits += [{**found, "store": REPLICA} if found["kind"] != "told" else found for found in there]
    given = {r["offset"]: r for r in records if r["kind"] == "row" and r["partition"] == 1}
    who = {"run": "t", "batch": 0, "at": 6.0, "instance": "c", "flow": "c/0", "epoch": epoch + 1, "redelivered": True}
    records.append({"kind": "start", "run": "t", "batch": 0, "at": 6.0})
    records += [{**given[offset], **who} for offset in range(position, 12)]
    records.append({"kind": "end", "run": "t", "batch": 0, "at": 6.5})
    return evidence


@pytest.mark.parametrize("position", [8, 10])
def test_acknowledgements_behind_the_last_pass_may_be_lost(position: int) -> None:
    """`b` acknowledged all of it at the primary; the copy knows as much as its pass saw."""
    found = cross_check(promoted(handed_over(), position))
    assert found["verdict"] == "ok", explained(found)


def test_what_was_acknowledged_nowhere_may_not_be_skipped() -> None:
    evidence = handed_over()
    line(evidence, "b1")["rows"][0] |= {"offset": 8, "delivered": 8}
    told = explained(cross_check(promoted(evidence, 10)))
    assert "in the replica the position was 10, and never more than 8 before" in told


def test_what_was_given_may_not_be_forgotten() -> None:
    told = explained(cross_check(promoted(handed_over(), 8, delivered=8)))
    assert "messages below 12 may have been given to somebody, and not only those below 8" in told


def test_the_last_fact_of_a_promotion_says_what_was_given() -> None:
    """Before it the member leaves, as of which the copy knows less."""
    evidence = promoted(handed_over(), 8, epoch=4)
    left, granted = evidence.facts["h"][-2:]
    first = {**left, "epoch_before": 2, "epoch": 3, "lineage_epoch": 2, "delivered": 8}
    evidence.facts["h"][-2:] = [first, {**left, "seq": left["seq"] + 1}, {**granted, "seq": granted["seq"] + 1}]
    known = [{"seq": found["seq"], **known_by(found)} for found in evidence.facts["h"][-3:]]
    line(evidence, "d8")["facts"], line(evidence, "d9")["facts"] = known[:2], known[2:]
    found = cross_check(evidence)
    assert found["verdict"] == "ok", explained(found)


def test_what_goes_on_at_the_primary_does_not_count() -> None:
    """`b` acknowledges there, and plans, when the replica has taken over."""
    evidence = promoted(handed_over(), 8)
    late = acknowledged("b9", 7.0, 7.1, ("i-b", 1, 2, 12, 0, 12))
    evidence.commits["h"] += late
    assert cross_check(evidence)["verdict"] == "ok"
    late[0]["store"] = REPLICA  # there it is of an epoch that has ended, and changes nothing, either
    assert cross_check(evidence)["verdict"] == "ok"
    late[0]["rows"][0]["epoch"] = 4
    assert "epoch 4 is that of i-c" in explained(cross_check(evidence))


def test_a_grant_behind_the_last_pass_is_nobodys() -> None:
    """The handover to `b` was decided at the primary and is not in the copy, which grants the same epochs to others."""
    evidence = handed_over()
    del evidence.facts["h"][5:7]
    found = cross_check(promoted(evidence, 8, epoch=2))
    assert found["verdict"] == "ok", explained(found)
    line(evidence, "d2")["facts"].pop()  # nobody was granted anything there
    assert cross_check(evidence)["verdict"] == "illegal"
