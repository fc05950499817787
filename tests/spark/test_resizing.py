"""Queues that are scaled while real applications write and read them, with Spark or without (S1, S2, S3, S4, S5, R2)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.store import Store
from spark_partq.testing.keycheck import KeyReport, check_keys
from tests.applications import Scenario
from tests.helpers import eventually
from tests.processes import Application, Pool
from tests.recording import whole_lines

ROWS, KEYS = 26, 13
HOUR_MS = 3_600_000


LONG_WITH_SPARK = pytest.mark.parametrize(
    "pool", ["plain", pytest.param("spark", marks=pytest.mark.long)], indirect=True
)


class Resizing(Scenario):
    """Three consumers, each an application, two of which also write."""

    def __init__(self, pool: Pool, folder: Path, partitions: int, session_s: float = 10) -> None:
        super().__init__(pool, folder, partitions, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
        self.producers: dict[str, Application] = {}
        self._session = {"sessionTimeoutMs": round(1_000 * session_s * pool.pace)}
        for name, application in zip("abc", pool.take(3), strict=True):
            self.listen(application, name)
            self.start(application, name, **self._session)()

    def start_again(self, application: Application) -> None:
        """As a supervisor does: on a busy machine a query may miss the time that Spark gives its planner to start."""
        since = self.seq
        for attempt in range(5):
            name = f"c{attempt}"
            self.start(application, name, **self._session)
            self._is_started(name)

            def over(name: str = name) -> bool:
                return bool(self.history("MemberJoined", since=since) or application.ask("status", name=name)["error"])

            eventually(over, "the start of a query")
            if self.history("MemberJoined", since=since):
                return
        raise AssertionError(self.explain())

    def produce(self, name: str, application: Application) -> None:
        self.producers[name] = application
        application.ask(
            "produce", name=name, store=self.store, checkpoint=str(self.folder / f"cp-{name}"),
            record=str(self._batches(name)), rows=ROWS, keys=KEYS, every_s=0.3,
        )  # fmt: skip

    def _batches(self, name: str) -> Path:
        return self.folder / f"{name}.batches"

    def batches(self, name: str) -> int:
        """How many micro-batches of a producer are in."""
        return len({batch_id for batch_id, *_ in whole_lines(self._batches(name))})

    def more(self, count: int = 3) -> None:
        """Wait until every producer has written so many more micro-batches."""
        wanted = {name: self.batches(name) + count for name in self.producers}
        eventually(
            lambda: all(self.batches(n) >= w for n, w in wanted.items()), f"{count} more micro-batches of each producer"
        )

    def scale(self, partitions: int, *options: str) -> subprocess.Popen[str]:
        told = [str(Path(sys.executable).parent / "spark-partq"), "--store", self.store, "scale", "q", str(partitions)]
        return subprocess.Popen([*told, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def scaled(self, partitions: int, *options: str) -> None:
        command = self.scale(partitions, *options)
        told, _ = command.communicate(timeout=120)
        assert command.returncode == 0, f"{told}\n{self.explain()}"
        found = partq.describe_queue(self.store, "q")
        assert (found.status, found.configured_partitions, found.operating_partitions) == (
            "Ready",
            partitions,
            partitions,
        )

    def scaled_with_drain(self, partitions: int) -> None:
        """By one command, which disables ingress, waits until everything is acknowledged, and enables ingress again."""
        was, before = partq.describe_queue(self.store, "q").operating_partitions, self.seq
        self.hold_all()  # else the queue may drain, and take messages again, before the producer's next micro-batch
        self.more(2)  # the first may have been read before
        command = self.scale(partitions, "--mode", "drain")
        self.await_refusal("p1")
        found = partq.describe_queue(self.store, "q")
        named = "ScalingUp" if partitions > was else "ScalingDown"
        assert (found.status, found.configured_partitions, found.operating_partitions) == (named, partitions, was)
        assert sorted(self.owners()) == list(range(was))
        self.let_go()
        told, _ = command.communicate(timeout=120)
        assert command.returncode == 0, told
        found = partq.describe_queue(self.store, "q")
        assert (found.status, found.operating_partitions, found.ingress) == ("Ready", partitions, True)
        opened_at = max(row["at"] for row in self.queue_history("GenerationOpened"))
        added = self.history("PartitionAdded", since=before)
        assert sorted(fact["partition"] for fact in added) == list(range(was, partitions))
        assert all(fact["at"] >= opened_at for fact in added), (
            "the group gets a partition only after the new map is in force"
        )

    def scaled_step_by_step(self, partitions: int) -> None:
        """As an operator does without the mode: each step by a command of its own."""
        partq.set_ingress(self.store, "q", False)
        self.await_refusal("p1")
        eventually(lambda: partq.describe_queue(self.store, "q").depth == 0, "the end of the messages")
        self.scaled(partitions)
        eventually(lambda: self.is_ready() and sorted(self.owners()) == list(range(partitions)), "the rebalance")
        assert not partq.describe_queue(self.store, "q").ingress
        partq.set_ingress(self.store, "q", True)

    def await_refusal(self, name: str) -> None:
        """Wait until a producer has ended because ingress is disabled."""
        error = eventually(lambda: self.producers[name].ask("status", name=name)["error"], "the end of the producer")
        assert "INGRESS_DISABLED" in error

    def queue_history(self, *kinds: str) -> list[dict[str, Any]]:
        rows = open_control(Store.at(self.store), "q").history()
        return [row for row in rows if not kinds or row["kind"] in kinds]

    def kinds(self) -> list[str]:
        return [row["kind"] for row in self.queue_history()]

    def hold_all(self) -> None:
        """Until `let_go`, no micro-batch of a consumer ends."""
        for name in "abc":
            self.hold(name).touch()

    def held(self) -> list[dict[str, Any]]:
        """The rows of micro-batches that have begun and not ended."""
        records = self.records()
        ended = {(r["run"], r["batch"]) for r in records if r["kind"] == "end"}
        return [r for r in records if r["kind"] == "row" and (r["run"], r["batch"]) not in ended]

    def report(self, killed: bool = False) -> KeyReport:
        """End the producers after their micro-batch, wait until all is acknowledged, and compare what they wrote with what was processed."""
        for name, application in self.producers.items():
            application.ask("leave", name=name)
        sent = [(f"{name}-{v % KEYS}", v) for name in self.producers for v in range(ROWS * self.batches(name))]
        eventually(lambda: partq.describe_queue(self.store, "q").depth == 0, "the end of the work", 90)
        return check_keys(self.records(), sent, again=killed)

    def finish(self, killed: bool = False) -> None:
        """End the producers, and check that everything was processed once and in each key's order."""
        report = self.report(killed)
        assert report.ok, f"{report}\n{self.explain()}"
        assert partq.describe_queue(self.store, "q").status == "Ready"


@LONG_WITH_SPARK
def test_live_up_and_down_with_kills(pool: Pool, tmp_path: Path) -> None:
    """S5: 4 → 6 → 16 → 5 → 3 while 2 producers write and 3 consumers read. The command is killed, and so is an application that
    writes and reads: nothing is lost, nothing comes twice but what the dead consumer had, every key stays in order."""
    s = Resizing(pool, tmp_path, 4)
    _, b, c = pool.take(3)
    s.produce("p1", b)
    s.produce("p2", c)
    s.more()
    s.scaled(6)
    s.more()
    command = s.scale(16)
    eventually(lambda: s.kinds().count("ScalingStarted") == 2, "the second change", every_s=0.001)
    command.kill()
    command.communicate()
    s.scaled(16) if s.kinds().count("GenerationOpened") < 2 else None
    s.more()
    command = s.scale(5)
    eventually(lambda: s.kinds().count("ScalingStarted") == 3, "the third change", every_s=0.001)
    c.kill()
    again = pool.take(3)[2]
    s.produce("p2", again)
    s.start_again(again)
    told, _ = command.communicate(timeout=120)
    assert command.returncode == 0, told
    s.more()
    s.scaled(3)
    s.more()
    s.finish(killed=True)
    assert sorted(s.owners()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("pool", "counts"),
    [
        ("plain", [9, 2]),
        pytest.param("spark", [6, 16, 5, 2], marks=pytest.mark.long),
    ],
    indirect=["pool"],
    ids=str,
)
def test_live_resizes_leave_nothing_twice(pool: Pool, tmp_path: Path, counts: list[int]) -> None:
    """S1, S2, S5, R2, R6, R8, H6: the same without kills; and then not one message comes twice, no rebalance waits for the delay of an
    hour, each partition that there is has an owner, and a consumer that is left without any is told that it is a standby."""
    s = Resizing(pool, tmp_path, 4, session_s=300)  # nobody dies, and a busy machine shall not make it look so
    s.produce("p1", pool.take(2)[1])
    eventually(s.is_ready, "the start")
    partq.alter_queue(s.store, "q", rebalance_delay_ms=HOUR_MS)  # who waits for it now never ends
    for partitions in counts:
        s.more(2)
        s.scaled(partitions)
        even = [n for n in (partitions // 3 + (k < partitions % 3) for k in range(3)) if n]
        eventually(lambda e=even: s.is_ready() and sorted(s.counts().values(), reverse=True) == e, "the balance")
        assert sorted(s.owners()) == list(range(partitions)) and None not in s.owners().values()
    s.finish()
    calls = {name: s.listener_calls(name) for name in "abc"}
    assert "lost" not in [what for said in calls.values() for what, *_ in said]
    assert "Holddown" not in [f["status"] for f in s.history("StatusChanged")]
    active = [[what[1] for what in said if what[0] == "active"] for said in calls.values()]
    assert sorted(told[-1] for told in active) == [False, True, True], (
        "the last count is two partitions of three consumers"
    )


@LONG_WITH_SPARK
def test_drain(pool: Pool, tmp_path: Path) -> None:
    """S1, S3, S4, S8: ingress is disabled, so the producer stops at a micro-batch; when the count has changed it is started again, and
    nothing is lost or doubled. Up and down, by one command and step by step."""
    s = Resizing(pool, tmp_path, 3)
    application = pool.take(2)[1]
    s.produce("p1", application)
    s.more()
    resizes: list[tuple[Callable[[int], None], int]] = [
        (s.scaled_with_drain, 7), (s.scaled_step_by_step, 2), (s.scaled_step_by_step, 5), (s.scaled_with_drain, 3)
    ]  # fmt: skip
    for resize, partitions in resizes:
        resize(partitions)
        s.produce("p1", application)
        s.more()
    s.finish()


@LONG_WITH_SPARK
def test_consumers_of_an_exclusive_queue_bind_again(pool: Pool, tmp_path: Path) -> None:
    """S6, R2, H6: the queue becomes partitioned while its one consumer works. This consumer hears that it has lost the parent; all three
    are unbound and bind again at once, though a rebalance otherwise waits an hour; then the parent's messages are copied."""
    s = Resizing(pool, tmp_path, 0, session_s=300)
    s.produce("p1", pool.take(2)[1])
    eventually(lambda: s.is_ready() and len(s.group.state.members) == 3, "the start")
    partq.alter_queue(s.store, "q", rebalance_delay_ms=HOUR_MS)
    s.hold_all()
    s.more()
    s.producers["p1"].ask("leave", name="p1")
    before, rows = s.seq, eventually(s.held, "a micro-batch that is held")
    s.scaled(4)
    s.let_go()
    eventually(lambda: s.is_ready() and sorted(s.counts().values()) == [1, 1, 2], "the balance")
    assert [fact["forced"] for fact in s.history("MemberLeft", since=before)] == [True] * 3
    assert "Holddown" not in [fact["status"] for fact in s.history("StatusChanged", since=before)]
    assert partq.copy_stuck(s.store, "q") >= len(rows)
    s.produce("p1", s.producers["p1"])
    s.more()
    report = s.report()
    assert not report.lost and not report.out_of_order, s.explain()
    assert set(report.twice) == {(row["key"], row["value"]) for row in rows}
    (holder,) = {s.names[row["instance"]] for row in rows}
    told = [name for name in "abc" for call in s.listener_calls(name) if call[:2] == ["lost", [-1]]]
    assert told == [holder], "only the consumer that had the parent, and once"


@pytest.mark.parametrize(
    ("pool", "setting"),
    [("plain", "off"), ("plain", "on"), *(pytest.param("spark", s, marks=pytest.mark.long) for s in ("off", "on"))],
    indirect=["pool"],
)
def test_delete_and_discard_beside_consumers_and_a_producer(pool: Pool, tmp_path: Path, setting: str) -> None:
    """S2, S3: partitions that are deleted take their messages with them, as many as was said, and nobody stops. While ingress is
    disabled, a producer of a queue that discards goes on, and what it wrote is counted."""
    s = Resizing(pool, tmp_path, 6)
    s.produce("p1", pool.take(2)[1])
    s.more()
    s.hold_all()
    s.more()
    partq.alter_queue(s.store, "q", reject_to_sender=setting)
    partq.set_ingress(s.store, "q", False)
    s.more()
    with pytest.raises(partq.InvalidArgumentError, match="nothing was confirmed"):
        partq.scale(s.store, "q", 2, "delete")
    scaled = partq.scale(s.store, "q", 2, "delete", confirm_lost=10**9)
    s.let_go()
    s.more()
    partq.set_ingress(s.store, "q", True)
    s.more()
    s.producers["p1"].ask("leave", name="p1")
    eventually(lambda: partq.describe_queue(s.store, "q").depth == 0, "the end of the work")
    found = partq.describe_queue(s.store, "q")
    assert found.discarded and found.discarded % ROWS == 0
    given = {(row["key"], row["value"]) for row in s.rows()}
    assert found.discarded + scaled.lost >= ROWS * s.batches("p1") - len(given) >= found.discarded
    assert all(s._where[name].ask("status", name=name)["error"] is None for name in "abc")
    assert sorted(s.owners()) == [0, 1]
