"""The store that the rows are about, the names that they may use, and processes with fewer rights or less space."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from deltalake import DeltaTable
from typer.testing import CliRunner

import spark_partq as partq
from spark_partq.cli import app
from spark_partq.core.assignors.api import target
from spark_partq.core.assignors.plugin import PlugIn
from spark_partq.core.delivery.positions import Position, position_app
from spark_partq.core.payload.schema import payload_schema
from spark_partq.core.stored import MOST
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures.deliver_once import Written, deliver_once
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from spark_partq.target.table import DeltaTarget
from spark_partq.target.task import taken, write_task
from tests import queries
from tests.groups import Consumer
from tests.refused import batches
from tests.scaled import Sink, make, messages
from tests.storage.files.processes import CONTEXT, NOBODY

# Limits of a process: by their names in the page.
NOBODYS = "by a user without rights"
NO_SPACE = "on a disk that is full"
LIMITS = (NOBODYS, NO_SPACE)
_FULL_AT_BYTES = 300

# A store that nobody answers for.
UNREACHABLE = {
    "aws_endpoint_url": "http://127.0.0.1:9", "aws_allow_http": "true", "aws_region": "us-east-1",
    "aws_access_key_id": "nobody", "aws_secret_access_key": "nothing", "aws_max_retries": "0", "timeout": "5s",
}  # fmt: skip


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """One that every user may enter, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="partq-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


class World:
    """A folder with a store: queue `q` of 2 partitions, of whose 20 messages group `g` has read some, and queue `other` of other columns."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.there = folder, str(folder / "store"), str(folder / "there")

    @classmethod
    def made(cls, folder: Path) -> World:
        world = cls(folder)
        make(world.store, 2)
        partq.create_queue(world.store, "other", "v string", partitions=1)
        write(world.store, batch_id=0, count=20)
        consumer = Consumer(world.store, "a")
        for number in range(2):
            consumer.ack(number, 3)
        consumer.leave()
        return world

    def copied(self, folder: Path) -> World:
        shutil.copytree(self.folder, folder, symlinks=True, dirs_exist_ok=True)
        return World(folder)

    def path(self, relative: str) -> Path:
        return Path(self.store) / relative

    @property
    def names(self) -> dict[str, Any]:
        """What the rows may use: the public names, the paths, and what stands for Spark."""
        public = {name: getattr(partq, name) for name in partq.__all__}
        checkpoint = str(self.folder / "checkpoint")
        return public | {
            "store": self.store,
            "there": self.there,
            "folder": str(self.folder),
            "unreachable": UNREACHABLE,
            "read": queries.read,
            "consume": lambda store, queue="q", **options: queries.consume(store, checkpoint, queue=queue, **options),
            "write": write,
            "rows": batches.rows,
            "batch": partial(batches.batch, self.store),
            "rejected": partial(batches.rejected, self.store),
            "hours_ahead": hours_ahead,
            "asked": asked,
            "add": add,
            "deliver_behind": deliver_behind,
            "refresh_replaced": refresh_replaced,
            "add_to": lambda table: DeltaTarget(Store(table)),
            "taken_over": self._taken_over,
            "nan": float("nan"),
            "findings": findings,
            "listed": listed,
        }

    def _taken_over(self, batch: Any, number: int) -> None:
        """Somebody starts instance `i` of group `h` again while it runs."""
        queries.consume(self.store, self.folder / "checkpoint-2", group="h", instanceId="i")

    def files(self) -> dict[str, bytes | str]:
        """All that lies there."""
        found: dict[str, bytes | str] = {}
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if path.is_symlink():
                found[name] = os.readlink(path)
            elif path.is_file() and not name.startswith("checkpoint"):
                found[name] = path.read_bytes()
        return found


def write(
    store: str, queue: str = "q", *, sink_id: str = "s", batch_id: int, query_id: str | None = None, count: int = 5
) -> int:
    """A micro-batch of a sink, as its driver writes it."""
    assert queue == "q"
    return Sink(store, sink_id, query_id).write(batch_id, messages(0, count))


def hours_ahead(hours: float, do: Callable[[], object]) -> object:
    """Do it where this machine's clock is so far ahead."""
    wall = SYSTEM.time_ns
    with mock.patch.object(SYSTEM, "time_ns", side_effect=lambda: wall() + int(hours * 3_600_000_000_000)):
        return do()


def add(table: str, offset: int, v: int) -> int:
    """Write a row of that message into a Delta table that takes values below 10, as a task of the Delta sink does; the files."""
    place, columns = Store(table), payload_schema("v bigint")
    DeltaTarget.create(place, columns, [])
    DeltaTable(table).alter.add_constraint({"small": "v < 10"})
    target = DeltaTarget(place)
    row = {"_0": [v], "c0": [v < 10], "queue": ["q"], "partition": [0], "offset": [offset]}
    task = write_task(place, columns, [], len(target.constraints), {("q", 0): (0, 5, 0)})
    files, _, problem = taken(
        text for batch in task([pa.RecordBatch.from_pydict(row)]) for text in batch.column(0).to_pylist()
    )
    shutil.rmtree(table)
    if problem is not None:
        raise problem.error(target.what, list(target.constraints.items()))
    return len(files)


def deliver_behind(table: str, position: int, end: int) -> bool:
    """Deliver a micro-batch into a Delta table that has a position in a partition, which ends there."""
    place = Store(table)
    DeltaTarget.create(place, payload_schema("v bigint"), [])
    target = DeltaTarget(place)
    target.commit([], {position_app("g", None, "id", 0): position})
    planned = {("id", 0): Position(0, end, 1, "id", (("id", MOST),))}
    try:
        return deliver_once(
            target, SYSTEM, "g", None, planned, lambda _: Written([], {}), lambda asked: dict.fromkeys(asked, end)
        )
    finally:
        shutil.rmtree(table)


def refresh_replaced(table: str) -> None:
    """Let a sink of a Delta table read what is new in it, after another table has taken its place."""
    place, columns = Store(table), payload_schema("v bigint")
    DeltaTarget.create(place, columns, [])
    target = DeltaTarget(place)
    shutil.rmtree(table)
    DeltaTarget.create(place, columns, [])
    try:
        target.refresh()
    finally:
        shutil.rmtree(table)


def asked(answer: Callable[[list[tuple[str, int]]], list[tuple[str, int]]]) -> object:
    """An assignor of the user that gives its one member what `answer` makes of the partitions of queue `q`."""

    class Own:
        name = "own"
        cooperative = False

        def assign(self, members: Any, partition_counts: Mapping[str, int], previous: Any) -> Any:
            return {"a": answer([("q", number) for number in range(partition_counts["q"])])}

    return target(PlugIn(Own()), [partq.Member("a", ["q"])], {"q": 2}, {})


def findings(store: str) -> list[str]:
    """What the doctor says of a store, and last how much it has checked."""
    found = diagnose(Store(store))
    return [*map(str, found.findings), f"{found.queues} queues, {found.partitions} partitions, {found.groups} groups"]


def listed(store: str) -> tuple[int, str]:
    """The exit code and the text of the command `list`, without its warnings."""
    told = CliRunner().invoke(app, ["--store", store, "list", "--json"])
    return told.exit_code, told.stdout


# ---- with a limit
def limited(limit: str, asked: Sequence[tuple[str, Path]]) -> list[str]:
    """What comes of Python about the worlds in these folders, in one process with a limit: ``class: text`` of errors of this package."""
    with CONTEXT.Pool(1) as pool:
        return list(pool.apply(_limited, (limit, asked)))


def _limited(limit: str, asked: Sequence[tuple[str, Path]]) -> list[str]:
    for given, folder in asked:  # so that all is loaded, also what this user may not read later
        spare = World(folder).copied(folder.with_name(f"{folder.name}-spare"))
        _outcome(given, spare.folder)
        shutil.rmtree(spare.folder)
    if limit == NO_SPACE:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FULL_AT_BYTES, resource.RLIM_INFINITY))
    elif limit == NOBODYS and os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    return [_outcome(given, folder) for given, folder in asked]


def _outcome(given: str, folder: Path) -> str:
    try:
        return repr(evaluated(given, World(folder).names))
    except partq.PartqError as error:
        return f"{type(error).__name__}: {error.message}"


def evaluated(given: str, names: Mapping[str, Any]) -> Any:
    return eval(given, dict(names))  # the rows are this project's own
