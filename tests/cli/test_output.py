"""What a store says is shown as it is: neither terminal nor rich obey it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.output import say, show
from spark_partq.cli.plain import plain
from tests.groups import Consumer
from tests.helpers import put

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x1b[31m"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("é → …", "é → …"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x9b31m\x7f\x00", "\\x9b31m\\x7f\\x00"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\ud800", "\\ud800"),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_lines_cannot_be_forged(capsys: pytest.CaptureFixture[str]) -> None:
    say("cause\n99  everybody left", "second")
    say("error: \x1b[2Jx\ny", error=True)
    printed = capsys.readouterr()
    assert printed.out == "cause\\n99  everybody left\nsecond\n"
    assert printed.err == "error: \\x1b[2Jx\\ny\n"


@pytest.mark.parametrize(
    "text", ["orders_[a-z]+", "[/a-z]+_q", "[/red]", "[link=https://evil.example]click[/link]", "[bold]x", ":smile:"]
)
def test_no_markup_in_tables(text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    table = render.table("queue", text)
    table.add_row(text, "x")
    show(table)
    assert capsys.readouterr().out.count(text) == 2


def test_no_escapes_in_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where rich itself has colours to write, as on a terminal."""
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    table = render.table(ESCAPE)
    table.add_row(ESCAPE)
    show(table)
    assert "\x1b]0" not in screen.getvalue() and "\x07" not in screen.getvalue() and "\x1b[2J" not in screen.getvalue()
    assert screen.getvalue().count("\\x1b[2J") == 2


def test_commands(store: str, command: Callable[..., object]) -> None:
    """Everything a member can say of itself."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, [1])
    consumer = Consumer(store, "a", application=ESCAPE, executors=(ESCAPE, "[/red]"))
    consumer.beat()
    for line in (["describe-group", "g"], ["history", "g"], ["list"], ["describe-queue", "q"], ["doctor"]):
        done = command(*line)
        for text in (done.out, done.err):  # type: ignore[attr-defined]
            assert not {"\x07", "\x1b"} & set(text)
    assert "\\x1b[2J" in command("history", "g").out or "\\x1b" in command("describe-group", "g").out  # type: ignore[attr-defined]
