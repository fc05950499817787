"""A user's Delta table."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_partq.core.payload.schema import payload_schema
from spark_partq.storage.store import Store
from spark_partq.target.table import DeltaTarget

COLUMNS = "v bigint, day date, k string"


@pytest.fixture
def place(tmp_path: Path) -> Store:
    return Store(tmp_path / "t")


@pytest.fixture
def target(place: Store) -> DeltaTarget:
    DeltaTarget.create(place, payload_schema(COLUMNS), ["k"])
    return DeltaTarget(place)
