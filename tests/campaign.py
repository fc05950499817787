"""A campaign against results exactly once: two applications of a group write one table and one queue, while they are killed and stopped.

What happens to them is drawn by a seed. An application is killed in front of the commit of its results, behind it but before the micro-batch
has ended, or anywhere; it comes back with its checkpoint, or under another name with a fresh one. Or it is stopped in front of its commit
until its session has expired and the other one has written its messages, and goes on then, a zombie. Once, the queue is resized.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq

import spark_partq as partq
from spark_partq.spark.jobs import error_classes
from spark_partq.testing.resultcheck import Result, check_results
from tests.applications import Scenario
from tests.delivering import RESULTS, after_commit, before_commit
from tests.helpers import eventually
from tests.processes import Pool
from tests.scaled import Sink, stored

T = TypeVar("T")

KEYS = 40
PARTITIONS, RESIZED = 4, 7
_TRICKLE = 20  # messages, when an event takes longer than its share of them lasts
_EVERY_S = 0.2


class Campaign(Scenario):
    """Two consumers of a queue, each an application, and a spare one that is ready when one is killed.

    Attributes
    ----------
    happened : Counter
        How often each kind of event has happened.
    """

    def __init__(self, pool: Pool, folder: Path, seed: int) -> None:
        super().__init__(pool, folder, PARTITIONS, rebalance_delay_ms=0, max_handoff_time_ms=1_000)
        self.table = folder / "results"
        # By kind of sink, what it writes; all of it is written in each micro-batch.
        self.targets = {"delta": str(self.table), "queue": self.store}
        partq.create_queue(self.store, RESULTS, "k string, v bigint", key="k", partitions=2)
        self.happened: Counter[str] = Counter()
        self._rng, self._names = random.Random(seed), dict[str, int]()
        self._sink, self._batches, self.count = Sink(self.store), itertools.count(), 0
        self._session_ms = round(5_000 * pool.pace)
        pool.take(3)
        for name in "ab":
            self._names[name] = 0
            self._deliver(name)

    # ---- messages
    def _send(self, count: int) -> None:
        rows = [(f"k{n % KEYS}", n) for n in range(self.count, self.count + count)]
        self._sink.write(next(self._batches), rows)
        self.count += count

    def _sending(self, share: int, condition: Callable[[], T], what: str) -> T:
        """Send messages until the condition holds: `share` of them in ten pieces, and few at a time from then on."""
        piece, left = max(_TRICKLE, share // 10), share

        def held_yet() -> T:
            nonlocal left
            self._send(piece if left > 0 else _TRICKLE)
            left -= piece
            return condition()

        try:
            found = eventually(held_yet, what, every_s=_EVERY_S)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.explain()}") from None
        if left > 0:
            self._send(left)
        return found

    # ---- applications
    def _deliver(self, name: str) -> None:
        application = next(a for a in self.pool.take(3) if a not in self._where.values())
        self._where[name] = application
        options = {"queue": "q", "group": "g", "instanceId": self.instance(name), "sessionTimeoutMs": self._session_ms}
        checkpoint = self.folder / f"cp-{self.instance(name)}"
        self._started[name] = application.tell(
            "deliver", name=name, store=self.store, checkpoint=str(checkpoint), folder=str(self.folder),
            targets=self.targets, options={option: str(value) for option, value in options.items()},
        )  # fmt: skip

    def instance(self, name: str) -> str:
        return f"{name}{self._names[name]}"

    def _said(self, name: str) -> list[list[Any]]:
        path = self.folder / f"{name}.delivery"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def _says(self, name: str, what: str) -> Callable[[], bool]:
        """Whether the query writes that down from now on."""
        since = len(self._said(name))

        def says() -> bool:
            self._is_well(name)
            return what in [line[0] if line[0] != "held" else line[1] for line in self._said(name)[since:]]

        return says

    def _is_well(self, name: str) -> None:
        """Start a query again that has not come up: on a busy machine it may miss the time that Spark gives its planner."""
        application = self._where[name]
        self._is_started(name)
        error = application.ask("status", name=name)["error"]
        if error is not None:
            assert not any(f"[{name}]" in error for name in error_classes()), error
            self.happened["not started in time"] += 1
            del self._where[name]
            self._deliver(name)

    # ---- what happens
    def kill(self, name: str, share: int) -> None:
        where = self._rng.choice(["before", "after", "anywhere"])
        fresh = self._rng.random() < 0.3
        if where == "anywhere":
            self._sending(share, self._says(name, "planned"), f"a micro-batch of {name}")
            time.sleep(self._rng.uniform(0, 0.6 * self.pool.pace))  # anywhere in it
            self._where[name].kill()
        else:
            hold = (before_commit if where == "before" else after_commit)(self.folder, name)
            self._held(name, hold, share)
            self._where[name].kill()
            hold.unlink()
        del self._where[name]
        self._names[name] += fresh
        self._deliver(name)
        self.happened["killed " + where] += 1
        self.happened["came back with a fresh checkpoint" if fresh else "came back with its checkpoint"] += 1

    def zombie(self, name: str, share: int) -> None:
        """It has written its files and is about to commit; meanwhile its session expires, and the other one delivers what it has."""
        (other,) = self._names.keys() - {name}
        hold, instance = before_commit(self.folder, name), self.instance(name)
        self._held(name, hold, share // 2)
        application = self._where[name]
        application.stop_signals()
        self._sending(share // 2, lambda: instance not in self.group.state.members, "the end of the zombie's session")
        self._sending(0, self._says(other, "written"), f"a micro-batch of {other}")
        goes_on = self._says(name, "planned")
        hold.unlink()
        application.cont()
        self._sending(0, goes_on, f"the next micro-batch of the zombie {name}")
        self.happened["zombie"] += 1

    def _held(self, name: str, hold: Path, share: int) -> None:
        hold.touch()
        self._sending(share, self._says(name, hold.suffix[1:]), f"{name} {hold.suffix[1:]} its commit")

    def resize(self, share: int) -> None:
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.append(partq.scale(self.store, "q", RESIZED)))
        thread.start()
        self._sending(share, lambda: not thread.is_alive(), "the resize")
        assert done and done[0].operating_partitions == RESIZED
        self.happened["resized"] += 1

    def run(self, messages: int, kills: int, zombies: int, resizes: bool) -> None:
        """Let all that happen in a drawn order, the resize in the middle, and wait until the group has finished everything."""
        events: list[Callable[[int], None]] = [
            *(lambda share: self.kill(self._rng.choice("ab"), share) for _ in range(kills)),
            *(lambda share: self.zombie(self._rng.choice("ab"), share) for _ in range(zombies)),
        ]
        self._rng.shuffle(events)
        events[len(events) // 2 : len(events) // 2] = [self.resize] * resizes
        for event in events:
            event(messages // len(events))
        self._send(max(_TRICKLE, messages - self.count))
        for name in self._names:
            self._is_started(name)
        try:
            eventually(lambda: partq.describe_queue(self.store, "q").depth == 0, "the end of the work")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.explain()}") from None

    # ---- what came out
    def figures(self) -> str:
        """Check the table and the queue; what happened and what came out, on one line."""
        rows, sent = list(results(self.table)), [(f"k{n % KEYS}", n) for n in range(self.count)]
        reports = {"table": check_results(rows, sent), "queue": check_results(relayed(self.store), sent)}
        assert all(report.ok for report in reports.values()), f"{reports}\n{self.explain()}"
        positions_rise(self.table)
        said = [line for name in self._names for line in self._said(name)]
        given = sum(line[1] for line in said if line[0] == "planned")
        again = given - self.count
        assert again > 0, "nothing was delivered twice, so nothing is shown"
        events = ", ".join(f"{what} {count}" for what, count in sorted(self.happened.items()))
        commits = len({row.commit for row in rows})
        told = "; ".join(f"{where}: {report}" for where, report in reports.items())
        return f"{self.count} messages, {again} given again, {commits} commits; {told}; {events}"


def results(table: Path) -> Iterator[Result]:
    """The rows of a table to which files are only added, each with its commit."""
    for commit, actions in _log(table):
        for path in (action["add"]["path"] for action in actions if "add" in action):
            rows = pq.read_table(table / path, columns=["k", "v", "_partition", "_offset"])
            for row in rows.to_pylist():
                yield Result(row["k"], row["v"], row["_partition"], row["_offset"], commit)


def relayed(store: str) -> Iterator[Result]:
    """The messages of the queue of results, as if one commit had written them."""
    for partition, messages in stored(store, queue=RESULTS).items():
        for offset, (key, value) in enumerate(messages):
            yield Result(key, value, partition, offset, 0)


def positions_rise(table: Path) -> None:
    last: dict[str, int] = {}
    for commit, actions in _log(table):
        for moved in (action["txn"] for action in actions if "txn" in action):
            app, version = moved["appId"], moved["version"]
            assert version > last.get(app, 0), f"commit {commit} puts {app} from {last.get(app)} to {version}"
            last[app] = version


def _log(table: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for entry in sorted((table / "_delta_log").glob("*.json")):
        yield int(entry.stem), [json.loads(line) for line in entry.read_text().splitlines()]
