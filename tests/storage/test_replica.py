"""Replicas: what follows a queue, how far it is, and how it takes over (S7)."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import spark_partq as partq
from spark_partq.core.queue import QueueFact
from spark_partq.storage import promotion, replica, tablecopy
from spark_partq.storage.delta import CasTable
from spark_partq.storage.doctor import diagnose
from spark_partq.storage.files import Files, Taken
from spark_partq.storage.groups import Group, list_groups
from spark_partq.storage.partition import FENCED, SEALED, PartitionTable
from spark_partq.storage.queues import queue_state
from spark_partq.storage.replicafacts import ReplicaTable, replica_role, tell
from spark_partq.storage.replicator import Replicator, Synced, run
from spark_partq.storage.rows import now
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import new_file
from tests.spark.test_object_store import bucket  # noqa: F401


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture
def there(tmp_path: Path) -> str:
    """The path of the replica's store, which does not exist yet."""
    return str(tmp_path / "there")


@pytest.fixture
def queue(store: str) -> str:
    """Queue `q` of 2 partitions."""
    partq.create_queue(store, "q", "v bigint", partitions=2, vacuum_grace_ms=0)
    return store


# ---- what tests do and look at
def table(store: str, number: int, queue: str = "q") -> PartitionTable:
    found = PartitionTable(Store.at(store), queue, number, queue_state(Store.at(store), queue).schema)
    found.refresh()
    return found


def put(store: str, number: int, values: Any, queue: str = "q", generation: int = 0) -> int:
    file = new_file(store, queue, number, {"v": pa.array(list(values), pa.int64())})
    start = table(store, number, queue).append([file], None, now, generation)
    assert start is not None
    return start


def sync(store: str, there: str) -> replica.ReplicaStatus:
    return replica.replicate(Store.at(store), "q", there)


def messages(store: str, number: int, queue: str = "q") -> dict[int, int]:
    """Offset to value, read as any Delta reader would."""
    rows = {}
    for add in pa.table(DeltaTable(table(store, number, queue)._cas.uri).get_add_actions(flatten=True)).to_pylist():
        file = pq.read_table(f"{table(store, number, queue)._cas.uri}/{add['path']}", partitioning=None).to_pylist()
        rows |= {add["partition.base_offset"] + row["_row"]: row["v"] for row in file}
    return rows


def group_of(store: str, name: str = "g") -> Group:
    group = Group(Store.at(store), name)
    group.refresh()
    return group


def tables_of(store: str) -> list[str]:
    """All Delta tables of the store but those that say what a replica is."""
    found = [str(p.parent.relative_to(store)) for p in Path(store).rglob("_delta_log")]
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
    for number in state.every:
        copy, original = table(there, number), table(store, number)
        assert copy.next_offset <= original.next_offset
        kept = messages(store, number)
        assert all(kept.get(o, v) == v for o, v in messages(there, number).items())
        assert len(messages(there, number)) == copy.next_offset - copy.first_offset
    for name in list_groups(Store.at(there)):
        group, original_group = group_of(there, name), group_of(store, name)
        if not promoted:
            assert group.history() == original_group.history()[: len(group.history())]
        for where in group.state.partitions:
            if where[0] == state.queue_id:
                position = group.position(where)
                assert position is not None
                assert position <= table(there, where[1]).next_offset
                assert position <= (original_group.position(where) or 0) or promoted


def age(folder: Path, pattern: str = "*") -> None:
    """Make files look older than any grace."""
    for file in folder.rglob(pattern):
        if file.is_file():
            os.utime(file, (1e9, 1e9))


def clean_log(store: str, folder: str) -> None:
    """What happens to a log whose commits have outlived their retention."""
    age(Path(store) / folder / "_delta_log")
    found = DeltaTable(f"{store}/{folder}")
    found.create_checkpoint()
    found.cleanup_metadata()


def maintain(store: str) -> None:
    """Retention, with every file older than its grace."""
    for folder in tables_of(store):
        age(Path(store) / folder, "*.parquet")
    partq.maintain(store)


def grow(store: str) -> None:
    """One more partition, by hand: seal, then open the next map."""
    primary = Store.at(store)
    state = queue_state(primary, "q")
    count = state.partitions + 1
    tell(primary, "q", lambda _: [QueueFact("ScalingStarted", {"partitions": count, "mode": "live"})])
    PartitionTable(primary, "q", count - 1, state.schema).create()
    cuts = {str(n): table(store, n).seal(state.generation) for n in range(count)}
    tell(primary, "q", lambda _: [QueueFact("GenerationOpened", {"partitions": count, "cuts": cuts})])


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
        put(self.store, self.random.choice(state.numbers), values, generation=state.generation)

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
            for where, own in state.partitions.items():
                position, end = consumer.group.position(where) or 0, table(self.store, where[1]).next_offset
                if own.incarnation == consumer.incarnation and position < end:
                    consumer.ack(where[1], self.random.randint(position + 1, end))

    def maintain(self) -> None:
        maintain(self.store)

    def grow(self) -> None:
        if queue_state(Store.at(self.store), "q").partitions < 4:
            grow(self.store)

    def toggle(self) -> None:
        tell(
            Store.at(self.store),
            "q",
            lambda s: [QueueFact("IngressDisabled" if s.ingress else "IngressEnabled", {})],
        )

    def shorten_logs(self) -> None:
        clean_log(self.store, self.random.choice(tables_of(self.store)))


@contextlib.contextmanager
def crashing(at: int) -> Iterator[list[str]]:
    """The process ends at its `at`-th operation on plain files or rows, before or after it was done; yields what it did."""
    done: list[str] = []
    before = {(Files, n): getattr(Files, n) for n in ("exists", "read", "list", "delete", "put", "put_new", "copy")}
    before |= {(CasTable, n): getattr(CasTable, n) for n in ("create", "commit")}

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


# ---- following
def test_follows(queue: str, there: str) -> None:
    """S7: a replica has the same tables, versions and bytes; a pass copies only what is new."""
    put(queue, 0, range(5))
    consumer = Consumer(queue, "i")
    consumer.ack(0, 3)
    first = sync(queue, there)
    assert (first.location, first.reachable, first.promoted, first.total_lag) == (there, True, False, 0)
    assert_equal(queue, there)
    put(queue, 0, range(5, 9))
    put(queue, 1, [7])
    consumer.ack(0, 6)
    (behind,) = replica.status(Store.at(queue), "q")
    assert behind.lag == {0: 4, 1: 1} and not replica.in_sync(Store.at(queue), "q")
    replicator = Replicator(Store.at(queue), "q", there)
    assert replicator.sync() == Synced(3, {0: 0, 1: 0})
    assert_equal(queue, there)
    assert replicator.sync().commits == 0
    assert replica.in_sync(Store.at(queue), "q")
    (status,) = replica.status(Store.at(queue), "q")
    assert (status.generation, status.unread) == (0, 4)
    assert status.synced_at is not None and abs(dt.datetime.now(dt.UTC) - status.synced_at) < dt.timedelta(minutes=1)
    assert messages(there, 0) == {o: o for o in range(9)}
    assert replica_role(Store.at(queue), "q") == "primary" and replica_role(Store.at(there), "q") == "replica"


def test_a_pass_over_nothing_new_is_a_look(queue: str, there: str) -> None:
    """S7: two looks at each table, and no listing but that of the partitions; the cost of k commits is that of k."""
    put(queue, 0, range(5))
    Consumer(queue, "i").ack(0, 3)
    replicator = Replicator(Store.at(queue), "q", there)
    replicator.register()
    replicator.sync()
    with crashing(10**9) as done:
        replicator.sync()
    assert sorted(done) == sorted(["exists"] * 2 * len(tables_of(queue)) + ["put"])
    costs = []
    for k in (10, 40):
        for n in range(k):
            put(queue, 0, [n])
        with crashing(10**9) as done:
            assert replicator.sync().commits == k
        costs.append(len(done))
    assert costs[1] < 5 * costs[0]


def test_in_sync_knows_what_was_decided(queue: str, there: str) -> None:
    """S7: a change of the partition count is in sync when the replica has it."""
    sync(queue, there)
    grow(queue)
    assert not replica.in_sync(Store.at(queue), "q")
    assert sync(queue, there).generation == 1
    assert replica.in_sync(Store.at(queue), "q")
    assert table(there, 2).next_offset == 0
    assert_equal(queue, there)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 60))])
def test_interrupted_anywhere(queue: str, there: str, seed: int) -> None:
    """S7: passes that die at any operation leave a whole replica, and the next one goes on."""
    world = World(queue, seed)
    dice = random.Random(seed + 1000)
    replicator: Replicator | None = None
    for _ in range(8):
        for _ in range(dice.randint(1, 6)):
            world.step()
        if replicator is None:
            replicator = Replicator(Store.at(queue), "q", there)
        with crashing(dice.choice([dice.randint(1, 30), dice.randint(1, 150), 10**9])):
            try:
                replicator.register()
                replicator.sync()
            except Crash:
                replicator = dice.choice([None, replicator])
        assert_usable(queue, there)
    sync(queue, there)
    assert_equal(queue, there)
    assert diagnose(Store.at(there)).faults == []


def test_interrupted_at_each_operation(queue: str, there: str) -> None:
    """S7: the same pass dies at its first operation, its second…; each leaves a whole replica, and in the end it is through."""
    world = World(queue, 4)
    for _ in range(30):
        world.step()
    whole = 0
    for at in range(1, 1000, 7):
        shutil.rmtree(there, ignore_errors=True)
        with crashing(at) as done:
            try:
                Replicator(Store.at(queue), "q", there).register()
                Replicator(Store.at(queue), "q", there).sync()
            except Crash:
                pass
        whole += "queues/q/control" in (tables_of(there) if Path(there).exists() else [])
        if Path(there).exists():
            assert_usable(queue, there)
        if len(done) < at:
            break
    assert whole > 2 and len(done) < at
    assert_equal(queue, there)


def test_a_doctor_knows_a_pass_that_has_not_ended(queue: str, there: str) -> None:
    """S7: what a pass leaves when it dies is no damage of the replica; of a promoted one it is."""

    def told(severity: str) -> list[str]:
        return [f"{f.about}: {f.what}" for f in diagnose(Store.at(there)).findings if f.severity == severity]

    put(queue, 0, range(5))
    consumer = Consumer(queue, "i")
    consumer.ack(0, 3)
    replicator = Replicator(Store.at(queue), "q", there)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tablecopy.TableCopy, "apply", lambda *_: (_ for _ in ()).throw(Crash()))
        replicator.register()
        with pytest.raises(Crash):
            replicator.sync()
        assert told("fault") == []
        assert {f"{x} table has no log yet" for x in ("group g: its ack", "queue q: its control")} <= {*told("warning")}
    sync(queue, there)
    assert told("fault") == told("warning") == []
    control = "groups/g/control"
    at = version(queue, control)
    while version(queue, control) < at + 3:
        consumer.start_again()
    for path in Path(queue, control).glob("*.parquet"):  # as a pass does before it puts their commits
        if not Path(there, control, path.name).exists():
            shutil.copy(path, Path(there, control))
    assert told("fault") == []
    assert any("but there are files of version" in line for line in told("warning"))
    partq.promote(there, "q")
    assert told("fault") == []
    (Path(there) / control / f"{at + 99:020d}-facts-x.parquet").write_bytes(b"")
    assert any("newest log files were removed" in line for line in told("fault"))


FOLLOW = """
import sys
from spark_partq.storage.replicator import Replicator
from spark_partq.storage.store import Store
replicator = Replicator(Store.at(sys.argv[1]), "q", sys.argv[2])
replicator.register()
while True:
    replicator.sync()
    print(flush=True)
"""


def test_killed_at_any_moment(queue: str, there: str) -> None:
    """S7: kill -9 of two processes that keep one replica, while the primary is written."""
    world, dice = World(queue, 7), random.Random(7)
    for _ in range(4):
        processes = [
            subprocess.Popen([sys.executable, "-c", FOLLOW, queue, there], stdout=subprocess.PIPE) for _ in range(2)
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                process.stdout.readline()  # it follows
            for _ in range(dice.randint(3, 15)):
                world.step()
        finally:
            for process in processes:
                process.send_signal(signal.SIGKILL)
                process.wait()
        assert_usable(queue, there)
    sync(queue, there)
    assert_equal(queue, there)


def test_goes_on_at_a_checkpoint(queue: str, there: str) -> None:
    """S7: what fell behind further than the primary's log reaches goes on at a checkpoint, and its log does not grow."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(1000))
    for n in range(5):
        consumer.ack(0, n + 1)
    sync(queue, there)
    for n in range(5, 250):
        consumer.ack(0, n + 1)
    clean_log(queue, "groups/g/acks")
    assert min(log_names(queue, "groups/g/acks")) > f"{100:020d}"
    sync(queue, there)
    assert version(queue, "groups/g/acks") == version(there, "groups/g/acks")
    assert group_of(there).position(consumer.where(0)) == 250
    assert len(log_names(there, "groups/g/acks")) <= len(log_names(queue, "groups/g/acks")) + 1
    about = ReplicaTable(Store.at(there), "q").look()
    assert about is not None and [folder for folder, _ in about.jumps] == ["groups/g/acks"]
    consumer.ack(0, 300)
    sync(queue, there)
    assert group_of(there).position(consumer.where(0)) == 300


def test_log_of_the_copy_does_not_grow(queue: str, there: str) -> None:
    """S7: checkpoints are taken over, and what the primary drops of its log is dropped."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(2000))
    replicator = Replicator(Store.at(queue), "q", there)
    replicator.register()
    for n in range(450):
        consumer.ack(0, n + 1)
        if n % 10 == 0:
            replicator.sync()
        if n % 90 == 0:
            age(Path(queue) / "groups/g/acks/_delta_log")
    replicator.sync()
    mine, theirs = log_names(queue, "groups/g/acks"), log_names(there, "groups/g/acks")
    assert len(theirs) < 250 and len(theirs) <= len(mine) + 100
    assert any("checkpoint" in name for name in theirs)
    assert_equal(queue, there)


def test_far_behind(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: whoever is very far behind takes a checkpoint and what is live, not every commit."""
    monkeypatch.setattr(tablecopy, "MAX_COMMITS", 20)
    sync(queue, there)
    for n in range(60):
        put(queue, 0, [n])
    consumer = Consumer(queue, "i")
    consumer.ack(0, 60)
    maintain(queue)
    sync(queue, there)
    assert table(there, 0).next_offset == 60 and messages(there, 0) == {}
    assert version(queue, "queues/q/partitions/partition=0") == version(there, "queues/q/partitions/partition=0")
    put(queue, 0, [60])
    sync(queue, there)
    assert messages(there, 0) == {60: 60}
    assert_usable(queue, there)


def test_files_that_were_deleted_before_they_were_copied(queue: str, there: str) -> None:
    """S7: commits whose files are gone at the primary are passed over in one step."""
    put(queue, 0, [0])
    sync(queue, there)
    for n in range(1, 5):
        put(queue, 0, [n])
    Consumer(queue, "i").ack(0, 4)
    maintain(queue)
    assert len(messages(queue, 0)) == 1
    for at in range(1, 400, 5):
        with crashing(at) as done, contextlib.suppress(Crash):
            sync(queue, there)
        assert_usable(queue, there)
        if len(done) < at:
            break
    assert_equal(queue, there)


def test_deleted_files_are_deleted_there(queue: str, there: str) -> None:
    """S7: the replica's folders do not grow: what the primary deleted goes, what is live or new stays."""
    for n in range(4):
        put(queue, 0, [n])
    sync(queue, there)
    Consumer(queue, "i").ack(0, 3)
    folder = Path(there) / "queues/q/partitions/partition=0"
    (folder / "_copying_of_a_killed_process").write_bytes(b"half")
    maintain(queue)
    sync(queue, there)
    assert len(list(folder.glob("part-*.parquet"))) == 4, "younger than an hour"
    age(Path(there) / "queues/q/partitions", "*")
    put(queue, 0, [4])
    new = Path(there) / "queues/q/partitions/partition=0/part-new.parquet"
    new.write_bytes(b"of a commit to come")
    Consumer(queue, "j").ack(0, 4)
    maintain(queue)
    sync(queue, there)
    left = sorted(p.name for p in folder.glob("*") if p.is_file())
    live = sorted(Path(u).name for u in DeltaTable(str(folder)).file_uris())
    assert left == sorted([*live, new.name])
    assert_equal(queue, there)


def test_damage_is_not_copied(queue: str, there: str) -> None:
    """S7: a file that is not what the log says stops the pass, and the replica stays as it is."""
    put(queue, 0, [0])
    sync(queue, there)
    put(queue, 0, [1, 2])
    found = table(queue, 0)
    path = Path(queue) / found.folder / found.index.path(1)
    good = path.read_bytes()
    for bad, message in ((good + b"x", "bytes instead of"), (b"x" * len(good), "no Parquet file"), (None, "not there")):
        path.unlink(missing_ok=True)
        if bad is not None:
            path.write_bytes(bad)
        with pytest.raises(partq.CorruptTableError, match=message):
            sync(queue, there)
        assert messages(there, 0) == {0: 0}
        assert diagnose(Store.at(there)).faults == []
    path.write_bytes(good)
    sync(queue, there)
    assert messages(there, 0) == {0: 0, 1: 1, 2: 2}


def test_queues_of_one_group(queue: str, there: str) -> None:
    """S7: a group's positions never lie past the messages of any queue of it that has its replica there."""
    partq.create_queue(queue, "p", "v bigint", partitions=1)
    consumer = Consumer(queue, "i", queues=("p", "q"))
    primary = Store.at(queue)
    replica.replicate(primary, "p", there)
    replica.replicate(primary, "q", there)
    put(queue, 0, range(9), queue="p")
    put(queue, 0, range(3))
    consumer.ack(0, 8, queue="p")
    consumer.ack(0, 3)
    sync(queue, there)
    assert diagnose(Store.at(there)).faults == []
    assert group_of(there).position(consumer.where(0, "p")) == 8
    assert table(there, 0, "p").next_offset == 9
    promotion.promote(Store.at(there), "p")
    consumer.ack(0, 9, queue="p")
    put(queue, 0, range(4))
    sync(queue, there)  # q goes on, but the group is used there
    assert table(there, 0).next_offset == 7
    assert group_of(there).position(consumer.where(0, "p")) == 8


# ---- taking over
def take_away(store: str) -> str:
    away = f"{store}-away"
    os.rename(store, away)
    return away


def test_promote(queue: str, there: str) -> None:
    """S7: with both alive nothing is lost: what was not copied is copied, and the primary takes no more."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(5))
    sync(queue, there)
    put(queue, 0, range(5, 9))
    put(queue, 1, [1])
    consumer.ack(0, 6)
    found = promotion.promote(Store.at(there), "q")
    assert found == promotion.Promotion("q", queue, fenced=True)
    assert replica_role(Store.at(there), "q") == "promoted"
    assert messages(there, 0) == {o: o for o in range(9)} and messages(there, 1) == {0: 1}
    assert group_of(there).position(consumer.where(0)) == 6
    state = queue_state(Store.at(there), "q")
    assert (state.fenced_by, state.replicas, state.status) == (None, (), "Ready")
    assert queue_state(Store.at(queue), "q").fenced_by == there
    assert [table(queue, n).recorded(SEALED) >= FENCED - 1 for n in range(2)] == [True, True]
    assert [table(there, n).recorded(SEALED) >= FENCED - 1 for n in range(2)] == [False, False]
    with pytest.raises(partq.ReplicaError, match="already promoted"):
        promotion.promote(Store.at(there), "q")
    with pytest.raises(partq.ReplicaError, match="was promoted"):
        Replicator(Store.at(queue), "q", there).sync()
    with pytest.raises(partq.ReplicaError, match="was promoted"):
        sync(queue, there)
    with pytest.raises(partq.QueueFencedError, match="taken over"):
        replica.replicate(Store.at(queue), "q", f"{there}-2")
    (status,) = replica.status(Store.at(queue), "q")
    assert status.promoted
    assert put(there, 0, [9]) == 9
    reader = Consumer(there, "i")
    assert reader.group.position(reader.where(0)) == 6
    reader.ack(0, 10)
    maintain(there)
    assert table(there, 0).first_offset == 10
    assert diagnose(Store.at(there)).faults == []
    assert replica.replicate(Store.at(there), "q", f"{there}-3").total_lag == 0
    assert_equal(there, f"{there}-3")


def test_promote_without_the_primary(queue: str, there: str) -> None:
    """S7: the primary's folder is gone: what was copied is used from the acknowledged offsets; the primary comes back fenced."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(5))
    consumer.ack(0, 3)
    sync(queue, there)
    put(queue, 0, [5])
    away = take_away(queue)
    found = promotion.promote(Store.at(there), "q")
    assert not found.fenced and queue in found.problem
    with pytest.raises(partq.ReplicaError, match="already promoted"):
        promotion.promote(Store.at(there), "q")
    assert put(there, 0, [50]) == 5
    assert group_of(there).position((queue_state(Store.at(there), "q").queue_id, 0)) == 3
    os.rename(away, queue)
    state = queue_state(Store.at(queue), "q")
    assert state.fenced_by is None
    for _ in range(2):
        with pytest.raises(partq.QueueFencedError, match="taken over"):
            promotion.check_not_superseded(Store.at(queue), state)
        state = queue_state(Store.at(queue), "q")
        assert state.fenced_by == there
    with pytest.raises(partq.ReplicaError, match="was promoted"):
        Replicator(Store.at(queue), "q", there).sync()
    assert messages(there, 0)[5] == 50


def test_a_replica_that_is_not_promoted_supersedes_nothing(queue: str, there: str) -> None:
    """S7: a primary goes on beside its replicas, also those that cannot be reached."""
    sync(queue, there)
    promotion.check_not_superseded(Store.at(queue), queue_state(Store.at(queue), "q"))
    shutil.rmtree(there)
    promotion.check_not_superseded(Store.at(queue), queue_state(Store.at(queue), "q"))
    (status,) = replica.status(Store.at(queue), "q")
    assert not status.reachable and status.problem and not replica.in_sync(Store.at(queue), "q")


@pytest.mark.parametrize("alive", [True, False])
def test_promotion_interrupted_anywhere(queue: str, there: str, tmp_path: Path, alive: bool) -> None:
    """S7: a promotion that dies at any operation is finished by promoting again, and nothing is lost that could be had."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(5))
    sync(queue, there)
    put(queue, 0, [5])
    consumer.ack(0, 5 if alive else 0)
    saved = [shutil.copytree(path, tmp_path / f"saved{n}") for n, path in enumerate((queue, there))]
    for at in range(1, 400, 3):
        for path, was in zip((queue, there), saved, strict=True):
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(was, path)
        if not alive:
            shutil.rmtree(queue)
        with crashing(at) as done, contextlib.suppress(Crash):
            promotion.promote(Store.at(there), "q")
        through = len(done) < at
        try:
            promotion.promote(Store.at(there), "q")
        except partq.ReplicaError:
            through_before = True
        else:
            through_before = False
        assert not through or through_before
        assert replica_role(Store.at(there), "q") == "promoted"
        assert len(messages(there, 0)) == (6 if alive else 5)
        assert queue_state(Store.at(there), "q").fenced_by is None
        assert put(there, 0, [99]) == (6 if alive else 5)
        assert diagnose(Store.at(there)).faults == []
        if through:
            return
    raise AssertionError("it never came through")


def test_two_promote_at_once(queue: str, there: str) -> None:
    """S7: of several that promote, one has done it."""
    put(queue, 0, range(5))
    sync(queue, there)
    code = (
        "import sys; from spark_partq.storage.promotion import promote; from spark_partq.storage.store import Store\n"
        "sys.stdin.readline(); promote(Store.at(sys.argv[1]), 'q')"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, there], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    results = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        results.append((process.communicate()[1], process.returncode))
    assert sorted(code for _, code in results) == [0, 1, 1], results
    assert all("already promoted" in text for text, code in results if code)
    assert put(there, 0, [5]) == 5
    assert diagnose(Store.at(there)).faults == []


def test_a_pass_that_sleeps_through_the_promotion(queue: str, there: str) -> None:
    """S7: what a pass had still on its way is refused by each table, also where nobody has written since."""
    consumer = Consumer(queue, "i")
    consumer.beat()
    put(queue, 0, range(5))
    sync(queue, there)
    put(queue, 0, [5])
    consumer.ack(0, 6)
    files = Files(Store.at(queue)), Files(Store.at(there))
    folders = ["queues/q/partitions/partition=0", "groups/g/acks"]
    copies = [tablecopy.TableCopy(*files, folder) for folder in folders]
    steps = [list(copy.steps()) for copy in copies]
    take_away(queue)
    promotion.promote(Store.at(there), "q")
    before = [version(there, folder) for folder in folders]
    for copy, left in zip(copies, steps, strict=True):
        assert left
        with pytest.raises(partq.ReplicaError, match="promoted"):
            copy.apply(left)
    assert [version(there, folder) for folder in folders] == before
    assert diagnose(Store.at(there)).faults == []


def test_a_jump_that_sleeps_through_the_promotion(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: a jump that was announced and not made is refused after the promotion, whatever was written since."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(100))
    consumer.ack(0, 1)
    sync(queue, there)
    for n in range(20):
        consumer.ack(0, n + 2)
    clean_log(queue, "groups/g/acks")
    held: list[tuple[Files, str, bytes]] = []
    put_new = Files.put_new

    def hold(self: Files, path: str, data: bytes) -> None:
        if "checkpoint" in path:
            held.append((self, path, data))
            raise Crash
        put_new(self, path, data)

    monkeypatch.setattr(Files, "put_new", hold)
    with pytest.raises(Crash):
        sync(queue, there)
    monkeypatch.setattr(Files, "put_new", put_new)
    take_away(queue)
    promotion.promote(Store.at(there), "q")
    reader = Consumer(there, "i")
    reader.ack(0, 50)
    ((files, path, data),) = held
    with pytest.raises(Taken):
        files.put_new(path, data)
    assert group_of(there).position(reader.where(0)) == 50
    assert diagnose(Store.at(there)).faults == []


def test_no_jump_is_made_after_the_promotion(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: a jump that was not announced in time is given up."""
    consumer = Consumer(queue, "i")
    put(queue, 0, range(50))
    consumer.ack(0, 1)
    sync(queue, there)
    for n in range(20):
        consumer.ack(0, n + 2)
    clean_log(queue, "groups/g/acks")
    announce = Replicator._announce

    def late(self: Replicator, folder: str, version: int) -> None:
        monkeypatch.setattr(Replicator, "_announce", announce)
        take_away(queue)
        promotion.promote(Store.at(there), "q")
        announce(self, folder, version)

    monkeypatch.setattr(Replicator, "_announce", late)
    with pytest.raises(partq.ReplicaError, match="was promoted"):
        Replicator(Store.at(queue), "q", there).sync()
    assert group_of(there).position(consumer.where(0)) == 1
    assert diagnose(Store.at(there)).faults == []


def test_nothing_is_deleted_after_the_promotion(queue: str, there: str) -> None:
    """S7: a pass that wakes up after the promotion deletes nothing of what is written since."""
    sync(queue, there)
    copy = Replicator(Store.at(queue), "q", there)._copy("queues/q/partitions/partition=0", ("q",))
    promotion.promote(Store.at(there), "q")
    pending = Path(there) / copy.folder / new_file(there, "q", 0, {"v": pa.array([1], pa.int64())}).path
    age(pending.parent, "*.parquet")
    with pytest.raises(partq.ReplicaError, match="was promoted"):
        copy.tidy()
    assert pending.exists()


def test_files_whose_commits_never_came(queue: str, there: str) -> None:
    """S7: a pass that died after it had copied a group's files leaves nothing that looks like a damaged group."""
    consumer = Consumer(queue, "i")
    consumer.beat()
    sync(queue, there)
    consumer.leave()
    for _ in range(3):
        consumer.start_again()
        consumer.beat()
    replicator = Replicator(Store.at(queue), "q", there)
    for part in ("acks", "control"):
        assert list(replicator._copy(f"groups/g/{part}", ("q",)).steps())
    assert len(diagnose(Store.at(there)).faults) == 1 and faults(there) == []
    take_away(queue)
    promotion.promote(Store.at(there), "q")
    assert diagnose(Store.at(there)).faults == []


def test_removals_that_came_before_their_floors(queue: str, there: str) -> None:
    """S7, Q8: messages that the primary removed as acknowledged are below the group's floor after the promotion."""
    consumer = Consumer(queue, "i")
    for n in range(5):
        put(queue, 0, [n])
    consumer.ack(0, 1)
    sync(queue, there)
    consumer.ack(0, 4)
    maintain(queue)
    replicator = Replicator(Store.at(queue), "q", there)
    copy = replicator._copy("queues/q/partitions/partition=0", ("q",))
    copy.apply(copy.steps())  # and there the pass died
    away = take_away(queue)
    found = promotion.promote(Store.at(there), "q")
    assert found.floors == (("g", 0, 1, 4),)
    assert group_of(there).position(consumer.where(0)) == 4 == table(there, 0).first_offset
    assert diagnose(Store.at(there)).faults == []
    assert Path(away).exists()


def test_fenced_by_another_replica(queue: str, there: str) -> None:
    """S7: of two replicas one takes over; the other is told which."""
    sync(queue, there)
    sync(queue, f"{there}-2")
    promotion.promote(Store.at(there), "q")
    with pytest.raises(partq.ReplicaError, match=f"another replica, {there}, has taken over"):
        promotion.promote(Store.at(f"{there}-2"), "q")
    with pytest.raises(partq.QueueFencedError):
        Replicator(Store.at(queue), "q", f"{there}-2").sync()
    assert not promotion.promote(Store.at(f"{there}-2"), "q", force=True).fenced


def test_promote_refused(queue: str, there: str) -> None:
    """S7: what is no replica, or was never whole, or was removed, is not promoted."""
    with pytest.raises(partq.ReplicaError, match="no replica"):
        promotion.promote(Store.at(queue), "q")
    with pytest.raises(partq.NotAStoreError):
        promotion.promote(Store.at(there), "q")
    Replicator(Store.at(queue), "q", there).register()
    away = take_away(queue)
    with pytest.raises(partq.ReplicaError, match="never ended"):
        promotion.promote(Store.at(there), "q")
    os.rename(away, queue)
    sync(queue, there)
    replica.remove_replica(Store.at(queue), "q", there)
    with pytest.raises(partq.ReplicaError, match="was removed"):
        promotion.promote(Store.at(there), "q")
    assert replica_role(Store.at(there), "q") == "replica"


def test_promote_beside_a_damaged_primary(queue: str, there: str) -> None:
    """S7: a primary that is there and cannot be copied needs force, and nothing but what the replica has is used."""
    put(queue, 0, [0])
    sync(queue, there)
    put(queue, 0, [1])
    found = table(queue, 0)
    (Path(queue) / found.folder / found.index.path(1)).unlink()
    with pytest.raises(partq.ReplicaError, match="pass force"):
        promotion.promote(Store.at(there), "q")
    assert replica_role(Store.at(there), "q") == "replica"
    assert not promotion.promote(Store.at(there), "q", force=True).fenced
    assert put(there, 0, [9]) == 1


# ---- the end
def test_remove(queue: str, there: str) -> None:
    """S7: a replica that was removed is followed no more, and can be taken up again."""
    sync(queue, there)
    assert replica.remove_replica(Store.at(queue), "q", f"{there}/").replicas == ()
    with pytest.raises(partq.ReplicaError, match="no replica of queue"):
        Replicator(Store.at(queue), "q", there).sync()
    with pytest.raises(partq.ReplicaError, match="it has none"):
        replica.remove_replica(Store.at(queue), "q", there)
    put(queue, 0, [1])
    assert sync(queue, there).total_lag == 0
    assert queue_state(Store.at(queue), "q").replicas == (there,)
    assert_equal(queue, there)
    shutil.rmtree(there)
    assert replica.remove_replica(Store.at(queue), "q", there).replicas == ()


def test_remove_takes_a_promotion_back(queue: str, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: a primary that was fenced for a promotion that never came about goes on when the replica is removed."""
    sync(queue, there)

    def crash(*_: Any, **__: Any) -> None:
        raise Crash

    monkeypatch.setattr(Replicator, "sync", crash)
    with pytest.raises(Crash):
        promotion.promote(Store.at(there), "q")
    assert queue_state(Store.at(queue), "q").fenced_by == there
    state = replica.remove_replica(Store.at(queue), "q", there)
    assert state.fenced_by is None and state.replicas == ()
    assert [table(queue, n).recorded(SEALED) >= FENCED - 1 for n in range(2)] == [False, False]
    with pytest.raises(partq.ReplicaError, match="was removed"):
        promotion.promote(Store.at(there), "q")


def test_remove_after_the_promotion(queue: str, there: str) -> None:
    """S7: what has taken over is not removed, nor what may have, unless the user says that it is lost."""
    sync(queue, there)
    before = shutil.copytree(queue, f"{queue}-before")
    promotion.promote(Store.at(there), "q")
    for store in (queue, before):  # one was fenced, the other comes back from the dead
        with pytest.raises(partq.ReplicaError, match="took over"):
            replica.remove_replica(Store.at(store), "q", there)
    shutil.rmtree(there)
    with pytest.raises(partq.ReplicaError, match="pass force"):
        replica.remove_replica(Store.at(queue), "q", there)
    assert queue_state(Store.at(queue), "q").fenced_by == there
    assert replica.remove_replica(Store.at(queue), "q", there, force=True).fenced_by is None
    assert put(queue, 0, [1]) == 0
    assert replica.remove_replica(Store.at(before), "q", there).replicas == ()


# ---- refusals
def listing(location: str) -> list[str]:
    return sorted(map(str, Path(location).rglob("*"))) if location else []


def refused(store: str, location: str, match: str, error: type[partq.PartqError] = partq.ReplicaError) -> None:
    """Nothing is written on either side."""
    before = queue_state(Store.at(store), "q"), listing(location)
    with pytest.raises(error, match=match):
        replica.replicate(Store.at(store), "q", location)
    assert (queue_state(Store.at(store), "q"), listing(location)) == before


def test_places_that_are_the_primarys(queue: str, tmp_path: Path) -> None:
    """S7: the same place, one inside it, or around it; by whatever name."""
    (tmp_path / "link").symlink_to(queue)
    (tmp_path / "half" / "queues").parent.mkdir()
    (tmp_path / "half" / "queues").symlink_to(f"{queue}/queues")
    for location in (
        queue, f"{queue}/", f"{queue}/x/..", f"file://{queue}", str(tmp_path / "link"), f"{queue}/queues/q", f"{queue}/x",
        str(tmp_path / "link" / "x"), str(tmp_path), str(tmp_path / "half"),
    ):  # fmt: skip
        refused(queue, location, "a place of its own")


def test_places_that_hold_something_else(queue: str, there: str, tmp_path: Path) -> None:
    """S7: another queue or group of that name, something that is no store, or what cannot be written."""
    partq.create_queue(there, "q", "v bigint", partitions=1)
    refused(queue, there, "holds a queue 'q' that is none of its replicas")
    partq.delete_queue(there, "q")
    partq.create_queue(there, "other", "v bigint", partitions=1)
    Consumer(there, "i", queues=("other",))
    Consumer(queue, "i")
    refused(queue, there, "groups/g/control is no copy")
    other = str(tmp_path / "other")
    partq.create_queue(other, "q", "v bigint", partitions=1)
    third = str(tmp_path / "third")
    replica.replicate(Store.at(other), "q", third)
    refused(queue, third, "the replica of another queue")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    refused(queue, str(tmp_path / "full"), "not a store", partq.NotAStoreError)
    refused(queue, str(tmp_path / "full" / "file"), "is a file", partq.NotAStoreError)
    refused(queue, "/proc/nowhere", "cannot be kept")
    refused(queue, "", "empty", partq.InvalidArgumentError)


def test_queues_that_have_no_replica(queue: str, there: str) -> None:
    """S7: a replica itself, and a queue that is not there."""
    sync(queue, there)
    with pytest.raises(partq.ReplicaError, match="is a replica itself"):
        replica.replicate(Store.at(there), "q", f"{there}-2")
    assert not Path(f"{there}-2").exists()
    with pytest.raises(partq.QueueNotFoundError):
        replica.replicate(Store.at(queue), "p", there)
    with pytest.raises(partq.NotAStoreError):
        replica.status(Store.at(f"{there}-2"), "q")


def test_a_queue_made_anew(queue: str, there: str) -> None:
    """S7: the replica of a queue that was deleted is not that of the next one of its name."""
    put(queue, 0, [1])
    sync(queue, there)
    partq.delete_queue(queue, "q")
    partq.create_queue(queue, "q", "v bigint", partitions=2)
    refused(queue, there, "the replica of another queue")
    (status,) = [s for s in [Replicator(Store.at(queue), "q", there)] if s]
    with pytest.raises(partq.ReplicaError, match="no replica of queue"):
        status.sync()
    assert messages(there, 0) == {0: 1}


def test_a_group_made_anew(queue: str, there: str) -> None:
    """S7: the rest is copied; the group's copy is not touched, and is named."""
    Consumer(queue, "i").beat()
    sync(queue, there)
    partq.delete_group(queue, "g")
    Consumer(queue, "i").beat()
    put(queue, 0, [1])
    before = group_of(there).history()
    for replicator in [Replicator(Store.at(queue), "q", there)] * 2:
        with pytest.raises(partq.ReplicaError, match="groups/g/"):
            replicator.sync()
    assert messages(there, 0) == {0: 1} and group_of(there).history() == before
    partq.delete_group(there, "g")
    sync(queue, there)
    assert_equal(queue, there)


def test_an_older_primary(queue: str, there: str, tmp_path: Path) -> None:
    """S7: a primary that was put back to an older state is not followed."""
    put(queue, 0, [1])
    shutil.copytree(queue, tmp_path / "old")
    put(queue, 0, [2])
    sync(queue, there)
    shutil.rmtree(f"{queue}/queues/q/partitions")
    shutil.copytree(tmp_path / "old/queues/q/partitions", f"{queue}/queues/q/partitions")
    with pytest.raises(partq.ReplicaError, match=r"no copy of|older state"):
        Replicator(Store.at(queue), "q", there).sync()
    put(queue, 0, [3])  # as many commits again, but others
    with pytest.raises(partq.ReplicaError, match="no copy of"):
        Replicator(Store.at(queue), "q", there).sync()
    assert messages(there, 0) == {0: 1, 1: 2}


def test_foreign_commit(queue: str, there: str) -> None:
    """S7: a replica that was written is one no more."""
    put(queue, 0, [1])
    sync(queue, there)
    replicator = Replicator(Store.at(queue), "q", there)
    replicator.sync()
    put(there, 0, [5])
    put(queue, 0, [2])
    with pytest.raises(partq.ReplicaError, match="written by something else"):
        replicator.sync()
    with pytest.raises(partq.ReplicaError, match="has been written since"):
        sync(queue, there)


# ---- the loop
def test_run(queue: str, there: str) -> None:
    """S7: pass after pass; an error is told once and the loop goes on."""
    replicator = Replicator(Store.at(queue), "q", there)
    replicator.register()
    seen: list[Synced] = []
    errors: list[partq.PartqError] = []
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 1:
            put(queue, 0, [1])
        if len(waits) == 2:
            os.rename(there, f"{there}-away")
        if len(waits) == 4:
            os.rename(f"{there}-away", there)
        return len(waits) == 6

    run([replicator], 0.5, wait, lambda _, synced: seen.append(synced), errors.append)
    assert [s.commits > 0 for s in seen] == [True, True, False, False]
    assert len(errors) == 1 and waits == [0.5] * 6
    assert [s.total_lag for s in seen] == [0] * 4
    os.rename(there, f"{there}-away")
    with pytest.raises(partq.ReplicaError):
        run([replicator], 0, wait, lambda *_: None)


def test_object_store(queue: str, bucket: tuple[str, dict[str, str]]) -> None:  # noqa: F811
    """S7: a replica in a bucket, and one of that in another folder of it."""
    uri, options = bucket
    consumer = Consumer(queue, "i")
    put(queue, 0, range(5))
    consumer.ack(0, 3)
    status = replica.replicate(Store.at(queue), "q", uri, options=options)
    assert (status.total_lag, status.reachable) == (0, True)
    put(queue, 1, [1])
    for _ in range(120):
        consumer.beat()
    clean_log(queue, "groups/g/acks")
    replica.replicate(Store.at(queue), "q", uri, options=options)
    bucket_store = Store.at(uri, options)
    assert diagnose(bucket_store).faults == []
    assert promotion.promote(bucket_store, "q").fenced
    with pytest.raises(partq.ReplicaError, match="a place of its own"):
        replica.replicate(bucket_store, "q", f"{uri}/x/../y")
    second = f"{uri}-2"
    assert replica.replicate(bucket_store, "q", second).total_lag == 0
    assert diagnose(Store.at(second, options)).faults == []
    files = Files(bucket_store)
    files.put_new("x", b"1")
    files.put_new("x", b"1")
    with pytest.raises(Taken):
        files.put_new("x", b"2")
