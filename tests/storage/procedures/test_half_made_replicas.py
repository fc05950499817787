"""Replicas whose first pass was killed are deleted, also beside passes, and when the deletion dies (S7)."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import spark_partq as partq
from spark_partq.cli import app
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.log import LogFolder
from spark_partq.storage.procedures import delete
from spark_partq.storage.procedures.delete import delete_queue
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica import table_copy
from spark_partq.storage.replica.table import ReplicaTable, replica_role
from spark_partq.storage.store import Store
from tests.replicas import (
    Crash,
    crash,
    crashing,
    put,
    queue_fixture,  # noqa: F401
    sync,
    there_fixture,  # noqa: F401
)

MOMENTS = ["_begin", "_apply"]  # of a pass: after the replica table was made; after files were copied


def kill_first_pass(queue: str, there: str, monkeypatch: pytest.MonkeyPatch, before: str = "_apply") -> None:
    put(queue, 0, range(5))
    with monkeypatch.context() as patch:
        patch.setattr(Replicator, before, crash)
        with pytest.raises(Crash):
            sync(queue, there)


def assert_free(there: str) -> None:
    """A queue and a replica can be made in that place."""
    assert not Path(there, "queues/q").exists()
    other = f"{there}-other"
    partq.create_queue(other, "q", "v bigint", partitions=1)
    assert sync(other, there).total_lag == 0
    partq.delete_queue(there, "q")
    partq.create_queue(there, "q", "v bigint", partitions=1)


@pytest.mark.parametrize("before", MOMENTS)
@pytest.mark.parametrize("primary", ["is deleted", "is created again", "has removed it"])
def test_it_is_deleted(queue: str, there: str, monkeypatch: pytest.MonkeyPatch, before: str, primary: str) -> None:
    """The doctor names the command."""
    kill_first_pass(queue, there, monkeypatch, before)
    if primary == "has removed it":
        partq.remove_replica(queue, "q", there)
    partq.delete_queue(queue, "q")
    if primary == "is created again":
        partq.create_queue(queue, "q", "v bigint", partitions=2)
    (finding,) = diagnose(Store.at(there)).findings
    assert "spark-partq delete-queue q" in finding.remedy and finding.severity == "warning"
    done = CliRunner().invoke(app, ["--store", there, "delete-queue", "q", "--yes"])
    assert done.exit_code == 0, done.output
    assert_free(there)


@pytest.mark.parametrize("half", [0, 1])
def test_a_deletion_that_died_is_finished(queue: str, there: str, monkeypatch: pytest.MonkeyPatch, half: int) -> None:
    """Wherever it died: a deletion that begins again finds what is left, and nobody takes what is left for a queue."""
    kill_first_pass(queue, there, monkeypatch)
    kept = shutil.copytree(there, f"{there}-kept")
    at, ended = half + 1, False
    while not ended:
        shutil.rmtree(there)
        shutil.copytree(kept, there)
        try:
            with crashing(at):
                delete_queue(Store.at(there), "q")
            ended = True
        except Crash:
            assert diagnose(Store.at(there)).faults == []
            with contextlib.suppress(partq.QueueNotFoundError, partq.QueueNotReadyError):
                assert not queue_state(Store.at(there), "q").usable
            if Path(there, "queues/q").exists() and any(p.is_file() for p in Path(there, "queues/q").rglob("*")):
                delete_queue(Store.at(there), "q")
        at += 2
    assert at > 10
    assert_free(there)


def test_no_pass_goes_on_while_it_is_deleted(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_first_pass(queue, there, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(delete, "_remove_tree", crash)
        with pytest.raises(Crash):
            delete_queue(Store.at(there), "q")
    with pytest.raises(partq.ReplicaError):
        sync(queue, there)
    with pytest.raises(partq.ReplicaError):
        promote(Store.at(there), "q")
    delete_queue(Store.at(there), "q")
    assert sync(queue, there).total_lag == 0 and replica_role(Store.at(there), "q") == "replica"


@pytest.mark.parametrize("when", ["before the control table is asked for", "after"])
def test_a_pass_under_way_leaves_no_queue(queue: str, there: str, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Beside no replica table the copy would be a second primary."""
    put(queue, 0, range(5))
    control = LogFolder(Store.at(there), "queues/q/control")

    def before(act: Callable[..., Any], begins: Callable[..., bool]) -> Callable[..., Any]:
        left = [None]

        def call(*arguments: Any) -> Any:
            if begins(*arguments) and left:
                left.pop()
                delete_queue(Store.at(there), "q")
                Store.at(there).files.make_folder(control.path)  # as in an object store, where a put needs none
            return act(*arguments)

        return call

    replicator = Replicator(Store.at(queue), "q", there)
    replicator.register()
    if when == "after":
        hook = before(table_copy.put_same, lambda _, path, __: path == control.entry_path(0))
        monkeypatch.setattr(table_copy, "put_same", hook)
    else:
        monkeypatch.setattr(Replicator, "_apply", before(Replicator._apply, lambda *_: True))
    with pytest.raises(partq.ReplicaError, match="was removed while a pass copied to it"):
        replicator.sync()
    assert partq.list_queues(there) == []


def test_what_is_no_replica_stays(queue: str, there: str) -> None:
    """Also a promoted queue that has lost its control table."""
    sync(queue, there)
    promote(Store.at(there), "q")
    shutil.rmtree(Path(there, "queues/q/control"))
    state = ReplicaTable(Store.at(there), "q").refresh()
    assert state is not None and state.promoted
    shutil.rmtree(Path(queue, "queues/q/control"))
    for store in (queue, there):
        before = sorted(Path(store).rglob("*"))
        with pytest.raises(partq.QueueNotFoundError):
            partq.delete_queue(store, "q")
        assert sorted(Path(store).rglob("*")) == before
