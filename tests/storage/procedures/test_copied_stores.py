"""A store that was copied, as for a trial or a drill: neither a promotion at a copy nor one beside it harms the stores that are in use (S7)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.core.replica.facts import Phase
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.table import replica_state
from spark_partq.storage.store import Store
from tests.scaled import Sink, make, messages, stored


def replica(store: str) -> ReplicaState:
    found = replica_state(Store(store), "q")
    assert found is not None
    return found


def count(store: str) -> int:
    return sum(len(rows) for rows in stored(store).values())


@pytest.fixture(name="stores")
def stores_fixture(tmp_path: Path) -> tuple[str, str]:
    """A primary with 10 messages, and its standby, which has them all."""
    primary, standby = (str(tmp_path / name) for name in ("primary", "standby"))
    make(primary, 2)
    Sink(primary).write(0, messages(0, 10))
    partq.replicate(primary, "q", standby)
    return primary, standby


# ---- the primary was copied, for a trial
@pytest.mark.parametrize("lost", [False, True])
def test_a_trial_does_not_stop_the_standby(stores: tuple[str, str], lost: bool) -> None:
    """A copy of the primary is replicated to a place of its own, and promoted there. The standby is promoted later nevertheless."""
    primary, standby = stores
    trial, trial_standby = f"{primary}-trial", f"{standby}-trial"
    shutil.copytree(primary, trial)
    partq.replicate(trial, "q", trial_standby)
    assert partq.promote(trial_standby, "q").fenced
    Sink(primary).write(1, messages(10, 20))
    assert partq.replicate(primary, "q", standby).problem == ""
    if lost:
        shutil.rmtree(primary)
    assert partq.promote(standby, "q").fenced is not lost
    assert (count(standby), count(trial_standby)) == (20, 10)


def test_a_replica_of_a_primary_that_was_moved_is_told(stores: tuple[str, str], tmp_path: Path) -> None:
    """Its second replica still follows the old name, which leads nowhere: it learns of the promotion, and does not take over, too."""
    primary, standby = stores
    other, moved = str(tmp_path / "other"), str(tmp_path / "moved")
    partq.replicate(primary, "q", other)
    shutil.move(primary, moved)
    partq.remove_replica(moved, "q", standby)
    partq.replicate(moved, "q", standby)
    assert partq.promote(standby, "q").fenced
    assert standby in replica(other).others
    shutil.rmtree(moved)
    with pytest.raises(partq.ReplicaError, match=f"{standby}, has taken over"):
        partq.promote(other, "q")


# ---- the standby was copied, for a drill
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("original", ["follows", "was promoted", "was made again"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_copy_of_a_replica_is_not_promoted(stores: tuple[str, str], original: str, force: bool, lost: bool) -> None:
    """Nothing is fenced or changed, and the primary and its standby go on."""
    primary, standby = stores
    copy = f"{standby}-copy"
    shutil.copytree(standby, copy)
    if original == "was made again":
        partq.remove_replica(primary, "q", standby)
        partq.replicate(primary, "q", standby)
    if original != "follows":
        partq.promote(standby, "q")
    if lost:
        shutil.move(primary, f"{primary}-lost")
    before = queue_state(Store(copy), "q"), replica(copy)
    with pytest.raises(
        partq.ReplicaError, match=f"was made in {standby}, and is there, too.*Promote the replica in {standby}"
    ):
        partq.promote(copy, "q", force=force)
    assert (queue_state(Store(copy), "q"), replica(copy)) == before
    if original == "follows" and not lost:
        Sink(primary).write(1, messages(10, 20))
        assert partq.replicate(primary, "q", standby).problem == ""
        assert diagnose(Store(primary)).findings == []
    if original == "follows":
        assert partq.promote(standby, "q").fenced is not lost


def test_a_copy_of_a_replica_that_is_gone_is_promoted(stores: tuple[str, str]) -> None:
    """The standby is lost, and was put back elsewhere from a backup."""
    primary, standby = stores
    copy = f"{standby}-copy"
    shutil.copytree(standby, copy)
    shutil.rmtree(standby)
    Sink(primary).write(1, messages(10, 20))
    assert partq.promote(copy, "q").fenced
    assert (replica(copy).phase, count(copy)) == (Phase.PROMOTED, 20)
