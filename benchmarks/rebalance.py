"""Groups: what a decision costs, and how long a rebalance takes."""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_partq as partq
from benchmarks.data import rows
from benchmarks.report import Figure, at_most, in_turn, known, median, spread
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.events import Join, Leave
from spark_partq.core.group.facts import Member, QueueInGroup, Status
from spark_partq.core.group.state import GroupState
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.consume.application import no_application
from spark_partq.storage.procedures.consume.between_calls import Coordinator
from spark_partq.storage.procedures.consume.loads import LoadMeter
from spark_partq.storage.procedures.consume.membership import Membership
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.consume.subscription import Subscription
from spark_partq.storage.store import Store

YOUNG, OLD = 100, 100_000
FACTS_A_COMMIT = 100
BATCH_S = 0.5


def run(spark: SparkSession, folder: Path, count: int, runs: int) -> Iterator[Figure]:
    yield from _decisions(folder, runs)
    yield from _idle(folder)
    yield from _many_partitions(folder)
    yield from _handoffs(spark, folder)


def _member(instance: str, flows: int = 1) -> Member:
    return Member(instance, uuid.uuid4().hex, flows, 60_000, ("balanced",), ("q",))


def _group(store: str, name: str, partitions: int, facts: int) -> Group:
    """A group with a history of so many facts, and more flows than partitions, so that one more changes nothing."""
    group = Group(Store.at(store), name)
    member = _member("owner", partitions + 1)
    queue = {"id": QueueInGroup("q", partitions, 5000, 3000)}
    group.decide(lambda: [Join(member, queue, {("id", p): 0 for p in range(partitions)})])
    offset = 0
    while group.state.seq < facts:
        offset += 1
        epoch = group.state.partitions["id", 0].epoch
        group.acknowledge([AckRow(member.incarnation, offset, "id", p, epoch, offset) for p in range(FACTS_A_COMMIT)])
        group.raise_floors("id")
    return group


def _let_age(group: Group, folder: Path) -> None:
    """Make the group as old as its history is long: what was committed within a minute or two is dated back, and the log files
    that such a group no longer has are cleaned up, by the commits that do so in any group."""
    (member,) = group.state.members.values()
    beats = itertools.count(2**32)
    commits: dict[str, Callable[[], object]] = {
        "control": lambda: _stand_by(group),
        "acks": lambda: group.acknowledge([AckRow(member.incarnation, next(beats))]),
    }
    for table, commit in commits.items():
        log = sorted((folder / table / "_delta_log").iterdir())
        for file in log:
            os.utime(file, (0, 0))
        while log[0].exists():
            commit()


def _stand_by(group: Group) -> None:
    """A standby comes and goes: two decisions."""
    member = _member("standby")
    group.decide(lambda: [Join(member, group.state.queues, {})])
    group.decide(lambda: [Leave("standby", member.incarnation)])


def _decisions(folder: Path, runs: int) -> Iterator[Figure]:
    store = str(folder / "group-store")
    groups = {"young": _group(store, "young", FACTS_A_COMMIT, YOUNG), "old": _group(store, "old", FACTS_A_COMMIT, OLD)}
    assert groups["old"].state.seq >= OLD
    _let_age(groups["old"], folder / "group-store" / "groups" / "old")

    def decide(group: Group) -> float:
        began = time.perf_counter()
        _stand_by(group)
        return (time.perf_counter() - began) / 2

    def start(name: str) -> float:
        began = time.perf_counter()
        Group(Store.at(store), name).refresh()
        return time.perf_counter() - began

    subjects: dict[str, Callable[[], float]] = {name: lambda g=g: decide(g) for name, g in groups.items()}  # type: ignore[misc]
    seconds = in_turn("decisions", subjects, 20 * runs, warm_up=5)
    yield at_most("control decision, p50", "ms", median(seconds["young"]) * 1000, 50, spread(seconds))
    ratio = median(seconds["old"]) / median(seconds["young"])
    yield at_most(f"control decision at {OLD:,} facts", f"at {YOUNG} facts", ratio, 1.3, spread(seconds))
    subjects = {name: lambda name=name: start(name) for name in groups}  # type: ignore[misc]
    seconds = in_turn("first refreshes", subjects, 4 * runs, warm_up=2)
    ratio = median(seconds["old"]) / median(seconds["young"])
    yield known(f"first refresh of {OLD:,} facts", f"at {YOUNG} facts", ratio, spread(seconds))


def _idle(folder: Path) -> Iterator[Figure]:
    """The planner's part of an idle micro-batch, with the wait that spares the processor; Spark's own part comes on top."""
    store = str(folder / "idle-store")
    partq.create_queue(store, "q", "v long", partitions=16)
    planner = Planner(ConsumerSettings(Store(store), ("q",)), "g", "i")
    nothing = StreamOffset("g", "i", {}, {})
    idle = [_seconds(lambda: planner.next(nothing, Limits())) for _ in range(40)][20:]
    group = planner.membership.group
    refresh_s = median([_seconds(group.refresh) for _ in range(2000)])
    planner.leave()
    detail = f"refresh {refresh_s * 1e6:.0f} µs, idle micro-batch {median(idle) * 1000:.0f} ms"
    yield at_most("refreshing the control table", "an idle micro-batch", refresh_s / median(idle), 0.05, detail)


def _seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def _many_partitions(folder: Path) -> Iterator[Figure]:
    """Ten flows own 900 partitions and an eleventh joins: without Spark, so that nothing but the protocol is measured."""
    store = str(folder / "many-store")
    partq.create_queue(store, "q", "v long", partitions=900, rebalance_delay_ms=0)
    settings = ConsumerSettings(Store(store), ("q",))
    stop = threading.Event()

    def consume(instance: str, flows: int) -> None:
        me = _member(instance, flows)
        member = Membership(settings, "g", me, Subscription(settings), LoadMeter(time.monotonic), no_application)
        coordinator = threading.Thread(target=Coordinator(member).run)
        while not stop.wait(0.01):
            with member.lock:
                member.join_unless_member(coordinator.start)
                member.acknowledge_finished({})
        member.leave()

    threads = [threading.Thread(target=consume, args=(f"i{i}", 5)) for i in range(2)]
    view = Group(Store.at(store), "g")
    threads[0].start()
    _until(lambda: view.exists() and _settled(view, 5))
    threads[1].start()
    _until(lambda: _settled(view, 10))
    threads.append(threading.Thread(target=consume, args=("late", 1)))
    began = time.perf_counter()
    threads[2].start()
    _until(lambda: _settled(view, 11))
    taken = time.perf_counter() - began
    moved = sum(own.flow == "late/0" for own in view.state.partitions.values())
    stop.set()
    for thread in threads:
        thread.join()
    yield at_most("900 partitions of 10 flows re-owned after one more joins", "s", taken, 5, f"{moved} moved")


def _settled(view: Group, flows: int) -> bool:
    view.refresh()
    state: GroupState = view.state
    return state.status is Status.READY and len(state.flows) == flows and all(o.flow for o in state.partitions.values())


def _handoffs(spark: SparkSession, folder: Path) -> Iterator[Figure]:
    """Two queries, each busy all the time; the first must hand over half."""
    store = str(folder / "handoff-store")
    df = rows(spark, folder, 1000)
    partq.create_queue(
        store, "q", df.schema, key="k", partitions=8, rebalance_delay_ms=1000, max_handoff_time_ms=30_000
    )
    feeding = threading.Event()

    def feed() -> None:
        batch = 0
        while not feeding.wait(0.1):
            partq.append(df, store, "q", sink_id="feed", batch_id=batch)
            batch += 1

    def work(batch: DataFrame, batch_id: int) -> None:
        batch.collect()
        time.sleep(BATCH_S)  # what an application does with a micro-batch

    feeder = threading.Thread(target=feed)
    feeder.start()
    first, seen = _consumer(spark, store, folder, "first", work)
    _until(lambda: len(seen) >= 5, first)
    second, _ = _consumer(spark, store, folder, "second", work)
    view = Group(Store.at(store), "g")
    _until(lambda: _settled(view, 2), first, second)
    after = len(seen)
    _until(lambda: len(seen) > after + 2, first)
    feeding.set()
    feeder.join()
    for query in (first, second):
        query.stop()
    history = view.history()
    began = next(r["at"] for r in history if r["kind"] == "HandoffStarted")
    ended = max(r["at"] for r in history if r["kind"] == "Released")
    forced = sum(bool(r["forced"]) for r in history)
    batches = [p["durationMs"]["triggerExecution"] / 1000 for p in first.recentProgress if p["numInputRows"]]
    taken = (ended - began).total_seconds()
    detail = f"{taken:.2f} s, micro-batch {median(batches):.2f} s, {forced} forced"
    yield at_most("end of the holddown to the last handoff", "a micro-batch", taken / median(batches), 2, detail)
    kept = {(r["queue_id"], r["partition"]) for r in history} - {
        (r["queue_id"], r["partition"]) for r in history if r["kind"] == "HandoffStarted"
    }
    numbers = {number for _, number in kept if number is not None}
    during = [batch for batch in seen if batch]
    missed = sum(not numbers <= batch for batch in during[1:])
    yield at_most("micro-batches that partitions which stay have missed", "0", missed, 0, f"of {len(during) - 1}")


def _consumer(
    spark: SparkSession, store: str, folder: Path, name: str, function: Callable[[DataFrame, int], None]
) -> tuple[StreamingQuery, list[set[int]]]:
    """A query of group g; the list gets the partitions of each micro-batch."""
    seen: list[set[int]] = []

    def each(batch: DataFrame, batch_id: int) -> None:
        seen.append({row[0] for row in batch.select("_partition").distinct().collect()})
        function(batch, batch_id)

    query = (
        spark.readStream.format("partq").option("path", store).option("queue", "q").option("group", "g").load()
        .writeStream.foreachBatch(each).option("checkpointLocation", str(folder / "checkpoints" / name)).start()
    )  # fmt: skip
    return query, seen


def _until(condition: Callable[[], object], *queries: StreamingQuery, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        for query in queries:
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
        if time.monotonic() > deadline:
            raise TimeoutError("the benchmark does not go on")
        time.sleep(0.02)
