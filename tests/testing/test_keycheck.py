"""The check of keys finds every fault that is planted, and nothing in a clean run."""

from __future__ import annotations

from typing import Any

from spark_partq.testing.keycheck import check_keys

SENT = [(k, v) for v in range(6) for k in ("a", "b")]


def batch(run: str, number: int, at: float, *messages: tuple[str, int], end: bool = True, **about: Any) -> list[Any]:
    rows = [{"kind": "row", "key": k, "value": v, "redelivered": False, "at": at, **about} for k, v in messages]
    records = [{"kind": "start", "at": at}, *rows, *([{"kind": "end", "at": at + 1}] if end else [])]
    return [{"run": run, "batch": number, **record} for record in records]


def clean() -> list[list[Any]]:
    return [batch("r", v, 2.0 * v, ("a", v), ("b", v)) for v in range(6)]


def judged(batches: list[list[Any]], again: bool = False) -> tuple[bool, list[Any], list[Any], list[Any]]:
    report = check_keys([record for b in batches for record in b], SENT, again)
    return report.ok, report.lost, report.twice, report.out_of_order


def test_nothing_in_a_clean_run() -> None:
    assert judged(clean()) == (True, [], [], [])


def test_lost() -> None:
    batches = clean()
    batches[2] = batch("r", 2, 4.0, ("a", 2))
    assert judged(batches) == (False, [("b", 2)], [], [])
    batches[2] = batch("r", 2, 4.0, ("a", 2), ("b", 2), end=False)
    assert judged(batches)[1] == [("a", 2), ("b", 2)]


def test_twice() -> None:
    assert judged([*clean(), batch("s", 0, 20.0, ("a", 3))])[2] == [("a", 3)]
    marked = [*clean(), batch("s", 0, 20.0, ("a", 3), redelivered=True)]
    assert judged(marked)[2] == [("a", 3)], "nobody was killed"
    assert judged(marked, again=True) == (True, [], [], [])
    assert judged([*clean(), batch("s", 0, 20.0, ("c", 1))])[2] == [("c", 1)], "nobody sent that"


def test_out_of_order() -> None:
    batches = clean()
    batches[3] = batch("s", 0, 4.5, ("a", 3), ("b", 3))  # before its predecessor was finished
    assert judged(batches)[3] == [("a", 3), ("b", 3)]
    batches = clean()
    batches[3] = batch("r", 3, 6.0, ("a", 3), ("b", 4), ("b", 3))
    batches[4] = batch("r", 4, 8.0, ("a", 4))
    assert judged(batches)[3] == [("b", 4)], "in one micro-batch"


def test_a_killed_consumer() -> None:
    """What it had and did not finish is counted where it was finished."""
    batches = clean()
    batches[2] = batch("r", 2, 4.0, ("a", 2), ("b", 2), end=False)
    batches.insert(3, batch("s", 0, 5.0, ("a", 2), ("b", 2), redelivered=True))
    assert judged(batches, again=True) == (True, [], [], [])


def test_a_former_owner_that_was_too_slow() -> None:
    """It ends after the new one has begun with the same messages, and with the next; what the new one does counts."""
    batches = [batch("r", v, 2.0 * v, ("a", v), ("b", v), epoch=1) for v in range(3)]
    batches[2][-1]["at"] = 99.0
    batches += [batch("s", 0, 5.0, ("a", 2), ("b", 2), redelivered=True, epoch=2)]
    later = [batch("s", v, 2.0 * v, ("a", v), ("b", v), epoch=2) for v in range(3, 6)]
    assert judged([*batches, *later], again=True) == (True, [], [], [])
    later[0] = batch("s", 3, 5.5, ("a", 3), ("b", 3), epoch=2)
    assert judged([*batches, *later], again=True)[3] == [("a", 3), ("b", 3)], "before the new one had ended"


def test_a_former_owner_that_planned_behind_the_new_one() -> None:
    """It stood still before its plan, so its own delivery has the mark. The first delivery of a message never needs one."""
    batches = [batch("r", v, 2.0 * v, ("a", v), ("b", v), epoch=2) for v in range(6)]
    behind = batch("s", 0, 5.5, ("a", 2), redelivered=True, epoch=1)
    assert judged([*batches, behind], again=True) == (True, [], [], [])
    in_front = batch("s", 0, 3.5, ("a", 2), redelivered=True, epoch=1)
    assert judged([*batches, in_front], again=True)[2] == [("a", 2)]


def test_a_group_that_is_set_back() -> None:
    """The earlier messages of a key come again, and not the later ones, whose partition is gone."""
    again = batch("s", 0, 20.0, ("a", 0), ("a", 1), redelivered=True, epoch=2)
    assert judged([*clean(), again], again=True) == (True, [], [], [])
