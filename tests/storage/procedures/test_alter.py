"""Settings of a queue that are changed while it is used: who heeds them, and when."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable

import spark_partq as partq
from spark_partq.core.errors import ReplicaError
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.storage.inspect.doctor import diagnose
from spark_partq.storage.procedures import alter
from spark_partq.storage.procedures.rebalance import Rebalancer
from spark_partq.storage.queue.clock import ComparedClock
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from tests.clocks import wall_clock
from tests.groups import Consumer
from tests.helpers import group_state, in_parallel, opened
from tests.replicas import sync
from tests.scaled import Reader, Sink, make, messages

HOUR = 3_600_000
OTHERS: dict[str, Any] = {
    "rebalance_delay_ms": 7_000,
    "max_handoff_time_ms": 1,
    "retention_ms": 86_400_000,
    "min_retention_ms": HOUR,
    "max_bytes": 1 << 40,
    "vacuum_grace_ms": 2 * HOUR,
    "segment_ms": 60_000,
    "max_clock_skew_ms": 60_000,
    "durability": "disk",
    "reject_to_sender": "off",
    "max_deliveries": 3,
    "message_ttl_ms": HOUR,
    "message_ttl_column": "v",
    "expired_messages": "dead_letter",
    "dead_letter_queue": "dead",
    "dead_letter_order": "hold",
}


def kinds(store: str) -> list[str]:
    return [row["kind"] for row in opened(store).control.history()]


def test_every_setting_can_be_changed(store: str) -> None:
    assert OTHERS.keys() == QueueSettings.model_fields.keys()
    partq.create_queue(store, "q", "v bigint", key="v", partitions=2)
    found = partq.alter_queue(store, "q", **OTHERS)
    assert found.settings == OTHERS
    assert found.altered.keys() == OTHERS.keys()
    assert kinds(store).count("QueueAltered") == 1
    row = opened(store).control.history()[-1]
    assert row["by"]
    assert set(found.altered.values()) == {row["at"].isoformat()}
    assert partq.alter_queue(store, "q", reset=list(OTHERS)).settings == QueueSettings().model_dump()


def test_nothing_to_change_is_no_fact(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=2, retention_ms=5)
    before = kinds(store)
    partq.alter_queue(store, "q", retention_ms=5, rebalance_delay_ms=5_000)
    assert kinds(store) == before
    assert partq.describe_queue(store, "q").altered == {}


def test_wrong_settings_change_nothing(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=2)
    before = kinds(store)
    with pytest.raises(partq.InvalidArgumentError) as caught:
        partq.alter_queue(store, "q", retention_ms=5, max_handoff_time_ms=-1, colour="red", reset=["size"])
    assert all(name in str(caught.value) for name in ("max_handoff_time_ms", "colour", "size", "Known settings"))
    assert kinds(store) == before


def test_two_at_once_both_apply(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=2)
    changes: list[dict[str, Any]] = [{"retention_ms": 5}, {"rebalance_delay_ms": 6}, {"max_handoff_time_ms": 7}]
    done = in_parallel([lambda change=change: partq.alter_queue(store, "q", **change) for change in changes])
    assert not [error for error in done if isinstance(error, BaseException)]
    settings = partq.describe_queue(store, "q").settings
    assert [settings[name] for change in changes for name in change] == [5, 6, 7]


# ---- groups
def test_a_group_goes_by_the_new_settings(store: str) -> None:
    """H1, R5: the command tells groups whose consumers are all gone, so a rebalancer heeds them, too."""
    partq.create_queue(store, "q", "v bigint", partitions=2)
    Consumer(store, "a")
    watcher = Rebalancer(Store.at(store), "g")
    list(watcher.step())
    partq.alter_queue(store, "q", rebalance_delay_ms=9, max_handoff_time_ms=8)
    list(watcher.step())
    for state in (group_state(store), watcher.groups[0].state):
        (known,) = state.queues.values()
        assert (known.rebalance_delay_ms, known.max_handoff_time_ms) == (9, 8)


def test_maintenance_tells_a_group_what_an_interrupted_command_did_not(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=2)
    Consumer(store, "a")
    with (
        mock.patch("spark_partq.storage.procedures.alter.update_groups", side_effect=InterruptedError),
        pytest.raises(InterruptedError),
    ):
        partq.alter_queue(store, "q", rebalance_delay_ms=9)
    partq.maintain(store, "q")
    (known,) = group_state(store).queues.values()
    assert known.rebalance_delay_ms == 9


# ---- producers
def test_a_running_producer_discards_by_the_new_setting(store: str) -> None:
    """S3"""
    make(store, 2)
    sink = Sink(store)
    sink.write(0, messages(0, 5))
    partq.set_ingress(store, "q", False)
    with pytest.raises(partq.IngressDisabledError):
        sink.write(1, messages(5, 10))
    partq.alter_queue(store, "q", reject_to_sender="off")
    assert sink.write(1, messages(5, 10)) == 0
    assert partq.describe_queue(store, "q").discarded == 5


def test_a_running_producer_compares_its_clock_by_the_new_setting(store: str) -> None:
    make(store, 2)
    sink = Sink(store)
    with mock.patch.object(ComparedClock, "_skew_ms", return_value=300_000):
        sink.write(0, messages(0, 5))
        partq.alter_queue(store, "q", max_clock_skew_ms=200_000)
        with pytest.raises(partq.ClockSkewError, match="200 s"):
            sink.write(1, messages(5, 10))


def test_a_producer_heeds_a_grace_that_is_lowered_while_it_writes(store: str) -> None:
    """Its files are older than half of the new one when they are written: it writes them again before they are durable."""
    make(store, 2)
    sink, now_s, written = Sink(store), SYSTEM.monotonic_s(), []

    def begun() -> None:
        written.append(1)
        if len(written) == 1:
            partq.alter_queue(store, "q", vacuum_grace_ms=HOUR)
            clock.return_value = now_s + 1_801

    with mock.patch.object(SYSTEM, "monotonic_s", return_value=now_s) as clock:
        assert sink.write(0, messages(0, 5), begun) == 5
    assert len(written) == 2


# ---- maintenance
def test_a_running_maintenance_heeds_retention(store: str) -> None:
    make(store, 1)
    queue = opened(store)
    Sink(store).write(0, messages(0, 5))
    from spark_partq.storage.procedures.maintain import maintain

    assert maintain(queue).removed_messages == 0
    partq.alter_queue(store, "q", retention_ms=0)
    assert maintain(queue).removed_messages == 5


def test_files_are_kept_for_a_former_grace(store: str) -> None:
    """Whoever began to write under it may take half of it: maintenance does not delete what only the new one allows."""
    make(store, 1)
    partq.alter_queue(store, "q", vacuum_grace_ms=HOUR)
    with mock.patch.object(PartitionTable, "vacuum", return_value=0) as vacuum:
        partq.maintain(store, "q")
        assert vacuum.call_args.args[0] == 24 * HOUR
        partq.alter_queue(store, "q", vacuum_grace_ms=48 * HOUR)
        partq.maintain(store, "q")
        assert vacuum.call_args.args[0] == 48 * HOUR


def test_tables_remember_removed_files_for_a_longer_grace(store: str) -> None:
    """Each table has that in its own settings, by an action in the midst of its log that every reader takes."""
    make(store, 2)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 20))
    partq.alter_queue(store, "q", vacuum_grace_ms=100 * HOUR)
    sink.write(1, messages(20, 40))
    for number in (0, 1):
        table = DeltaTable(f"{store}/queues/q/partitions/partition={number}")
        assert table.metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 101 hours"
        assert table.to_pyarrow_table().num_rows
    assert len(reader.all()) == 40
    assert diagnose(Store.at(store)).faults == []


def test_tables_remember_removed_files_for_a_former_grace(store: str) -> None:
    """Else maintenance would take a file for one that nothing ever named, and delete it while that grace still counts."""
    make(store, 1)
    sink, reader = Sink(store), Reader(store)
    sink.write(0, messages(0, 5))
    table = opened(store).table(0)
    table.refresh()
    path = Path(store, table.folder, table.index.path(0))
    os.utime(path, (0, 0))  # it was written long ago
    reader.all()
    with wall_clock(dt.datetime.now(dt.UTC) - dt.timedelta(hours=3)):
        assert [report.removed_messages for report in partq.maintain(store, "q")] == [5]
    partq.alter_queue(store, "q", vacuum_grace_ms=HOUR)
    partq.maintain(store, "q")
    assert path.exists()


def test_maintenance_lets_the_tables_follow_where_a_command_was_interrupted(store: str) -> None:
    make(store, 1)
    with (
        mock.patch("spark_partq.storage.procedures.alter.follow_queue", side_effect=InterruptedError),
        pytest.raises(InterruptedError),
    ):
        partq.alter_queue(store, "q", vacuum_grace_ms=100 * HOUR)
    partq.maintain(store, "q")
    table = DeltaTable(f"{store}/queues/q/partitions/partition=0")
    assert table.metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 101 hours"


def test_a_command_that_slept_gives_the_tables_no_former_grace(store: str) -> None:
    """Else they would forget what was removed, and maintenance would delete a file that somebody reads."""
    make(store, 2)
    follow_queue = alter.follow_queue

    def slept(*arguments: Any) -> None:
        with mock.patch.object(alter, "follow_queue", follow_queue):
            partq.alter_queue(store, "q", vacuum_grace_ms=100 * HOUR)
        follow_queue(*arguments)

    with mock.patch.object(alter, "follow_queue", slept):
        partq.alter_queue(store, "q", vacuum_grace_ms=3 * HOUR)
    table = DeltaTable(f"{store}/queues/q/partitions/partition=0")
    assert table.metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 101 hours"


# ---- replicas
def test_a_fenced_queue_and_a_replica_are_refused(store: str, tmp_path: Any) -> None:
    """S7: what is changed there the replica that takes over would not hear of."""
    there = str(tmp_path / "there")
    make(store, 2)
    partq.alter_queue(store, "q", retention_ms=5_000_000)
    sync(store, there)
    with pytest.raises(ReplicaError, match="is a replica"):
        partq.alter_queue(there, "q", retention_ms=6_000_000)
    partq.alter_queue(store, "q", vacuum_grace_ms=100 * HOUR)
    partq.promote(there, "q")
    with pytest.raises(partq.QueueFencedError):
        partq.alter_queue(store, "q", retention_ms=6_000_000)
    settings = partq.describe_queue(there, "q").settings
    assert (settings["retention_ms"], settings["vacuum_grace_ms"]) == (5_000_000, 100 * HOUR)
    assert partq.alter_queue(there, "q", retention_ms=7_000_000).settings["retention_ms"] == 7_000_000
    assert json.loads(opened(there).control.history()[-1]["body"])["settings"] == {"retention_ms": 7_000_000}
