"""A batch whose files are written, and not all committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_partq.core.queue.manifest import Manifest, NewFile
from spark_partq.storage.queue.file_age import FileAge


@dataclass(frozen=True)
class Prepared:
    """A batch that is to be placed.

    Attributes
    ----------
    age : FileAge or None
        When this process began the files; None if there are none, or if it has found the manifest.
    """

    manifest: Manifest
    age: FileAge | None = None

    @property
    def is_own(self) -> bool:
        """Whether this process has just written the files, so they exist."""
        return self.age is not None


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
