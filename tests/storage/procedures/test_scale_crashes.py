"""A change of the partition count whose process dies at any moment is ended by whoever runs it again (S1, S2, S4)."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

import spark_partq as partq
from tests.helpers import ROOT, opened
from tests.scaled import Reader, Sink, assert_in_order, known, make, messages, runs, scale, while_scaling


def prepare(store: str, partitions: int, settled: bool) -> None:
    """A queue with 30 messages, and a group that has read all of them, or none."""
    make(store, partitions)
    Sink(store).write(0, messages(0, 30))
    reader = Reader(store)
    if settled:
        reader.all()


CHANGES: dict[str, tuple[int, int, bool, Callable[[str], Any]]] = {  # counts before and after, whether all was read
    "up": (2, 4, False, lambda store: scale(store, 4)),
    "down": (3, 1, True, lambda store: scale(store, 1)),
    "drain": (3, 2, True, lambda store: scale(store, 2, "drain")),
    "delete": (3, 1, True, lambda store: scale(store, 1, "delete")),
    "partitioned": (0, 2, True, lambda store: scale(store, 2)),
    "exclusive": (2, 0, True, lambda store: scale(store, 0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_between_any_two_commits(store: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """S1, S2, S4, S6: nothing is lost, nothing comes twice, ingress and group are as they should be; and it shows how far it is."""
    before, after, settled, change = CHANGES[name]
    prepare(store, before, settled)
    looks = []

    def look() -> None:
        found = partq.describe_queue(store, "q")
        looks.append((found.status, found.configured_partitions, found.operating_partitions, found.ingress))

    assert runs(monkeypatch, lambda: change(store), look) > 4
    up = "ScalingUp" if after > before else "ScalingDown"
    assert looks[0] == (up, after, before, name != "drain")
    assert {look[:3] for look in looks} <= {
        (up, after, before),
        (up, after, max(before, after)),
        ("Ready", after, after),
    }
    found = partq.describe_queue(store, "q")
    assert (found.status, found.operating_partitions, found.scaling, found.ingress) == ("Ready", after, None, True)
    assert (found.configured_partitions, found.generation, found.stuck) == (after, 1, 0)
    assert known(store) == list(opened(store).state.partition_numbers)
    sink, reader = Sink(store), Reader(store)  # another process of the same instance
    assert sink.write(0, messages(0, 30)) == 0
    assert sink.write(1, messages(30, 50)) == 20
    assert sorted(v for _, v in reader.all()) == list(range(30 if settled else 0, 50))
    assert scale(store, after).generation == 1
    state = opened(store).state
    assert [
        sum(opened(store).table(n).index.rows) for n in state.all_partitions if n not in state.partition_numbers
    ] == [0] * (len(state.all_partitions) - len(state.partition_numbers))


def test_a_producer_between_any_two_commits(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S5, Q5: a batch that is written by processes that die one after the other while the map changes is in once."""
    make(store, 3)
    rows, counts = messages(0, 60, keys=23), iter((5, 2, 0))

    def between() -> None:
        count = next(counts, None)
        if count is not None:
            scale(store, count)

    assert runs(monkeypatch, lambda: Sink(store).write(0, rows), between) > 2
    scale(store, 3)
    assert Sink(store).write(0, rows) == 0
    assert partq.copy_stuck(store, "q") > 0  # the last ones were written while it was exclusive
    assert_in_order(Reader(store).all(), rows)


PROGRAM = """
import sys
import spark_partq as partq
print("begins", flush=True)
partq.scale(sys.argv[1], "q", int(sys.argv[2]))
"""


def test_processes_that_are_killed(store: str) -> None:
    """S1, S5: `scale` is killed again and again while a producer writes and a consumer reads; others go on, and a last run ends it."""
    make(store, 3)
    sink, reader, batch = Sink(store), Reader(store), 0
    chance = random.Random(7)
    for count in (5, 2):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, store, str(count)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert process.stdout is not None and process.stdout.readline() == "begins\n"
        kill_at = time.monotonic() + chance.uniform(0, 0.15)
        while process.poll() is None:
            sink.write(batch, messages(batch * 7, batch * 7 + 7))
            batch += 1
            if time.monotonic() > kill_at:
                process.kill()
            reader.turn()
        process.stdout.close()
        found = while_scaling(lambda count=count: scale(store, count), reader.turn)
        assert (found.operating_partitions, found.status) == (count, "Ready")
    assert_in_order(reader.all(), messages(0, batch * 7))
