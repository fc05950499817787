"""The doctor names what is wrong between a queue and its replicas, and what to do about it (S7)."""

from __future__ import annotations

import os
import shlex
import shutil

import pytest
from typer.testing import CliRunner

import spark_partq as partq
from spark_partq.cli import app
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures import promote as promotions
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.store import Store
from tests.replicas import (
    Crash,
    put,
    queue_fixture,  # noqa: F401
    sync,
    there_fixture,  # noqa: F401
)


def told(store: str) -> list[str]:
    return [str(finding) for finding in diagnose(Store.at(store)).findings]


def the_remedy(store: str) -> str:
    """Of the only finding."""
    (finding,) = diagnose(Store.at(store)).findings
    return finding.remedy


def run_the_last_command(store: str) -> None:
    """Run the last command that the remedy of the only finding names."""
    command = the_remedy(store).rpartition("spark-partq ")[2].rstrip(")")
    done = CliRunner().invoke(app, ["--store", store, *shlex.split(command)])
    assert done.exit_code == 0, done.output


def interrupt(monkeypatch: pytest.MonkeyPatch, there: str, step: str) -> None:
    """A promotion that dies before this function of its module is called."""

    def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(promotions, step, crash)
        with pytest.raises(Crash):
            promote(Store.at(there), "q")


def test_a_replica_that_is_gone_is_removed(queue: str, there: str) -> None:
    sync(queue, there)
    shutil.rmtree(there)
    run_the_last_command(queue)
    assert told(queue) == []
    assert partq.describe_queue(queue, "q").replicas == ()


def test_a_promotion_that_died_while_the_primary_was_away_is_cancelled(
    queue: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command needs --force, as it cancels a promotion."""
    sync(queue, there)
    os.rename(queue, f"{queue}-away")
    interrupt(monkeypatch, there, "begin_groups_anew")
    os.rename(f"{queue}-away", queue)
    run_the_last_command(queue)
    assert told(queue) == []
    put(queue, 0, [1])
