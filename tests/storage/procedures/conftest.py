"""Queries without Spark for the tests of this folder, and their end."""

from collections.abc import Iterator

import pytest

from tests.planners import Query


@pytest.fixture
def queries() -> Iterator[list[Query]]:
    """They leave after the test."""
    found: list[Query] = []
    yield found
    for query in found:
        query.leave()
