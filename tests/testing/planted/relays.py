"""What becomes of messages goes into another queue, each once: positions in the manifests of batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_partq.core.errors import SinkAheadError
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.log import Conflict
from spark_partq.testing.simulation.setup import Faults
from tests.storage.procedures import test_positions_queue as relaying
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import WRITING_AT_ONCE, as_is
from tests.testing.planted.stores import in_a_store

TARGET, PRODUCER = "storage.procedures.positions_queue:PositionsQueue", "storage.procedures.produce:Producer"

RELAYING = replace(
    WRITING_AT_ONCE, queries=tuple(replace(q, writes=False, relays=True) for q in WRITING_AT_ONCE.queries)
)


def a_zombie_wakes():
    with pytest.MonkeyPatch.context() as patch:
        in_a_store(relaying.test_a_zombie_whose_number_was_given_and_deleted, patch, 3)


KILLED = replace(RELAYING, faults=Faults(slow=0.3, kill=0.01))
RESIZED = replace(RELAYING, relayed_scaled_s=1.0, faults=Faults(slow=0.3, kill=0.003))


@bug(f"{PRODUCER}._copy", change=as_is(RESIZED))
def rows_that_are_placed_again_lose_their_positions(original, producer, manifest, *others):
    """The next manifest of the batch has those of the sink's beginning, so everything seems to be missing."""
    begun = dict.fromkeys(manifest.positions, 0)
    return original(producer, replace(manifest, positions=begun), *others)


@bug(f"{PRODUCER}.finish", change=as_is(KILLED))
def a_batch_begins_before_the_last_one_is_finished(original, producer, record, by_another=False):
    """What a consumer that died left is not placed, though its positions count."""
    return producer._batch(record).find()


@bug(f"{PRODUCER}.add", change=as_is(RELAYING))
def a_lost_race_is_taken_for_success(original, *arguments):
    """Another consumer has put the batch of that number, and nothing of this one is in."""
    original(*arguments)
    return True


@bug(f"{TARGET}.commit", change=as_is(RELAYING))
def positions_of_the_last_batch_are_left_out(original, target, files, transactions):
    """A manifest has those that move alone: what others wrote seems to be missing."""
    target._positions = {}
    original(target, files, transactions)


@bug(f"{TARGET}.commit", test=a_zombie_wakes)
def a_sink_that_is_ahead_is_taken_for_finished(original, target, files, transactions):
    """Others have gone on, so what was to be written seems to be in."""
    (prepared,) = files
    positions, record = {**target._positions, **transactions}, BatchRecord(target._sink_id, target._last + 1)
    try:
        if not target._producer.add(record, prepared, positions):
            raise Conflict
    except SinkAheadError:
        pass
    target._last, target._positions = target._last + 1, positions


@bug(f"{TARGET}.refresh", change=as_is(RELAYING))
def positions_are_read_once(original, target):
    """A consumer goes on by what it read when it began: of another's batch it knows the number alone."""
    known, was_read = target._positions, target._last >= 0
    original(target)
    if was_read:
        target._positions = known
