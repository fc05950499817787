"""A user's Delta table in an object store whose connections fail: each commit is in once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.core.payload.schema import payload_schema
from spark_partq.storage.files import asking
from spark_partq.storage.log import Conflict
from spark_partq.storage.store import Store
from spark_partq.target.table import DeltaTarget
from tests.faults.objects import ObjectStore, object_store
from tests.faults.proxy import CUT, LOST, UNANSWERED
from tests.s3server import BUCKET
from tests.target.test_table import COLUMNS, files

COMMITS = 12


@pytest.fixture(scope="module")
def place() -> Iterator[ObjectStore]:
    with object_store(3) as found:
        yield found


@pytest.fixture(autouse=True)
def _hardly_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(asking, "_FIRST_PAUSE_S", 0.01)


def table(options: dict[str, str], name: str) -> Store:
    return Store(f"s3://{BUCKET}/{name}", options)


@pytest.mark.parametrize("fault", [CUT, UNANSWERED, LOST])
def test_each_commit_is_in_once(place: ObjectStore, fault: str) -> None:
    """X1: whether a commit without an answer is in, the positions tell."""
    direct = table(place.options, fault.replace(" ", "-"))
    DeltaTarget.create(direct, payload_schema(COLUMNS), ["k"])
    before = place.proxy.count(fault)
    with place.proxy.doing({fault: 0.3}):
        target = DeltaTarget(table(place.options_through_proxy(timeout="500ms"), fault.replace(" ", "-")))
        for i in range(COMMITS):
            while target.recorded("a") != i:
                try:
                    target.commit(files(direct, [i]), {"a": i})
                except Conflict:
                    continue
                target.refresh()
    assert place.proxy.count(fault) > before
    found = DeltaTable(direct.uri, storage_options=dict(direct.storage_options)).to_pyarrow_table()
    assert sorted(found["v"].to_pylist()) == list(range(COMMITS))


def test_a_connection_that_always_fails(place: ObjectStore) -> None:
    """It is no damage, and nothing is told to be refused."""
    direct = table(place.options, "away")
    DeltaTarget.create(direct, payload_schema(COLUMNS), ["k"])
    target = DeltaTarget(table(place.options_through_proxy(), "away"))
    written = files(direct, [1])
    with place.proxy.doing({CUT: 1.0}):
        with pytest.raises(StoreUnavailableError):
            target.refresh()
        with pytest.raises(StoreUnavailableError):
            target.commit(written, {"a": 1})
