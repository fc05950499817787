"""A store that others may write: what the commands of its administrator do with it stays in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_partq as partq
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import put
from tests.queries import consume, read
from tests.s3server import BUCKET, S3Server

MONTHS_S = 90 * 86_400


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Queue `q` with a message, which group `g` reads."""
    store = str(tmp_path / "shared" / "store")
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, [1])
    Consumer(store, "a", session_timeout_ms=300)
    return store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of the administrator, with files that are old enough for any clean-up."""
    home = tmp_path / "home"
    (home / "sub").mkdir(parents=True)
    for name in ("precious.txt", "sub/more.txt", "victim.parquet"):
        (home / name).write_bytes(b"precious")
        at = (home / name).stat().st_mtime - MONTHS_S
        os.utime(home / name, (at, at))
    return home


def untouched(home: Path) -> bool:
    left = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    return left == dict.fromkeys(("precious.txt", "sub/more.txt", "victim.parquet"), b"precious")


LOG = "queues/q/partitions/partition=0/_delta_log"
REFUSED = r"0000{}\.json: it names the file .*no plain name"


def commit_a_name(store: str, path: str, size: int) -> None:
    """What anybody can do who may write the store: one more commit, which names a file."""
    entries = sorted(Path(store, LOG).glob("*.json"))
    Path(store, LOG, f"{len(entries):020d}.json").write_bytes(naming(entries[-1].read_bytes(), path, size))


def naming(before: bytes, path: str, size: int) -> bytes:
    """An entry behind this one that names a file."""
    last = json.loads(before.splitlines()[0])["commitInfo"]["txnId"]
    lines = [
        {"commitInfo": {"engineInfo": "spark_partq", "operation": "WRITE", "txnId": "0" * 32, "previousTxnId": last}},
        {
            "add": {
                "path": path,
                "partitionValues": {"base_offset": "1", "_enqueued_at": "2026-01-01T00:00:00.000000Z"},
                "size": size,
                "modificationTime": 0,
                "dataChange": True,
                "stats": '{"numRecords": 1}',
            }
        },
        {"txn": {"appId": "partq:next", "version": 2, "lastUpdated": 0}},
    ]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def a_file_of_messages() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"v": [7], "_row": [0]}), sink)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("valid", [False, True], ids=["no Parquet", "Parquet"])
def test_a_log_that_names_files_elsewhere(store: str, home: Path, tmp_path: Path, valid: bool, encoded: bool) -> None:
    """A replicator does not overwrite or delete there, a reader does not read there, and the doctor says what is wrong."""
    data = a_file_of_messages() if valid else b"x" * 40
    (tmp_path / "shared" / "victim.parquet").write_bytes(data)
    up = "../" * 5
    up = up.replace(".", "%2e").replace("/", "%2F") if encoded else up
    commit_a_name(store, f"{up}victim.parquet", len(data))
    commands: list[Callable[[], object]] = [
        lambda: partq.replicate(store, "q", str(home / "replica")),
        lambda: partq.describe_queue(store, "q"),
        lambda: partq.maintain(store),
        lambda: read(store),
        lambda: consume(store, tmp_path / "checkpoint", group="h"),
    ]
    for command in commands:
        with pytest.raises(partq.CorruptTableError, match=REFUSED.format(2)):
            command()
    replica = home / "replica"
    assert sorted(path.name for path in home.iterdir()) == ["precious.txt", "replica", "sub", "victim.parquet"]
    assert not [path for path in replica.rglob("*") if path.is_file() and path.read_bytes() == data]
    assert (home / "victim.parquet").read_bytes() == b"precious"
    (finding, *_) = diagnose(Store(store)).faults
    assert "no plain name" in finding.what


def test_a_log_that_names_objects_elsewhere(s3: S3Server, prefix: str, tmp_path: Path) -> None:
    """In an object store, too, a reader asks for nothing that lies outside of the partition's folder."""
    partq.create_queue(prefix, "q", "v bigint", partitions=1, storage_options=s3.options)
    files, data = Store(prefix, s3.options).files, a_file_of_messages()
    files.put("victim.parquet", data)
    entry = files.read(f"{LOG}/{0:020d}.json", 1 << 20)
    files.put(f"{LOG}/{1:020d}.json", naming(entry, "../../../../victim.parquet", len(data)))
    options = {f"storageOptions.{name}": value for name, value in s3.options.items()}
    s3.asked()
    for command in (lambda: read(prefix, **options), lambda: consume(prefix, tmp_path / "checkpoint", **options)):
        with pytest.raises(partq.CorruptTableError, match=REFUSED.format(1)):
            command()
    folder = f"/{BUCKET}/{prefix.rpartition('/')[2]}"
    asked = s3.asked()
    assert any(f"GET {folder}/{LOG}/{1:020d}.json" in request for request in asked)
    assert not any("victim" in request for request in asked)


LINKS = [
    "queues/q/partitions/partition=0/link", "queues/q/partitions/partition=7", "queues/q/partitions/link", "queues/q/control/link",
    "queues/q/link", "groups/g/link", "groups/g/acks/link", "queues/linked", "groups/linked",
]  # fmt: skip


@pytest.mark.parametrize("place", LINKS)
def test_links_to_folders(store: str, home: Path, place: str, tmp_path: Path) -> None:
    """No command goes through them, and none stumbles over them."""
    Path(store, place).parent.mkdir(parents=True, exist_ok=True)
    os.symlink(home, Path(store, place))
    assert [report.queue for report in partq.maintain(store)] == ["q"] == partq.list_queues(store)
    assert partq.list_groups(store) == ["g"]
    assert partq.replicate(store, "q", str(tmp_path / "replica")).total_lag == 0
    copied = [path.name for path in (tmp_path / "replica").rglob("*")]
    assert not {"precious.txt", "more.txt", "victim.parquet"} & set(copied)
    partq.remove_replica(store, "q", str(tmp_path / "replica"))
    assert diagnose(Store(store)).faults == []
    partq.delete_group(store, "g")
    partq.delete_queue(store, "q")
    assert untouched(home)


def test_a_queue_that_is_a_link(store: str, tmp_path: Path) -> None:
    """Another store's queue is not there, and so cannot be deleted."""
    other = str(tmp_path / "other")
    partq.create_queue(other, "q", "v bigint", partitions=1)
    os.symlink(f"{other}/queues/q", f"{store}/queues/linked")
    with pytest.raises(partq.QueueNotFoundError):
        partq.delete_queue(store, "linked")
    assert partq.describe_queue(other, "q").depth == 0


@pytest.mark.parametrize("name", ["{:020d}.json", "part.parquet"])
def test_a_file_that_is_a_link_to_a_secret(store: str, home: Path, tmp_path: Path, name: str) -> None:
    """A replica does not get what it leads to."""
    secret = '{"commitInfo":{"engineInfo":"spark_partq","operation":"WRITE","password":"hunter2"}}\n'
    (tmp_path / "secret").write_text(secret)
    folder = Path(store, "queues/q/partitions/partition=0")
    if name == "part.parquet":
        os.symlink(tmp_path / "secret", folder / name)
        commit_a_name(store, name, len(secret))
        with pytest.raises(partq.PartqError, match=r"part\.parquet"):
            partq.replicate(store, "q", str(tmp_path / "replica"))
    else:
        os.symlink(tmp_path / "secret", folder / "_delta_log" / name.format(2))
        assert partq.replicate(store, "q", str(tmp_path / "replica")).total_lag == 0
    for path in (tmp_path / "replica").rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes()
