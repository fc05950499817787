"""Queues that are deleted and created again under who uses them; clocks that are wrong."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from spark_partq.testing.simulation.setup import Faults, ProducerSetup, Setup
from tests.storage.procedures import test_clocks as clocks
from tests.storage.procedures import test_created_again as created_again
from tests.storage.procedures import test_queue_deleted as deleted
from tests.storage.queue import test_handle as handles
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import as_is
from tests.testing.planted.stores import in_a_store

COMMIT, STRANGERS = "storage.log.commit", "storage.log.strangers"

# Producers that write all the time, and do not look before they commit.
CREATED_AGAIN = Setup(
    0,
    partitions=1,
    local=False,
    producers=tuple(ProducerSetup(f"s{i}", f"query-{i}", 9, pause_s=0.1) for i in range(3)),
    recreated_s=0.5,
    faults=Faults(slow=0.3, kill=0.003),
)
WRONG_CLOCKS = replace(CREATED_AGAIN, recreated_s=None, faults=Faults(jump=0.05))


def is_recreated(s: Setup) -> bool:
    return s.recreated_s is not None


@bug(
    "storage.queue.partition_table:PartitionTable.__init__",
    test=lambda: in_a_store(handles.test_a_handle_reads_no_partition_of_the_next_queue),
)
def a_producer_takes_any_table(original, table, store, queue, partition, payload, queue_id=""):
    """Who has opened a queue, and reads a partition for the first time after it was created again, takes that of the new one for his."""
    original(table, store, queue, partition, payload)


def somebody_stands_still() -> None:
    with pytest.MonkeyPatch.context() as patched:
        in_a_store(deleted.test_who_opened_the_former_one_does_not_bring_it_back, patched)


@bug("storage.group.handle:Group._check_replacements", test=somebody_stands_still)
def a_former_queue_comes_back_into_a_group(original, group, facts):
    """Who opened it before it was deleted joins, and the group loses its positions in the new one."""


@bug("storage.queue.control:QueueControl._has_partitions", is_recreated)
def a_half_deleted_queue_is_damaged(original, control):
    """Who opens a queue while it is being deleted is told that it is damaged."""
    return True


@bug("storage.queue.handle:Queue.explained", is_recreated)
@contextlib.contextmanager
def a_deletion_is_told_as_damage(original, queue):
    """A producer whose queue is deleted, and created again, is told to restore it from a backup."""
    yield


@bug(f"{COMMIT}:_take_back", test=created_again.test_entry_is_taken_back)
def an_entry_in_another_log_stays(original, log, version, entry):
    """Who finds that his entry is no part of the log leaves it there, and tells of a conflict."""


@bug("storage.log.entries:Entry.is_of", test=created_again.test_reader_that_knows_the_log_passes_over_it)
def an_entry_of_another_table_is_damage(original, entry, metadata):
    """A reader takes the entry of a stale producer for damage of the table."""
    return True


@bug(f"{COMMIT}:_is_in", test=created_again.test_entry_is_taken_back)
def any_predecessor_will_do(original, log, version, entry):
    """A commit counts if there is an entry before it, whichever that is."""
    return log.files.info(log.entry_path(version - 1)) is not None or original(log, version, entry)


@bug(f"{STRANGERS}:remove", test=created_again.test_an_entry_is_removed_by_one)
def an_entry_is_removed_without_a_claim(original, log, version, entry):
    """Two who found the same entry both delete its name, whatever is there by then."""
    log.files.delete(log.entry_path(version))


@bug("storage.queue.clock:ComparedClock.time_us", change=as_is(WRONG_CLOCKS))
def a_wrong_clock_dates_messages(original, clock):
    """A producer takes its machine's clock as it is."""
    return clock._store.runtime.time_ns() // 1_000


@bug(
    "storage.queue.clock:checked_ms",
    test=lambda: in_a_store(clocks.test_maintenance_with_a_wrong_clock, clocks.YEAR_S),
)
def maintenance_goes_by_its_own_clock(original, store, queue, max_skew_ms, *so):
    """What is young by the store's clock is removed by a machine whose clock is ahead."""
    return store.now_ms()
