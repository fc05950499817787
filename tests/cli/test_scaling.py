"""The commands that scale a queue, and that stop and start its ingress: what they do, and what they tell (S1 to S6, S8)."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.queue.facts import QueueFact
from tests.cli.outcome import Command, Terminal, assert_refused
from tests.cli.queues import HEEDS_CTRL_C, LEFT, LEFT_TO_G, PROGRAM, draining, facts, fill, kinds, queue_of, table_rows
from tests.helpers import ROOT, eventually, opened, put
from tests.scaled import Reader, Sink, messages, while_scaling


# ---- scale
def test_a_queue_grows(command: Command, store: str) -> None:
    """S1: and the same count once more changes nothing."""
    queue_of(store, 2, each=5)
    done = command("scale", "q", "4")
    assert (done.code, done.out, done.err) == (0, "queue q has 4 partitions\n", "")
    again = command("scale", "q", "4")
    assert (again.code, again.out) == (0, "queue q already has 4 partitions\n")
    found = partq.describe_queue(store, "q")
    assert (found.status, found.operating_partitions, found.generation, found.depth) == ("Ready", 4, 1, 10)


def test_scale_as_json(command: Command, store: str) -> None:
    queue_of(store, 2)
    assert json.loads(command("scale", "q", "4", "--json").out) == partq.describe_queue(store, "q").to_dict()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[partq.ScaleProgress]:
    """What each look of a command found that it waits for, after it was told."""
    found: list[partq.ScaleProgress] = []

    def watched(*args: Any, report: Callable[[partq.ScaleProgress], None], **options: Any) -> partq.QueueDescription:
        def noted(progress: partq.ScaleProgress) -> None:
            report(progress)
            found.append(progress)

        return scale(*args, report=noted, **options)

    scale = partq.scale
    monkeypatch.setattr(partq, "scale", watched)
    return found


def test_a_queue_shrinks_as_soon_as_it_is_read(command: Command, store: str, looks: list[partq.ScaleProgress]) -> None:
    """S2, S5: what is waited for is told on stderr, once as long as it stays the same."""
    queue_of(store, 4, each=5)
    reader = Reader(store)

    def turn() -> None:
        reader.beat()
        if len(looks) > 1:
            reader.turn()

    done = while_scaling(lambda: command("scale", "q", "2"), turn)
    assert (done.code, done.out) == (0, "queue q has 2 partitions\n")
    assert done.err == f"scaling q to 2 partitions: waiting for {LEFT_TO_G} (10 left)\n"
    assert partq.describe_queue(store, "q").status == "Ready"
    assert len(reader.seen) == 20


def test_a_queue_that_nobody_reads_shrinks_later(command: Command, store: str) -> None:
    """S2, S8: the command does not wait for nobody, and says what is left."""
    queue_of(store, 4, each=5)
    done = command("scale", "q", "2")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("queue q has 2 partitions\n10 messages left in partitions to be removed: they go once")
    told = command("describe-queue", "q").out
    assert "ScalingDown" in told and "2 configured, 4 operating" in told
    assert " 4 → 2 " in command("list").out
    (listed,) = json.loads(command("list", "--json").out)["queues"]
    assert (listed["partitions"], listed["configured_partitions"]) == (4, 2)
    Reader(store).all()
    assert command("scale", "q", "2").out == "queue q has 2 partitions\n"
    assert partq.describe_queue(store, "q").status == "Ready"


def test_a_queue_that_keeps_its_messages_shrinks_later(command: Command, store: str) -> None:
    """S2, Q8: the command says what it did not wait for, and `explain` says why the partition is still there."""
    queue_of(store, 2, each=5, min_retention_ms=3_600_000)
    Reader(store).all()
    done = command("scale", "q", "1")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "queue q has 1 partition\n0 messages left to read in partitions to be removed: maintain removes these once every group has read them and "
        "min_retention_ms is over\n"
    )
    told = command("explain", "q", "1", "--group", "g").out
    assert "it goes once every group has read it and min_retention_ms is over." in " ".join(told.split())


def test_what_waits_because_of_a_resize_is_shown(command: Command, store: str) -> None:
    """S5: which partitions wait, for which others, up to where; until the group has acknowledged those."""
    queue_of(store, 2, each=5)
    reader, other = Reader(store), Reader(store, group="other")
    other.all()
    assert "waits for" not in command("describe-group", "g").out and "waiting" not in command("list").out
    assert command("scale", "q", "3").code == 0
    assert Sink(store).write(0, messages(0, 40)) == 40
    other.all()

    rows = table_rows(command("describe-group", "g").out)
    (place,) = [n for n, row in enumerate(rows) if any("waits for" in cell for cell in row)]
    assert rows[place][5] == "waits for 0 up to 5, 1 up to 5" and rows[place - 1][:2] == ["q", "2"]
    assert "waits for" not in command("describe-group", "other").out
    listed = command("list")
    assert [row for row in table_rows(listed.out) if row[0] in ("g", "other")] == [
        ["g", "Ready", "1", "0", "1"],
        ["other", "Ready", "1", "0", "0"],
    ]
    assert "waiting: partitions whose next messages wait" in listed.out
    assert re.search("^waiting +1 of group g *$", command("describe-queue", "q").out, re.MULTILINE)
    assert json.loads(command("list", "--json").out)["queues"][0]["waiting"] == {"g": 1}

    reader.all()
    assert "waits for" not in command("describe-group", "g").out and "waiting" not in command("list").out


def test_drain(command: Command, store: str, looks: list[partq.ScaleProgress]) -> None:
    """S4: one command; ingress is off meanwhile and on after it."""
    queue_of(store, 2, each=5)
    reader = Reader(store)
    ingress = []

    def turn() -> None:
        reader.beat()
        if looks:
            ingress.append(partq.describe_queue(store, "q").ingress)
            reader.turn()

    done = while_scaling(lambda: command("scale", "q", "3", "--mode", "drain"), turn)
    assert (done.code, done.out) == (0, "queue q has 3 partitions\n")
    found = partq.describe_queue(store, "q")
    assert (found.status, found.operating_partitions, found.ingress, found.depth) == ("Ready", 3, True, 0)
    assert ingress[0] is False


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
    assert made.out.startswith("created queue q, exclusive\n")


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


def test_it_ends_by_itself_when_somebody_reads(command: Command, store: str, waiting: subprocess.Popen[str]) -> None:
    reader = Reader(store)
    eventually(lambda: reader.turn() is not None and waiting.poll() is not None, "that it ends", 60)
    assert waiting.returncode == 0
    assert waiting.stdout is not None and waiting.stdout.read() == "queue q has 3 partitions\n"


# ---- ingress, and what is shown
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
    assert "replicas             s3://b/r" in told and "role                 taken over by s3://b/r" in told
