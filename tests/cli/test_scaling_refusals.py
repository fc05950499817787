"""What the commands that scale a queue refuse, with nothing changed (S1 to S6)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.core.queue.facts import QueueFact
from spark_partq.storage.files.disk import DiskFiles
from tests.cli.outcome import Command, assert_refused
from tests.cli.queues import PROGRAM, draining, facts, kinds, queue_of
from tests.helpers import ROOT, opened, put


@pytest.mark.parametrize("count", ["-1", "4097", "1000000000000"])
def test_a_count_that_cannot_be(command: Command, store: str, count: str) -> None:
    queue_of(store, 2, each=5)
    before = facts(store)
    assert_refused(command("scale", "q", count), "INVALID_ARGUMENT", count, "1 to 4096", "exclusive")
    assert facts(store) == before


@pytest.mark.parametrize("arguments", [["scale", "nope", "3"], ["ingress", "disable", "nope"], ["copy-stuck", "nope"]])
def test_an_unknown_queue(command: Command, store: str, arguments: list[str]) -> None:
    queue_of(store, 2, each=5)
    before = facts(store)
    assert_refused(command(*arguments), "QUEUE_NOT_FOUND", "'nope'", "q", store)
    assert facts(store) == before


@pytest.mark.parametrize("confirmed", [[], ["--confirm-lost", "9"]])
def test_delete_that_is_not_confirmed(command: Command, store: str, confirmed: list[str]) -> None:
    queue_of(store, 4, each=5)
    before = facts(store)
    refused = command("scale", "q", "2", "--mode", "delete", *confirmed)
    assert_refused(refused, "INVALID_ARGUMENT", "10 messages", "'q'", "live")
    assert facts(store) == before


@pytest.mark.parametrize("action", ["enable", "disable"])
def test_ingress_during_a_drain(command: Command, store: str, action: str) -> None:
    draining(command, store)
    before = facts(store)
    assert_refused(command("ingress", action, "q"), "SCALING_IN_PROGRESS", "'q'", "3")
    assert facts(store) == before


@pytest.mark.parametrize("other", [["4"], ["4", "--mode", "drain"], ["3"], ["1", "--mode", "delete", "--confirm-lost", "99"]])  # fmt: skip
def test_two_different_changes(command: Command, store: str, other: list[str]) -> None:
    draining(command, store)
    before = facts(store)
    refused = command("scale", "q", *other)
    assert_refused(
        refused, "SCALING_IN_PROGRESS", "'q'", "3 partitions (mode drain)", "scale it to 2 to take the change back"
    )
    assert facts(store) == before


def test_two_different_changes_at_the_same_moment(store: str) -> None:
    """One wins; the other is refused."""
    queue_of(store, 2, each=5)
    about = [*PROGRAM, "--store", store, "scale", "q"]
    rest = ["--mode", "drain", "--timeout", "0"]
    running = [
        subprocess.Popen([*about, n, *rest], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        for n in ("3", "5")
    ]
    errors = [process.communicate(timeout=60)[1].splitlines()[-1] for process in running]
    assert [process.returncode for process in running] == [1, 1]
    won = str(partq.describe_queue(store, "q").configured_partitions)
    assert won in ("3", "5")
    assert kinds(store).count("ScalingStarted") == 1
    winner, loser = sorted(errors, key=lambda error: "still waits" not in error)
    assert f"scaling queue 'q' to {won} partitions still waits" in winner
    assert f"is being scaled to {won} partitions" in loser


@pytest.fixture
def read_only(store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Queue `q` in a store that takes no commit."""
    partq.create_queue(store, "q", "v long", partitions=0)
    put(store, -1, range(5))
    partq.scale(store, "q", 2)
    if os.getuid() == 0:  # who may write everywhere

        def refuse(*_: object, **__: object) -> None:
            raise partq.StoreUnavailableError("the store cannot be written: Read-only file system")

        monkeypatch.setattr(DiskFiles, "put_if_absent", refuse)
        yield
        return
    folders = [Path(store), *(path for path in Path(store).rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield
    for folder in folders:
        folder.chmod(0o755)


@pytest.mark.parametrize(
    "arguments",
    [["scale", "q", "3"], ["scale", "q", "3", "--mode", "drain"], ["ingress", "disable", "q"], ["copy-stuck", "q"]],
)
def test_a_store_that_cannot_be_written(command: Command, store: str, read_only: None, arguments: list[str]) -> None:
    before = facts(store)
    assert_refused(command(*arguments), "COMMIT_FAILED", "queue 'q'", store, "nothing was changed")
    assert facts(store) == before


@pytest.mark.parametrize(
    "arguments",
    [["scale", "q", "3"], ["scale", "q", "1", "--mode", "delete"], ["ingress", "disable", "q"], ["copy-stuck", "q"]],
)
def test_a_queue_that_was_taken_over(command: Command, store: str, arguments: list[str]) -> None:
    queue_of(store, 2, each=5)
    opened(store).control.decide(lambda _: [QueueFact("QueueFenced", {"location": "s3://b/r"})])
    before = facts(store)
    assert_refused(command(*arguments), "QUEUE_FENCED", "'q'", "s3://b/r")
    assert facts(store) == before


@pytest.mark.parametrize("timeout", ["soon", "-1s", "1.5h"])
def test_a_timeout_that_is_none(command: Command, store: str, timeout: str) -> None:
    queue_of(store, 2, each=5)
    before = facts(store)
    assert_refused(command("scale", "q", "3", "--timeout", timeout), "INVALID_ARGUMENT", timeout)
    assert facts(store) == before


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["scale"], "QUEUE"),
        (["scale", "q"], "N"),
        (["scale", "q", "many"], "integer"),
        (["scale", "q", "3", "4"], "4"),
        (["scale", "q", "3", "--no-such-option"], "--no-such-option"),
        (["scale", "q", "3", "--mode", "fast"], "fast"),
        (["scale", "q", "1", "--confirm-lost", "3"], "--confirm-lost"),
        (["scale", "q", "1", "--mode", "drain", "--confirm-lost", "3"], "--confirm-lost"),
        (["scale", "q", "1", "--mode", "delete", "--confirm-lost", "-1"], "--confirm-lost"),
        (["ingress", "q"], "QUEUE"),
        (["ingress", "toggle", "q"], "toggle"),
        (["ingress", "disable"], "QUEUE"),
        (["copy-stuck"], "QUEUE"),
    ],
)
def test_wrong_usage(command: Command, store: str, arguments: list[str], word: str) -> None:
    queue_of(store, 2, each=5)
    before = facts(store)
    told = command(*arguments)
    assert (told.code, told.out) == (2, "")
    assert word in told.err and "Traceback" not in told.err
    assert facts(store) == before
