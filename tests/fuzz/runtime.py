"""A runtime in which a seed always means the same: names, times and chance follow each other, and all is done in one thread."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from spark_partq.core.errors import PartqError
from spark_partq.storage.files import Files, MemoryFiles
from spark_partq.storage.runtime import SystemRuntime

A = TypeVar("A")
B = TypeVar("B")
_BEGAN_NS = 1_800_000_000_000_000_000


class Repeatable(SystemRuntime):
    """A timer can interrupt whatever is done. Each store is in memory, and made when it is first asked for.

    Attributes
    ----------
    places : dict
        The files of each store, by its URI.
    """

    def __init__(self) -> None:
        self.places: dict[str, MemoryFiles] = {}
        self._chance, self._now_ns = random.Random(0), _BEGAN_NS

    def open_files(self, uri: str, storage_options: Mapping[str, str]) -> Files:
        return self.places.setdefault(uri, MemoryFiles(self.time_ns))

    def time_ns(self) -> int:
        self._now_ns += 1_000_000
        return self._now_ns

    def new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._chance.getrandbits(128), version=4)

    def random(self) -> float:
        return self._chance.random()

    def map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        return [function(item) for item in items]

    def request_upkeep(self, name: str, job: Callable[[], object]) -> None:
        with contextlib.suppress(PartqError):  # which upkeep would log
            job()
