"""Whatever a table holds or a user gives, its reader takes it or refuses it."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.run import problems
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs(name: str) -> None:
    """What is whole is taken, and what is damaged is taken or refused."""
    assert list(problems(name, TARGETS[name], range(500 // min(TARGETS[name].one_of, 10)))) == []


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_is_one_input(name: str) -> None:
    """Whatever was read before it, or what is found once would not be found again."""
    target = TARGETS[name]
    valid = target.valid()
    before = repr(valid)
    assert repr(target.valid()) == before
    first, *_, again = (repr(target.change(valid, random.Random(seed))) for seed in (7, 8, 9, 10, 7))
    assert first == again and repr(valid) == before
    assert len({repr(target.change(valid, random.Random(seed))) for seed in range(20)}) > 10
