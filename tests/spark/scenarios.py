"""How a test of applications asks for them: plain ones, with Spark, or both."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from tests.applications import Scenario

# A test runs with plain applications, and with Spark in `make long`, or with both at once.
PLAIN = pytest.mark.parametrize("pool", ["plain", pytest.param("spark", marks=pytest.mark.long)], indirect=True)


class NewScenario(Protocol):
    def __call__(self, partitions: int, **settings: Any) -> Scenario: ...
