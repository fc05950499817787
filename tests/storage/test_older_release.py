"""A release of before, as its commit has it, beside today's program on one store; `older_release` is its process.

`test_two_versions` shows what a program does with a format that is raised in any way. Here the older program is a real one: what it cannot
read, or takes for something else, shows even where today's readers do not mind.
"""

from __future__ import annotations

import datetime as dt
import io
import itertools
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core import format
from spark_partq.core.queue.records import KEPT_MS
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.store import Store
from tests import queries
from tests.clocks import wall_clock
from tests.groups import Consumer
from tests.helpers import ROOT, eventually, in_parallel, opened
from tests.scaled import Message, Sink, messages

# The commit that made version 0.2.0. It does not know segments and forced writes.
COMMIT = "0f58e04acb4a321c3aefa3d5c278cefcaa135a45"
LATER = {format.SEGMENTS, format.FORCED_WRITES}
PROGRAM = ROOT / "tests" / "storage" / "older_release.py"

Seen = tuple[int, str, int]  # when, by the clock of the machine that all processes have, key, value


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


@pytest.fixture
def older(release: Path, store: str) -> Iterator[Older]:
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


@pytest.fixture
def newer(store: str) -> Newer:
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


# ---- side by side
@pytest.mark.parametrize("maker", ["older", "newer"])
def test_two_releases_share_a_queue(maker: str, older: Older, newer: Newer, store: str, tmp_path: Path) -> None:
    """Both write, consume in one group, scale, change settings and maintain; then each goes on from the other's checkpoint."""
    programs: dict[str, Older | Newer] = {"older": older, "newer": newer}
    make(programs[maker])
    for name, program in programs.items():
        program.do("start", name, str(tmp_path / name), **GROUP)
    written, earlier = 0, list[Seen]()

    def write(batch: int) -> None:
        nonlocal written
        for name, program in programs.items():
            program.do("write", "q", name, batch, messages(written, written + 14))
            assert (
                program.do("write", "q", name, batch, messages(written, written + 14)) == 0
            )  # it knows its own record
            written += 14

    def seen() -> list[Seen]:
        return [*earlier, *(tuple(row) for name, program in programs.items() for row in program.do("seen", name))]

    def all_seen() -> None:
        eventually(lambda: len(seen()) >= written, f"the {written} messages", timeout_s=60)
        each_once(seen(), written)

    write(0)
    all_seen()
    for batch, (program, partitions) in enumerate([(older, 3), (newer, 2)], 1):
        program.do("scale", "q", partitions)
        write(batch)
        program.do("alter_queue", "q", max_clock_skew_ms=600_000 + batch)
        program.do("set_ingress", "q", False)
        program.do("set_ingress", "q", True)
        program.do("maintain", "q")
    all_seen()
    assert all(program.do("seen", name) for name, program in programs.items())
    for name, program in programs.items():
        program.do("stop", name)
        earlier += [tuple(row) for row in program.do("seen", name)]
    programs = {"newer": older, "older": newer}
    for name, program in programs.items():
        program.do("start", name, str(tmp_path / name), **GROUP)
    write(3)
    all_seen()
    assert features(store) == set()
    assert newer.do("doctor") == older.do("doctor") == []


def test_they_commit_at_once(older: Older, newer: Newer, store: str, tmp_path: Path) -> None:
    """Races for the same versions of the same tables."""
    make(newer)
    newer.do("start", "newer", str(tmp_path / "newer"), **GROUP)

    def writes(program: Older | Newer, sink_id: str, first: int) -> Callable[[], None]:
        def run() -> None:
            for batch in range(20):
                program.do("write", "q", sink_id, batch, [(f"{sink_id}{batch % 3}", first + batch)])

        return run

    assert in_parallel([writes(older, "older", 0), writes(newer, "newer", 20)]) == [None, None]
    eventually(lambda: len(newer.do("seen", "newer")) >= 40, "the messages")
    each_once(newer.do("seen", "newer"), 40)
    assert newer.do("doctor") == older.do("doctor") == []


def test_the_older_one_takes_a_sink_that_the_newer_one_forgot(older: Older, newer: Newer, store: str) -> None:
    make(older)
    with wall_clock(dt.datetime.now(dt.UTC) - dt.timedelta(milliseconds=2 * KEPT_MS)):
        newer.do("write", "q", "s", 7, messages(0, 20))
    for path in Path(store).rglob("s~*.json"):
        os.utime(path, (0, 0))
    older.do("write", "q", "other", 0, messages(20, 30))
    newer.do("maintain", "q")
    assert {table.recorded("partq:sink/s") for table in opened(store).partitions} == {-1}
    assert older.do("write", "q", "s", 0, messages(30, 40)) == 10
    older.do("maintain", "q")
    assert older.do("write", "q", "s", 0, messages(30, 40)) == 0
    assert sorted(row.v for row in queries.read(store)) == list(range(40))
    assert newer.do("doctor") == older.do("doctor") == []


# ---- a feature that it does not know
def force_writes(newer: Newer) -> None:
    newer.do("alter_queue", "q", durability="disk")


def make_segments(newer: Newer) -> None:
    newer.do("alter_queue", "q", segment_ms=1_000)
    eventually(lambda: newer.do("maintain", "q")[0].merged_files, "a segment", every_s=0.2)


@pytest.mark.parametrize(
    ("switch_on", "feature"), [(force_writes, format.FORCED_WRITES), (make_segments, format.SEGMENTS)]
)
@pytest.mark.parametrize("maker", ["older", "newer"])
def test_it_stops_when_a_feature_is_switched_on(
    maker: str,
    switch_on: Callable[[Newer], None],
    feature: str,
    older: Older,
    newer: Newer,
    store: str,
    tmp_path: Path,
) -> None:
    """Its query, its sink and its commands, and nothing of the store changes; the newer one goes on from its checkpoint."""
    make(older if maker == "older" else newer)
    Consumer(store, "s", group="slow").leave()  # for which everything is kept
    older.do("start", "a", str(tmp_path / "a"), **GROUP)
    for batch in range(2):
        older.do("write", "q", "older", batch, messages(20 * batch, 20 * batch + 10))
        newer.do("write", "q", "newer", batch, messages(20 * batch + 10, 20 * batch + 20))
    eventually(lambda: len(older.do("seen", "a")) >= 40, "the messages")
    switch_on(newer)
    assert features(store) == {feature}
    newer.do("write", "q", "newer", 2, messages(40, 50))
    refused = f"[NEWER_STORE] the control table of queue 'q' in {store} needs the feature '{feature}'"
    assert eventually(lambda: older.do("end", "a"), "its end").startswith(refused)
    before = content(store)
    for command, arguments, options in (
        ("write", ["q", "older", 2, messages(50, 60)], {}),
        ("write", ["q", "another", 0, messages(50, 60)], {}),
        ("start", ["b", str(tmp_path / "b")], GROUP),
        ("maintain", ["q"], {}),
        ("scale", ["q", 3], {}),
        ("alter_queue", ["q"], {"retention_ms": 1_000}),
        ("add_column", ["q", "c string"], {}),
        ("set_ingress", ["q", False], {}),
        ("describe_queue", ["q"], {}),
        ("delete_messages", ["q", {"k": "k0"}], {}),
        ("delete_queue", ["q"], {}),
    ):
        with pytest.raises(Refused) as caught:
            older.do(command, *arguments, **options)
        assert str(caught.value).startswith(refused), command
    assert content(store) == before
    newer.do("write", "q", "newer", 3, messages(50, 60))
    newer.do("start", "a", str(tmp_path / "a"), **GROUP)
    eventually(lambda: len(newer.do("seen", "a")) >= 20, "the rest")
    each_once([*map(tuple, older.do("seen", "a")), *newer.do("seen", "a")], 60)
    newer.do("start", "s", str(tmp_path / "s"), queue="q", group="slow")
    eventually(lambda: len(newer.do("seen", "s")) >= 60, "all messages")
    each_once(newer.do("seen", "s"), 60)
    assert newer.do("doctor") == []


def test_a_queue_that_it_cannot_use_leaves_it_the_others(
    older: Older, newer: Newer, store: str, tmp_path: Path
) -> None:
    make(newer)
    newer.do("create_queue", "forced", "k string, v bigint", durability="disk", **SETTINGS)
    with pytest.raises(Refused, match=r"'forced' .* needs the feature 'forcedWrites'"):
        older.do("write", "forced", "s", 0, messages(0, 10))
    older.do("write", "q", "s", 0, messages(0, 10))
    older.do("start", "a", str(tmp_path / "a"), **GROUP)
    eventually(lambda: len(older.do("seen", "a")) >= 10, "the messages")
    each_once(list(map(tuple, older.do("seen", "a"))), 10)
    assert newer.do("doctor") == []
