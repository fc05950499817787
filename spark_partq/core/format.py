"""The versions of the store's format: which of its tables this program may read, and which it may write.

The first fact of each table of facts says the least versions of a reader and a writer, and the features, that whoever uses the table
must know. A later fact can raise them, so a store is upgraded in place. These fields never change their names or their meaning, so
that every older program understands at least them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from spark_partq.core import stored
from spark_partq.core.errors import NewerStoreError

RELEASE = "spark_partq 0.3.0"
# What this program knows. Tables may need less than that.
READER, WRITER = 1, 1
MURMUR2 = "keyHashMurmur2"  # a queue whose keys are placed by another hash than xxhash64
ADDED_COLUMNS = "addedColumns"  # a queue that got columns later, which its older files lack
DELETED_MESSAGES = "deletedMessages"  # a queue with files that were rewritten without some of their messages
FORCED_WRITES = (
    "forcedWrites"  # a queue, or a group that reads one, to which everybody forces to the disk what they write
)
SEGMENTS = "segments"  # a queue with files into which several were put together
MIN_RETENTION = "minRetention"  # a queue whose messages stay for some time when every group has acknowledged them
FEATURES: frozenset[str] = frozenset([MURMUR2, ADDED_COLUMNS, DELETED_MESSAGES, FORCED_WRITES, SEGMENTS, MIN_RETENTION])

_MAX_VERSION = 1_000_000


@dataclass(frozen=True)
class Format:
    """What one must know to use a table.

    Attributes
    ----------
    min_reader, min_writer : int
        Who reads, or writes, knows at least this version.
    features : tuple of str
        Who reads or writes knows each of these.
    made_by : str
        The release that made the table so, which is the one to upgrade to.
    """

    min_reader: int
    min_writer: int
    features: tuple[str, ...]
    made_by: str

    def body(self) -> dict[str, Any]:
        """The fields of a fact."""
        return {**asdict(self), "features": list(self.features)}

    def raised(self, body: Mapping[str, Any]) -> Format:
        """The format after a fact that raises it.

        Raises
        ------
        ValueError
            If it takes anything back.
        """
        new = parse(body)
        if new.min_reader < self.min_reader or new.min_writer < self.min_writer:
            raise ValueError("min_reader, min_writer: a version of the format never sinks")
        if not set(self.features) <= set(new.features):
            raise ValueError("features: a feature of the format is never taken back")
        return new

    def with_features(self, *features: str) -> Format:
        """The format with these features, too; itself if it has them all."""
        missing = [feature for feature in features if feature not in self.features]
        return replace(self, features=(*self.features, *missing), made_by=RELEASE) if missing else self


def of_new_tables(*features: str) -> Format:
    """That of the tables that this program makes: one that the programs understand that run beside it during an upgrade.

    Parameters
    ----------
    *features : str
        Those that the table needs, as somebody asked for what they are.
    """
    return Format(1, 1, features, RELEASE)


def parse(body: Mapping[str, Any]) -> Format:
    """The format that a fact says; a `ValueError` or `KeyError` if it says none."""
    return Format(
        stored.whole(body["min_reader"], "min_reader", 1, _MAX_VERSION),
        stored.whole(body["min_writer"], "min_writer", 1, _MAX_VERSION),
        stored.texts(body["features"], "features"),
        stored.text(body["made_by"], "made_by"),
    )


def check_readable(format: Format, what: str) -> None:
    """Refuse a table that only a newer program may read.

    Raises
    ------
    NewerStoreError
    """
    if format.min_reader > READER:
        raise newer(what, f"reader version {format.min_reader}", str(READER), format.made_by)
    unknown = sorted(set(format.features) - FEATURES)
    if unknown:
        has = ", ".join(sorted(FEATURES)) or "no features"
        raise newer(what, f"the feature {unknown[0][:60]!r}", has, format.made_by)


def check_writable(format: Format, what: str) -> None:
    """Refuse a table that only a newer program may write.

    Raises
    ------
    NewerStoreError
    """
    check_readable(format, what)
    if format.min_writer > WRITER:
        raise newer(what, f"writer version {format.min_writer}", str(WRITER), format.made_by)


def newer(what: str, needs: str, has: str, upgrade: str) -> NewerStoreError:
    return NewerStoreError(
        f"{what} needs {needs}, and this program ({RELEASE}) has {has}: upgrade it to {upgrade[:60]} or newer. Nothing is damaged",
        what=what,
        needs=needs,
        has=has,
        upgrade=upgrade[:60],
    )
