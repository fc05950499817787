"""A batch is durable before it is placed: manifests, of those who write it and of those who copy it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from spark_partq.core.queue.manifest import ManifestName
from tests.core.queue import test_restated as cores
from tests.storage.procedures import test_begun as begun
from tests.storage.procedures import test_promoted_positions as restated
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import DISCARDED, MOVED_HALF_WAY, RECOMPUTED, SLOW_TWINS, as_is
from tests.testing.planted.stores import in_a_store

BATCH, PRODUCER = "storage.procedures.batch:Batch", "storage.procedures.produce:Producer"
COPY = "storage.replica.manifest_copy:ManifestCopy"
MANIFEST = "core.queue.manifest:Manifest"


def named(batch, manifest):
    name = ManifestName(batch.record.sink_id, batch.record.batch_id, batch._next)
    return replace(manifest, name=name, query_id=batch.record.query_id)


@bug(f"{BATCH}.put", change=as_is(RECOMPUTED))
def a_manifest_is_put_after_the_commits(original, batch, manifest):
    """A producer that dies between two commits leaves nothing that says what the rest is."""
    batch.later = named(batch, manifest)
    return batch.later, True


@a_manifest_is_put_after_the_commits.also(f"{PRODUCER}._finish")
def _(original, producer, placed, batch):
    added = original(producer, placed, batch)
    if "later" in vars(batch):
        batch._manifests.put(batch.later)
    return added


@bug(f"{BATCH}.put", change=as_is(RECOMPUTED))
def a_replay_goes_on_with_what_it_computed(original, batch, manifest):
    """A producer that finds a manifest commits its own files."""
    original(batch, manifest)
    return named(batch, manifest), True


@a_replay_goes_on_with_what_it_computed.also(f"{BATCH}.find")
def _(original, batch):
    found = original(batch)
    return None if found is not None and found.files else found


@bug(f"{BATCH}.put", change=as_is(SLOW_TWINS))
def manifests_are_not_listed_again(original, batch, manifest):
    """A producer that slept until its twin had gone on begins the batch anew."""
    own = named(batch, manifest)
    if batch._manifests.put(own):
        batch.forget_earlier()
        return own, True
    return original(batch, manifest)


@bug(f"{PRODUCER}._finish", change=as_is(SLOW_TWINS))
def a_manifest_goes_when_its_batch_is_in(original, producer, placed, batch):
    """A producer removes the manifest before there is that of the next batch."""
    added = original(producer, placed, batch)
    batch._manifests.delete(batch._manifests.of_sink(batch.record.sink_id))
    return added


@bug(f"{BATCH}.put", change=as_is(replace(RECOMPUTED, partitions=2)))
def what_is_placed_again_has_no_manifest(original, batch, manifest):
    """When the map changes what is left is placed again, and nobody else knows where."""
    if batch._next == 0:
        return original(batch, manifest)
    return named(batch, manifest), True


@bug(f"{BATCH}.put", change=as_is(DISCARDED))
def a_discard_is_not_made_durable(original, batch, manifest):
    """A batch is counted as discarded, and stored when its producer has died and ingress is enabled again."""
    return original(batch, manifest) if manifest.discarded is None else (named(batch, manifest), True)


@bug(f"{COPY}.copy", change=as_is(MOVED_HALF_WAY))
def a_pass_copies_commits_before_manifests(original, copy):
    """A replica that takes over before the next pass has a part of a batch, and nothing says what the rest is."""


@a_pass_copies_commits_before_manifests.also(f"{COPY}.__init__")
def _(original, copy, *arguments):
    original(copy, *arguments)
    type(copy).copy.__wrapped__(copy)


@bug(
    "storage.procedures.begun:BegunBatches.files_left",
    test=lambda: in_a_store(begun.test_files_that_are_still_to_be_committed_stay),
)
def maintenance_ignores_manifests(original, batches, table):
    """Files of a batch that was begun long ago are deleted before they are committed."""
    return set()


@bug("storage.procedures.begun:BegunBatches.forget", test=lambda: in_a_store(begun.test_which_manifests_go))
def the_last_manifest_goes(original, batches):
    """Maintenance removes a manifest once its batch is in."""
    batches._manifests.delete(batches._names)


@bug(
    "storage.procedures.batch:Batch.was_forgotten",
    test=lambda: in_a_store(begun.test_whoever_comes_back_while_maintenance_forgets_silent_sinks, True),
)
def what_was_forgotten_is_put_in_again(original, batch, manifest):
    """Who has found a manifest believes that it is there yet."""
    return False


@bug(
    "storage.procedures.begun:BegunBatches._lacks_files",
    test=lambda: in_a_store(begun.test_a_sink_that_is_half_in_is_never_forgotten),
)
def a_half_batch_is_forgotten(original, batches, sink_id, tables):
    """Maintenance forgets a silent sink though some partitions lack their part of its last batch."""
    return False


@bug(
    "core.queue.records:silent_sinks",
    test=lambda: in_a_store(begun.test_a_sink_that_wakes_up_is_not_forgotten),
)
def every_sink_is_silent(original, transactions, now_ms):
    """The age of a manifest alone tells that a sink is silent."""
    return dict.fromkeys(original(transactions, now_ms), True)


# ---- a replica takes over from a sink that keeps positions
def taken_over(test):
    def run():
        with pytest.MonkeyPatch.context() as patch:
            in_a_store(lambda store: test(store, f"{store}-there", patch))

    return run


@bug(
    "storage.procedures.promote:restate_positions",
    test=taken_over(restated.test_the_primary_is_lost_when_manifests_were_copied),
)
def the_last_manifest_of_a_copy_always_counts(original, *arguments):
    """Messages of earlier batches that the replica lacks seem to be in."""


@bug(f"{COPY}._read_last", test=taken_over(restated.test_the_sink_goes_on_while_a_pass_reads))
def a_manifest_is_copied_that_counts_more_than_the_copy_has(original, copy, *which):
    """The sink goes on while a pass reads, and no earlier manifest is copied: everything comes again."""
    return []


@bug(
    f"{MANIFEST}.earlier_are_in",
    test=taken_over(partial(restated.test_a_pass_that_puts_the_first_manifest_of_a_sink_after_the_promotion, act=id)),
)
def a_late_manifest_counts_what_the_replica_lacks(original, manifest, last):
    """A pass that slept puts the first manifest of a sink after the promotion, and its positions count."""
    return True


@bug(
    f"{MANIFEST}.is_complete",
    test=taken_over(partial(restated.test_a_void_batch_behind_such_a_manifest, parts=1)),
)
def a_batch_counts_of_which_only_a_part_is_in(original, manifest, *what):
    """A pass that slept puts the first manifest of a sink after the promotion. The sink does not finish this batch, and its positions count."""
    return True


RESTATED = "core.queue.restated:restated"


@bug(RESTATED, test=cores.test_the_last_one_counts_what_the_copy_lacks)
def positions_count_what_a_copy_lacks(original, manifests, *others):
    """Whether the copy has the batches that a manifest follows is not looked at."""
    return original([replace(manifest, follows=None) for manifest in manifests], *others)


@bug(RESTATED, test=cores.test_a_part_that_was_placed_by_an_earlier_map)
def the_rest_of_a_batch_is_taken_for_all_of_it(original, manifests, *others):
    """Whether the copy has the part that an earlier map placed is not looked at."""
    return original([replace(manifest, placed={}) for manifest in manifests], *others)


@bug(RESTATED, test=cores.test_files_that_are_gone)
def files_that_are_gone_are_placed_later(original, manifests, last, has_part, has_file, *others):
    """A manifest counts whose files are neither in their partitions nor in the copy."""
    return original(manifests, last, has_part, lambda file: True, *others)
