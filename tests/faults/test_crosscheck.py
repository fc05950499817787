"""The second judge, Porcupine, finds what is planted in a history, agrees with the first one, and finds nothing in a whole one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_partq.testing.resultcheck import Result
from tests.committing import known_by
from tests.faults import crosscheck
from tests.faults.crosscheck import BOTH, NO_GO, UNRECORDED, NothingToBuildWithError, compare, cross_check, explained
from tests.faults.judge import DISAGREED, Evidence, Record, judge
from tests.faults.order import Order
from tests.faults.test_judge import PLANTED, fact, history, row

needs_go = pytest.mark.usefixtures("program")
Plant = Callable[[Evidence], None]

STORE = "/store"
_EPOCH_2 = {"epoch_before": 1, "epoch": 2, "lineage_epoch": 2}
_GRANT_B = {**_EPOCH_2, "flow": "b/0", "incarnation": "i-b", "offset": 8, "delivered": 8}


@pytest.fixture(scope="module")
def program() -> None:
    """The checker is built; without Go, or where Porcupine cannot be fetched, the test is left out."""
    try:
        crosscheck.checker()
    except NothingToBuildWithError as error:
        pytest.skip(str(error))


# ---- a whole history
def decided(number: int, looked: tuple[float, float] | None, at: float, told: float, *facts: Record) -> list[Record]:
    """What a process writes down of a commit to the control table."""
    about = {"group": "h", "store": STORE, "at": at, "looked": looked}
    known = [{"seq": f["seq"], **known_by(f)} for f in facts]
    line = {"kind": "decide", "id": f"d{number}", **about, "facts": known}
    return [line, {"kind": "told", "id": f"d{number}", "at": told, "is_in": True}]


def acknowledged(name: str, at: float, told: float | None, *rows: tuple[str, int, int, int, int, int]) -> list[Record]:
    """Of one to the ack table; rows are incarnation, partition, epoch, offset, start, delivered."""
    columns = ("incarnation", "partition", "epoch", "offset", "start", "delivered")
    about = {"group": "h", "store": STORE, "at": at, "rows": [dict(zip(columns, r, strict=True)) for r in rows]}
    lines: list[Record] = [{"kind": "acknowledge", "id": name, **about}]
    return lines + ([] if told is None else [{"kind": "told", "id": name, "at": told, "is_in": True}])


def handed_over() -> Evidence:
    """The history of `test_judge`; in group h the last messages of partition 1 are given to `b`, which got it from `a`."""
    evidence = history()
    facts, records = evidence.facts["h"], evidence.records["h"]
    left = {"epoch_before": 1, "epoch": 1, "lineage_epoch": 1, "flow": "a/0", "incarnation": "i-a"}
    facts += [
        fact(4, "HandoffStarted", 1, **left, to_flow="b/0"),
        fact(5, "Released", 1, **left, offset=8, delivered=8),
        fact(6, "Granted", 1, **_GRANT_B),
    ]
    for r in records:
        if r["kind"] == "row" and r["partition"] == 1 and r["batch"] == 2:
            r |= {"run": "s", "instance": "b", "flow": "b/0", "epoch": 2}
    records += [{"kind": kind, "run": "s", "batch": 2, "at": at} for kind, at in (("start", 3.0), ("end", 3.4))]
    evidence.commits = {"h": [
        *decided(0, None, 0.1, 0.2, *facts[:4]),
        *acknowledged("a0", 0.90, 0.95, ("i-a", 0, 1, 0, 0, 4), ("i-a", 1, 1, 0, 0, 4)),
        *acknowledged("a1", 1.90, 1.95, ("i-a", 0, 1, 4, 4, 8), ("i-a", 1, 1, 4, 4, 8)),
        *decided(1, (2.30, 2.31), 2.32, 2.33, facts[4]),
        *acknowledged("a2", 2.60, 2.65, ("i-a", 0, 1, 8, 0, 8), ("i-a", 1, 1, 8, 0, 8)),
        *decided(2, (2.70, 2.71), 2.72, 2.75, *facts[5:7]),
        *acknowledged("a3", 2.90, 2.95, ("i-a", 0, 1, 0, 8, 12)),
        *acknowledged("b0", 2.90, 2.95, ("i-b", 1, 2, 0, 8, 12)),
        *acknowledged("b1", 3.60, 3.65, ("i-b", 1, 2, 12, 0, 12)),
        *acknowledged("a4", 3.60, 3.65, ("i-a", 0, 1, 12, 0, 12)),
    ]}  # fmt: skip
    return evidence


@needs_go
def test_nothing_in_a_whole_history() -> None:
    for evidence in (history(), handed_over()):
        verdict = judge(evidence)
        assert verdict.findings == []
        compare(evidence, verdict)
        assert (verdict.findings, verdict.figures["cross-check"]) == ([], "ok"), verdict.findings
    assert cross_check(handed_over())["operations"] == {"keys": 208, "log": 18, "ownership": 29}


def line(evidence: Evidence, name: str) -> dict[str, Any]:
    return next(c for c in evidence.commits["h"] if c["id"] == name and c["kind"] != "told")


def told(evidence: Evidence, name: str) -> dict[str, Any]:
    return next(c for c in evidence.commits["h"] if c["id"] == name and c["kind"] == "told")


def regrant(evidence: Evidence, **columns: Any) -> None:
    """The grant to `b` says something else, in the table and in what its decider wrote down."""
    found = evidence.facts["h"][6]
    found |= columns
    line(evidence, "d2")["facts"][1] = {"seq": 6, **known_by(found)}


# ---- what is planted, and both find
def own_twice_under_one_epoch(e: Evidence) -> None:
    e.facts["h"].append(fact(7, "Granted", 1, **{**_GRANT_B, "epoch_before": 2, "flow": "c/0", "incarnation": "i-c"}))


def deliver_under_the_epoch_of_another(e: Evidence) -> None:
    for r in e.records["h"]:
        if r["kind"] == "row" and r["run"] == "s":
            r["epoch"] = 1


def deliver_under_an_epoch_of_nobody(e: Evidence) -> None:
    row(e, 17)["epoch"] = 7


def skip_what_nobody_was_given(e: Evidence) -> None:
    regrant(e, offset=10, delivered=10)
    e.records["h"][:] = [
        r for r in e.records["h"] if r["kind"] != "row" or (r["partition"], r["offset"]) not in ((1, 8), (1, 9))
    ]


def grant_what_was_acknowledged(e: Evidence) -> None:
    """The new owner begins at 4, and is given 4 to 7 again, without a mark."""
    regrant(e, offset=4, delivered=4)
    again = [r for r in e.records["h"] if r["kind"] == "row" and r["partition"] == 1 and r["batch"] == 1]
    first = next(i for i, r in enumerate(e.records["h"]) if r["run"] == "s")
    e.records["h"][first:first] = [
        {**r, "run": "s", "batch": 2, "instance": "b", "flow": "b/0", "epoch": 2} for r in again
    ]


def move_the_position_as_a_stale_owner(e: Evidence) -> None:
    """`a` acknowledges what `b` was given and never finished, and the next owner goes on behind that."""
    e.records["h"][:] = [r for r in e.records["h"] if (r["run"], r["kind"]) != ("s", "end")]
    e.commits["h"] = [c for c in e.commits["h"] if c["id"] != "b1"]
    e.commits["h"] += acknowledged("a9", 3.70, 3.75, ("i-a", 1, 1, 12, 0, 12))
    third = {**_GRANT_B, "epoch_before": 2, "epoch": 3, "lineage_epoch": 3, "flow": "c/0", "incarnation": "i-c"}
    e.facts["h"].append(fact(7, "Granted", 1, **{**third, "offset": 12, "delivered": 12}))


def release_before_all_is_acknowledged(e: Evidence) -> None:
    """All that was planned has to be, as its owner knows."""
    line(e, "a2")["rows"][1] |= {"offset": 7, "delivered": 7}
    for found in (*e.facts["h"][5:7], *line(e, "d2")["facts"]):
        found["offset"] = 7


def change_what_one_group_reads(e: Evidence) -> None:
    """In h two messages of different keys have changed places."""
    first, second = row(e, 16), row(e, 18)
    assert first["key"] != second["key"]
    first["offset"], second["offset"] = second["offset"], first["offset"]


def write_a_result_twice_into_the_queue(e: Evidence) -> None:
    e.results["queue"].append(Result(*e.results["queue"][3][:2], 0, 99, 9))


# Each with a part of what the second one says; nothing where the plant is the first one's own.
BOTH_FIND: list[tuple[Plant, str]] = [
    *((plant, "") for plant, kind in PLANTED if kind in BOTH),
    (own_twice_under_one_epoch, "epoch 2 was granted after epoch 2"),
    (deliver_under_the_epoch_of_another, "epoch 1 is that of a, and not of b"),
    (deliver_under_an_epoch_of_nobody, "epoch 7 is nobody's yet"),
    (skip_what_nobody_was_given, "Granted is at 10, and what comes before it in the commit at 8"),
    (grant_what_was_acknowledged, "Granted is at 4, and what comes before it in the commit at 8"),
    (move_the_position_as_a_stale_owner, "it saw the position 12, which was 8"),
    (release_before_all_is_acknowledged, "it was released at 7, and planned up to 8"),
    (change_what_one_group_reads, "at 9 it read k-0=16, and k-1=18 was appended there"),
    (write_a_result_twice_into_the_queue, "message 1 came again without a mark"),
]


@needs_go
@pytest.mark.parametrize(("plant", "why"), BOTH_FIND, ids=lambda x: getattr(x, "__name__", ""))
def test_what_is_planted_is_found_by_both(plant: Plant, why: str) -> None:
    evidence = handed_over()
    plant(evidence)
    verdict = judge(evidence)
    assert any(kind in BOTH for kind, _ in verdict.findings)
    compare(evidence, verdict)
    assert verdict.figures["cross-check"] == "illegal", verdict.findings
    assert verdict.counts()[DISAGREED] == 0
    whys = [stuck["why"] for register in cross_check(evidence)["illegal"] for stuck in register["next"]]
    assert any(why in found for found in whys), whys


# ---- what only the second one can see, as it knows what each process invoked, and when
def decide_on_what_was_not_there_yet(e: Evidence) -> None:
    """The acknowledgement was invoked after the decider had looked, and it saw it."""
    line(e, "a2")["at"], told(e, "a2")["at"] = 2.712, 2.715


def decide_on_an_old_state(e: Evidence) -> None:
    """Who releases looked before the handoff was there."""
    line(e, "d2")["looked"] = (2.20, 2.21)


def commit_in_another_order(e: Evidence) -> None:
    line(e, "d1")["at"], told(e, "d1")["at"] = 2.80, 2.81


def plan_under_the_epoch_of_another(e: Evidence) -> None:
    line(e, "b0")["rows"][0]["incarnation"] = "i-a"


def plan_before_the_grant(e: Evidence) -> None:
    line(e, "b0")["at"], told(e, "b0")["at"] = 2.60, 2.62


def plan_behind_a_gap(e: Evidence) -> None:
    line(e, "a1")["rows"][1]["start"] = 5


def acknowledge_what_is_not_finished(e: Evidence) -> None:
    line(e, "b1")["at"], told(e, "b1")["at"] = 3.10, 3.20


def forget_what_was_planned(e: Evidence) -> None:
    """The grant says that nothing above the position was given to anybody; an owner that stood still had planned more."""
    e.commits["h"] += acknowledged("z", 2.66, 2.68, ("i-a", 1, 1, 0, 8, 9))


ONE_FINDS: list[tuple[Plant, str]] = [
    (decide_on_what_was_not_there_yet, "it saw the position 8, which was 4"),
    (decide_on_an_old_state, "its state was that of fact 4, and not of 3"),
    (commit_in_another_order, "its state was that of fact 4, and not of 3"),
    (plan_under_the_epoch_of_another, "epoch 2 is that of i-b"),
    (plan_before_the_grant, "epoch 2 is nobody's yet"),
    (plan_behind_a_gap, "it planned from 5, behind 4 with the position 4"),
    (acknowledge_what_is_not_finished, "it acknowledged up to 12, and had finished up to 8"),
    (forget_what_was_planned, "it saw that messages below 8 were given to somebody; those below 9 were"),
]


@needs_go
@pytest.mark.parametrize(("plant", "why"), ONE_FINDS, ids=lambda x: getattr(x, "__name__", ""))
def test_what_only_the_second_sees_is_a_finding(plant: Plant, why: str) -> None:
    evidence = handed_over()
    plant(evidence)
    verdict = judge(evidence)
    assert verdict.findings == []
    compare(evidence, verdict)
    assert [kind for kind, _ in verdict.findings] == [DISAGREED]
    assert "ownership h/1" in verdict.findings[0][1]
    assert why in verdict.findings[0][1]


@needs_go
def test_what_the_first_alone_finds_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = handed_over()
    monkeypatch.setattr(crosscheck, "operations", lambda _: Order(handed_over()).operations())
    BOTH_FIND[0][0](evidence)
    verdict = judge(evidence)
    compare(evidence, verdict)
    assert verdict.counts()[DISAGREED] == 1


# ---- what may be
@needs_go
def test_operations_at_once_may_come_in_any_order() -> None:
    """It is called after the decider began to look, and was not told of its end before: one order explains it."""
    evidence = handed_over()
    line(evidence, "d2")["looked"], line(evidence, "a2")["at"] = (2.70, 2.72), 2.705
    told(evidence, "a2")["at"] = 2.90
    assert cross_check(evidence)["verdict"] == "ok"


@needs_go
@pytest.mark.parametrize("came", [True, False])
def test_who_never_heard_of_its_commit_may_have_made_it(came: bool) -> None:
    """`a` dies as it acknowledges: whether that is in is seen from where the group goes on."""
    evidence = handed_over()
    evidence.commits["h"] = [c for c in evidence.commits["h"] if (c["id"], c["kind"]) != ("a2", "told")]
    if not came:
        offset = {"offset": 4, "delivered": 8}
        evidence.facts["h"][5:7] = [
            {**evidence.facts["h"][5], "kind": "Unassigned", "epoch": 2, **offset},
            fact(6, "Granted", 1, **{**_GRANT_B, "epoch_before": 2, "epoch": 3, "lineage_epoch": 3, **offset}),
        ]
        line(evidence, "d2")["facts"] = [{"seq": f["seq"], **known_by(f)} for f in evidence.facts["h"][5:7]]
        again = [r for r in evidence.records["h"] if r["kind"] == "row" and r["partition"] == 1 and r["batch"] == 1]
        first = next(i for i, r in enumerate(evidence.records["h"]) if r["run"] == "s")
        evidence.records["h"][first:first] = [
            {**r, "run": "s", "batch": 2, "instance": "b", "flow": "b/0", "redelivered": True} for r in again
        ]
        for r in evidence.records["h"]:
            if r["kind"] == "row" and r["run"] == "s":
                r["epoch"] = 3
        for name in ("b0", "b1"):
            line(evidence, name)["rows"][0]["epoch"] = 3
        line(evidence, "b0")["rows"][0]["start"] = 4
    found = cross_check(evidence)
    assert found["verdict"] == "ok", explained(found)


@needs_go
def test_a_commit_that_failed_may_be_tried_again() -> None:
    """On a full disk nobody knows whether it went in; then somebody else came between, and the same grant has another number."""
    evidence = handed_over()
    failed = {**line(evidence, "d2"), "id": "d5", "at": 2.69, "looked": (2.67, 2.68)}
    failed["facts"] = [{**f, "seq": f["seq"] - 1} for f in failed["facts"]]
    evidence.commits["h"].append(failed)
    found = cross_check(evidence)
    assert found["verdict"] == "ok", explained(found)


@needs_go
def test_a_stale_owner_may_plan_if_the_second_one_marks_it() -> None:
    """`a` stood still and plans 8 to 12 as well, behind the grant; `b`, which comes to it later, has marked them."""
    evidence = handed_over()
    evidence.commits["h"] += acknowledged("z", 2.80, 2.82, ("i-a", 1, 1, 0, 8, 12))
    assert cross_check(evidence)["verdict"] == "illegal"
    for r in evidence.records["h"]:
        if r["kind"] == "row" and r["run"] == "s":
            r["redelivered"] = True
    assert cross_check(evidence)["verdict"] == "ok"


@needs_go
@pytest.mark.parametrize("marked", [True, False])
def test_a_stale_owner_may_begin_last_with_what_it_planned_first(marked: bool) -> None:
    """`a` stood still once more before it delivered that: then its messages come behind those of `b`, and without a mark."""
    evidence = handed_over()
    evidence.commits["h"] += acknowledged("z", 2.80, 2.82, ("i-a", 1, 1, 0, 8, 12))
    given = [r for r in evidence.records["h"] if r["kind"] == "row" and r["run"] == "s"]
    late = {"run": "r", "batch": 3, "at": 4.0, "instance": "a", "flow": "a/0", "epoch": 1}
    evidence.records["h"] += [{**r, **late} for r in given]
    evidence.records["h"] += [{"kind": kind, "run": "r", "batch": 3, "at": 4.0} for kind in ("start", "end")]
    for r in given:
        r["redelivered"] = marked
    found = cross_check(evidence)
    assert found["verdict"] == ("ok" if marked else "illegal"), explained(found)
    models = {one["model"] for one in found["illegal"]}
    assert models == (set() if marked else {"keys", "ownership"})


# ---- what cannot be checked
def test_without_go_it_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    crosscheck.checker.cache_clear()
    monkeypatch.setenv("PATH", "")
    verdict = judge(handed_over())
    assert (compare(handed_over(), verdict), verdict.findings) == ([NO_GO], [])
    assert "cross-check" not in verdict.figures


@needs_go
def test_a_program_that_cannot_be_built_is_not_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    crosscheck.checker.cache_clear()
    (tmp_path / "go.mod").write_text("module nothing")
    (tmp_path / "main.go").write_text("package nothing; what")
    monkeypatch.setattr(crosscheck, "_SOURCE", tmp_path)
    (why,) = compare(handed_over(), judge(handed_over()))
    crosscheck.checker.cache_clear()
    assert why.startswith("cross-check: `go build -trimpath` failed")


@needs_go
def test_too_little_time_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crosscheck, "_LIMIT_S", 0)
    evidence = handed_over()
    swapped = next(plant for plant, _ in BOTH_FIND if plant.__name__ == "swap_two_of_a_batch")
    swapped(evidence)
    verdict = judge(evidence)
    assert any("did not end" in why for why in compare(evidence, verdict))
    assert verdict.figures["cross-check"] == "unknown"
    assert verdict.counts()[DISAGREED] == 0


@needs_go
def test_a_group_without_commits_is_not_done() -> None:
    assert compare(history(), judge(history())) == [UNRECORDED]


@needs_go
def test_the_smallest_register_comes_first(tmp_path: Path) -> None:
    """The operations are kept, and the program says the same of the file."""
    evidence, record = handed_over(), tmp_path / "operations.jsonl"
    cross_check(evidence, record)
    assert not record.exists()
    for plant in (move_the_position_as_a_stale_owner, change_what_one_group_reads):
        plant(evidence)
    found = cross_check(evidence, record)["illegal"]
    again = subprocess.run([str(crosscheck.checker()), str(record)], check=True, capture_output=True, text=True)
    assert json.loads(again.stdout)["illegal"] == found
    assert len(found) > 1
    assert [one["operations"] for one in found] == sorted(one["operations"] for one in found)
    for one in found:
        assert one["explained"] < one["operations"]
        assert all(json.loads(stuck["operation"])["op"] and stuck["why"] for stuck in one["next"])
