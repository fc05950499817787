"""The second judge knows what an owner may do whose session expired while it worked, and to which its partition comes back."""

from __future__ import annotations

import pytest

from tests.faults.crosscheck import cross_check, explained
from tests.faults.judge import Evidence, judge
from tests.faults.test_crosscheck import acknowledged, decided, handed_over, line, program  # noqa: F401
from tests.faults.test_judge import fact

pytestmark = pytest.mark.usefixtures("program")


def came_back() -> Evidence:
    """Nobody owns partition 1 when `a` plans 8 and 9. It joins again, gets the partition in the same lineage, and goes on at 10."""
    evidence = handed_over()
    records, commits = evidence.records["h"], evidence.commits["h"]
    left = {"epoch_before": 1, "epoch": 2, "lineage_epoch": 1, "flow": "a/0", "incarnation": "i-a"}
    back = {"epoch_before": 2, "epoch": 3, "lineage_epoch": 1, "flow": "a/0", "incarnation": "i-2"}
    evidence.facts["h"][4:] = [
        fact(4, "Unassigned", 1, **left, offset=8, delivered=8),
        fact(5, "Granted", 1, **back, offset=8, delivered=10),
    ]
    evidence.commits["h"] = [
        *(commit for commit in commits if commit["id"] not in ("d1", "d2", "b0", "b1")),
        *decided(1, (2.70, 2.71), 2.72, 2.75, evidence.facts["h"][4]),
        *acknowledged("late", 2.80, 2.82, ("i-a", 1, 1, 0, 8, 10)),
        *decided(2, (3.60, 3.61), 3.62, 3.63, evidence.facts["h"][5]),
        *acknowledged("r0", 3.70, 3.75, ("i-2", 1, 3, 10, 10, 12)),
        *acknowledged("r1", 4.60, 4.65, ("i-2", 1, 3, 12, 0, 12)),
    ]
    records[:] = [r for r in records if r["kind"] == "row" or r["run"] != "s"]
    for r in records:
        if r["kind"] == "row" and r["run"] == "s":
            batch = {"batch": 2, "epoch": 1} if r["offset"] < 10 else {"batch": 3, "epoch": 3, "at": 4.0}
            r |= {"run": "r", "instance": "a", "flow": "a/0", **batch}
    records += [{"kind": kind, "run": "r", "batch": 3, "at": at} for kind, at in (("start", 4.0), ("end", 4.5))]
    return evidence


def test_an_owner_goes_on_behind_what_it_planned_while_nobody_owned_the_partition() -> None:
    evidence = came_back()
    assert judge(evidence).findings == []
    found = cross_check(evidence)
    assert found["verdict"] == "ok", explained(found)


def test_it_leaves_nothing_out() -> None:
    evidence = came_back()
    line(evidence, "r0")["rows"][0]["start"] = 11
    assert "it planned from 11, behind 10 with the position 10" in explained(cross_check(evidence))


def test_another_owner_begins_at_the_position() -> None:
    """What the former owner has planned is not planned for the next one, whose lineage is another."""
    evidence = came_back()
    other = {"lineage_epoch": 3, "flow": "b/0"}
    evidence.facts["h"][5] |= other
    line(evidence, "d2")["facts"][0] |= other
    assert "it acknowledged up to 10, and had finished up to 8" in explained(cross_check(evidence))
