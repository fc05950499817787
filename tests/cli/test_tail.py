"""The newest messages of a queue on the command line."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.storage.inspect.tail import Message, Tail
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.queue.slices import Slice
from spark_partq.storage.store import Store
from tests.cli.outcome import Command, assert_refused
from tests.cli.queues import HEEDS_CTRL_C, fill, queue_of
from tests.helpers import ROOT, eventually, new_file, opened
from tests.scaled import Sink, hash_of, messages, scale


def told(out: str) -> list[tuple[int, int, Any]]:
    found = [json.loads(line) for line in out.splitlines()]
    return [(m["partition"], m["offset"], m["message"]["v"]) for m in found]


def commit(store: str, **columns: Any) -> None:
    opened(store).table(0).append([new_file(store, "q", 0, columns)], None)


def test_the_newest_come_by_partition_and_offset(command: Command, store: str) -> None:
    queue_of(store, 2, each=3)  # first partition 0, then 1
    assert told(command("tail", "q", "-n", "4", "--json").out) == [(0, 2, 2), (1, 0, 0), (1, 1, 1), (1, 2, 2)]
    fill(store, 0, 2)
    assert told(command("tail", "q", "-n", "3", "--json").out) == [(0, 3, 0), (0, 4, 1), (1, 2, 2)]
    assert len(told(command("tail", "q", "--json").out)) == 8
    assert command("tail", "q", "-n", "0").out == ""
    assert command("tail", "q", "-n", "0").err == ""
    assert partq.describe_queue(store, "q").groups == ()


def test_that_there_is_none_is_said(command: Command, store: str) -> None:
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=2)
    none = command("tail", "q")
    assert (none.code, none.out, none.err) == (0, "", "queue q has no message\n")
    of_a_key = command("tail", "q", "--key", "k=k3")
    assert (of_a_key.out, of_a_key.err) == ("", "queue q has no message of this key\n")
    assert command("tail", "q", "--json").err == ""


def test_lines_fit(command: Command, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partq.create_queue(store, "q", "text string, v bigint", partitions=1)
    commit(store, text=["\x1b[31m " + "x" * 200], v=[7])
    monkeypatch.setenv("COLUMNS", "80")
    (line,) = command("tail", "q").out.splitlines()
    assert line.startswith("0@0 20")
    assert r"\x1b[31m xxx" in line and "\x1b" not in line
    assert len(line) == 80 and line.endswith("…")


def test_values_of_every_kind(command: Command, store: str) -> None:
    schema = "a int, b binary, c date, d timestamp, e decimal(5,2), f array<string>, g boolean, h string, v bigint, w array<double>"
    partq.create_queue(store, "q", schema, partitions=1)
    row: dict[str, Any] = {
        "a": 3,
        "b": b"\x01\xff",
        "c": dt.date(1970, 1, 11),
        "e": Decimal("1.50"),
        "f": ["x"],
        "g": True,
        "h": "y",
        "v": None,
        "w": [math.nan, -math.inf, math.inf, 0.5],
    }
    commit(store, **{name: [value] for name, value in row.items()}, d=[dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)])
    (found,) = map(json.loads, command("tail", "q", "--json").out.splitlines())
    assert found["message"] == {
        "a": 3, "b": "01ff", "c": "1970-01-11", "d": "1970-01-01T00:00:01+00:00", "e": "1.50", "f": ["x"], "g": True, "h": "y", "v": None,
        "w": ["NaN", "-Infinity", "Infinity", 0.5],
    }  # fmt: skip
    assert 'b="01ff" c="1970-01-11"' in command("tail", "q").out


# ---- by key
def test_messages_of_a_key_also_of_before_a_resize(command: Command, store: str) -> None:
    queue_of(store, 3)
    sink = Sink(store)
    sink.write(0, messages(0, 70))
    scale(store, 5)
    sink.write(1, messages(70, 140))
    found = told(command("tail", "q", "--key", "k=k3", "-n", "100", "--json").out)
    assert {partition for partition, _, _ in found} == {hash_of("k3") % 3, hash_of("k3") % 5}
    assert sorted(value for _, _, value in found) == list(range(3, 140, 7))
    newest = told(command("tail", "q", "--key", "k=k3", "-n", "2", "--json").out)
    assert [value for _, _, value in newest] == [129, 136]


def test_what_is_refused(command: Command, store: str) -> None:
    partq.create_queue(store, "q", "k int, v bigint", key="k", partitions=1)
    assert_refused(
        command("tail", "q", "--key", "v=1"), "INVALID_ARGUMENT", "'v' is no column of the key", "its key: k"
    )
    assert_refused(command("tail", "q", "--key", "k=x"), "INVALID_ARGUMENT", "'x' is no value of column 'k'", "integer")
    assert_refused(command("tail", "nope"), "QUEUE_NOT_FOUND", "'nope'")
    assert command("tail", "q", "--key", "k").code == 2
    assert command("tail", "q", "-n", "-1").code == 2


# ---- --follow
def test_a_partition_that_cannot_be_read_keeps_back_no_other(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queue_of(store, 2)
    reader = Tail(open_queue(Store(store), "q"), {})
    reader.last(0)
    for number in range(2):
        fill(store, number, 2)
    whole = Tail._read

    def read(self: Tail, piece: Slice) -> Iterator[Message]:
        if piece.partition == 0:
            raise partq.CorruptTableError("damaged")
        return whole(self, piece)

    monkeypatch.setattr(Tail, "_read", read)
    messages_ = reader.more()
    assert [(m.partition, m.offset) for m in itertools.islice(messages_, 2)] == [(1, 0), (1, 1)]
    with pytest.raises(partq.CorruptTableError):
        next(messages_)


def test_what_could_not_be_read_comes_with_the_next_try(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message once, whichever read of a file fails."""
    queue_of(store, 2)
    reader = Tail(open_queue(Store(store), "q"), {})
    reader.last(0)
    for _ in range(2):
        fill(store, 0, 2)
        fill(store, 1, 2)
    seen, reads = [], itertools.count()
    whole = Tail._read

    def read(self: Tail, piece: Slice) -> Iterator[Message]:
        messages_ = whole(self, piece)
        yield next(messages_)
        if next(reads) % 2 == 0:
            raise partq.StoreUnavailableError("no answer")
        yield from messages_

    monkeypatch.setattr(Tail, "_read", read)
    for _ in range(6):
        with contextlib.suppress(partq.StoreUnavailableError):
            for message in reader.more():
                seen.append((message.partition, message.offset))
    for number in range(2):
        assert [offset for partition, offset in seen if partition == number] == list(range(4))


def test_follow_shows_what_comes_until_ctrl_c(store: str) -> None:
    """Also of partitions that come with a resize."""
    queue_of(store, 1)
    sink = Sink(store)
    sink.write(0, messages(0, 5))
    arguments = [
        sys.executable,
        "-c",
        HEEDS_CTRL_C,
        "tail",
        "q",
        "--store",
        store,
        "--follow",
        "--every",
        "0.05",
        "--json",
    ]
    seen: list[str] = []
    with subprocess.Popen(
        [*arguments, "-n", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ}
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)

        def values() -> list[int]:
            seen.extend(line for line in process.stdout.readlines() if line.strip())  # type: ignore[union-attr]
            return sorted(v for _, _, v in told("".join(seen)))

        eventually(lambda: values() == [3, 4], "the last two")
        sink.write(1, messages(5, 9))
        eventually(lambda: values() == list(range(3, 9)), "what came")
        scale(store, 3)
        sink.write(2, messages(9, 30))
        eventually(lambda: values() == list(range(3, 30)), "what came in other partitions")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None and process.stderr.read() == ""
