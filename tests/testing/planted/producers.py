"""Exactly once: what a producer asks, writes and records, also while the map changes."""

from __future__ import annotations

from spark_partq.storage.log import retrying
from spark_partq.storage.queue.partition_table import SEALED
from tests.core.queue import test_partition_map as maps
from tests.storage.procedures import test_ingress as ingress
from tests.storage.procedures import test_scale as scaled
from tests.testing.planted.bugs import CHANCE, bug
from tests.testing.planted.setups import (
    ONE_SINK,
    SEALED_OFTEN,
    TWINS,
    TWINS_AND_READ,
    as_is,
    resized,
    resized_and_read,
    twins,
)
from tests.testing.planted.stores import in_a_store

PRODUCER, TABLE = "storage.procedures.produce:Producer", "storage.queue.partition_table:PartitionTable"
BATCH = "storage.procedures.batch:Batch"


# ---- records
@bug("core.queue.records:BatchRecord.under", resized, as_is(TWINS))
def a_record_without_its_generation(original, record, generation):
    """A batch is recorded as if all maps were one: what the next map puts elsewhere is taken for written."""
    return f"{record.app}/0"


@bug(f"{BATCH}.recorded", resized, as_is(TWINS))
def a_replay_asks_the_last_generation_only(original, batch):
    """What was written under earlier maps is written again."""
    last = batch._queue.state.generation
    return {g: partitions for g, partitions in original(batch).items() if g == last}


@bug(f"{BATCH}.recorded", resized, as_is(TWINS))
def a_replay_asks_nobody(original, batch):
    """A process that starts again takes its batch for new."""
    return {}


@bug(f"{TABLE}.recorded", twins)
def records_are_read_once(original, table, app, default=-1):
    """What another process of the sink has written since the first look is not seen."""
    if not app.startswith("partq:sink/"):
        return original(table, app, default)
    seen = table.__dict__.setdefault("_seen", {})
    return seen.setdefault(app, original(table, app, default))


@bug(f"{PRODUCER}._tables", change=as_is(TWINS_AND_READ))
def a_removed_partition_forgets_its_batches(original, producer):
    """Only the partitions that the queue has now are asked."""
    return [table for table in original(producer) if table.partition in producer._queue.state.partition_numbers]


@bug("core.queue.manifest:Manifest.left", resized, as_is(TWINS))
def a_row_that_is_in_is_written_again(original, manifest, recorded):
    """When the map has changed all rows of the batch are placed again, wherever they are."""
    return manifest.files


@bug(f"{BATCH}._check_is_the_same", change=as_is(ONE_SINK))
def queries_are_not_compared(original, batch, manifest):
    """A batch of another query with the same sink id is taken for written."""


# ---- places
@bug("core.queue.partition_map:target", resized_and_read)
def a_key_goes_where_it_has_room(original, hash_, count):
    """Rows of one key are spread over partitions."""
    return (hash_ + CHANCE.randrange(count)) % count if count else original(hash_, count)


# ---- seals
@bug(
    "core.queue.partition_map:may_append",
    test=lambda: maps.test_a_table_takes_rows_of_one_generation(sealed=-1, generation=3),
)
def a_table_that_was_not_made_ready_takes_rows(original, sealed, fenced, generation):
    """A table takes rows of any map that is newer than its last seal."""
    return not fenced and sealed < generation


@bug("core.queue.partition_map:may_append", change=as_is(SEALED_OFTEN))
def a_producer_commits_through_a_seal(original, sealed, fenced, generation):
    """A producer that placed its rows by the old map still appends them."""
    return not fenced


@bug(f"{TABLE}.seal", change=as_is(SEALED_OFTEN))
def a_seal_does_not_compare(original, table, generation):
    """The cut is the end that was seen before the seal, whatever came since."""
    table.refresh()
    end, cut = table.next_offset, f"partq:cut/{generation}"

    def attempt() -> int:
        table.refresh()
        if table.recorded(SEALED) < generation:
            table._log.commit(transactions={SEALED: generation, cut: end}, operation="SEAL")
        return table.recorded(cut)

    return retrying(table.store.runtime, attempt, "a seal")


@bug(f"{TABLE}.seal", change=as_is(SEALED_OFTEN))
def the_offset_of_before_the_seal(original, table, generation):
    """Whoever seals is told where the table ended before."""
    table.refresh()
    end = table.next_offset
    original(table, generation)
    return end


@bug(f"{TABLE}.seal", lambda s: len(s.scalings) > 1)
def the_cut_of_another_generation(original, table, generation):
    """The first cut is given for each generation."""
    found = original(table, generation)
    cuts = [table.recorded(f"partq:cut/{g}", found) for g in range(generation + 1)]
    return min(cuts)


@bug(f"{TABLE}.seal", resized)
def a_map_is_opened_before_all_is_sealed(original, table, generation):
    """The last partition is not sealed when the next map comes into force."""
    table.refresh()
    return table.next_offset if table.partition == 0 else original(table, generation)


@bug(f"{TABLE}.seal", resized)
def only_the_old_tables_are_sealed(original, table, generation):
    """Tables that are new are not made ready for the next map."""
    table.refresh()
    return original(table, generation) if table.next_offset else 0


@bug(
    "storage.procedures.produce:await_map",
    test=lambda: in_a_store(scaled.test_a_producer_ends_what_a_dead_process_began),
)
def a_producer_waits_for_ever(original, queue, generation):
    """A producer that meets a seal waits for whoever scales, who may be dead."""
    runtime = queue.store.runtime
    began_s = runtime.monotonic_s()
    while queue.state.generation <= generation:
        if runtime.monotonic_s() - began_s > 1.0:
            raise TimeoutError("nobody opens the next map")
        queue.control.refresh()
        runtime.sleep(0.05)


# ---- ingress
@bug(f"{PRODUCER}.write", test=lambda: in_a_store(ingress.test_disabled_while_files_are_written))
def ingress_is_no_matter_to_a_new_batch(original, producer, record, files, messages, heed_ingress=True):
    """A queue takes messages though its ingress is disabled."""
    return original(producer, record, files, messages, heed_ingress=False)
