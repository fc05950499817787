"""K1: results as those of Apache Kafka's assignors, judged on inputs that these were run on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assignments import assert_valid, improving_moves, loads, owners, pair_score, unevenness
from spark_partq.core.assignors import Member, assign

CASES = [json.loads(line) for line in (Path(__file__).parents[3] / "tests" / "data" / "assignor-cases.jsonl").open()]


def ids(case: Mapping[str, Any]) -> str:
    return str(case["case"]["id"])


def members_of(case: Mapping[str, Any]) -> list[Member]:
    return [
        Member(m["id"], m["topics"], m["instance_id"], [(q, p) for q, p in m["owned"]], m["generation"])
        for m in case["case"]["members"]
    ]


def test_all_cases_are_there() -> None:
    assert len(CASES) == 176


@pytest.mark.parametrize("case", [c for c in CASES if c["compare"] == "exact"], ids=ids)
def test_exactly_as_kafkas(case: dict[str, Any]) -> None:
    result = assign(case["case"]["assignor"], members_of(case), case["case"]["topics"])
    assert result == {m: sorted((q, p) for q, p in mine) for m, mine in case["oracle"]["assignment"].items()}


@pytest.mark.parametrize("case", [c for c in CASES if c["compare"] == "properties"], ids=ids)
def test_as_good_as_kafkas(case: dict[str, Any]) -> None:
    """Both sticky kinds have one target; `cooperative-sticky` withholds some of it."""
    members, counts = members_of(case), case["case"]["topics"]
    full = owners(assign("sticky", members, counts))
    assert_valid(full, members, counts)
    claimed = {(m.id, partition) for m in members for partition in m.owned}
    stays = sum((member, partition) in claimed for partition, member in full.items())
    sizes, theirs = sorted(loads(full, members).values()), case["kafka_balance"]["sizes"]
    if case["subscriptions"] == "equal":
        assert sizes[-1] - sizes[0] <= 1
        assert stays == case["kafka_kept"]
    else:
        assert not list(improving_moves(full, members))
        assert unevenness(sizes) <= unevenness(theirs)
        assert pair_score(sizes) <= pair_score(theirs)
        if unevenness(sizes) == unevenness(theirs):
            assert stays >= case["kafka_kept"]


@pytest.mark.parametrize("case", [c for c in CASES if c["case"]["assignor"] == "cooperative-sticky"], ids=ids)
def test_what_moves_is_withheld_until_it_is_given_up(case: dict[str, Any]) -> None:
    members, counts = members_of(case), case["case"]["topics"]
    full = owners(assign("sticky", members, counts))
    given = owners(assign("cooperative-sticky", members, counts))
    claims = {partition: [m.id for m in members if partition in m.owned] for partition in full}
    assert given.items() <= full.items()
    for partition, member in full.items():
        must_wait = bool(claims[partition]) and member not in claims[partition]
        assert (partition not in given) == must_wait, partition
    generation = 1 + max((m.generation for m in members), default=0)
    then = [
        dataclasses.replace(m, owned=[p for p, member in given.items() if member == m.id], generation=generation)
        for m in members
    ]
    at_last = owners(assign("cooperative-sticky", then, counts))
    assert_valid(at_last, members, counts)
    assert given.items() <= at_last.items()
    assert sorted(loads(at_last, members).values()) == sorted(loads(full, members).values())


CHAINS = sorted({c["chain"] for c in CASES if c.get("chain") and c["compare"] == "properties"})


@pytest.mark.parametrize("chain", CHAINS)
def test_histories_with_our_own_results(chain: str) -> None:
    """The steps of each history, where every member comes with what ours gave it in the step before."""
    steps = sorted((c for c in CASES if c.get("chain") == chain), key=lambda c: c["step"])
    has: dict[str, list[tuple[str, int]]] = {}
    for step in steps:
        counts = step["case"]["topics"]
        members = [
            dataclasses.replace(m, owned=has.get(m.id, []), generation=step["step"] if m.id in has else -1)
            for m in members_of(step)
        ]
        result = assign("sticky", members, counts)
        full = owners(result)
        assert_valid(full, members, counts)
        assert not list(improving_moves(full, members))
        assert (
            assign("sticky", [dataclasses.replace(m, owned=result[m.id], generation=99) for m in members], counts)
            == result
        )
        has = assign(step["case"]["assignor"], members, counts)
