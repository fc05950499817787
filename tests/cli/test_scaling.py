"""The commands that scale a queue: what they do, what they tell, what they refuse with nothing changed (S1 to S6, S8)."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.queue.facts import QueueFact
from spark_partq.storage.files.disk import DiskFiles
from tests.cli.outcome import Command, assert_refused
from tests.helpers import ROOT, eventually, new_file, opened, put
from tests.scaled import Reader, make, while_scaling

PROGRAM = [sys.executable, "-c", "from spark_partq.cli import main; main()"]
# Whoever starts the tests in the background has SIGINT ignored.
HEEDS_CTRL_C = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {PROGRAM[-1]}"
LEFT = "consumers to acknowledge what is left"


def queue_of(store: str, partitions: int, each: int = 0, **settings: Any) -> None:
    """Queue `q` with so many messages in each partition."""
    make(store, partitions, **settings)
    for number in range(partitions) or [-1]:
        if each:
            fill(store, number, each)


def fill(store: str, number: int, count: int) -> None:
    queue = opened(store)
    file = new_file(store, "q", number, {"k": ["k"] * count, "v": range(count)})
    queue.table(number).append([file], None, queue.state.generation)


def facts(store: str) -> list[Any]:
    """All that was ever decided about the queue, and all that it is."""
    return [opened(store).control.history(), partq.describe_queue(store, "q").to_dict()]


def kinds(store: str) -> list[str]:
    return [row["kind"] for row in opened(store).control.history()]


def draining(command: Command, store: str) -> None:
    """Queue `q` is drained to get 3 instead of 2 partitions, and nobody reads it."""
    queue_of(store, 2, each=5)
    ended = command("scale", "q", "3", "--mode", "drain", "--timeout", "0")
    assert ended.code == 1
    waiting, error = ended.err.splitlines()
    assert LEFT in waiting
    assert error.startswith("error: [SCALING_IN_PROGRESS] ") and error.endswith("run it again to go on")


# ---- scale
def test_a_queue_grows(command: Command, store: str) -> None:
    """S1: and the same count once more is refused."""
    queue_of(store, 2, each=5)
    done = command("scale", "q", "4")
    assert (done.code, done.out, done.err) == (0, "queue q has 4 partitions\n", "")
    again = command("scale", "q", "4")
    assert again.code == 1 and "has 4 partitions already" in again.err
    found = partq.describe_queue(store, "q")
    assert (found.status, found.operating_partitions, found.generation, found.depth) == ("Ready", 4, 1, 10)


def test_scale_as_json(command: Command, store: str) -> None:
    queue_of(store, 2)
    assert json.loads(command("scale", "q", "4", "--json").out) == partq.describe_queue(store, "q").to_dict()


def test_a_queue_shrinks_as_soon_as_it_is_read(command: Command, store: str) -> None:
    """S2, S5: what is waited for is told on stderr, once as long as it stays the same."""
    queue_of(store, 4, each=5)
    reader = Reader(store)
    begun = time.monotonic()

    def turn() -> None:
        reader.beat()
        if time.monotonic() > begun + 1:
            reader.turn()

    done = while_scaling(lambda: command("scale", "q", "2"), turn)
    assert (done.code, done.out) == (0, "queue q has 2 partitions\n")
    assert done.err == f"scaling q to 2 partitions: waiting for {LEFT} (10 left)\n"
    assert partq.describe_queue(store, "q").status == "Ready"
    assert len(reader.seen) == 20


def test_a_queue_that_nobody_reads_shrinks_later(command: Command, store: str) -> None:
    """S2, S8: the command does not wait for nobody, and says what is left."""
    queue_of(store, 4, each=5)
    done = command("scale", "q", "2")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(
        "queue q has 2 partitions\n10 messages left in partitions that go, and nobody reads them"
    )
    told = command("describe-queue", "q").out
    assert "ScalingDown" in told and "2 configured, 4 operating" in told
    assert " 4 → 2 " in command("list").out
    (listed,) = json.loads(command("list", "--json").out)["queues"]
    assert (listed["partitions"], listed["configured_partitions"]) == (4, 2)
    Reader(store).all()
    assert command("scale", "q", "2").out == "queue q has 2 partitions\n"
    assert partq.describe_queue(store, "q").status == "Ready"


def test_drain(command: Command, store: str) -> None:
    """S4: one command; ingress is off meanwhile and on after it."""
    queue_of(store, 2, each=5)
    reader = Reader(store)
    ingress = []

    def turn() -> None:
        ingress.append(partq.describe_queue(store, "q").ingress)
        reader.turn()

    done = while_scaling(lambda: command("scale", "q", "3", "--mode", "drain"), turn)
    assert (done.code, done.out) == (0, "queue q has 3 partitions\n")
    found = partq.describe_queue(store, "q")
    assert (found.status, found.operating_partitions, found.ingress, found.depth) == ("Ready", 3, True, 0)
    assert False in ingress


def test_a_drain_can_be_taken_back(command: Command, store: str) -> None:
    draining(command, store)
    told = command("describe-queue", "q").out
    for words in ("ScalingUp, scaling with mode drain", "3 configured, 2 operating", "disabled"):
        assert words in told
    assert command("scale", "q", "2").out == "queue q has 2 partitions\n"
    found = partq.describe_queue(store, "q")
    assert (found.status, found.configured_partitions, found.ingress) == ("Ready", 2, True)


def test_delete_loses_what_was_confirmed(command: Command, store: str) -> None:
    """S2: the loss is told, and stays visible; what was lost does not come back with its partitions."""
    queue_of(store, 4, each=5)
    done = command("scale", "q", "2", "--mode", "delete", "--confirm-lost", "10")
    assert (done.code, done.out, done.err) == (0, "queue q has 2 partitions\n10 messages lost\n", "")
    assert "10 by scaling with mode delete" in command("describe-queue", "q").out
    assert command("scale", "q", "4").out == "queue q has 4 partitions\n"
    assert [p.depth for p in partq.describe_queue(store, "q").partitions] == [5, 5, 0, 0]
    assert json.loads(command("describe-queue", "q", "--json").out)["lost"] == 10


def test_delete_with_nothing_to_lose_needs_no_confirmation(command: Command, store: str) -> None:
    queue_of(store, 4)
    assert command("scale", "q", "2", "--mode", "delete").out == "queue q has 2 partitions\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "lost"), [("y\n", 10), ("n\n", 0), ("\n", 0), ("", 0)])
def test_delete_asks_in_a_terminal(
    command: Command, store: str, monkeypatch: pytest.MonkeyPatch, answer: str, lost: int
) -> None:
    queue_of(store, 4, each=5)
    before = facts(store)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    done = command("scale", "q", "2", "--mode", "delete")
    assert "10 messages of queue q will be lost. Go on? [y/N]:" in done.err
    assert done.code == (0 if lost else 1)
    assert partq.describe_queue(store, "q").lost == lost
    assert lost or facts(store) == before


def test_to_exclusive_and_back(command: Command, store: str) -> None:
    """S6: what is stuck is told, and copied with one command."""
    queue_of(store, 2)
    assert command("scale", "q", "0").out == "queue q is exclusive\n"
    told = command("describe-queue", "q").out
    assert "partitions           exclusive" in told and "│    parent │" in told
    assert " exclusive " in command("list").out
    fill(store, -1, 5)
    hint = "spark-partq copy-stuck q"
    assert command("scale", "q", "2").out == f"queue q has 2 partitions\n5 messages stuck in the parent: {hint}\n"
    told = command("describe-queue", "q").out
    assert f"5 that nobody is given: {hint}" in told


def test_create_an_exclusive_queue(command: Command, store: str) -> None:
    made = command("create-queue", "q", "--schema", "v long", "--partitions", "0")
    assert made.out == "created queue q, exclusive\n"


def test_copy_stuck(command: Command, store: str) -> None:
    partq.create_queue(store, "q", "v long", partitions=0)
    assert_refused(command("copy-stuck", "q"), "INVALID_ARGUMENT", "'q'", "exclusive")
    put(store, -1, range(5))
    assert command("scale", "q", "2").code == 0
    for left in ("5 messages", "0 messages"):
        assert command("copy-stuck", "q").out == f"copied {left} of queue q from its parent\n"
        found = partq.describe_queue(store, "q")
        assert (found.stuck, found.depth) == (0, 5)


# ---- while it waits
@pytest.fixture
def waiting(command: Command, store: str) -> Iterator[subprocess.Popen[str]]:
    """A process that scales queue `q` with mode drain, which nobody reads; it has told what it waits for."""
    queue_of(store, 2, each=5)
    process = subprocess.Popen(
        [sys.executable, "-c", HEEDS_CTRL_C, "--store", store, "scale", "q", "3", "--mode", "drain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stderr is not None
        told = process.stderr.readline()
        assert told.startswith(f"scaling q to 3 partitions: waiting for {LEFT} (10 left); nobody reads it"), told
        yield process
    finally:
        process.kill()
        process.wait()


def test_ctrl_c_and_again(command: Command, store: str, waiting: subprocess.Popen[str]) -> None:
    """It says that running it again goes on, which it does."""
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (130, "")
    assert err == "interrupted: run it again to go on with scaling queue q\n"
    assert partq.describe_queue(store, "q").scaling == "drain"
    done = while_scaling(lambda: command("scale", "q", "3", "--mode", "drain"), Reader(store).turn)
    assert (done.code, done.out) == (0, "queue q has 3 partitions\n")
    assert partq.describe_queue(store, "q").ingress


def test_a_status_line_in_a_terminal(store: str) -> None:
    queue_of(store, 2, each=5)
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "--store", store, "scale", "q", "3", "--mode", "drain", "--timeout", "2s"],
        stdin=end,
        stdout=subprocess.PIPE,
        stderr=end,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
    )
    os.close(end)
    shown = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # all of it was read
            part = b""
        shown += part
        if not part:
            break
    os.close(terminal)
    assert process.wait(timeout=60) == 1
    assert f"waiting for {LEFT} (10 left)".encode() in shown
    assert b"[SCALING_IN_PROGRESS]" in shown and b"run it again to go on" in shown


# ---- ingress
def test_ingress(command: Command, store: str) -> None:
    """S3: what is so already stays so."""
    queue_of(store, 2)
    for action, state in (("disable", "disabled"), ("disable", "disabled"), ("enable", "enabled")):
        assert command("ingress", action, "q").out == f"ingress of queue q is {state}\n"
        assert f"ingress              {state}" in command("describe-queue", "q").out
        assert f" {state} " in command("list").out
    assert kinds(store).count("IngressDisabled") == 1


def test_what_was_discarded_is_shown(command: Command, store: str) -> None:
    """S3."""
    queue_of(store, 2, reject_to_sender="off")
    opened(store).control.discard(1234, None)
    assert "1,234 while ingress was disabled" in command("describe-queue", "q").out


def test_replicas_and_who_took_over_are_shown(command: Command, store: str) -> None:
    """S7."""
    queue_of(store, 2)
    assert "replicas             none" in command("describe-queue", "q").out
    replica = [QueueFact("ReplicaAdded", {"location": "s3://b/r"}), QueueFact("QueueFenced", {"location": "s3://b/r"})]
    opened(store).control.decide(lambda _: replica)
    told = command("describe-queue", "q").out
    assert "replicas             s3://b/r" in told and "taken over by        s3://b/r" in told


# ---- refused, with nothing changed
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
        refused, "SCALING_IN_PROGRESS", "'q'", "3 partitions (mode drain)", "scale it to 2 to take that back"
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


def test_it_ends_by_itself_when_somebody_reads(command: Command, store: str, waiting: subprocess.Popen[str]) -> None:
    reader = Reader(store)
    eventually(lambda: reader.turn() is not None and waiting.poll() is not None, "that it ends", 60)
    assert waiting.returncode == 0
    assert waiting.stdout is not None and waiting.stdout.read() == "queue q has 3 partitions\n"
