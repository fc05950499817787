"""The measured process of `log`: ``python benchmarks/log_worker.py times FOLDER``, ``appends FOLDER`` or
``requests URI OPTIONS ACCESS_LOG`` prints JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.events import Join, Leave
from spark_partq.core.group.facts import Member, QueueInGroup
from spark_partq.core.payload.schema import payload_schema
from spark_partq.core.queue.manifest import NewFile
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.create import create_queue
from spark_partq.storage.queue.handle import Queue, open_queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.store import Store

YOUNG, OLD = 100, 100_000
FACTS_A_COMMIT = 100
STATS = '{"numRecords": 1000, "minValues": {"id": 0}, "maxValues": {"id": 1000000}}'  # of any file
COMMITS = 30  # to each partition of the wide queue


def files(count: int) -> list[NewFile]:
    """Log entries only: nobody opens the files, so there are none."""
    return [NewFile(0, f"part-{uuid.uuid4().hex}.parquet", 1000, 50_000, STATS, i) for i in range(count)]


def seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def batch_commits(store: Store) -> dict[str, float]:
    """The commits of a micro-batch over 16 partitions."""
    create_queue(store, "sixteen", "id bigint, k string, body string", "k", 16)
    queue = open_queue(store, "sixteen")

    def batch(number: int) -> float:
        record = BatchRecord("bench", number, "query")
        new = {table.partition: files(1) for table in queue.partitions}

        def commit(table: PartitionTable) -> object:
            return table.append(new[table.partition], record)

        return seconds(lambda: store.map(commit, queue.partitions))

    return {"batch_commits_ms": 1000 * statistics.median([batch(n) for n in range(60)][10:])}


def many_files(store: Store) -> dict[str, float]:
    """One commit to a partition with few and with many live files."""
    create_queue(store, "one", "id bigint, k string, body string", "k", 1)
    table = open_queue(store, "one").table(0)

    def commit() -> float:
        new = files(1)
        return seconds(lambda: table.append(new, None))

    found = {}
    for count in (2_000, 16_000):
        table.refresh()
        while len(table.index) < count:
            table.append(files(1_000), None)
            table.refresh()
        found[f"commit_at_{count}_ms"] = 1000 * statistics.median([commit() for _ in range(40)][5:])
    return found


def wide_queue(store: Store) -> dict[str, float]:
    """A queue of 1,024 partitions that had some commits each: opened, and refreshed when each has a new file."""
    create_queue(store, "wide", "id bigint, k string, body string", "k", 1024)
    schema = payload_schema("id bigint, k string, body string")

    def fill(partition: int) -> None:
        table = PartitionTable(store, "wide", partition, schema)
        for _ in range(COMMITS):
            table.append(files(1), None)

    store.map(fill, range(1024))

    def opened() -> Queue:
        queue = open_queue(store, "wide")
        queue.refresh()
        return queue

    taken = seconds(opened)
    reader, writer = opened(), opened()
    for table in reader.partitions:
        _ = table.index
    store.map(lambda table: table.append(files(1), None), writer.partitions)

    def refresh() -> None:
        reader.refresh()
        for table in reader.partitions:
            _ = table.index

    found = {"open_1024_s": taken, "refresh_1024_new_s": seconds(refresh), "refresh_1024_idle_s": seconds(refresh)}
    planner, limits = Planner(ConsumerSettings(store, ("wide",)), "bench", "bench"), Limits(max_rows=1_000_000)
    begun = StreamOffset("bench", "bench", {}, {})
    done = planner.next(begun, limits) or begun
    store.map(lambda table: table.append(files(1), None), writer.partitions)

    def plan() -> None:
        planner.tasks(done, planner.next(done, limits) or done)

    found["plan_1024_new_s"] = seconds(plan)
    return found


def member(instance: str, flows: int = 1) -> Member:
    return Member(instance, uuid.uuid4().hex, flows, 60_000, ("balanced",), ("q",))


def group_of(store: Store, name: str, partitions: int, facts: int) -> Group:
    """A group with a history of so many facts, and more flows than partitions, so that one more changes nothing."""
    group = Group(store, name)
    owner = member("owner", partitions + 1)
    queue = {"id": QueueInGroup("q", partitions, 5000, 3000)}
    group.decide(lambda: [Join(owner, queue, {("id", p): 0 for p in range(partitions)})])
    offset = 0
    while group.state.seq < facts:
        offset += 1
        epoch = group.state.partitions["id", 0].epoch
        group.acknowledge([AckRow(owner.incarnation, offset, "id", p, epoch, offset) for p in range(partitions)])
        group.raise_floors("id")
    return group


def stand_by(group: Group) -> None:
    """A standby comes and goes: two decisions."""
    late = member("standby")
    group.decide(lambda: [Join(late, group.state.queues, {})])
    group.decide(lambda: [Leave("standby", late.incarnation)])


def decisions(store: Store) -> dict[str, float]:
    """A decision, and the first refresh of a process that starts, for a young group and an old one."""
    groups = {
        "young": group_of(store, "young", FACTS_A_COMMIT, YOUNG),
        "old": group_of(store, "old", FACTS_A_COMMIT, OLD),
    }
    # The old group's history was made within minutes: date its log back, and let it be cleaned up, as that of an old group is.
    log = Path(store.uri) / "groups/old/control/_delta_log"
    before = sorted(log.glob("*.json"))
    for file in before:
        os.utime(file, (0, 0))
    while before[0].exists():
        stand_by(groups["old"])
    found = {}
    for name, group in groups.items():
        # In turn, so that a first refresh meets the group at every stage between two mergings of its little files.
        taken, refreshes = [], []
        (owner,) = group.state.members.values()
        for beat in range(70):
            rows = [AckRow(owner.incarnation, 2**32 + beat, "id", p, 0) for p in range(FACTS_A_COMMIT)]
            group.acknowledge(rows)
            taken.append(seconds(lambda group=group: stand_by(group)) / 2)  # type: ignore[misc]
            refreshes.append(seconds(lambda name=name: Group(store, name).refresh()))  # type: ignore[misc]
        found[f"decision_{name}_ms"] = 1000 * statistics.median(taken[6:])
        found[f"first_refresh_{name}_ms"] = 1000 * statistics.median(refreshes[6:])
    return found


def times(folder: str) -> dict[str, float]:
    store = Store.at(f"{folder}/{uuid.uuid4().hex}")
    found: dict[str, float] = {}
    for measure in (batch_commits, many_files, wide_queue, decisions):
        found |= measure(store)
    return found


def requests(uri: str, options: str, access_log: str) -> dict[str, int]:
    """How many requests to an object store each step of one partition takes, as the server's log says."""
    store = Store.at(f"{uri}/{uuid.uuid4().hex}", json.loads(options))
    create_queue(store, "q", "id bigint", None, 1)
    writer, reader = open_queue(store, "q").table(0), open_queue(store, "q").table(0)

    def counted(what: Callable[[], object]) -> int:
        before = len(Path(access_log).read_text().splitlines())
        what()
        return len(Path(access_log).read_text().splitlines()) - before

    for _ in range(5):
        writer.append(files(1), None)
        reader.refresh()
    return {
        "requests of an append": counted(lambda: writer.append(files(1), None)),
        "requests of a refresh that finds one new commit": counted(reader.refresh),
        "requests of a refresh that finds nothing": counted(reader.refresh),
        "requests of a first refresh behind 6 commits": counted(lambda: open_queue(store, "q").table(0).refresh()),
    }


def appends(folder: str) -> dict[str, float]:
    """`partq.append` of 1,000 rows over 16 partitions, warm."""
    import spark_partq as partq

    quiet = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = partq.session("appends", "local[2]", quiet)
    store = f"{folder}/{uuid.uuid4().hex}"
    df = spark.range(1_000).selectExpr("id", "concat('k', id % 500) k", "repeat('x', 90) body").cache()
    df.count()
    partq.create_queue(store, "q", df.schema, key="k", partitions=16)
    taken = [seconds(lambda: partq.append(df, store, "q")) for _ in range(40)][15:]
    spark.stop()
    return {"append_1000_ms": 1000 * statistics.median(taken)}


if __name__ == "__main__":
    subject, *arguments = sys.argv[1:]
    subjects: dict[str, Callable[..., object]] = {"times": times, "requests": requests, "appends": appends}
    print(json.dumps(subjects[subject](*arguments)))
