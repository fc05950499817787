"""Replicas in tests: what is done to a queue and to what follows it, what the two are compared by, and processes that die."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import spark_partq as partq
from spark_partq.core.queue import decide
from spark_partq.storage.files.disk import DiskFiles, _DiskOutput
from spark_partq.storage.group.handle import Group, list_groups
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.inspect.replicas import ReplicaStatus
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.procedures.replicate import replicate
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.handle import open_queue, queue_state
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.table import SYNCED
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.store import Store
from tests.clocks import no_grace
from tests.groups import Consumer
from tests.helpers import new_file

OnceHistoryIsChecked = Callable[[str, Callable[[], object]], None]


class Crash(BaseException):
    """The process ends here."""


def crash(*_: object, **__: object) -> None:
    """In place of a function before which a process dies."""
    raise Crash


@pytest.fixture(name="there")
def there_fixture(tmp_path: Path) -> str:
    """The path of the replica's store, which does not exist yet."""
    return str(tmp_path / "there")


@pytest.fixture(name="queue")
def queue_fixture(store: str) -> Iterator[str]:
    """Queue `q` of 2 partitions."""
    partq.create_queue(store, "q", "v bigint", partitions=2)
    with no_grace():
        yield store


@pytest.fixture(name="once_history_is_checked")
def once_history_is_checked_fixture(monkeypatch: pytest.MonkeyPatch) -> OnceHistoryIsChecked:
    """once_history_is_checked(folder, act): act after a pass has compared the history of that table, before it looks for new commits."""

    def plan(folder: str, act: Callable[[], object]) -> None:
        check, left = TableCopy.check_history, [act]

        def hook(copy: TableCopy) -> bool:
            found = check(copy)
            if copy.folder == folder and left:
                left.pop()()
            return found

        monkeypatch.setattr(TableCopy, "check_history", hook)

    return plan


# ---- what tests do and read
def table(store: str, number: int, queue: str = "q") -> PartitionTable:
    found = PartitionTable(Store.at(store), queue, number, queue_state(Store.at(store), queue).schema)
    found.refresh()
    return found


def put(store: str, number: int, values: Any, queue: str = "q", generation: int = 0) -> int:
    file = new_file(store, queue, number, {"v": pa.array(list(values), pa.int64())})
    start = table(store, number, queue).append([file], None, generation)
    assert start is not None
    return start


def sync(store: str, there: str) -> ReplicaStatus:
    return replicate(Store.at(store), "q", there)


def messages(store: str, number: int, queue: str = "q") -> dict[int, int]:
    """Offset to value, read as any Delta reader would."""
    rows = {}
    for add in pa.table(DeltaTable(table(store, number, queue)._log.uri).get_add_actions(flatten=True)).to_pylist():
        file = pq.read_table(f"{table(store, number, queue)._log.uri}/{add['path']}", partitioning=None).to_pylist()
        rows |= {add["partition.base_offset"] + row["_row"]: row["v"] for row in file}
    return rows


def group_of(store: str, name: str = "g") -> Group:
    group = Group(Store.at(store), name)
    group.refresh()
    return group


def tables_of(store: str) -> list[str]:
    """All Delta tables of the store but those that say what a replica is."""
    found = [str(p.parent.relative_to(store)) for p in Path(store).rglob("_delta_log") if any(p.iterdir())]
    return sorted(f for f in found if not f.endswith("/replica"))


def version(store: str, folder: str) -> int:
    return DeltaTable(f"{store}/{folder}").version()


def log_names(store: str, folder: str) -> set[str]:
    return set(os.listdir(f"{store}/{folder}/_delta_log")) - {"_last_checkpoint"}


def assert_equal(store: str, there: str) -> None:
    """The replica is what the primary is: versions, commits byte for byte, live files, state of queue and groups."""
    assert tables_of(store) == tables_of(there)
    for folder in tables_of(store):
        assert version(store, folder) == version(there, folder), folder
        both = {n for n in log_names(store, folder) & log_names(there, folder) if n.endswith(".json")}
        for name in both:
            paths = [Path(s) / folder / "_delta_log" / name for s in (store, there)]
            assert paths[0].read_bytes() == paths[1].read_bytes(), (folder, name)
        here, copy = (DeltaTable(f"{s}/{folder}") for s in (store, there))
        assert here.metadata().id == copy.metadata().id
        names = [sorted(uri.removeprefix(s) for uri in t.file_uris()) for s, t in ((store, here), (there, copy))]
        assert names[0] == names[1]
        for name in names[1]:
            assert Path(f"{store}{name}").read_bytes() == Path(f"{there}{name}").read_bytes()
    for name in partq.list_queues(store):
        assert queue_state(Store.at(store), name) == queue_state(Store.at(there), name)
    for name in list_groups(Store.at(store)):
        assert group_of(store, name).state == group_of(there, name).state
        assert group_of(store, name).acks == group_of(there, name).acks


def faults(store: str) -> list[str]:
    return [str(f) for f in diagnose(Store.at(store)).faults]


def assert_usable(store: str, there: str, promoted: bool = False) -> None:
    """What is there, wherever copying was interrupted, is whole, and what the primary was at some moment."""
    if "queues/q/control" not in tables_of(there):
        return  # the first pass has not come so far
    state = queue_state(Store.at(there), "q")
    assert faults(there) == []
    for number in state.all_partitions:
        copy, original = table(there, number), table(store, number)
        assert copy.next_offset <= original.next_offset
        if Path(there, "queues/q/replica", SYNCED).exists() and not promoted:  # it can be promoted
            assert state.explains(copy.sealed, copy.fenced)
        kept = messages(store, number)
        assert all(kept.get(o, v) == v for o, v in messages(there, number).items())
        assert len(messages(there, number)) == copy.next_offset - copy.first_offset
    for name in list_groups(Store.at(there)):
        group, original_group = group_of(there, name), group_of(store, name)
        if not promoted:
            assert group.history() == original_group.history()[: len(group.history())]
        for partition_id in group.state.partitions:
            if partition_id[0] == state.queue_id:
                position = group.position(partition_id)
                assert position is not None
                assert position <= table(there, partition_id[1]).next_offset
                assert position <= (original_group.position(partition_id) or 0) or promoted


def age(folder: Path, pattern: str = "*") -> None:
    """Make files look older than any grace."""
    for file in folder.rglob(pattern):
        if file.is_file():
            os.utime(file, (1e9, 1e9))


def clean_log(store: str, folder: str) -> None:
    """What happens to a log whose commits have outlived their retention."""
    age(Path(store) / folder / "_delta_log")
    LogFolder(Store.at(store), folder).write_checkpoint()


def maintain(store: str) -> None:
    """Retention, with every file older than its grace."""
    for folder in tables_of(store):
        age(Path(store) / folder, "*.parquet")
    partq.maintain(store)


def grow(store: str) -> None:
    """One more partition, by hand: seal, then open the next map."""
    primary = Store.at(store)
    state = queue_state(primary, "q")
    count = state.partition_count + 1
    control = open_control(primary, "q")
    control.decide(lambda state: decide.start_scaling(state, count, "live"))
    open_queue(primary, "q").table(count - 1).create()
    cuts = {n: table(store, n).seal(state.generation) for n in range(count)}
    control.decide(lambda now: decide.open_generation(now, state.generation, cuts))


class World:
    """A primary on which things happen at random."""

    def __init__(self, store: str, seed: int) -> None:
        self.store, self.random = store, random.Random(seed)
        self.consumers: list[Consumer] = []
        self.value = 0
        self.steps: list[Callable[[], None]] = [
            *[self.put] * 6, *[self.ack] * 5, self.join, self.leave, self.maintain, self.grow, self.toggle,
            self.shorten_logs,
        ]  # fmt: skip

    def step(self) -> None:
        self.random.choice(self.steps)()

    def put(self) -> None:
        state = queue_state(Store.at(self.store), "q")
        count = self.random.randint(1, 4)
        values = range(self.value, self.value + count)
        self.value += count
        put(self.store, self.random.choice(state.partition_numbers), values, generation=state.generation)

    def join(self) -> None:
        if len(self.consumers) < 2:
            number = self.random.randint(0, 9)
            with contextlib.suppress(partq.GroupMismatchError):
                self.consumers.append(Consumer(self.store, f"i{number}", group=self.random.choice(["g", "h"])))

    def leave(self) -> None:
        if self.consumers:
            self.consumers.pop().leave()

    def ack(self) -> None:
        for consumer in self.consumers:
            consumer.group.refresh()
            state = consumer.group.state
            for partition_id, own in state.partitions.items():
                position, end = (
                    consumer.group.position(partition_id) or 0,
                    table(self.store, partition_id[1]).next_offset,
                )
                if own.incarnation == consumer.incarnation and position < end:
                    consumer.ack(partition_id[1], self.random.randint(position + 1, end))

    def maintain(self) -> None:
        maintain(self.store)

    def grow(self) -> None:
        if queue_state(Store.at(self.store), "q").partition_count < 4:
            grow(self.store)

    def toggle(self) -> None:
        open_control(Store.at(self.store), "q").decide(lambda state: decide.set_ingress(state, not state.ingress))

    def shorten_logs(self) -> None:
        clean_log(self.store, self.random.choice(tables_of(self.store)))


CHANGES = ("put_if_absent", "put", "open_output", "delete", "make_folder")
READS = ("info", "read", "list_files", "list_folders")


@contextlib.contextmanager
def crashing(at: int, names: Sequence[str] = CHANGES) -> Iterator[list[str]]:
    """The process ends at its `at`-th operation of these on files, before or after it was done; yields what it did."""
    done: list[str] = []
    before: dict[tuple[type, str], Any] = {(DiskFiles, n): getattr(DiskFiles, n) for n in names}
    before[_DiskOutput, "close"] = _DiskOutput.close

    def wrap(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            done.append(name)
            if len(done) >= at and at % 2 == 0:
                raise Crash
            result = original(*args, **kwargs)
            if len(done) >= at:
                raise Crash
            return result

        return call

    for (class_, name), original in before.items():
        setattr(class_, name, wrap(name, original))
    try:
        yield done
    finally:
        for (class_, name), original in before.items():
            setattr(class_, name, original)
