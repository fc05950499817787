"""What the logs of a simulated store say, read from its files."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_partq.core.group.facts import GroupFact
from spark_partq.core.queue.facts import Mode
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.files import Files
from spark_partq.storage.log.entries import Add, Entry
from spark_partq.storage.log.snapshot import Snapshot
from spark_partq.storage.procedures.place import identities
from spark_partq.storage.queue.file_index import offsets_of

_SINK_UNDER_A_MAP = re.compile(r"partq:sink/[^/]+/\d+")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def hashes_of_keys(queue: QueueState, keys: Iterable[str | None]) -> dict[str, int]:
    """The hash by which a group holds a key, of each key."""
    found = sorted({key for key in keys if key is not None})
    hashes = identities(queue, pa.record_batch({"k": pa.array(found, pa.string())}), [0] * len(found))
    return dict(zip(found, hashes, strict=True))


class Violation(Exception):
    """Something that must hold does not."""


@dataclass(frozen=True)
class Message:
    """A row: its key, and its number among those of its producer. Both together are its value in the queue.

    Attributes
    ----------
    attempt : int
        How often its batch had been computed before, by a producer whose rows are others each time.
    """

    producer: str
    number: int
    key: str | None
    attempt: int = 0

    @property
    def id(self) -> str:
        return f"{self.producer}:{self.number}" + (f".{self.attempt}" if self.attempt else "")


@dataclass
class StoredPartition:
    """A partition as its log says, whatever was removed of it since."""

    ids: list[str] = field(default_factory=list)
    files: dict[str, tuple[int, int]] = field(default_factory=dict)  # live: its offsets
    enqueued_ms: dict[int, int] = field(default_factory=dict)  # of each message whose file was seen when it came
    version: int = -1
    cuts: dict[int, int] = field(default_factory=dict)  # generation -> where it was sealed
    sealed: int = -1  # the last generation under which it was sealed
    fence: int = -1  # the number of the last fence
    unfenced: int = -1  # those up to here are taken back
    deleted: set[int] = field(default_factory=set)  # offsets of files that were rewritten without them

    @property
    def fenced(self) -> bool:
        """A replica takes over."""
        return self.fence > self.unfenced

    def added(self, add: Add, base: int) -> None:
        """A file has come, and its messages are in `ids`."""
        self.files[add.path] = base, len(self.ids)
        self.enqueued_ms.update(dict.fromkeys(range(base, len(self.ids)), enqueued_ms(add)))

    def between(self, low: int, high: int) -> dict[int, str]:
        """The messages of ``[low, high)`` that were not deleted, by offset."""
        return {n: self.ids[n] for n in range(low, high) if n not in self.deleted}

    def record(self, number: int, entry: Entry) -> tuple[list[str], str]:
        """Take what an entry says of batches, seals, cuts and fences; what of it people want to know, and what is wrong."""
        sinks = ((app, txn.version) for app, txn in entry.transactions.items() if _SINK_UNDER_A_MAP.fullmatch(app))
        placed = [int(app.rpartition("/")[2]) for app, batch in sinks if batch >= 0]  # else the sink is forgotten
        if any(generation != self.sealed + 1 for generation in placed):
            return [], f"SEALED: partition {number} takes rows of map {placed}, and is sealed under {self.sealed}"
        if self.fenced and (entry.adds or "partq:sealed" in entry.transactions):
            return [], f"FENCED: partition {number} takes {'rows' if entry.adds else 'a seal'} while it is fenced"
        told = []
        for app, txn in entry.transactions.items():
            if self._record(app, txn.version):
                told.append(f"partition {number}: {app} = {txn.version}")
            if app.startswith("partq:cut/") and txn.version != len(self.ids):
                return told, f"CUT: partition {number} is sealed at {txn.version}, and ends at {len(self.ids)}"
        return told, ""

    def _record(self, app: str, version: int) -> bool:
        if app == "partq:sealed":
            self.sealed = version
        elif app == "partq:fenced":
            self.fence = version
        elif app == "partq:unfenced":
            self.unfenced = version
        elif app.startswith("partq:cut/"):
            self.cuts[int(app.rpartition("/")[2])] = version
        return app.startswith(("partq:sealed", "partq:fenced", "partq:unfenced", "partq:cut"))

    def jump(self, snapshot: Snapshot, ids_of: Callable[[str], dict[int, str]]) -> dict[str, int]:
        """Become what a checkpoint says; what was removed before is not known. Returns the offset of each message that is there."""
        self.version, self.files = snapshot.version, {}
        offsets: dict[str, int] = {}
        for add in sorted(snapshot.files.values(), key=lambda add: int(add.partition_values["base_offset"] or 0)):
            base, ids = int(add.partition_values["base_offset"] or 0), ids_of(add.path)
            end = base + offsets_of(add)
            self.ids += ["?"] * (end - len(self.ids))
            for row, id_ in ids.items():
                self.ids[base + row] = id_
                offsets[id_] = base + row
            self.deleted.update(n for n in range(base, end) if n - base not in ids)
            self.files[add.path] = base, end
        recorded = {app: txn.version for app, txn in snapshot.transactions.items()}
        self.sealed = recorded.get("partq:sealed", -1)
        self.fence, self.unfenced = recorded.get("partq:fenced", -1), recorded.get("partq:unfenced", -1)
        self.ids += ["?"] * (recorded.get("partq:next", 0) - len(self.ids))
        return offsets


@dataclass
class StoredQueue:
    """A queue in one store."""

    state: QueueState | None = None
    partitions: dict[int, StoredPartition] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)  # of each message, its partition and offset
    mode: Mode = "live"  # of the last change of the count
    removed: dict[int, int] = field(default_factory=dict)  # of each partition what is removed, or about to be

    @property
    def is_deleted(self) -> bool:
        """Its files go; whoever wrote into it meanwhile is promised nothing."""
        return self.state is not None and self.state.deleted


def wrong_time(queue: StoredQueue, number: int, offset: int, id_: str, time_us: int) -> str:
    """Whether a message that is there is said to have come at another time; or nothing."""
    if queue.places.get(id_) != (number, offset):
        return ""  # of a queue that was deleted
    came_ms = queue.partitions[number].enqueued_ms.get(offset, time_us // 1_000)
    return "" if came_ms == time_us // 1_000 else f"TIME: {id_} came at {came_ms}, and is said to have at {time_us}"


def enqueued_ms(add: Add) -> int:
    """When the messages of a file were enqueued, in milliseconds since 1970."""
    return (dt.datetime.fromisoformat(str(add.partition_values["_enqueued_at"])) - _EPOCH) // dt.timedelta(
        milliseconds=1
    )


def rows_of(files: Files, path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _parquet(files, path).read(use_threads=False).to_pylist()
    return rows


def column_of(files: Files, path: str, name: str) -> list[str]:
    values: list[str] = _parquet(files, path).read([name], use_threads=False)[name].to_pylist()
    return values


def ids_at(files: Files, path: str) -> dict[int, str]:
    """The messages of a file, each by the number of its row."""
    rows = _parquet(files, path).read(["_row", "id"], use_threads=False)
    return dict(zip(rows["_row"].to_pylist(), rows["id"].to_pylist(), strict=True))


def times_at(files: Files, path: str) -> dict[int, int]:
    """When each message of a segment was enqueued, in milliseconds since 1970, by the number of its row; nothing of another file."""
    file = _parquet(files, path)
    if "_enqueued_at" not in file.schema_arrow.names:
        return {}
    rows = file.read(["_row", "_enqueued_at"], use_threads=False)
    times = rows["_enqueued_at"].cast(pa.int64()).to_pylist()
    return {row: us // 1_000 for row, us in zip(rows["_row"].to_pylist(), times, strict=True)}


def _parquet(files: Files, path: str) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(files.read(path)))  # for so few rows a dataset costs more


def body_in_short(body: dict[str, Any]) -> str:
    text = json.dumps({k: v for k, v in body.items() if k != "schema" and (k != "settings" or len(v) < 5)})
    return text if len(text) < 120 else f"{text[:117]}..."


def fact_in_short(fact: GroupFact) -> str:
    told = {
        k: v
        for k, v in vars(fact).items()
        if v is not None and k not in ("kind", "queue", "queue_id", "body", "host", "by")
    }
    return f"{fact.kind} " + " ".join(f"{k}={v}" for k, v in told.items() if v != "")
