"""A group on disk: the contract of its tables, and what a disk can show."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import spark_partq as partq
from spark_partq.core.group import snapshot
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.decide import decide
from spark_partq.core.group.events import Join, Leave, LoadsMeasured
from spark_partq.core.group.facts import GroupFact, Kind, Member, QueueInGroup, Status
from spark_partq.core.group.state import GroupState
from spark_partq.storage.group.ack_table import COMPACT_AFTER, AckTable
from spark_partq.storage.group.control import MERGE_AFTER, ControlTable
from spark_partq.storage.group.handle import Group
from spark_partq.storage.log import Conflict
from spark_partq.storage.rows import RowFiles
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import in_parallel, opened

QUEUES = {"id": QueueInGroup("q", 4, 0, 1000)}
WHERE = ("id", 0)
# What opens further handles on one control table and on one ack table.
Handles = tuple[Callable[[], Any], Callable[[], Any]]


@pytest.fixture
def handles(store: str) -> Handles:
    partq.create_queue(store, "q", "v bigint", partitions=1)
    return lambda: ControlTable(Store.at(store), "g"), lambda: AckTable(Store.at(store), "g", 0)


def joining(state: GroupState, acks: Any, instance: str, incarnation: str = "") -> list[GroupFact]:
    member = Member(instance, incarnation or instance, 1, 10_000, ("balanced",), ("q",), "host")
    return decide(state, acks, [Join(member, QUEUES, {("id", p): 0 for p in range(4)})])


def floor(state: GroupState, offset: int) -> GroupFact:
    epoch = state.partitions[WHERE].epoch
    return GroupFact(
        Kind.FLOOR, "q", *WHERE, offset=offset, epoch_before=epoch, epoch=epoch, cause="of a test", by="test"
    )


def plain(state: GroupState) -> str:
    return json.dumps(snapshot.to_json(state), sort_keys=True)


# ---- the contract of a group's tables
def test_commit_is_a_compare_and_set(handles: Handles) -> None:
    """R1, W2: of two decisions on one state the second fails, changes nothing, and can be taken again."""
    (a, b), acks = (handles[0]() for _ in range(2)), handles[1]().acks
    a.commit(joining(a.state, acks, "a"))
    a.refresh()
    assert b.refresh() and plain(b.state) == plain(a.state)
    assert not b.refresh()
    first, second = joining(a.state, acks, "x"), joining(b.state, acks, "y")
    a.commit(first)
    before = plain(b.state)
    with pytest.raises(Conflict):
        b.commit(second)
    assert plain(b.state) == before
    assert b.refresh() and set(b.state.members) == {"a", "x"}
    b.commit(joining(b.state, acks, "y"))
    a.refresh()
    assert set(a.state.members) == {"a", "x", "y"}


def test_first_commit_makes_the_table(handles: Handles) -> None:
    """R1: also of two that both find nothing only one goes through."""
    a, b = handles[0](), handles[0]()
    assert not a.exists()
    facts = joining(a.state, handles[1]().acks, "a")
    a.commit(facts)
    assert b.exists()
    with pytest.raises(Conflict):
        b.commit(facts)


def test_history_and_state_outlive_any_number_of_commits(handles: Handles) -> None:
    """R7: every fact stays, in order; a process that starts late, or refreshes seldom, gets the same state."""
    a, seldom = handles[0](), handles[0]()
    a.commit(joining(a.state, handles[1]().acks, "a"))
    a.refresh()
    first = a.state.seq
    for n in range(1, 2 * MERGE_AFTER + 20):
        a.commit([floor(a.state, n)])
        a.refresh()
        assert a.state.floors == {WHERE: n}
        if n % 50 == 0:
            seldom.refresh()
            assert plain(seldom.state) == plain(a.state)
    late = handles[0]()
    late.refresh()
    assert plain(late.state) == plain(a.state) and late.state.floors == {WHERE: n}
    history = late.history().to_pylist()
    assert [row["seq"] for row in history] == list(range(a.state.seq))
    assert [row["offset"] for row in history[first:]] == list(range(1, n + 1))
    replayed = GroupState()
    names = GroupFact.__dataclass_fields__
    for row in history:
        replayed.replay(GroupFact(**{name: row[name] for name in names}))
    assert plain(replayed) == plain(a.state)


def test_acknowledgements_survive_compaction(handles: Handles) -> None:
    """H4, Q8: the highest offset of the newest epoch stays, whatever is compacted; heartbeats of members too."""
    table = handles[1]()
    for n in range(1, 2 * COMPACT_AFTER):
        table.append([AckRow("a", n, *WHERE, 1, n, n + 5), AckRow("a", n, "id", 1, 1, 2 * n, 2 * n)], {"a", "silent"})
        if n == 3:
            table.append([AckRow("silent", 7)], {"a", "silent"})
            table.append([AckRow("gone", 7)], {"a", "silent"})
    table.append([AckRow("b", 1, *WHERE, 2, 50, 60)], {"a", "b", "silent"})
    table.append([AckRow("a", 999, *WHERE, 1, 900, 900)], {"a", "b", "silent"})  # late, of a past epoch
    for n in range(1, 2 * COMPACT_AFTER):
        table.append([AckRow("b", n, "id", 1, 2, n, n)], {"b", "silent"})
    for reader in (table, handles[1]()):
        reader.refresh()
        assert reader.acks.offset(WHERE, 2, "b") == 50
        assert reader.acks.delivered(WHERE) >= 60
        assert reader.acks.beats["silent"] == 7


def test_acknowledgement_never_goes_back(handles: Handles) -> None:
    """Q8: a lower offset after a higher one changes nothing."""
    table = handles[1]()
    for offset in (9, 4):
        table.append([AckRow("a", 1, *WHERE, 1, offset, offset)], {"a"})
    table.refresh()
    assert table.acks.offset(WHERE, 1, "a") == 9


# ---- on disk
@pytest.fixture
def queue(store: str) -> str:
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0, max_handoff_time_ms=0)
    return store


def group_of(store: str) -> Group:
    group = Group(Store.at(store), "g")
    group.refresh()
    return group


def test_history_is_a_delta_table(queue: str) -> None:
    """R7, W1: any Delta reader sees who got what, when, why and under which epochs."""
    Consumer(queue, "a")
    Consumer(queue, "b")
    rows = DeltaTable(f"{queue}/groups/g/control").to_pyarrow_table().sort_by("seq").to_pylist()
    granted = [r for r in rows if r["kind"] == "Granted"]
    assert [(r["partition"], r["flow"], r["epoch_before"], r["epoch"]) for r in granted] == [
        (0, "a/0", 0, 1), (1, "a/0", 0, 1), (1, "b/0", 1, 2)
    ]  # fmt: skip
    assert granted[-1]["forced"] and "max_handoff_time_ms is 0" in granted[-1]["cause"]
    assert all(r["cause"] and r["at"] and r["by"] for r in rows)


def test_joins_at_once(queue: str) -> None:
    """R1, W2: whoever joins at the same time is a member afterwards, and every partition has one owner."""
    results = in_parallel([lambda i=i: Consumer(queue, f"i{i}") for i in range(8)])
    assert not [r for r in results if isinstance(r, BaseException)]
    group = group_of(queue)
    assert len(group.state.members) == 8
    assert len({own.flow for own in group.state.partitions.values()}) == 2
    history = group.history()
    assert [r["seq"] for r in history] == list(range(len(history)))


def test_acknowledging_at_once(queue: str) -> None:
    """Q8: several acknowledge at the same time, through compactions; nothing is lost."""
    consumer = Consumer(queue, "a")

    def acknowledge(partition: int) -> None:
        mine = group_of(queue)
        for n in range(1, 41):
            mine.acknowledge([AckRow(consumer.incarnation, n, *consumer.partition_id(partition % 2), 1, n, n)])

    assert in_parallel([lambda p=p: acknowledge(p) for p in range(4)]) == [None] * 4
    group = group_of(queue)
    assert [group.position(consumer.partition_id(p)) for p in (0, 1)] == [40, 40]


def test_files_stay_few(queue: str) -> None:
    """R7: neither the history nor the acknowledgements pile up small files, and the snapshot is one."""
    consumer = Consumer(queue, "a")
    for n in range(1, MERGE_AFTER + 20):
        consumer.group.acknowledge([AckRow(consumer.incarnation, n, *consumer.partition_id(0), 1, n, n)])
        consumer.group.raise_floors(consumer.ids["q"])
    assert {"OPTIMIZE", "WRITE"} <= {e["operation"] for e in DeltaTable(f"{queue}/groups/g/control").history()}
    live = DeltaTable(f"{queue}/groups/g/control").file_uris()
    assert len(live) <= MERGE_AFTER + 6
    assert len([path for path in live if "-snapshot-" in path]) == 1
    assert len(DeltaTable(f"{queue}/groups/g/acks").file_uris()) <= COMPACT_AFTER
    assert group_of(queue).state.floors == {consumer.partition_id(0): n}


def test_an_assignor_is_told_the_loads(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=4, rebalance_delay_ms=0)
    group = Consumer(store, "a", 2, assignors=("weighted",)).group
    loads = {place: 100.0 if own.flow == "a/0" else 1.0 for place, own in group.state.partitions.items()}
    facts = group.decide(lambda: [LoadsMeasured()], "a", loads)
    (computed,) = (fact for fact in facts if fact.kind == Kind.ASSIGNMENT_COMPUTED)
    assert sorted(load for *_, load in json.loads(computed.body or "")["loads"]) == [1, 1, 100, 100]


def test_deleted_group(queue: str) -> None:
    """Q8: one of the same name starts anew, under higher epochs, and an old process cannot move it."""
    old = Consumer(queue, "a")
    first = old.partition_id(0)
    old.ack(0, 9, delivered=12)
    epoch = old.group.state.partitions[first].epoch
    old.expire()
    partq.delete_group(queue, "g")
    assert partq.list_groups(queue) == [] and not (Path(queue) / "groups/g/acks").exists()
    assert opened(queue).state.groups == {}
    assert partq.describe_group(queue, "g").state == "Dead"
    with pytest.raises(partq.GroupNotFoundError):
        partq.delete_group(queue, "g")
    fresh = Consumer(queue, "a")
    assert opened(queue).state.groups == {"g": 1} and partq.list_groups(queue) == ["g"]
    assert fresh.group.state.partitions[first].epoch > epoch and fresh.group.position(first) == 0
    assert fresh.group.delivered(first) == 0
    with pytest.raises(partq.GroupNotFoundError, match="was deleted while this program used it"):
        old.group.acknowledge([AckRow(old.incarnation, 9, *first, epoch, 15, 15)])
    assert old.group.decide(lambda: [Leave("a", old.incarnation)]) == []
    assert group_of(queue).position(first) == group_of(queue).delivered(first) == 0


def test_active_group_is_not_deleted(queue: str) -> None:
    """Q8: a member that lives keeps it; who has died is waited for until its session is over."""
    a = Consumer(queue, "a", session_timeout_ms=600)
    a.ack(0, 9)
    stop = threading.Event()

    def live() -> None:
        while not stop.wait(0.05):
            a.beat()

    thread = threading.Thread(target=live)
    thread.start()
    try:
        with pytest.raises(partq.GroupActiveError, match="a consume in it; stop"):
            partq.delete_group(queue, "g")
    finally:
        stop.set()
        thread.join()
    assert group_of(queue).position(a.partition_id(0)) == 9 and opened(queue).state.groups == {"g": 0}
    partq.delete_group(queue, "g")
    assert partq.list_groups(queue) == []


def test_deletion_that_was_interrupted_is_finished(queue: str) -> None:
    """Q8: it is deleted, and a queue still waits for it; deleting it again ends that."""
    Consumer(queue, "a").expire()
    with (
        mock.patch("spark_partq.storage.queue.control.QueueControl.decide", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        partq.delete_group(queue, "g")
    assert partq.list_groups(queue) == [] and opened(queue).state.groups == {"g": 0}
    partq.delete_group(queue, "g")
    assert opened(queue).state.groups == {}


def test_damaged_group_can_be_deleted(queue: str) -> None:
    """Q8: nobody can read it, and then nobody waits for it any more."""
    Consumer(queue, "a")
    for path in facts_files(queue):
        path.write_bytes(b"damaged")
    with pytest.raises(partq.CorruptTableError):
        partq.maintain(queue, "q")
    partq.delete_group(queue, "g")
    assert partq.list_groups(queue) == [] and opened(queue).state.groups == {}
    assert partq.maintain(queue, "q")[0].waiting_for == ()
    assert Consumer(queue, "a").group.state.exists


def rewrite(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)


def facts_files(store: str) -> list[Path]:
    return sorted((Path(store) / "groups/g/control").glob("*-facts-*.parquet"))


def drop_last(rows: list[dict[str, Any]]) -> None:
    rows.pop()


def another_epoch(rows: list[dict[str, Any]]) -> None:
    rows[-2]["epoch_before"] = 7


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.write_bytes(b"x"), "control table of group 'g'"),
        (lambda path: pq.write_table(pa.table({"seq": [0]}), path), "control table of group 'g'"),
        (lambda path: path.unlink(), "control table of group 'g'"),
        (lambda path: rewrite(path, drop_last), "facts are missing"),
        (lambda path: rewrite(path, another_epoch), "edited"),
    ],
)
def test_damaged_control_table(queue: str, damage: Callable[[Path], object], says: str) -> None:
    """Bad input: a fact that is missing, edited or cannot be read is one clear error, and nothing is decided on it."""
    Consumer(queue, "a")
    Consumer(queue, "b")
    damage(facts_files(queue)[0] if says == "facts are missing" else facts_files(queue)[1])
    with pytest.raises(partq.CorruptTableError, match=says):
        Group(Store.at(queue), "g").refresh()
    with pytest.raises(partq.CorruptTableError):
        Consumer(queue, "c")


def test_truncated_log(queue: str) -> None:
    """Bad input: a running process notices that the table went back, and decides nothing."""
    a = Consumer(queue, "a")
    Consumer(queue, "b")
    a.group.refresh()
    last = max((Path(queue) / "groups/g/control/_delta_log").glob("*.json"))
    last.unlink()
    with pytest.raises(partq.CorruptTableError, match="went back"):
        a.group.decide(lambda: [Leave("a", a.incarnation)])


def test_status_is_always_known(queue: str) -> None:
    """R7: Ready, Holddown and Rebalancing are in the history, each with its cause."""
    partq.create_queue(queue, "slow", "v bigint", partitions=2, rebalance_delay_ms=60_000)
    Consumer(queue, "a", group="h", queues=("slow",))
    b = Consumer(queue, "b", group="h", queues=("slow",))
    assert b.group.state.status is Status.HOLDDOWN and "b joined" in b.group.state.trigger
    b.group.decide(lambda: [Leave("b", b.incarnation)])
    changes = [(r["status"], r["cause"]) for r in b.group.history() if r["kind"] == "StatusChanged"]
    assert [status for status, _ in changes] == ["Rebalancing", "Ready", "Holddown", "Ready"]
    assert "again" in changes[-1][1]
    assert replace(b.group.state).status is Status.READY


def test_look_that_is_interrupted(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R1: after a refresh that ended half-way, whatever ended it, nothing is decided on the state of before."""
    a = Consumer(queue, "a")
    Consumer(queue, "b")
    read = RowFiles.read

    def interrupted(self: RowFiles, path: str, version: int, most: int) -> list[dict[str, Any]]:
        raise SystemExit

    monkeypatch.setattr(RowFiles, "read", interrupted)
    with pytest.raises(SystemExit):
        a.group.refresh()
    monkeypatch.setattr(RowFiles, "read", read)
    with pytest.raises(Conflict):
        a.group._control.commit(decide(a.group.state, a.group.acks, [Leave("a", a.incarnation)]))
    a.leave()
    history = group_of(queue).history()
    assert [row["seq"] for row in history] == list(range(len(history)))
    assert list(group_of(queue).state.members) == ["b"]


def test_lost_races_are_counted(queue: str) -> None:
    """Of decisions and of acknowledgements: each commit that somebody else came before, and no other."""
    a, b = Consumer(queue, "a"), Consumer(queue, "b")
    b.beat()
    assert a.group.lost_races == 0
    others = [b.beat, b.beat]
    a.group.acknowledge([AckRow(a.incarnation, 1)], lambda: others.pop()() if others else None)
    assert (a.group.lost_races, others) == (2, [])
    others = [b.leave]

    def leaves() -> list[Leave]:
        if others:
            others.pop()()
        return [Leave("a", a.incarnation)]

    assert a.group.decide(leaves)
    assert a.group.lost_races == 3
    a.start_again()
    a.beat()
    assert a.group.lost_races == 3
