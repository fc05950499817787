"""Passes that die: what they leave is a whole replica, and the next one goes on (S7)."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures import scale
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.replica import table_copy
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import new_file
from tests.replicas import (
    Crash,
    World,
    age,
    assert_equal,
    assert_usable,
    crashing,
    put,
    queue_fixture,  # noqa: F401
    sync,
    table,
    tables_of,
    there_fixture,  # noqa: F401
    version,
)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 60))])
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


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_interrupted_at_each_operation(queue: str, there: str, every: int) -> None:
    """S7: the same pass dies at its first operation, at a later one…; each leaves a whole replica, and in the end it is through."""
    world = World(queue, 4)
    for _ in range(30):
        world.step()
    whole, before = 0, shutil.copytree(queue, f"{queue}-before")
    for at in range(1, 1000, every):
        shutil.rmtree(there, ignore_errors=True)
        shutil.rmtree(queue)  # which would tell of each replica that was made at that place
        shutil.copytree(before, queue)
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


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.long)])
def test_a_pass_dies_that_copies_a_resize(queue: str, there: str, every: int) -> None:
    """S7, S1: wherever it dies, and the primary is lost then, the promoted replica takes messages."""
    for number in (0, 1):
        put(queue, number, range(5))
    sync(queue, there)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scale, "update_replicas", lambda *_: None)  # so that the next pass finds all of it
        partq.scale(queue, "q", 3)
    before, lost = f"{there}-before", f"{queue}-lost"
    shutil.copytree(there, before)
    sealed = 0
    for at in range(1, 1000, every):
        shutil.rmtree(there)
        shutil.copytree(before, there)
        with crashing(at) as done, contextlib.suppress(Crash):
            Replicator(Store.at(queue), "q", there).sync()
        assert_usable(queue, there)
        Path(queue).rename(lost)
        partq.promote(there, "q")
        producer = Producer(open_queue(Store.at(there), "q"))
        producer.refresh()
        written = producer.write(None, lambda: [new_file(there, "q", 0, {"v": [7]})], lambda: 1)
        Path(lost).rename(queue)
        assert written == 1
        sealed += table(there, 0).sealed >= 0
        if len(done) < at:
            break
    assert 0 < sealed < at / every and len(done) < at


def test_a_doctor_knows_a_pass_that_has_not_ended(queue: str, there: str) -> None:
    """S7: what a pass leaves when it dies is no damage of the replica; of a promoted one it is."""

    def told(severity: str) -> list[str]:
        return [f"{f.about}: {f.what}" for f in diagnose(Store.at(there)).findings if f.severity == severity]

    put(queue, 0, range(5))
    consumer = Consumer(queue, "i")
    consumer.ack(0, 3)
    replicator = Replicator(Store.at(queue), "q", there)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_copy.TableCopy, "apply", lambda *_: (_ for _ in ()).throw(Crash()))
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
    (Path(there) / control / f"{at + 99:020d}-facts-{'0' * 32}.parquet").write_bytes(b"")
    assert any("newest log files were removed" in line for line in told("fault"))


FOLLOW = """
import sys
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.store import Store
replicator = Replicator(Store.at(sys.argv[1]), "q", sys.argv[2])
replicator.register()
while True:
    replicator.sync()
    print(flush=True)
"""


def test_a_part_of_a_file_is_copied_again(queue: str, there: str) -> None:
    """S7: a pass died in the middle of a file."""
    sync(queue, there)
    put(queue, 0, range(5))
    (whole,) = (Path(queue) / "queues/q/partitions/partition=0").glob("*.parquet")
    part = Path(there) / whole.relative_to(queue)
    part.write_bytes(whole.read_bytes()[:100])
    sync(queue, there)
    assert part.read_bytes() == whole.read_bytes()


def test_a_file_that_another_pass_is_about_to_commit(queue: str, there: str) -> None:
    """S7: it stays while it is young; one of a pass that died is deleted."""
    sync(queue, there)
    copy = Replicator(Store.at(queue), "q", there)._copy("queues/q/partitions/partition=0", ("q",))
    path = Path(there) / copy.folder / "another.parquet"
    path.write_bytes(b"x")
    os.utime(path, (path.stat().st_mtime - 60,) * 2)
    assert copy.tidy() == 0 and path.exists()
    age(path.parent, path.name)
    assert copy.tidy() == 1 and not path.exists()


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.long)])
def test_killed_at_any_moment(queue: str, there: str, times: int) -> None:
    """S7: kill -9 of two processes that keep one replica, while the primary is written."""
    world, dice = World(queue, 7), random.Random(7)
    for _ in range(times):
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
