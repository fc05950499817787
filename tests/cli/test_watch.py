"""Commands that look again and again: --watch, and history --follow."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_partq.storage.group.handle import open_group
from spark_partq.storage.store import Store
from tests.cli.outcome import Command, assert_refused
from tests.cli.queues import HEEDS_CTRL_C
from tests.groups import Consumer
from tests.helpers import ROOT, eventually, put

DATED = re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC, every 0\.05 s$", re.MULTILINE)


class Running:
    """A command that goes on, and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], out: int) -> None:
        self._process, self._out, self._read, self._err = process, out, b"", b""
        assert process.stderr is not None
        self._errors = process.stderr.fileno()
        for file in (out, self._errors):
            os.set_blocking(file, False)

    @property
    def out(self) -> str:
        self._read += _available(self._out)
        return self._read.decode()

    @property
    def err(self) -> str:
        self._err += _available(self._errors)
        return self._err.decode()

    def objects(self) -> list[Any]:
        """The whole lines so far, each of which is JSON."""
        return [json.loads(line) for line in self.out.split("\n")[:-1]]

    def end(self) -> int:
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(timeout=60)


def _available(file: int) -> bytes:
    found = b""
    try:
        while part := os.read(file, 65536):
            found += part
    except (BlockingIOError, OSError):  # nothing more yet; or a terminal whose other side is gone
        pass
    return found


@contextmanager
def running(store: str, *arguments: str, terminal: bool = False) -> Iterator[Running]:
    program = [sys.executable, "-c", HEEDS_CTRL_C, *arguments, "--every", "0.05", "--store", store]
    out, other = pty.openpty() if terminal else os.pipe()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(program, stdout=other, stderr=subprocess.PIPE, cwd=ROOT, env=environment) as process:
        os.close(other)
        try:
            yield Running(process, out)
        finally:
            process.kill()
            os.close(out)


SEEN: list[tuple[list[str], Callable[[Any], object], object]] = [
    (["list"], lambda found: found["queues"][0]["depth"], (37, 42)),
    (["describe-queue", "q"], lambda found: found["partitions"][1]["next_offset"], (10, 15)),
    (["describe-group", "g"], lambda found: found["lag"], (37, 42)),
    (["explain", "q", "1", "--group", "g"], lambda found: found["end"], (10, 15)),
    (["explain", "q", "1"], lambda found: found[0]["end"], (10, 15)),
]


@pytest.mark.parametrize(("arguments", "seen", "values"), SEEN, ids=[" ".join(row[0]) for row in SEEN])
def test_json_is_a_line_for_each_look_until_ctrl_c(
    store: str, living: Consumer, arguments: list[str], seen: Callable[[Any], object], values: tuple[int, int]
) -> None:
    with running(store, *arguments, "--watch", "--json") as watching:
        eventually(lambda: len(watching.objects()) >= 2, "two looks")
        assert {seen(found) for found in watching.objects()} == {values[0]}
        put(store, 1, range(5))
        eventually(lambda: seen(watching.objects()[-1]) == values[1], "what came meanwhile")
        assert (watching.end(), watching.err) == (0, "")


def test_blocks_with_dates_and_a_store_that_is_away(store: str, living: Consumer) -> None:
    """Where no terminal is: each look below the last. While the store is away that is told, once, and it goes on."""
    away = Path(f"{store}-away")
    with running(store, "describe-group", "g", "--watch") as watching:
        eventually(lambda: len(DATED.findall(watching.out)) >= 2, "two looks")
        assert "\x1b" not in watching.out and watching.err == ""
        Path(store).rename(away)
        eventually(lambda: "error: [" in watching.err, "the error")
        assert store in watching.err
        away.rename(store)
        before = len(DATED.findall(watching.out))
        eventually(lambda: len(DATED.findall(watching.out)) > before, "a look after that")
        assert watching.end() == 0
        assert len(set(watching.err.splitlines())) == len(watching.err.splitlines())
        for block in DATED.split(watching.out)[1:]:
            assert "assignor" in block


def test_a_terminal_is_cleared_for_each_look(store: str, living: Consumer) -> None:
    with running(store, "describe-queue", "q", "--watch", terminal=True) as watching:
        eventually(lambda: watching.out.count("\x1b[2J") >= 3, "three looks")
        first, second, _ = watching.out.split("\x1b[2J")[1:4]
        assert all("operating" in look and " UTC, every 0.05 s" in look for look in (first, second))
        assert (watching.end(), watching.err) == (0, "")


def test_the_first_look_may_be_refused(command: Command, store: str, living: Consumer) -> None:
    """A name that is wrong does not get right by waiting."""
    for arguments, name in (
        (["describe-queue", "nope"], "QUEUE_NOT_FOUND"),
        (["describe-group", "nope"], "GROUP_NOT_FOUND"),
        (["explain", "nope", "0"], "QUEUE_NOT_FOUND"),
    ):
        assert_refused(command(*arguments, "--watch"), name, "'nope'")
    assert command("list", "--watch", "--every", "0").code == 2


def test_rebalance_tells_each_decision_as_a_line(store: str, group: Consumer) -> None:
    """Its member has died."""
    with running(store, "rebalance", "--watch", "--json") as watching:
        eventually(lambda: len(watching.objects()) > 0, "a decision")
        decided = watching.objects()[0]
        assert decided.keys() == {"group", "decisions"} and decided["group"] == "g"
        assert (decided["decisions"][0]["kind"], decided["decisions"][0]["instance"]) == ("MemberLeft", "a")
        assert (watching.end(), watching.err) == (0, "")


def test_history_follows(store: str, living: Consumer) -> None:
    """New facts, of the kinds that are asked for."""
    with (
        running(store, "history", "g", "--follow", "--json", "--last", "1") as all_,
        running(store, "history", "g", "--follow", "--kind", "MemberLeft") as left,
    ):
        eventually(lambda: len(all_.objects()) == 1, "the last fact")
        eventually(lambda: left.out.count("\n") == 1, "the line of names")
        living.leave()
        whole = open_group(Store.at(store), "g").history()
        eventually(lambda: len(all_.objects()) > 1 and all_.objects()[-1]["seq"] == len(whole) - 1, "what came")
        assert [fact["seq"] for fact in all_.objects()] == list(range(all_.objects()[0]["seq"], len(whole)))
        eventually(lambda: "MemberLeft" in left.out, "the fact of that kind")
        assert left.out.count("\n") == 2
        assert [(one.end(), one.err) for one in (all_, left)] == [(0, "")] * 2
