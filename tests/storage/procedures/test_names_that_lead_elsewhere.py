"""A name of a store leads to another store on another machine: nobody fences or changes the wrong one (S7)."""

from __future__ import annotations

from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.storage.procedures.primary import check_primary
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.scaled import Sink, make, messages, stored


def lead(name: Path, store: Path) -> None:
    """As if this machine had mounted that store under the name."""
    name.unlink(missing_ok=True)
    name.symlink_to(store)


def test_a_replica_s_name_leads_to_the_primary(tmp_path: Path) -> None:
    """Each site calls its own store `data` and the other site's `other`; a program at the second site opens the first site's queue."""
    before, first, second = (str(tmp_path / name) for name in ("before", "first", "second"))
    make(before, 2)
    partq.replicate(before, "q", first)
    partq.promote(first, "q")  # so it has a replica's table, too
    Path(second).mkdir()
    data, other = tmp_path / "data", tmp_path / "other"
    lead(data, Path(first)), lead(other, Path(second))
    partq.replicate(str(data), "q", str(other))
    lead(data, Path(second)), lead(other, Path(first))
    check_primary(opened(str(other)), opening=True)
    assert queue_state(Store(first), "q").fenced_by is None
    lead(data, Path(first)), lead(other, Path(second))
    Sink(str(data)).write(0, messages(0, 10))
    assert partq.replicate(str(data), "q", str(other)).problem == ""


@pytest.mark.parametrize("leads_to", ["itself", "another"])
@pytest.mark.parametrize("force", [False, True])
def test_the_primary_s_name_leads_to_a_replica(tmp_path: Path, leads_to: str, force: bool) -> None:
    """A promotion is refused before anything is changed; it is done where the name leads to the primary, and nothing is lost."""
    primary, itself, another = tmp_path / "primary", tmp_path / "itself", tmp_path / "another"
    make(str(primary), 2)
    Sink(str(primary)).write(0, messages(0, 10))
    for target in (itself, another):
        partq.replicate(str(primary), "q", str(target))
    Sink(str(primary)).write(1, messages(10, 20))
    away = primary.rename(tmp_path / "away")
    lead(primary, tmp_path / leads_to)
    revisions = {store: queue_state(Store(str(store)), "q").revision for store in (itself, another)}
    with pytest.raises(partq.ReplicaError, match="is itself a replica"):
        partq.promote(str(itself), "q", force=force)
    assert revisions == {store: queue_state(Store(str(store)), "q").revision for store in (itself, another)}
    assert not ReplicaTable(Store(str(itself)), "q").refresh().takes_over  # type: ignore[union-attr]
    primary.unlink()
    away.rename(primary)
    assert partq.replicate(str(primary), "q", str(another)).problem == ""
    assert partq.promote(str(itself), "q").fenced
    assert sum(len(rows) for rows in stored(str(itself)).values()) == 20


def test_a_replica_with_two_names_is_listed_once(tmp_path: Path) -> None:
    """Its primary gives it up once, not twice."""
    primary, replica, link = (str(tmp_path / name) for name in ("primary", "replica", "link"))
    make(primary, 2)
    partq.replicate(primary, "q", replica)
    lead(Path(link), Path(replica))
    partq.replicate(primary, "q", link)
    assert queue_state(Store(primary), "q").replicas == (replica,)
    partq.remove_replica(primary, "q", replica)
    partq.replicate(primary, "q", link)
    assert queue_state(Store(primary), "q").replicas == (link,)
