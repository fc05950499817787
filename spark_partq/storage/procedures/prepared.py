"""A batch whose files are written, and not all committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_partq.core.queue.manifest import Manifest, NewFile


@dataclass(frozen=True)
class Prepared:
    """A batch that is to be placed.

    Attributes
    ----------
    deadline_s : float
        When the files become too old, by `Runtime.monotonic_s`. Files that a manifest names never do.
    is_own : bool
        This process has just written the files, so they exist.
    began_s : float
        When the files were begun, if they have a deadline.
    """

    manifest: Manifest
    deadline_s: float
    is_own: bool = True
    began_s: float = 0.0


@dataclass(frozen=True)
class Result:
    """What became of one partition's files."""

    partition: int
    rows: int = 0
    is_in: bool = False
    sealed: bool = False
    fenced: bool = False
    too_old: bool = False


def by_partition(files: Iterable[NewFile]) -> list[list[NewFile]]:
    parts: dict[int, list[NewFile]] = {}
    for file in files:
        parts.setdefault(file.partition, []).append(file)
    return [parts[p] for p in sorted(parts)]
