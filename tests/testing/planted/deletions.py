"""Messages of a key that are deleted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spark_partq.testing.simulation.setup import Setup
from tests.storage.procedures import test_delete_messages as deletion
from tests.storage.procedures import test_deleted_meanwhile as meanwhile
from tests.testing.planted.bugs import bug
from tests.testing.planted.stores import in_a_store


def with_a_deletion(s: Setup) -> bool:
    return s.deleted_key is not None


@bug("storage.queue.messages:MessageFile.write", with_a_deletion)
def what_is_left_gets_other_offsets(original, file, batch, numbers=None, times_us=None):
    """The rows of a file that is written again are numbered anew."""
    original(file, batch, None, times_us)


@bug("storage.queue.slices:slices", with_a_deletion)
def a_reader_counts_the_rows_that_are_left(original, *about):
    """He takes the third row for the third message, and gives others' offsets."""
    return [replace(part, deleted=0) for part in original(*about)]


@bug("storage.procedures.delete_messages:_matched", with_a_deletion)
def the_messages_beside_are_deleted_too(original, *about, **how):
    """A neighbour of a key's message goes with it."""
    for row, rows, times_us, match in original(*about, **how):
        yield row, rows, times_us, match | np.roll(match, 1)


@bug("core.queue.deletion:allow_deletion", with_a_deletion)
def older_programs_may_go_on(original, state):
    """They take a file without some of its messages for a damaged one."""
    return ()


@bug("storage.procedures.consume.gone:_deleted_end", test=lambda: in_a_store(deletion.test_nobody_acknowledges_them))
def somebody_must_acknowledge_what_is_deleted(original, queue, table, start, end):
    """An application that acknowledges by hand keeps everybody waiting for what it is never given."""
    return start


@bug(
    "storage.procedures.delete_messages:_Search.go_on", test=lambda: in_a_store(meanwhile.test_a_message_dies_meanwhile)
)
def what_is_copied_meanwhile_is_not_searched(original, search):
    """A message that dies while its queue is searched stays in the dead-message queue."""
    return 0 if search._ends else original(search)
