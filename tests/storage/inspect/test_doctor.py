"""The doctor finds what was done to a store behind its back, and nothing in one that is in order."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_partq as partq
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.queue import decide
from spark_partq.core.queue.facts import QueueFact
from spark_partq.storage.group.control import MERGE_AFTER
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.doctor import Diagnosis, diagnose
from spark_partq.storage.queue.control import QueueControl
from spark_partq.storage.store import Store
from tests.clocks import wall_clock
from tests.groups import Consumer
from tests.helpers import in_parallel, opened, put


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a queue and two groups, one of which has had its facts merged."""
    store = str(tmp_path_factory.mktemp("doctor") / "store")
    partq.create_queue(store, "q", "v long", partitions=2, rebalance_delay_ms=0)
    for p in (0, 0, 1):
        put(store, p, range(10))
    a = Consumer(store, "a")
    a.ack(0, 5, delivered=8)
    b = Consumer(store, "b")
    a.release()
    b.ack(1, 4)
    long = Consumer(store, "a", group="long")
    for n in range(MERGE_AFTER + 6):
        long.start_again()
        if n % 10 == 0:
            long.ack(0, n // 10)
    return Path(store)


@pytest.fixture
def at(made: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(made, tmp_path / "store"))


def checked(at: Path, group: str | None = None) -> Diagnosis:
    return diagnose(Store.at(at), group)


def the_fault(at: Path, group: str | None = None) -> str:
    """The only fault there is, as text."""
    (fault,) = checked(at, group).faults
    return str(fault)


def control(at: Path, group: str = "g", kind: str = "facts") -> list[Path]:
    return sorted((at / f"groups/{group}/control").glob(f"*-{kind}-*.parquet"))


def log(at: Path, folder: str) -> list[Path]:
    return sorted((at / folder / "_delta_log").glob("*.json"))


def edit(file: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Rewrite a file's rows in place, to the same size if that can be."""
    table = pq.read_table(file)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, table.schema), file)


def with_size_unchecked(at: Path, group: str = "g") -> None:
    """Let the log say the sizes that the files now have, as somebody who edits a table properly would."""
    for entry in log(at, f"groups/{group}/control"):
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            if "add" in line:
                line["add"]["size"] = (entry.parents[1] / line["add"]["path"]).stat().st_size
        entry.write_text("\n".join(map(json.dumps, lines)) + "\n")


def test_in_order(at: Path) -> None:
    """Nothing is found, and everything was checked."""
    found = checked(at)
    assert found.findings == []
    assert (found.queues, found.partitions, found.messages, found.groups) == (1, 2, 30, 2)
    assert found.facts == sum(len(Group(Store.at(at), name).history()) for name in ("g", "long"))
    told = found.to_dict()
    assert told["healthy"] is True and json.loads(json.dumps(told)) == told


def test_one_group(at: Path) -> None:
    found = checked(at, "long")
    assert (found.queues, found.groups, found.findings) == (0, 1, [])
    with pytest.raises(partq.GroupNotFoundError, match="its groups: g, long"):
        checked(at, "other")


def test_while_it_is_in_use(store: str) -> None:
    """What is being written just now is no fault."""
    partq.create_queue(store, "q", "v long", partitions=2, rebalance_delay_ms=0)
    put(store, 0, range(40))
    a = Consumer(store, "a")

    def work() -> None:
        for n in range(40):
            a.start_again()
            a.ack(0, n)

    def look() -> list[Any]:
        return [finding for _ in range(10) for finding in diagnose(Store.at(store)).findings]

    assert in_parallel([work, look]) == [None, []]


# ---- a group's control table
def test_a_missing_file_of_facts(at: Path) -> None:
    gone = control(at)[1]
    gone.unlink()
    told = the_fault(at)
    assert "group g" in told and f"{gone.name} is missing" in told and "restore" in told and "delete-group" in told


@pytest.mark.parametrize("which", [0, 1])
def test_missing_log_files_at_the_beginning_or_between(at: Path, which: int) -> None:
    log(at, "groups/g/control")[which].unlink()
    assert "group g" in the_fault(at) and "log" in the_fault(at)


def test_newest_log_files_removed(at: Path) -> None:
    """The table then looks whole, only older; the files of the later versions say that it is not."""
    for entry in log(at, "groups/g/control")[-2:]:
        entry.unlink()
    assert any("newest log files were removed" in str(fault) for fault in checked(at, "g").faults)


def test_the_newest_log_file_removed(at: Path) -> None:
    """One commit alone is missed by those whom it let in, or who acknowledged under what it granted."""
    log(at, "groups/g/control")[-1].unlink()
    assert "newest" in the_fault(at, "g")
    shutil.rmtree(at / "groups/g")
    Consumer(str(at), "a")
    b = Consumer(str(at), "b")
    b.beat()
    log(at, "groups/g/control")[-1].unlink()
    told = the_fault(at, "g")
    assert b.incarnation in told and "the newest log file was removed" in told


def test_a_commit_that_never_came_is_no_fault(at: Path) -> None:
    """A process that dies between its file and its commit leaves the file of the next version."""
    last = control(at)[-1]
    version = int(last.name[:20]) + 1
    shutil.copy(last, last.with_name(f"{version:020d}-facts-{0:032x}.parquet"))
    assert checked(at).findings == []


def test_no_log_at_all(at: Path) -> None:
    shutil.rmtree(at / "groups/g/control/_delta_log")
    assert "its control table has no log any more" in the_fault(at)


@pytest.mark.parametrize("lost", ["control", "control/_delta_log"])
def test_a_control_table_that_was_removed_before_its_second_commit(store: str, lost: str) -> None:
    """The acknowledgements show that the table was there: the next query would make another one, and begin again."""
    partq.create_queue(store, "q", "v long", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(10))
    Consumer(store, "a").ack(0, 7)
    shutil.rmtree(Path(store) / "groups/g" / lost)
    found = checked(Path(store))
    assert "its control table has no log any more; restore its folder from a backup" in str(found.faults[0])
    assert not any("start a query" in str(finding) for finding in found.findings)


def test_the_remedy_of_a_damaged_group_keeps_its_messages(store: str) -> None:
    """The advice is followed in its order, while maintenance runs: another group first, then the damaged one is deleted."""
    partq.create_queue(store, "q", "v long", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(20))
    Consumer(store, "a", group="fast").ack(0, 20)
    Consumer(store, "a").ack(0, 5)
    control(Path(store))[-1].unlink()
    (remedy,) = {fault.remedy for fault in checked(Path(store)).faults if fault.about == "group g"}
    assert remedy.index("as a group of another name") < remedy.index("only then delete this group")
    with pytest.raises(partq.CorruptTableError):  # it cannot be known what the group still needs
        partq.maintain(store)
    Consumer(store, "a", group="other", starts=5)
    partq.delete_group(store, "g")
    partq.maintain(store)
    assert partq.describe_queue(store, "q").partitions[0].depth == 15


def test_a_replaced_file(at: Path) -> None:
    edit(control(at)[0], lambda rows: rows[0].update(cause="nothing happened, and at some length"))
    assert "was replaced" in the_fault(at)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[-1].update(kind="Promoted"), "fact"),
        (lambda rows: _of(rows, "Granted").update(epoch_before=7), "the epoch is 0, not 7"),
        (lambda rows: _of(rows, "Granted").update(flow="nobody/0"), "granted to nobody/0"),
        (lambda rows: _of(rows, "Granted").update(delivered=-1), "delivered up to -1"),
        (lambda rows: _of(rows, "Granted").update(offset=-5), "goes back from 0 to -5"),
        (lambda rows: _of(rows, "Granted").update(offset=None), "Granted"),
        (lambda rows: _of(rows, "StatusChanged").update(status="Asleep"), "Asleep"),
        (lambda rows: _of(rows, "MemberJoined").update(body="{"), "MemberJoined"),
        (lambda rows: _of(rows, "MemberJoined").update(instance="x"), "granted to a/0"),
        (lambda rows: _said(rows, "MemberJoined", pattern="("), "MemberJoined"),
        (lambda rows: _said(rows, "MemberJoined", queues=[]), "granted to a/0, which does not read queue q"),
        (lambda rows: _said(rows, "AssignmentComputed", assignor="range"), "not everybody supports range"),
        (lambda rows: _said(rows, "AssignmentComputed", protocol="eager"), "the protocol is eager"),
        (lambda rows: _said(rows, "AssignmentComputed", protocol="lazy"), "lazy"),
        (lambda rows: _of(rows, "Granted").update(kind="AssignmentComputed", body="{}"), "assignor"),
        (lambda rows: rows.pop(2), "facts 2 to 2 are missing"),
        (lambda rows: rows.append(rows[2]), "fact 2 is there twice"),
        (lambda rows: rows[2].update(seq=None), "without a number"),
    ],
)
def test_an_edited_row(at: Path, change: Callable[[list[dict[str, Any]]], object], words: str) -> None:
    """A row that was edited with the log made to fit is found where it cannot follow those before it."""
    edit(control(at)[0], change)
    with_size_unchecked(at)
    told = the_fault(at, "g")
    assert words in told
    assert "edited" in told or "missing" in told or "twice" in told


def _said(rows: list[dict[str, Any]], kind: str, **values: Any) -> None:
    row = _of(rows, kind)
    row["body"] = json.dumps({**json.loads(row["body"]), **values})


def _of(rows: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(row for row in rows if row["kind"] == kind)


def test_a_snapshot_that_says_something_else(at: Path) -> None:
    """An edited row that could be right is found by the snapshot that was made before it was edited."""
    whole = control(at, "long", "history")[0]
    edit(whole, lambda rows: [row.update(host="elsewhere") for row in rows if row["kind"] == "MemberJoined"])
    with_size_unchecked(at, "long")
    told = the_fault(at, "long")
    assert "its snapshot of fact" in told and "members" in told


def test_a_broken_snapshot(at: Path) -> None:
    edit(control(at, "long", "snapshot")[0], lambda rows: rows[0].update(body="{}"))
    with_size_unchecked(at, "long")
    assert "snapshot" in the_fault(at, "long")


def test_history_without_its_beginning(at: Path) -> None:
    """A snapshot lets queries go on when the facts before it are gone; the history is broken all the same."""
    control(at, "long", "history")[0].unlink()
    assert Group(Store.at(at), "long").refresh()
    assert "is missing" in the_fault(at, "long")


# ---- acknowledgements
def test_acknowledgements(at: Path) -> None:
    """Unreadable or without a log is a fault; gone altogether is worth a warning."""
    acks = at / "groups/g/acks"
    file = next(acks.glob("*.parquet"))
    size = file.stat().st_size
    file.write_bytes(b"x" * size)
    assert "group g" in the_fault(at, "g")
    shutil.rmtree(acks / "_delta_log")
    assert "ack table" in the_fault(at, "g")
    shutil.rmtree(acks)
    history = Group(Store.at(at), "g").history()
    joined = next(fact["at"] for fact in history if fact["kind"] == Kind.MEMBER_JOINED)
    with wall_clock(joined + dt.timedelta(seconds=10)):  # as long as its member may be silent
        assert not checked(at, "g").findings
    with wall_clock(joined + dt.timedelta(seconds=11)):
        found = checked(at, "g")
    assert not found.faults and "no process has acknowledged" in found.findings[0].what


def test_a_process_of_a_group_that_was_deleted_is_worth_a_warning(at: Path) -> None:
    """It does no harm, but somebody should stop it."""
    Group(Store.at(at), "g").acknowledge([AckRow("who?", 1)])
    found = checked(at, "g")
    assert not found.faults
    assert found.findings[0].severity == "warning" and "who?" in found.findings[0].what


def test_a_position_past_the_end(at: Path) -> None:
    """A partition that was put back to an older state is told apart from a group that reads ahead."""
    b = Group(Store.at(at), "g")
    b.refresh()
    ((partition_id, own),) = [(w, o) for w, o in b.state.partitions.items() if w[1] == 1]
    b.acknowledge([AckRow(own.incarnation, 9, *partition_id, own.epoch, 99, 99)])
    told = the_fault(at)
    assert "up to 99" in told and "ends at 10" in told


# ---- queues
def test_a_missing_message_file(at: Path) -> None:
    file = next((at / "queues/q/partitions/partition=1").glob("*.parquet"))
    file.unlink()
    told = the_fault(at)
    assert "partition 1 of queue q" in told and file.name in told and "cannot be made again" in told


def test_a_partition_whose_log_was_cut(at: Path) -> None:
    """Then offsets are missing, or the groups are past the end."""
    log(at, "queues/q/partitions/partition=1")[-1].unlink()
    assert "ends at 0" in the_fault(at)
    log(at, "queues/q/partitions/partition=0")[1].unlink()
    assert len(checked(at).faults) == 2


def test_a_foreign_commit_to_a_partition(at: Path) -> None:
    from deltalake import write_deltalake

    folder = at / "queues/q/partitions/partition=0"
    old = pq.read_table(next(folder.glob("*.parquet")))
    rows = old.append_column("base_offset", pa.array([0] * old.num_rows, pa.int64()))
    stamp = pa.array([0] * old.num_rows, pa.timestamp("us", tz="UTC"))
    write_deltalake(folder, rows.append_column("_enqueued_at", stamp), mode="append")
    assert "partition 0 of queue q" in the_fault(at) and "was committed by delta-rs" in the_fault(at)


def test_a_queue_without_control_table(at: Path) -> None:
    shutil.rmtree(at / "queues/q/control/_delta_log")
    assert "queue q" in the_fault(at) and "no log any more" in the_fault(at)


def test_an_edited_control_table_of_a_queue(at: Path) -> None:
    file = sorted((at / "queues/q/control").glob("*.parquet"))[0]
    edit(file, lambda rows: rows[0].update(body="[]"))
    assert "queue q: its control table cannot be read" in the_fault(at)


def test_facts_of_a_queue_that_nobody_would_decide(at: Path) -> None:
    """S7: they can follow one another, but break an invariant."""
    QueueControl(Store.at(at), "q").decide(lambda _: [QueueFact("QueueFenced", {"location": "s3://b/r"})])
    assert "queue q: S7: s3://b/r has taken over, and is no replica" in the_fault(at)


def test_a_partition_that_is_sealed_or_fenced_for_no_reason(at: Path) -> None:
    """S5, S7: producers would wait for ever, and nothing else shows why."""
    queue = opened(str(at))
    queue.table(0).seal(0)
    assert "partition 0 is sealed under generation 0, and the queue's control table does not say why" in the_fault(at)
    QueueControl(Store.at(at), "q").decide(lambda state: decide.start_scaling(state, 3, "live"))
    assert not checked(at).faults
    queue.table(1).fence(1)
    assert "partition 1 is fenced, and the queue's control table does not say why" in the_fault(at)
    queue.table(1).unfence(1)
    assert not checked(at).faults


def test_what_was_interrupted_is_worth_a_warning(at: Path) -> None:
    QueueControl(Store.at(at), "q").decide(lambda state: [QueueFact("QueueDeleted", {})])
    found = checked(at)
    assert not found.faults
    assert "Deleting" in found.findings[0].what and "delete it again" in found.findings[0].remedy


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(partq.NotAStoreError):
        checked(tmp_path)


def test_an_eager_group_in_order(store: str) -> None:
    """K4: also in the middle of a revocation, and after one that was forced."""
    partq.create_queue(store, "q", "v long", partitions=3, rebalance_delay_ms=0)
    a = Consumer(store, "a", assignors=("range",))
    a.ack(0, 0)
    Consumer(store, "b", assignors=("range",))
    assert diagnose(Store.at(store)).findings == []
    a.release(0)
    a.force()
    assert diagnose(Store.at(store)).findings == []


def test_an_eager_assignment_before_all_was_given_up(store: str) -> None:
    """K4: the history of a program that does not keep to the protocol."""
    partq.create_queue(store, "q", "v long", partitions=2, rebalance_delay_ms=0)
    a = Consumer(store, "a", assignors=("range",))
    a.ack(0, 0)
    Consumer(store, "b", assignors=("range",))
    a.release(0)
    body = json.dumps({"assignor": "range", "protocol": "eager"})
    a.group._control.commit([GroupFact(Kind.ASSIGNMENT_COMPUTED, body=body)])
    assert "1 partitions are still owned when an eager rebalance assigns" in the_fault(Path(store), "g")
