"""Small files that are put together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spark_partq.testing.simulation.setup import Setup
from tests.core.queue import test_segments as segments
from tests.storage.procedures import test_make_segments as procedure
from tests.storage.procedures import test_segments_consumed as consumed
from tests.testing.planted.bugs import bug
from tests.testing.planted.stores import in_a_store


def with_segments(s: Setup) -> bool:
    return s.segment_ms is not None


@bug("storage.queue.slices:slices", with_segments)
def each_message_has_the_time_of_the_last(original, *about):
    """A message that is delivered again has another time than before."""
    return [replace(part, segment=False) for part in original(*about)]


@bug("storage.procedures.make_segments:_rows", with_segments)
def a_segment_lacks_its_last_file(original, queue, files):
    """What a file in the middle of a partition held is lost."""
    return original(queue, files[:-1])


@bug("storage.queue.starting:first_in", test=lambda: in_a_store(consumed.test_messages_of_a_segment_that_are_too_old))
def a_segment_is_young_if_its_last_message_is(original, table, i, since_us):
    """Messages are delivered that are too old."""
    return int(table.index.base[i])


@bug("core.queue.segments:due", test=segments.test_none_goes_on_beyond_a_cut)
def a_segment_goes_on_across_a_cut(original, base, size, enqueued_us, alone, cuts, period_us, now_us):
    """What was removed up to the cut is there again when the partition comes back."""
    return original(base, size, enqueued_us, alone, (), period_us, now_us)


@bug(
    "storage.queue.partition_table:PartitionTable.replace",
    test=lambda: in_a_store(lambda store: procedure.test_a_parent_that_is_copied(store, "before the commit")),
)
def files_of_a_sealed_table_are_put_together(original, table, paths, file, age, generation=None):
    """Each file of a parent is a batch of the copy: the first one stands for all, and the others are lost."""
    return original(table, paths, file, age)


@bug("storage.replica.history:_agree", test=lambda: in_a_store(_a_replica_jumps))
def a_replica_takes_a_segment_for_another_history(original, mine, theirs):
    """It refuses to follow its primary from then on."""
    return False


def _a_replica_jumps(store):
    procedure.fill(store)
    procedure.test_a_replica_follows(store, Path(store).parent, jump=True)
