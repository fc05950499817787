"""Queues for tests of the commands, and what was decided about them."""

from __future__ import annotations

import sys
from typing import Any

import spark_partq as partq
from tests.cli.outcome import Command
from tests.groups import Consumer
from tests.helpers import new_file, opened
from tests.scaled import make

PROGRAM = [sys.executable, "-c", "from spark_partq.cli import main; main()"]
# Whoever starts the tests in the background has SIGINT ignored.
HEEDS_CTRL_C = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {PROGRAM[-1]}"
LEFT, LEFT_TO_G = (f"consumers{of} to acknowledge what is left" for of in ("", " of group g"))


def queue_of(store: str, partitions: int, each: int = 0, **settings: Any) -> None:
    """Queue `q` with so many messages in each partition."""
    make(store, partitions, **settings)
    for number in range(partitions) or [-1]:
        if each:
            fill(store, number, each)


def fill(store: str, number: int, count: int, name: str = "q") -> None:
    queue = opened(store, name)
    file = new_file(store, name, number, {"k": ["k"] * count, "v": range(count)})
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


def created(store: str, **settings: Any) -> None:
    partq.create_queue(store, "q", "v long", partitions=2, **settings)


def read_up_to(store: str, group: str, partition: int, offset: int) -> None:
    """Let the group have acknowledged a partition up to the offset."""
    Consumer(store, "i", group=group, session_timeout_ms=300).ack(partition, offset)


def table_rows(told: str) -> list[list[str]]:
    return [[c.strip() for c in line.split("│")[1:-1]] for line in told.splitlines() if line.startswith("│")]
