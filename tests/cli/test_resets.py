"""The commands reset-offsets and explain, and what asks before it changes a group."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import spark_partq as partq
from tests.cli.outcome import Command, assert_refused
from tests.cli.queues import HEEDS_CTRL_C, table_rows
from tests.groups import Consumer
from tests.helpers import ROOT


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Somebody sits there and gives these answers."""
    answers: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question, **_: answers.append(question) or answers[0] == "y")
    return answers


def test_reset_offsets(command: Command, store: str, group: Consumer) -> None:
    group.leave()
    before = [p.position for p in partq.describe_group(store, "g").partitions]
    told = command("reset-offsets", "g", "--to", "earliest", "--dry-run")
    assert told.code == 0 and table_rows(told.out)[0] == ["q", "0", "3", "0", "3", "0"]
    assert (
        "would set 4 partitions: 3 messages come again, 0 messages are skipped" in told.out and "delta_sink" in told.out
    )
    assert [p.position for p in partq.describe_group(store, "g").partitions] == before == [3, 0, 0, 0]
    told = command("reset-offsets", "g", "--to", '{"q": {"1": 4}}', "--yes", "--queue", "q", "--json")
    assert json.loads(told.out) == [
        {"queue": "q", "partition": 1, "old": 0, "new": 4, "again": 0, "skipped": 4},
    ]
    assert [p.position for p in partq.describe_group(store, "g").partitions] == [3, 4, 0, 0]
    history = command("history", "g", "--partition", "1").out
    assert "PositionReset" in history and 'reset to {"q": {"1": 4}}' in history


def test_it_asks(command: Command, store: str, group: Consumer, terminal: list[str]) -> None:
    """The question says what would be; nothing happens on any answer but yes."""
    group.leave()
    terminal.append("n")
    assert_refused(command("reset-offsets", "g", "--to", "earliest"), "INVALID_ARGUMENT", "not confirmed")
    assert "4 partitions: 3 messages come again" in terminal[1]
    assert_refused(command("delete-group", "g"), "INVALID_ARGUMENT", "not confirmed")
    assert partq.describe_group(store, "g").partitions[0].position == 3
    terminal[0] = "y"
    assert command("reset-offsets", "g", "--to", "latest").code == 0
    assert command("delete-group", "g").code == 0 and partq.list_groups(store) == []


def test_without_a_terminal_nobody_can_be_asked(command: Command, store: str, group: Consumer) -> None:
    group.leave()
    for arguments in (["reset-offsets", "g", "--to", "earliest"], ["delete-group", "g"]):
        assert_refused(command(*arguments), "INVALID_ARGUMENT", "'g'", "--yes does not ask")
    assert partq.describe_group(store, "g").partitions[0].position == 3


@pytest.mark.parametrize("line", ["reset-offsets g --to earliest --yes", "reset-offsets g --to latest --dry-run", "delete-group g --yes"])  # fmt: skip
def test_it_says_for_whom_it_waits(command: Command, store: str, group: Consumer, line: str) -> None:
    """A command that waits until the sessions of members that died are over is not one that hangs."""
    for name in ("b", "c", "d", "e"):
        Consumer(store, name, session_timeout_ms=300)
    told = command(*line.split())
    assert told.code == 0
    assert told.err == "waiting up to 0.3 s for the sessions of a, b, c, 2 more to end; Ctrl-C changes nothing\n"


@pytest.mark.parametrize("line", ["reset-offsets g --to earliest --yes", "delete-group g --yes"])
def test_nobody_is_waited_for(command: Command, group: Consumer, line: str) -> None:
    group.leave()
    told = command(*line.split())
    assert (told.code, told.err) == (0, "")


@pytest.mark.parametrize(
    ("line", "what"),
    [("reset-offsets g --to earliest --yes", "setting the positions of group g"), ("delete-group g --yes", "deleting group g")],
)  # fmt: skip
def test_ctrl_c_while_it_waits(store: str, living: Consumer, line: str, what: str) -> None:
    """What it said is so: the group is there, with its members and its positions."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEEDS_CTRL_C, "--store", store, *line.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    before = partq.describe_group(store, "g")
    try:
        assert process.stderr is not None
        told = process.stderr.readline()
        assert told == "waiting up to 600 s for the session of a to end; Ctrl-C changes nothing\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, "")
    assert err == f"interrupted: run it again to go on with {what}\n"
    after = partq.describe_group(store, "g")
    assert (after.partitions, len(after.members)) == (before.partitions, 1)


def test_explain(command: Command, store: str, group: Consumer) -> None:
    """Sentences that fit 80 columns; as JSON what `explain` gives."""
    Consumer(store, "b", session_timeout_ms=300)
    group.end_holddown()
    told = command("explain", "q", "0", "--group", "g").out
    assert max(map(len, told.splitlines())) <= 80
    assert (
        told.startswith("Partition 0 of queue q in group g: ")
        and "What it waits for:" in told
        and "a joined with 2 flows" in told
    )
    found = json.loads(command("explain", "q", "1", "--group", "g", "--json").out)
    assert (found["partition"], found["steps"][1]["kind"]) == (1, "Granted") and found["waits"]
    assert_refused(command("explain", "q", "9", "--group", "g"), "INVALID_ARGUMENT", "0 to 3")


def test_explain_without_a_group(command: Command, store: str, living: Consumer) -> None:
    """U3: of the one that reads the queue, or of each that does; as JSON an array in any case."""
    told = command("explain", "q", "0")
    assert (told.code, told.err) == (0, "") and told.out == command("explain", "q", "0", "--group", "g").out
    Consumer(store, "b", group="h", session_timeout_ms=600_000)
    told = command("explain", "q", "1")
    stories = told.out.split("\n\nPartition 1 of queue q in group ")
    assert (
        len(stories) == 2 and stories[0].startswith("Partition 1 of queue q in group g: ") and stories[1][:3] == "h: "
    )
    found = json.loads(command("explain", "q", "1", "--json").out)
    assert found == [partq.explain(store, "q", 1, group).to_dict() for group in ("g", "h")]
    partq.create_queue(store, "unread", "v long", partitions=1)
    assert_refused(
        command("explain", "unread", "0"), "INVALID_ARGUMENT", "no group reads queue 'unread'", "start a query"
    )
    assert_refused(command("explain", "nope", "0"), "QUEUE_NOT_FOUND", "'nope'")
    living.leave()
    partq.delete_group(store, "g")
    assert command("explain", "q", "0").out.startswith("Partition 0 of queue q in group h: ")


def test_one_group_that_cannot_be_explained_hides_no_other(command: Command, store: str, living: Consumer) -> None:
    Consumer(store, "b", group="h")
    (file,) = Path(store, "groups/h/control").glob("*.parquet")
    file.unlink()
    told = command("explain", "q", "0")
    assert told.code == 0 and told.out == command("explain", "q", "0", "--group", "g").out
    assert told.err.startswith("warning: [CORRUPT_TABLE] ") and "'h'" in told.err
    assert len(json.loads(command("explain", "q", "0", "--json").out)) == 1


def test_a_long_story_is_told_from_its_end(command: Command, store: str, group: Consumer) -> None:
    for _ in range(12):
        group.leave()
        group.start_again()
    told = command("explain", "q", "0", "--group", "g").out
    assert "facts before: spark-partq history g --partition q/0" in told and told.count("  fact ") == 10
