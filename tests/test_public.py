"""The public surface: its names, what loading each of them costs, and what a worker of Spark has to load."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import spark_partq as partq
from spark_partq.spark.reading import FlowPartition
from spark_partq.spark.source import PartqDataSource
from spark_partq.storage.queue.slices import Piece, Slice
from spark_partq.storage.queue.write_task import write_task
from spark_partq.storage.store import Store
from tests.helpers import two_partitions

ROOT = Path(__file__).parents[1]

NAMES = [
    "AssignorError",
    "CheckpointMismatchError",
    "ClockSkewError",
    "CommitFailedError",
    "ConstraintViolatedError",
    "CorruptTableError",
    "DataLossError",
    "DeadMessage",
    "DeltaSink",
    "Explanation",
    "FencedError",
    "FlowChange",
    "FlowDescription",
    "GroupActiveError",
    "GroupDescription",
    "GroupMismatchError",
    "GroupNotFoundError",
    "GroupPartition",
    "IngressDisabledError",
    "InvalidArgumentError",
    "KeysHeldError",
    "ListenerError",
    "MaintenanceReport",
    "Member",
    "MemberDescription",
    "NewerStoreError",
    "NotAStoreError",
    "NotPermittedError",
    "OffsetOutOfRangeError",
    "OffsetReset",
    "OtherHistoryError",
    "PartitionDescription",
    "PartqError",
    "Position",
    "Promotion",
    "QueueAlreadyExistsError",
    "QueueDescription",
    "QueueFencedError",
    "QueueNotFoundError",
    "QueueNotReadyError",
    "QueueSink",
    "RebalanceListener",
    "ReplicaError",
    "ReplicaStatus",
    "ScaleProgress",
    "ScalingInProgressError",
    "SchemaMismatchError",
    "SessionWait",
    "SinkAheadError",
    "Store",
    "StoreUnavailableError",
    "TargetAheadError",
    "UnknownAssignorError",
    "UnsupportedTableError",
    "acknowledge",
    "add_column",
    "add_listener",
    "alter_queue",
    "append",
    "assign",
    "copy_stuck",
    "create_queue",
    "dead_letters",
    "delete_group",
    "delete_messages",
    "delete_queue",
    "delta_sink",
    "describe_group",
    "describe_queue",
    "explain",
    "flow_changes",
    "history",
    "list_groups",
    "list_queues",
    "maintain",
    "partition_of",
    "positions",
    "promote",
    "queue_sink",
    "redrive",
    "register",
    "reject",
    "remove_replica",
    "replicas",
    "replicate",
    "reset_offsets",
    "scale",
    "session",
    "set_ingress",
]

# Each takes a program tens of milliseconds or more to load.
HEAVY = [
    "delta",
    "deltalake",
    "numpy",
    "obstore",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyspark",
    "re2",
    "rich",
    "sqlglot",
    "tenacity",
    "typer",
    "xxhash",
]


def run(code: str, *arguments: object) -> str:
    """What a new Python prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(code: str, beside: str = "", *arguments: object) -> set[str]:
    """The modules that a new Python loads to run this, not counting those that it needs to run `beside` first."""
    text = f"{beside}\nimport sys\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    return set(run(text, *arguments).split())


def packages(modules: Iterable[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


# ---- names
def test_names_are_these() -> None:
    assert partq.__all__ == NAMES == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name: str) -> None:
    found = getattr(partq, name)
    assert found.__name__ == name and found.__module__.startswith("spark_partq.")
    assert name in dir(partq)


def test_dir_shows_the_names_before_they_are_used() -> None:
    assert json.loads(run("import json, spark_partq; print(json.dumps(dir(spark_partq)))")).count("create_queue") == 1


def test_star_imports_them() -> None:
    assert run("from spark_partq import *; print(create_queue.__name__)") == "create_queue\n"


def test_type_checkers_see_the_same_modules() -> None:
    """The imports that only type checkers read name the modules from which the names come."""
    (block,) = (
        node
        for node in ast.parse(Path(partq.__file__).read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.name: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert seen == partq._MODULES and sorted(seen) == NAMES


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'spark_partq' has no attribute 'create_queu'"):
        partq.create_queu  # noqa: B018
    with pytest.raises(ImportError, match="create_queu"):
        exec("from spark_partq import create_queu")


# ---- what loading costs
def test_the_package_alone_loads_nothing() -> None:
    modules = loaded_by("import spark_partq")
    assert not packages(modules) & set(HEAVY)
    assert {module for module in modules if module.startswith("spark_partq.")} == set()


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("Error")])
def test_an_error_loads_nothing(name: str) -> None:
    assert not packages(loaded_by(f"import spark_partq; spark_partq.{name}")) & set(HEAVY)


WITHOUT_SPARK = [
    name
    for name in NAMES
    if name not in ("DeltaSink", "QueueSink", "append", "delta_sink", "positions", "queue_sink", "register", "session")
    and "Error" not in name
]


def test_most_names_load_no_spark() -> None:
    names = ", ".join(f"spark_partq.{name}" for name in WITHOUT_SPARK)
    assert not packages(loaded_by(f"import spark_partq\n{names}")) & {"pyspark", "delta", "typer", "rich", "re2"}


def test_a_reader_without_a_pattern_loads_no_matcher() -> None:
    code = "from spark_partq.spark.options import Options\nOptions.parse({'path': '/s', %s})"
    assert "re2" not in packages(loaded_by(code % "'queue': 'q'"))
    assert "re2" in packages(loaded_by(code % "'queuePattern': 'q.*'"))


NO_SPARK = """
import sys
for name in ("pyspark", "delta", "typer", "rich"):
    sys.modules[name] = None  # as if it were not installed
import spark_partq as partq

store = partq.Store(sys.argv[1])
partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=2)
partq.set_ingress(store, "q", False)
partq.scale(store, "q", 3)
partq.maintain(store)
partq.replicate(store, "q", sys.argv[2])
try:
    partq.acknowledge(store, "g", {("q", 0): 1})
except partq.GroupNotFoundError:
    found = partq.describe_queue(store, "q")
print(found.operating_partitions, found.ingress, partq.list_queues(store), len(partq.replicas(store, "q")))
"""


def test_a_program_without_spark(tmp_path: Path) -> None:
    """Queues are run from a machine that has no Spark."""
    assert run(NO_SPARK, tmp_path / "store", tmp_path / "other") == "3 False ['q'] 1\n"


# ---- stores
def test_every_function_takes_a_store() -> None:
    only_name_one = {"add_listener", "flow_changes"}
    stores = {"store", "table"}  # or the table of a user
    names = [name for name in NAMES if name not in only_name_one]
    functions = [getattr(partq, name) for name in names if inspect.isfunction(getattr(partq, name))]
    parameters = {(f.__name__, p.name): p for f in functions for p in inspect.signature(f).parameters.values()}
    places = {key: p.annotation for key, p in parameters.items() if key[1] in {*stores, "location", "path"}}
    assert len(places) > 15 and set(places.values()) == {"StorePath", "StorePath | None"}
    assert {name for name, p in places if p in stores} == {name for name, p in parameters if p == "storage_options"}


def test_a_store_serves_as_its_path_does(tmp_path: Path) -> None:
    """A `Store` may stand wherever a path may, and they mean the same place."""
    path, other = tmp_path / "store", partq.Store(tmp_path / "other")
    store = partq.Store(path)
    made = partq.create_queue(store, "q", "v bigint", partitions=2)
    assert made == partq.describe_queue(store, "q") == partq.describe_queue(path, "q")
    assert made == partq.describe_queue(str(path), "q", storage_options={"aws_region": "nowhere"})
    assert partq.list_queues(store) == partq.list_queues(path) == ["q"]
    assert partq.replicate(store, "q", other).location == other.uri
    partq.remove_replica(path, "q", other)
    assert partq.replicas(store, "q") == []
    partq.delete_queue(store, "q")
    assert partq.list_queues(path) == []


def test_a_store_has_its_own_options(tmp_path: Path) -> None:
    store = partq.Store(tmp_path)
    with pytest.raises(partq.InvalidArgumentError, match="has its own storage_options"):
        partq.create_queue(store, "q", "v bigint", storage_options={"aws_region": "nowhere"})
    assert list(tmp_path.iterdir()) == []
    partq.create_queue(store, "q", "v bigint", partitions=1)
    with pytest.raises(partq.InvalidArgumentError, match="has its own storage_options"):
        partq.replicate(store, "q", partq.Store(tmp_path / "other"), replica_options={})


# ---- workers
WORKER = """
import pickle, sys
from pathlib import Path
import numpy, pyarrow as pa
import pyspark.worker, pyspark.sql.datasource, pyspark.sql.pandas.serializers, pyspark.sql.pandas.types

folder, task = Path(sys.argv[1]), sys.argv[2]
data = [(folder / name).read_bytes() for name in (task, "partition")]
batches = list(pa.ipc.open_stream((folder / "batches").read_bytes()))
"""
_READ = "assert sum(batch.num_rows for batch in pickle.loads(data[0])(pickle.loads(data[1]))) == 3"
RUN = {
    "read": _READ,
    "stream": _READ,
    "write": "assert sum(batch.num_rows for batch in pickle.loads(data[0])(batches)) == 3",
}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark sends to its workers, a file each."""
    folder = tmp_path_factory.mktemp("worker")
    store = Store(folder / "store")
    partq.create_queue(store, "q", "k string, v bigint", key="k", partitions=2)
    columns: dict[str, Any] = {"_0": ["a", "b", "c"], "_1": [1, 2, 3], "partition": pa.array([0, 1, 0], pa.int32())}
    batch = pa.RecordBatch.from_pydict({**columns, "order": [0, 1, 2]})
    with pa.OSFile(str(folder / "batches"), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)

    write = write_task(store, "q", ["k", "v"], ["k"], False, None)
    results = [json.loads(row["result"]) for result in write([batch]) for row in result.to_pylist()]
    files = [result["file"] for result in results if "file" in result]
    assert sorted(file["rows"] for file in files) == [1, 2]
    pieces = [Piece(Slice("q", f["partition"], f["path"], 0, f["rows"], 0, 0, f["rows"]), 7) for f in files]

    source = PartqDataSource({"path": store.uri, "queue": "q"})
    schema = source.schema()

    def reading(reader: Any) -> Any:
        def read(partition: Any) -> Any:  # as Spark's own closure does, which holds the source for its name
            assert source.name() == "partq"
            return reader.read(partition)

        return read

    partition = FlowPartition(store, tuple(pieces), "f")
    readers = {"read": reading(source.reader(schema)), "stream": reading(source.streamReader(schema))}
    things = {"partition": partition, "write": write, **readers}
    for name, thing in things.items():
        (folder / name).write_bytes(cloudpickle.dumps(thing))
    return folder


@pytest.mark.parametrize("task", RUN)
def test_a_worker_loads_what_its_task_needs(sent: Path, task: str) -> None:
    """What a task brings into a new worker, beside what Spark has there. Even pandas stays out, a third of a second."""
    modules = loaded_by(RUN[task], WORKER, sent, task)
    assert packages(modules) & set(HEAVY) <= {"numpy", "pyarrow"}  # parts of them that Spark did not need
    ours = {module.removeprefix("spark_partq.") for module in modules if module.startswith("spark_partq.")}
    needless = (
        "spark.driver",
        "spark.options",
        "spark.stream_reader",
        "storage.procedures",
        "storage.group",
        "storage.inspect",
    )
    assert "storage.queue.messages" in ours and not [module for module in ours if module.startswith(needless)]


PLANNER = """
import sys, pyspark.sql.streaming.python_streaming_source_runner, pyspark.sql.pandas.types
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.store import Store

planner = Planner(ConsumerSettings(Store.at(sys.argv[1]), ("q",), session_timeout_ms=60_000), "g", "a")
done = StreamOffset("g", "a", {}, {})
for _ in range(130):
    end = planner.next(done, Limits(max_rows=1))
    assert planner.tasks(done, end)
    done = end
planner.leave()
"""


def test_a_planner_loads_no_pandas(tmp_path: Path) -> None:
    """Not even where it commits, merges files and writes checkpoints: a query would begin a quarter of a second later."""
    store = two_partitions(str(tmp_path), 100)
    assert "pandas" not in loaded_by(PLANNER, "", store)
    assert [*tmp_path.glob("groups/g/**/*.checkpoint.parquet")]


def test_the_registration_loads_nothing() -> None:
    """Every session that looks for data sources imports it."""
    modules = loaded_by("import pyspark_partq", "import pyspark.sql.datasource")
    assert packages(modules) - set(sys.stdlib_module_names) == {"pyspark_partq", "spark_partq"}
    assert {m for m in modules if m.startswith("spark_partq.")} == {"spark_partq.spark", "spark_partq.spark.source"}
