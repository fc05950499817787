"""The older release of the tests, as a process of its own, and today's program, which is told the same."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core import format
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.store import Store
from tests import queries
from tests.helpers import ROOT
from tests.scaled import Message, Sink

# The commit that made version 0.2.0, and what came after it.
COMMIT, RELEASE = "0f58e04acb4a321c3aefa3d5c278cefcaa135a45", "spark_partq 0.2.0"
LATER = {format.SEGMENTS, format.FORCED_WRITES, format.MIN_RETENTION}
PROGRAM = ROOT / "tests" / "storage" / "older_release.py"

Seen = tuple[int, str, int]  # when, by the clock of the machine that all processes have, key, value


@pytest.fixture(scope="module", name="release")
def release_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of that release."""
    archive = ["git", "-C", str(ROOT), "archive", COMMIT, "spark_partq"]
    try:
        found = subprocess.run(archive, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("git is not installed, which would take the older release from the history")
    if found.returncode:
        pytest.skip(f"the history of the repository is not here (sources without it, or a shallow clone): no {COMMIT}")
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


class Refused(Exception):
    """An error of the older release."""


class Older:
    """Its process."""

    def __init__(self, release: Path, store: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), store],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=release,
            env={**os.environ, "PYTHONPATH": str(release)},
        )
        started = self._answer()
        assert Path(started["package"]).is_relative_to(release)
        assert started["release"] == RELEASE
        assert set(started["features"]) == format.FEATURES - LATER

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the older release's process has died"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def do(self, command: str, *arguments: Any, **options: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([command, arguments, options]) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["value"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(name="older")
def older_fixture(release: Path, store: str) -> Iterator[Older]:
    process = Older(release, store)
    yield process
    process.close()
    queries.stop_all()


class Newer:
    """Today's program, told the same as the older one."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._sinks: dict[str, Sink] = {}
        self._queries: dict[str, tuple[queries.Query, list[Seen]]] = {}

    def do(self, command: str, *arguments: Any, **options: Any) -> Any:
        if hasattr(self, command):
            return getattr(self, command)(*arguments, **options)
        return getattr(partq, command)(self._store, *arguments, **options)

    def write(self, queue: str, sink_id: str, batch: int, rows: list[Message]) -> int:
        assert queue == "q"
        if sink_id not in self._sinks:
            self._sinks[sink_id] = Sink(self._store, sink_id)
        return self._sinks[sink_id].write(batch, rows)

    def start(self, instance: str, checkpoint: str, **options: Any) -> None:
        seen: list[Seen] = []

        def take(batch: queries.Batch, _: int) -> None:
            rows = batch.collect()
            at = time.monotonic_ns()
            seen.extend((at, row.k, row.v) for row in rows)

        self._queries[instance] = (
            queries.Query(self._store, checkpoint, take, instanceId=instance, **options),
            seen,
        )

    def stop(self, instance: str) -> None:
        self._queries[instance][0].leave()

    def seen(self, instance: str) -> list[Seen]:
        return self._queries[instance][1]

    def doctor(self) -> list[str]:
        return [str(finding) for finding in diagnose(Store.at(self._store)).findings]


@pytest.fixture(name="newer")
def newer_fixture(store: str) -> Newer:
    return Newer(store)


GROUP: dict[str, Any] = {"queue": "q", "group": "g"}
# No handoff is cut short, so nothing is delivered again.
SETTINGS: dict[str, Any] = {"key": "k", "partitions": 2, "rebalance_delay_ms": 0, "max_handoff_time_ms": 60_000}


def make(program: Older | Newer) -> None:
    program.do("create_queue", "q", "k string, v bigint", **SETTINGS)


def features(store: str) -> set[str]:
    return set(open_control(Store.at(store), "q").state.format.features)


def each_once(seen: list[Seen], count: int) -> None:
    """All messages from 0 on, none twice, and those of each key in order."""
    assert sorted(v for _, _, v in seen) == list(range(count))
    for key, of_key in itertools.groupby(sorted(seen, key=lambda row: row[:2][::-1]), lambda row: row[1]):
        values = [v for _, _, v in of_key]
        assert values == sorted(values), key


def content(store: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(store).rglob("*")) if path.is_file()}


def newer_store(table: str, feature: str) -> str:
    """What it says of the control table: also to which release it is to be upgraded, which is another than itself."""
    assert format.RELEASE != RELEASE
    has = ", ".join(sorted(format.FEATURES - LATER))
    return (
        f"[NEWER_STORE] the control table of {table} needs the feature '{feature}', and this program ({RELEASE}) has {has}: "
        f"upgrade it to {format.RELEASE} or newer. Nothing is damaged"
    )
