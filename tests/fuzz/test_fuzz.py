"""Whatever a table holds, its reader takes it or refuses it."""

from __future__ import annotations

import pytest

from tests.fuzz.run import problems
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_valid_inputs(name: str) -> None:
    """What is damaged in the other test is whole before."""
    valid, read = TARGETS[name]
    read(valid)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs(name: str) -> None:
    assert list(problems(name, range(500))) == []
