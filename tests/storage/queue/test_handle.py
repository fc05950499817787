"""Queues on disk: made by one, finished after a crash, removed for good (Q1)."""

from __future__ import annotations

import contextlib
import getpass
import json
import pwd
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StringType, StructField, StructType

import spark_partq as partq
from spark_partq.core.payload.schema import payload_schema
from spark_partq.core.queue.facts import QueueFact
from spark_partq.storage.files.disk import DiskFiles
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures import create
from spark_partq.storage.queue.control import QueueControl
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store
from tests.helpers import in_parallel, put
from tests.storage.files.processes import CONTEXT


class Crash(Exception):
    """Stands for a process that dies."""


def test_each_partition_is_a_delta_table(store: str) -> None:
    """Q1: partitions 0..N-1, each a table of its own with the payload's columns as they were given."""
    described = partq.create_queue(
        store, "q", "k string, n decimal(20,2), s struct<x:array<date>>", key="k", partitions=3
    )
    assert described.to_dict() == partq.describe_queue(store, "q").to_dict()
    assert (described.status, described.configured_partitions, described.operating_partitions) == ("Ready", 3, 3)
    folders = sorted(p.name for p in (Path(store) / "queues/q/partitions").iterdir())
    assert folders == ["partition=0", "partition=1", "partition=2"]
    for folder in folders:
        table = DeltaTable(f"{store}/queues/q/partitions/{folder}")
        assert [f.name for f in table.schema().fields] == ["k", "n", "s", "_row", "base_offset", "_enqueued_at"]
        assert table.metadata().partition_columns == ["base_offset", "_enqueued_at"]


def test_description(store: str) -> None:
    """Q8: depth, offsets and sizes per partition; plain JSON."""
    schema = StructType([StructField("v", LongType(), False), StructField("k", StringType())])
    partq.create_queue(store, "q", schema, key=["k"], partitions=2, retention_ms=5_000)
    put(store, 1, range(4), column="v")
    described = partq.describe_queue(store, "q")
    plain = json.loads(json.dumps(described.to_dict()))
    assert plain["schema"] == "v:long,k:string" and plain["key"] == ["k"]
    assert plain["settings"]["retention_ms"] == 5_000 and plain["groups"] == []
    assert described.depth == 4
    one = described.partitions[1]
    assert (one.first_offset, one.next_offset, one.depth, one.files) == (0, 4, 4, 1) and one.size_bytes > 0


def test_queues_of_a_store(store: str) -> None:
    """Q1: a store holds several queues; each has an id of its own."""
    for name in ("b", "a", "A.1"):
        partq.create_queue(store, name, "v bigint", partitions=1)
    assert partq.list_queues(store) == ["A.1", "a", "b"]
    assert len({partq.describe_queue(store, name).queue_id for name in partq.list_queues(store)}) == 3
    assert partq.list_groups(store) == []


def test_exists_already(store: str) -> None:
    """Q1: a second queue of the same name is refused, whether or not it looks the same."""
    made = partq.create_queue(store, "q", "v bigint", partitions=2)
    for ddl, partitions in (("v bigint", 2), ("v bigint", 3), ("v string", 2)):
        with pytest.raises(partq.QueueAlreadyExistsError, match="already exists"):
            partq.create_queue(store, "q", ddl, partitions=partitions)
    assert partq.describe_queue(store, "q") == made


def _create(store: str, column: str, results: Any) -> None:
    try:
        results.put(("made", partq.create_queue(store, "q", f"{column} bigint", partitions=2).queue_id))
    except partq.QueueAlreadyExistsError:
        results.put(("exists", None))
    except Exception as error:
        results.put((repr(error), None))


def test_processes_that_create_at_once(store: str) -> None:
    """Q1: of processes that create different queues under one name exactly one wins, the others are told."""
    results = CONTEXT.Queue()
    processes = [CONTEXT.Process(target=_create, args=(store, f"c{i}", results)) for i in range(6)]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(kind for kind, _ in found) == ["exists"] * 5 + ["made"]
    assert partq.describe_queue(store, "q").queue_id == next(id_ for kind, id_ in found if kind == "made")


def test_threads_that_create_the_same_at_once(store: str) -> None:
    """Q1: of threads that create the very same queue at once one wins, too; the others may help, and are told."""
    for n in range(5):
        found = in_parallel(
            [lambda n=n: partq.create_queue(store, f"q{n}", "v bigint", partitions=3) for _ in range(6)]
        )
        assert [f for f in found if isinstance(f, partq.QueueDescription)] == [partq.describe_queue(store, f"q{n}")]
        others = [f for f in found if not isinstance(f, partq.QueueDescription)]
        assert all(isinstance(f, partq.QueueAlreadyExistsError) for f in others), others


@pytest.mark.parametrize("made", range(4))
def test_interrupted_creation(store: str, monkeypatch: pytest.MonkeyPatch, made: int) -> None:
    """Q1, S8: a creation that died half-way shows as ScalingUp, takes no messages, and is finished by whoever creates it next."""
    create, count = PartitionTable.create, [0]

    def limited(self: PartitionTable, *args: Any, **named: Any) -> None:
        if self.partition >= made:
            raise Crash
        count[0] += 1
        create(self, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionTable, "create", limited)
        with pytest.raises(Crash):
            partq.create_queue(store, "q", "v bigint", partitions=4)
    assert count == [made]
    with pytest.raises(partq.QueueNotReadyError, match=r"ScalingUp.*create it again"):
        partq.describe_queue(store, "q")
    with pytest.raises(partq.QueueAlreadyExistsError, match="status Ready, 4 partitions"):
        partq.create_queue(store, "q", "v string", partitions=5)
    described = partq.describe_queue(store, "q")
    assert (described.status, described.operating_partitions) == ("Ready", 4)
    put(store, 3, [1])


def test_store_in_a_folder_of_something_else(tmp_path: Path) -> None:
    """A store is not put among foreign files."""
    (tmp_path / "photo.jpg").write_text("x")
    for function in (
        lambda: partq.create_queue(tmp_path, "q", "v bigint"),
        lambda: partq.list_queues(tmp_path),
        lambda: partq.describe_queue(tmp_path, "q"),
        lambda: partq.create_queue(tmp_path / "photo.jpg", "q", "v bigint"),
        lambda: partq.list_queues(tmp_path / "photo.jpg"),
        lambda: partq.list_queues(tmp_path / "missing"),
        lambda: partq.maintain(tmp_path / "missing"),
        lambda: partq.delete_group(tmp_path / "missing", "g"),
    ):
        with pytest.raises(partq.NotAStoreError):
            function()
    assert [p.name for p in tmp_path.iterdir()] == ["photo.jpg"]


def test_unknown_names(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=1)
    for function in (partq.describe_queue, partq.delete_queue, partq.maintain):
        with pytest.raises(partq.QueueNotFoundError, match="its queues: q"):
            function(store, "p")
    with pytest.raises(partq.GroupNotFoundError, match="its groups: none"):
        partq.delete_group(store, "g")


def test_deleted_and_created_again(store: str) -> None:
    """Q1: a deleted queue leaves nothing behind; one created again has another id and starts at offset 0."""
    partq.create_queue(store, "p", "v bigint", partitions=1)
    old = partq.create_queue(store, "q", "v bigint", partitions=2)
    put(store, 0, range(5))
    partq.delete_queue(store, "q")
    assert partq.list_queues(store) == ["p"] and not (Path(store) / "queues/q").exists()
    with pytest.raises(partq.QueueNotFoundError):
        partq.delete_queue(store, "q")
    new = partq.create_queue(store, "q", "v string", partitions=2)
    assert new.queue_id != old.queue_id and new.depth == 0
    assert put(store, 0, ["a"], type_=pa.string()) == 0


def test_a_handle_reads_no_partition_of_the_next_queue(store: str) -> None:
    """Who has opened a queue, and reads a partition for the first time after the queue was created again, does not take the new table."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    former = open_queue(Store.at(store), "q")
    partq.delete_queue(store, "q")
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, range(5))
    with pytest.raises(partq.CorruptTableError, match="partition 0"):
        former.table(0).refresh()


def test_interrupted_deletion(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q1: wherever a deletion dies, the queue takes no more part, and deleting again finishes it."""
    files_of_a_queue = 0
    for limit in range(1000):
        path = f"{store}/{limit}"
        partq.create_queue(path, "q", "v bigint", partitions=2)
        put(path, 1, range(3))
        deleted = [0]

        delete = DiskFiles.delete

        def limited(
            files: DiskFiles, file: str, deleted: list[int] = deleted, limit: int = limit, delete: Any = delete
        ) -> None:
            if deleted[0] == limit:
                raise Crash
            deleted[0] += 1
            delete(files, file)

        with monkeypatch.context() as patch:
            patch.setattr(DiskFiles, "delete", limited)
            try:
                partq.delete_queue(path, "q")
                files_of_a_queue = limit
            except Crash:
                pass
        if files_of_a_queue:
            break
        with pytest.raises((partq.QueueNotReadyError, partq.QueueNotFoundError)):
            partq.describe_queue(path, "q")
        with contextlib.suppress(partq.QueueNotFoundError):  # the last of its control table was gone already
            partq.delete_queue(path, "q")
        partq.create_queue(path, "q", "v bigint", partitions=3)
        assert partq.describe_queue(path, "q").depth == 0
    assert files_of_a_queue > 8


def test_deleted_by_several_at_once(store: str) -> None:
    """Q1: two that delete a queue at the same time end with it gone, and nothing but this package's errors."""
    for n in range(6):
        partq.create_queue(store, f"q{n}", "v bigint", partitions=2)
        found = in_parallel([lambda n=n: partq.delete_queue(store, f"q{n}") for _ in range(4)])
        assert None in found
        assert [f for f in found if f is not None and not isinstance(f, partq.PartqError)] == []
    assert partq.list_queues(store) == []


def test_user_without_a_name(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the user often has a number only; a queue can be made there too."""

    def nobody(_: int) -> Any:
        raise KeyError("getpwuid(): uid not found: 185")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()
    assert partq.create_queue(store, "q", "v bigint", partitions=1).status == "Ready"


def test_control_table_says_who_and_when(store: str) -> None:
    """Q1: the facts of a queue's control table are readable by any Delta reader."""
    partq.create_queue(store, "q", "v bigint", partitions=1)
    rows = DeltaTable(f"{store}/queues/q/control").to_pyarrow_table().sort_by("seq").to_pylist()
    assert [(r["seq"], r["kind"]) for r in rows] == [(0, "QueueCreated"), (1, "PartitionsCreated")]
    assert all("@" in r["by"] and r["at"].tzinfo for r in rows)


def test_odd_columns(store: str) -> None:
    """Q1: names with dots, quotes and other letters are columns like any other."""
    partq.create_queue(store, "q", "`a.b` bigint, `c``d` string, `select` date, `ä東` int", key=["a.b"], partitions=1)
    state = open_queue(Store.at(store), "q").state
    assert [f["name"] for f in state.schema["fields"]] == ["a.b", "c`d", "select", "ä東"]


def test_names_with_control_characters_of_an_older_queue(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q1: an earlier release took them; the queue is read as before."""
    monkeypatch.setattr(create, "new_columns", payload_schema)
    partq.create_queue(store, "q", {"type": "struct", "fields": [{"name": "a\x1bb", "type": "long"}]}, partitions=1)
    monkeypatch.undo()
    assert [f["name"] for f in open_queue(Store.at(store), "q").state.schema["fields"]] == ["a\x1bb"]
    partq.add_column(store, "q", "n string")
    assert diagnose(Store.at(store)).findings == []


def test_creation_does_not_bring_back_a_deleted_queue(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S8: a queue that is marked as deleted while its partitions are still being made stays so."""
    create = PartitionTable.create

    def deleted_meanwhile(self: PartitionTable, *args: Any, **named: Any) -> None:
        create(self, *args, **named)
        QueueControl(Store.at(store), "q").decide(lambda state: [QueueFact("QueueDeleted", {})])

    with monkeypatch.context() as patch:
        patch.setattr(PartitionTable, "create", deleted_meanwhile)
        with pytest.raises(partq.QueueNotReadyError, match="Deleting"):
            partq.create_queue(store, "q", "v bigint", partitions=1)
    with pytest.raises(partq.QueueNotReadyError, match="Deleting"):
        partq.describe_queue(store, "q")
    partq.delete_queue(store, "q")
    assert partq.list_queues(store) == []
