"""What somebody else has put into a store is no damage: nobody is told to delete what is whole, and nobody fails at a name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.store import Store, deletions_before, partition_numbers
from tests.groups import Consumer
from tests.helpers import put

# Empty folders. What ends a path here with a valid name could be the store's.
FOLDERS = (
    "groups/.snapshot", "groups/lost+found", "groups/.Trash-1000", "groups/lost/x", "groups/g/acks-old", "groups/g/acks-", "groups/g/acks-01",
    "groups/g/acks-99999999999999999999", "groups/g/acksé", "groups/g/control/x", "groups/g/acks/x",
    "queues/.snapshot/x", "queues/lost+found/x", "queues/@eaDir/control/_delta_log", "queues/lost/x",
    "queues/q/partitions/foreign", "queues/q/partitions/partition=99", "queues/q/partitions/partition=abc", "queues/q/partitions/partition=",
    "queues/q/partitions/partition=²", "queues/q/partitions/partition=007", "queues/q/partitions/partition=99999999999999999999",
    "queues/q/manifests/x", "queues/q/x",
)  # fmt: skip
FILES = (
    "groups/README", "queues/README", "queues/q/partitions/README", "groups/g/README", "groups/g/acks/README", "queues/q/control/README",
    f"groups/g/control/{'9' * 20}-facts-x.parquet", f"groups/g/control/{'9' * 20}-x", f"groups/g/control/_delta_log/{'9' * 20}.crc",
    f"groups/g/control/_delta_log/{'²' * 20}.json", f"groups/g/acks/{'9' * 20}-rows-x.parquet", f"queues/q/control/_delta_log/{'²' * 20}.json",
)  # fmt: skip
EVERY = [*FOLDERS, *FILES]
# They might be what is left of something.
WORTH_A_WARNING = ("groups/lost/x", "queues/lost/x")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in order: queue `q`, of which group `g` has read some."""
    store = str(tmp_path_factory.mktemp("foreign") / "store")
    partq.create_queue(store, "q", "v long", partitions=2)
    for p in (0, 1):
        put(store, p, range(10))
    Consumer(store, "a").ack(0, 5)
    return Path(store)


@pytest.fixture
def at(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def add(at: Path, name: str) -> None:
    path = at / name
    if name in FILES:
        path.write_bytes(b"foreign")
    else:
        path.mkdir(parents=True)


@pytest.mark.parametrize("name", EVERY)
def test_it_is_no_fault(at: Path, name: str) -> None:
    add(at, name)
    found = diagnose(Store.at(at))
    assert [str(fault) for fault in found.faults] == []
    assert not any("delete" in str(finding) for finding in found.findings)
    assert (found.queues, found.partitions, found.messages, found.groups) == (1, 2, 20, 1)
    assert bool(found.findings) == (name in WORTH_A_WARNING)


def test_a_folder_that_may_have_been_something(at: Path) -> None:
    """The name could be a queue's, and nothing of a queue is in it; with a part of one it is damage."""
    add(at, "queues/lost/x")
    (finding,) = diagnose(Store.at(at)).findings
    assert str(finding) == (
        "warning: queue lost: it has nothing but folders that are not the store's: x; if a queue or group was there, restore queues/lost from a "
        "backup; if not, leave the folder to its owner: it does no harm"
    )
    (at / "queues/lost/partitions").mkdir()
    (fault,) = diagnose(Store.at(at)).faults
    assert "queue lost: its control table has no log any more; restore queues/lost/control from a backup" in str(fault)


def test_an_error_that_nobody_foresaw(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says then that the group is damaged."""
    monkeypatch.setattr("spark_partq.storage.inspect.doctor.groups.control_log", lambda *_: int("old"))
    (fault,) = diagnose(Store.at(at)).faults
    assert str(fault).startswith("fault: group g: invalid literal") and "delete" not in str(fault)


def test_names_are_read_as_they_are_written(at: Path) -> None:
    for name in FOLDERS:
        add(at, name)
    store = Store.at(at)
    assert sorted(partition_numbers(store, "q")) == [0, 1, 99]
    told = {name: deletions_before(name) for name in store.names("groups/g")}
    assert {name for name, number in told.items() if number is not None} == {"acks"}
    assert (deletions_before("acks"), deletions_before("acks-12")) == (0, 12)


def test_a_queue_is_followed_and_promoted_beside_them(at: Path, tmp_path: Path) -> None:
    """Nobody reads a number out of a name that has none, copies such a folder, or deletes such a file."""
    for name in EVERY:
        if name != "queues/q/partitions/partition=99":  # that could be a partition's
            add(at, name)
    there = tmp_path / "there"
    partq.replicate(str(at), "q", str(there))
    foreign = there / f"groups/g/control/{'9' * 20}-facts-x.parquet"
    foreign.write_bytes(b"foreign")
    (there / "queues/q/partitions/foreign").mkdir()
    partq.promote(str(there), "q")
    assert partq.describe_queue(str(there), "q").depth == 15  # 5 are read
    assert foreign.exists()
    assert sorted(path.name for path in (there / "queues/q/partitions").iterdir()) == [
        "foreign",
        "partition=0",
        "partition=1",
    ]
    assert not diagnose(Store.at(there)).faults


def test_a_group_and_a_queue_are_deleted_beside_them(at: Path) -> None:
    """What somebody else has put beside the acknowledgements is left to them."""
    for name in EVERY:
        add(at, name)
    Consumer(str(at), "a").leave()
    partq.delete_group(str(at), "g")
    assert {"acks-old", "acksé", "acks-01"} <= {path.name for path in (at / "groups/g").iterdir()}
    partq.delete_queue(str(at), "q")
    assert not (at / "queues/q").exists()
