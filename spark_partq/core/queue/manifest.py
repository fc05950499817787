"""What one batch of a sink is, as it was first made durable (Q5).

The files of a batch are written first. Then the batch's *manifest* names them, and only then they are committed to the partitions. A process
that writes the batch again finds the manifest and goes on with its files. So it does not matter whether the rows are computed again, and how.

If the partition map changes in between, the rows that are not in yet are placed again from the files, under another manifest. So the manifests
of a batch are numbered 0, 1, 2… Each says what the tables recorded of the batch under the earlier maps. These records do not change any more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from spark_partq.core import format, stored
from spark_partq.core.queue.partition_map import PARENT, Generation, partition_numbers
from spark_partq.core.queue.sink_ids import is_sink_id, keeps_positions

MAX_BYTES = 64 << 20
_MAX_STATS = 1 << 20
_MAX_PREFIX = 1024
_EVERY_PARTITION = range(PARENT, stored.MAX_PARTITIONS)
_NAME = re.compile(r"([A-Za-z0-9._-]{1,140})~([0-9]{20})\.(0|[1-9][0-9]{0,8})\.json")

# For each generation of the map, the partitions whose tables record a batch under it.
Recorded = Mapping[int, Collection[int]]


@dataclass(frozen=True)
class NewFile:
    """A Parquet file that a task has written and that is not committed yet."""

    partition: int
    path: str  # relative to the partition's folder
    rows: int
    size_bytes: int
    stats: str = field(compare=False)  # Delta's statistics, JSON; a manifest has the number of rows only
    order: int  # place of its first row in the order in which rows were read


class ManifestName(NamedTuple):
    """The name of a manifest, which its file name contains. Names sort by sink, batch and number."""

    sink_id: str
    batch_id: int
    number: int

    @property
    def file(self) -> str:
        return f"{prefix_of(self.sink_id)}{self.batch_id:020d}.{self.number}.json"


@dataclass(frozen=True)
class Manifest:
    """A durable batch.

    Attributes
    ----------
    query_id, offsets_digest : str or None
        As in the batch's record (`BatchRecord`).
    generation, partition_count : int
        The map by which its files were placed.
    files : tuple of NewFile
        In the order of their rows. A partition may have none or several.
    placed : dict
        For each earlier generation, the partitions whose tables hold a part of the batch. The files have the rest.
    discarded : int or None
        If set, the batch is not stored: this many messages were discarded, as ingress was disabled (S3).
    positions : dict
        If the sink keeps positions of a group (`deliver_once`): all positions, as of this batch.
    follows : dict or None
        If the sink keeps positions: for each partition with messages of earlier batches, the last of these batches. The positions count these
        messages. None in a manifest that does not say it.
    late_after_ms : int or None
        The manifest is late if it was put more than this time after one of its files was written, by the store's clock. Then maintenance, which
        had not seen the manifest, may be deleting the files.
    """

    name: ManifestName
    query_id: str | None
    generation: int
    partition_count: int
    files: tuple[NewFile, ...] = ()
    placed: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    discarded: int | None = None
    positions: Mapping[str, int] = field(default_factory=dict)
    late_after_ms: int | None = None
    offsets_digest: str | None = None
    follows: Mapping[int, int] | None = None

    def holds(self, generations: Sequence[Generation], recorded: Recorded) -> bool:
        """Whether the manifest agrees with what the tables record, so that the batch can go on with it.

        A manifest that does not was put by a replicator's pass that slept while the replica took over: the primary had another history.

        Parameters
        ----------
        generations : sequence of Generation
            The queue's generations. Both they and `recorded`, from the queue's tables, are read after the manifest.
        """
        return self.has_map(generations) and dict(self.placed) == in_under(recorded, self.generation)

    def has_map(self, generations: Sequence[Generation]) -> bool:
        """Whether the queue has the map by which the files were placed."""
        g = self.generation
        return g < len(generations) and generations[g].partition_count == self.partition_count

    def earlier_are_in(self, last: Mapping[int, int]) -> bool:
        """Whether the earlier batches whose messages the positions count are in.

        Parameters
        ----------
        last : dict
            The sink's last batch in each partition that records the sink.
        """
        return all(last.get(partition, -1) >= batch for partition, batch in (self.follows or {}).items())

    def is_in_time(self, file_ns: int, named_ns: int) -> bool:
        """Whether maintenance sees the manifest before it may delete one of its files. The times, by the store's clock: file written, manifest put."""
        return self.late_after_ms is None or named_ns - file_ns <= self.late_after_ms * 1_000_000

    def left(self, recorded: Recorded) -> tuple[NewFile, ...]:
        """The files that are not in their partitions."""
        partitions = recorded.get(self.generation, ())
        return tuple(file for file in self.files if file.partition not in partitions)

    def is_complete(self, recorded: Recorded, last_discarded: int) -> bool:
        """Whether the whole batch of a manifest that holds is in, or its messages are counted as discarded.

        Parameters
        ----------
        last_discarded : int
            The sink's last batch whose messages are counted as discarded; -1 if there is none.
        """
        return not self.left(recorded) if self.discarded is None else self.name.batch_id <= last_discarded


def in_under(recorded: Recorded, before: int) -> dict[int, tuple[int, ...]]:
    """What is recorded under the generations before `before`. No process writes under them any more."""
    return {g: tuple(sorted(partitions)) for g, partitions in sorted(recorded.items()) if g < before and partitions}


def last_that_holds(
    manifests: Iterable[Manifest], generations: Sequence[Generation], recorded: Recorded
) -> Manifest | None:
    """Of a batch's manifests, in order, the last one that holds: the batch goes on with it."""
    return next((m for m in reversed(list(manifests)) if m.holds(generations, recorded)), None)


def prefix_of(sink_id: str) -> str:
    """How the names of a sink's manifests begin, and no others."""
    return f"{sink_id}~"


def parse_name(file: str) -> ManifestName | None:
    """The name of the manifest in a file of this name; None if the file is no manifest."""
    match = _NAME.fullmatch(file)
    if match is None or not is_sink_id(match[1]) or int(match[2]) > stored.MOST:
        return None
    return ManifestName(match[1], int(match[2]), int(match[3]))


def encode(manifest: Manifest) -> bytes:
    """The bytes of its file.

    Raises
    ------
    ValueError
        If they are more than a reader would accept.
    """
    plain: dict[str, Any] = {
        **format.of_new_tables().body(),
        "sink": manifest.name.sink_id,
        "batch": manifest.name.batch_id,
        "query": manifest.query_id,
        **({} if manifest.offsets_digest is None else {"offsets_digest": manifest.offsets_digest}),
        "generation": manifest.generation,
        "partition_count": manifest.partition_count,
        "placed": {str(g): list(partitions) for g, partitions in manifest.placed.items()},
    }
    if manifest.positions:
        plain["positions"] = _by_prefix(manifest.positions)
        if manifest.follows is not None:
            plain["follows"] = {str(partition): batch for partition, batch in sorted(manifest.follows.items())}
    if manifest.discarded is None:
        # The smallest and largest values are left out: they would remain after a message is deleted.
        plain["late_after_ms"] = manifest.late_after_ms
        plain["files"] = [{**asdict(file), "stats": json.dumps({"numRecords": file.rows})} for file in manifest.files]
    else:
        plain["discarded"] = manifest.discarded
    data = json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
    if len(data) > MAX_BYTES:
        raise ValueError(f"its manifest would have {len(data):,} bytes, more than {MAX_BYTES:,}")
    return data


def decode(name: ManifestName, data: bytes) -> Manifest:
    """The manifest in a file of that name.

    Raises
    ------
    ValueError, KeyError
        If the file is not such a manifest.
    NewerStoreError
        If only a newer program may go on with the manifest.
    """
    body = stored.body_of(data.decode(), "it")
    format.check_writable(format.parse(body), f"manifest {name.file}")
    if (body["sink"], body["batch"]) != (name.sink_id, name.batch_id):
        raise ValueError("sink and batch are not those of its name")
    count = stored.whole(body["partition_count"], "partition_count", 0, stored.MAX_PARTITIONS)
    discarded = stored.whole_or_none(body.get("discarded"), "discarded")
    keeps, follows = keeps_positions(name.sink_id), body.get("follows")
    return Manifest(
        name,
        stored.text_or_none(body["query"], "query"),
        stored.whole(body["generation"], "generation"),
        count,
        () if discarded is not None else _files(body["files"], partition_numbers(count)),
        _placed(body["placed"]),
        discarded,
        _positions(body["positions"]) if keeps else {},
        stored.whole_or_none(body.get("late_after_ms"), "late_after_ms"),
        stored.text_or_none(body.get("offsets_digest"), "offsets_digest"),
        stored.offsets_by_partition(follows, "follows", _EVERY_PARTITION) if keeps and follows is not None else None,
    )


def _files(value: object, partitions: range) -> tuple[NewFile, ...]:
    found = tuple(_file(plain, partitions) for plain in stored.items(value, "files"))
    if len({(file.partition, file.path) for file in found}) < len(found):
        raise ValueError("files names one twice")
    return found


def _file(value: object, partitions: range) -> NewFile:
    if not isinstance(value, dict):
        raise ValueError("files has one that is no object")
    file = NewFile(
        stored.whole(value["partition"], "partition", partitions.start, partitions.stop - 1),
        stored.file_name(value["path"], "path"),
        stored.whole(value["rows"], "rows", 1),
        stored.whole(value["size_bytes"], "size_bytes", 1),
        stored.text(value["stats"], "stats", _MAX_STATS),
        stored.whole(value["order"], "order"),
    )
    if stored.body_of(file.stats, "stats").get("numRecords") != file.rows:
        raise ValueError(f"stats of {file.path} has another number of rows than {file.rows}")
    return file


def _by_prefix(positions: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Group positions by the common beginning of their names: names of many partitions differ only at the end."""
    nested: dict[str, dict[str, int]] = {}
    for app, offset in sorted(positions.items()):
        prefix, _, partition = app.rpartition("/")
        nested.setdefault(prefix, {})[partition] = offset
    return nested


def _positions(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ValueError("positions is no object")
    found = {
        f"{stored.text(prefix, 'positions', _MAX_PREFIX)}/{partition}": offset
        for prefix, by_partition in value.items()
        for partition, offset in stored.offsets_by_partition(by_partition, "positions", _EVERY_PARTITION).items()
    }
    if not found:  # as if nothing had ever been written
        raise ValueError("positions has none of a partition")
    return found


def _placed(value: object) -> dict[int, tuple[int, ...]]:
    if not isinstance(value, dict):
        raise ValueError("placed is no object")
    every, placed = _EVERY_PARTITION, {}
    for key, partitions in value.items():
        if not isinstance(key, str) or not re.fullmatch(r"0|[1-9][0-9]{0,8}", key):
            raise ValueError("placed has a key that is no generation")
        numbers = [stored.whole(n, "placed", every.start, every.stop - 1) for n in stored.items(partitions, "placed")]
        if not numbers or numbers != sorted(set(numbers)):
            raise ValueError(f"placed has partitions of generation {key} twice, unsorted, or none")
        placed[int(key)] = tuple(numbers)
    return placed
