"""Machines that stand still for hours, with their clocks, while maintenance elsewhere deletes what nothing names."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.testing.simulation.setup import Blow, ProducerSetup, QuerySetup, Setup
from tests.testing.planted.bugs import bug

BATCH, COMMIT = "storage.procedures.batch:Batch", "storage.log.commit"

WRITING = Setup(
    0,
    partitions=2,
    producers=(ProducerSetup("s", "query", 4, twins=2, pause_s=0.0, recomputes=True),),
    maintain_every_s=1.0,
    chaos_s=5.0,
)
RELAYING = replace(
    WRITING,
    producers=(ProducerSetup("s", "query", 6, pause_s=0.5),),
    queries=(QuerySetup("g", "g-0", relays=True, max_rows=3), QuerySetup("g", "g-1", relays=True, max_rows=3)),
)


def paused(s: Setup) -> Setup:
    """A producer stands still once, alone or beside its twin."""
    producers = tuple(replace(p, twins=1 + s.seed // 90 % 2) for p in WRITING.producers)
    blow = Blow("querya", 0.0, s.seed % 90, what="pause")
    return replace(WRITING, seed=s.seed, drops=s.drops, producers=producers, blows=(blow,))


def overtaken(s: Setup) -> Setup:
    """One of two producers stands still once, while the other one commits to the same partition, and its log is cleaned up."""
    producers = tuple(ProducerSetup(f"s{i}", f"query-{i}", 6, pause_s=0.0) for i in range(2))
    blow = Blow("query-0a", 0.0, s.seed % 60, what="pause")
    return replace(WRITING, seed=s.seed, drops=s.drops, partitions=1, producers=producers, blows=(blow,))


def consumer_paused(s: Setup) -> Setup:
    blow = Blow("g-0", 0.5, s.seed % 160, what="pause")
    return replace(RELAYING, seed=s.seed, drops=s.drops, blows=(blow,))


@bug("storage.queue.manifests:is_void", change=paused)
def a_late_manifest_counts(original, queue, manifest, info, recorded):
    """A manifest was put so late that maintenance has deleted its files."""
    return False


@bug("storage.queue.clock:ComparedClock.compare", change=consumer_paused)
def a_clock_is_compared_by_the_youngest_file(original, clock, paths, began_s, ended_s):
    """A consumer whose machine stood still between two files commits the second one, and maintenance has deleted the first one."""
    original(clock, paths[-1:], began_s, ended_s)


@bug(f"{BATCH}.may_be_late", change=paused)
def a_writer_goes_by_its_own_clock(original, batch, age):
    """A producer places the files of its late manifest, though its clock stood still."""
    return age.is_over(batch._queue.store.runtime)


@bug(f"{COMMIT}:_is_in", change=overtaken)
def a_commit_counts_once_it_is_put(original, log, version, entry):
    """A version that others had put and cleaned up is put again."""
    return True


@bug(f"{COMMIT}:_follows", change=overtaken)
def a_commit_needs_no_entry_before_it(original, log, version, entry):
    """As long as this process's clock says that it did not sleep."""
    return True


@bug("storage.procedures.begun:BegunBatches.files_left", change=paused)
def maintenance_deletes_what_a_manifest_names(original, begun, table):
    """Files of a batch that is durable, and not placed for a long time, are deleted."""
    return set()


@bug("storage.log.unnamed:unnamed_files", change=paused)
def the_age_of_a_file_counts(original, log, grace_ms, kept=(), as_of_ms=None):
    """Files that were removed just now are deleted while they are read."""
    version, _ = original(log, 0, kept, as_of_ms)
    now = log.store_ms()
    there = [i for i in log.files.list_files(log.folder) if now - i.modified_ns // 1_000_000 >= grace_ms]
    live = log.load().files
    return version, [i.name for i in there if i.name not in live and i.name not in kept]


@bug("storage.procedures.positions_queue:PositionsQueue.are_fit", change=consumer_paused)
def old_files_are_fit(original, target, files):
    """A consumer goes on with files that are older than the grace."""
    return True


@bug("storage.procedures.produce:Producer.is_stale", change=consumer_paused)
def files_never_grow_old(original, producer, prepared):
    """Files are made durable however old they are."""
    return False
