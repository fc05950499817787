"""Many processes that commit to one table: none of their commits is lost or doubled, also where some of them are killed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_partq.storage.files import is_temporary, open_files
from spark_partq.storage.log import Add, DeltaLog, vacuum
from tests.helpers import eventually
from tests.s3server import BUCKET, running
from tests.storage.files.processes import CONTEXT
from tests.storage.log.tables import (
    FOLDER,
    HOUR_MS,
    NEXT,
    age_on_disk,
    append_until,
    check_appended,
    handle,
    offsets,
    rows_of,
    spec,
)

PROCESSES = 8


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[str, dict[str, str]]]:
    """A bucket of a server that speaks S3, and the storage options that reach it."""
    with running() as server:
        yield f"s3://{BUCKET}/races", server.options


def started(uri: str, options: Mapping[str, str], last: int, with_data: bool = False) -> list[BaseProcess]:
    processes: list[BaseProcess] = [
        CONTEXT.Process(target=append_until, args=(uri, options, last, str(number), with_data), daemon=True)
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    return processes


def made(uri: str, options: Mapping[str, str]) -> DeltaLog:
    table = handle(open_files(uri, options), f"{uri}/{FOLDER}")
    table.create(spec())
    return table


def check_all(from_the_start: DeltaLog, uri: str, options: Mapping[str, str], last: int) -> None:
    """Every reader finds the same, and the log is without a gap."""
    fresh = handle(open_files(uri, options), f"{uri}/{FOLDER}")
    check_appended(fresh.snapshot, last)
    assert from_the_start.refresh()
    check_appended(from_the_start.snapshot, last)
    assert live_files(from_the_start) == live_files(fresh)
    assert from_the_start.snapshot.token == fresh.snapshot.token is not None

    other = DeltaTable(f"{uri}/{FOLDER}", storage_options=dict(options) or None)
    assert other.version() == last
    added = other.get_add_actions(flatten=True)
    starts, rows = (added.column(name).to_pylist() for name in ("partition.base_offset", "num_records"))
    assert sorted(zip(starts, rows, strict=True)) == offsets(last)
    assert other.transaction_version(NEXT) == sum(map(rows_of, range(1, last + 1)))

    names = fresh.log.names()
    behind = max(names.checkpoints, default=-1)
    assert names.entries[-1] == last
    assert set(range(last + 1)) - set(names.entries) <= set(range(behind))
    assert behind > 0  # when each is made is up to the processes' background, which the race leaves little time


def race(uri: str, options: Mapping[str, str], commits: int) -> None:
    from_the_start = made(uri, options)
    processes = started(uri, options, commits)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    check_all(from_the_start, uri, options, commits)


def test_processes_on_a_disk(store: str) -> None:
    """Q4, Q5: 2,000 commits by 8 processes."""
    race(store, {}, 2000)
    assert not [path for path in (Path(store) / FOLDER / "_delta_log").iterdir() if is_temporary(path.name)]


@pytest.mark.parametrize("commits", [100, pytest.param(2000, marks=pytest.mark.long)])
def test_processes_on_an_object_store(bucket: tuple[str, dict[str, str]], commits: int) -> None:
    """Q4, Q5: the same where only a conditional put tells who was first."""
    uri, options = bucket
    race(f"{uri}/{commits}", options, commits)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_killed_processes(store: str, seed: int) -> None:
    """Q5: processes that are killed at any moment hold up nobody, and leave nothing that is not cleared away."""
    chance, last = random.Random(seed), 500
    from_the_start, looker = made(store, {}), handle(open_files(store, {}), f"{store}/{FOLDER}")
    processes = started(store, {}, last, with_data=True)
    doomed = chance.sample(processes, PROCESSES - 2)
    for process, version in zip(doomed, sorted(chance.sample(range(20, last - 50), len(doomed))), strict=True):

        def has_come(version: int = version) -> bool:
            looker.refresh()
            return looker.version >= version

        eventually(has_come, f"version {version}", every_s=chance.uniform(0.001, 0.01))
        process.kill()
        process.join()
        found = handle(open_files(store, {})).snapshot
        check_appended(found, found.version)
    survivors = [process for process in processes if process not in doomed]
    for process in survivors:
        process.join()
    assert [process.exitcode for process in survivors] == [0, 0]
    check_all(from_the_start, store, {}, last)
    check_no_litter(store, last)


def check_no_litter(store: str, last: int) -> None:
    """What the killed processes were writing goes when it is an hour old; what the table needs stays."""
    folder = Path(store) / FOLDER
    log = folder / "_delta_log"
    table = handle(open_files(store, {}), str(folder))
    # So that there is some in any case, as of processes that were killed in the middle of a commit:
    for place in (folder, log):
        (place / ".dead.tmp").write_bytes(b"x")
    (folder / "lost-the-race.parquet").write_bytes(b"x")
    table.log.clean_up(HOUR_MS)
    assert vacuum(table, HOUR_MS) == 0
    assert (folder / ".dead.tmp").exists() and (log / ".dead.tmp").exists()

    age_on_disk(folder, 2 * HOUR_MS)
    age_on_disk(log, 2 * HOUR_MS)
    table.refresh()
    table.commit([Add("last.parquet", 1, {"base_offset": None}, '{"numRecords":0}')])
    (folder / "last.parquet").write_bytes(b"x")
    table.checkpoint()
    assert vacuum(table, HOUR_MS) >= 2
    assert not [path for path in log.iterdir() if is_temporary(path.name)]
    assert {path.name for path in folder.iterdir() if path.is_file()} == set(table.snapshot.files)
    assert [int(path.name[:20]) for path in log.glob("*.json")][:1] and len(list(log.glob("*.json"))) <= 3
    assert DeltaTable(folder).version() == last + 2


def live_files(log: DeltaLog) -> dict[str, Add]:
    """Whether a file was news when it came is not told by a checkpoint."""
    return {path: add._replace(data_change=True) for path, add in log.snapshot.files.items()}
