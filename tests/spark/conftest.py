"""The applications of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from tests.applications import Kind, Pool


@pytest.fixture(scope="session")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Kind, Pool]]:
    """One pool of each kind."""
    found: dict[Kind, Pool] = {kind: Pool(tmp_path_factory.mktemp(kind), kind) for kind in get_args(Kind)}
    yield found
    for pool in found.values():
        pool.close()


@pytest.fixture
def pool(pools: dict[Kind, Pool], request: pytest.FixtureRequest) -> Iterator[Pool]:
    """Of the kind that the test asks for; afterwards every query is stopped."""
    found = pools[request.param]
    yield found
    found.clear()
