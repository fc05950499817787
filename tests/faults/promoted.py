"""What a former primary granted behind the last pass: a promotion does not copy it, and counts its epochs again from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_partq.core.group.facts import Kind
from spark_partq.core.ids import instance_of
from tests.committing import known_by

Record = Mapping[str, Any]
_Grant = tuple[int, int, str]  # partition, epoch, instance


def with_lost_grants(
    records: Sequence[Record], facts: Sequence[Record], former: Sequence[Sequence[Record]]
) -> tuple[list[Record], list[Record]]:
    """The records and facts of a group as if the grants that no promotion copied were in its history, in front of the promotion.

    They get epochs between the last one that was copied and the first one behind the promotion, and so do the rows that were delivered under them.
    """
    found = list(facts)
    epochs: dict[_Grant, float] = {}
    for lost in (_not_copied(before, facts) for before in former):
        for grant in lost:
            partition = grant["partition"]
            copied = [
                f
                for f in found
                if f["partition"] == partition and f["kind"] == Kind.GRANTED and f["seq"] <= grant["seq"]
            ]
            last = max((f["epoch"] for f in copied), default=0)
            epochs[_grant(grant)] = epoch = (last + int(last) + 1) / 2
            lineage = {"lineage_epoch": epoch} if grant["lineage_epoch"] == grant["epoch"] else {}
            found.append({**grant, "epoch": epoch, **lineage})
    again = {
        _grant(f): f.get("at_s", 0.0) for f in facts if f["kind"] == Kind.GRANTED
    }  # the same instance may get the same epoch

    def epoch_of(row: Record) -> float:
        lost = row["at"] < again.get(_row(row), float("inf"))
        return epochs.get(_row(row), row["epoch"]) if lost else row["epoch"]

    return [{**r, "epoch": epoch_of(r)} if r["kind"] == "row" else r for r in records], found


def _not_copied(before: Sequence[Record], facts: Sequence[Record]) -> list[dict[str, Any]]:
    """The grants of a former primary that are not in the history any more, with the number of the last fact that is."""
    known = {f["seq"]: known_by(f) for f in facts}
    ordered = sorted(before, key=lambda f: int(f["seq"]))
    since = next((i for i, f in enumerate(ordered) if known.get(f["seq"]) != known_by(f)), len(ordered))
    copied = ordered[since - 1]["seq"] if since else -1
    return [{**f, "seq": copied} for f in ordered[since:] if f["kind"] == Kind.GRANTED]


def _grant(fact: Record) -> _Grant:
    return fact["partition"], fact["epoch"], instance_of(fact["flow"])


def _row(row: Record) -> _Grant:
    return row["partition"], row["epoch"], row["instance"]
