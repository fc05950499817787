"""Programs of two releases on one store: the older one is frozen here, the newer one knows more.

``python -m tests.versions STORE`` is a process of the newer release, which raises the format of queue `q` and group `g`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from spark_partq.core import format
from spark_partq.core.group.facts import GroupFact
from spark_partq.core.queue.facts import QueueFact
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.store import Store


@dataclass(frozen=True)
class Program:
    RELEASE: str
    READER: int
    WRITER: int
    FEATURES: frozenset[str]


OLDER = Program("spark_partq 0.2.0", 1, 1, frozenset())
NEWER = Program("spark_partq 9.0", 2, 2, frozenset({"tides"}))


@contextlib.contextmanager
def running(program: Program) -> Iterator[None]:
    """What is done meanwhile, in all threads of this process, is done by that program."""
    with mock.patch.multiple(format, **vars(program)):
        yield


def needs(min_reader: int = 1, min_writer: int = 1, *features: str) -> dict[str, Any]:
    return format.Format(min_reader, min_writer, features, NEWER.RELEASE).body()


def raise_queue(store: str, body: dict[str, Any], queue: str = "q") -> None:
    with running(NEWER):
        open_control(Store.at(store), queue).commit([QueueFact("FormatRaised", body)])


def raise_group(store: str, body: dict[str, Any], group: str = "g") -> None:
    with running(NEWER):
        table = ControlTable(Store.at(store), group)
        table.refresh()
        table.commit([GroupFact("FormatRaised", body=json.dumps(body), cause="upgrade", by="newer")])


if __name__ == "__main__":
    raise_queue(sys.argv[1], needs(2, 2))
    raise_group(sys.argv[1], needs(2, 2))
