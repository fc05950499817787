"""The tables below: compare-and-set, outcomes that are unknown, checkpoints, snapshots, compaction."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.core.errors import StoreUnavailableError
from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.storage.log import Conflict
from spark_partq.storage.log.entries import encode
from spark_partq.testing.simulation.setup import Faults
from tests.core.group import test_acks as acknowledgements
from tests.core.group import test_state as states
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import SEALED_OFTEN, TWINS, as_is, without_answers

LOG, COMMIT = "storage.log.table:DeltaLog", "storage.log.commit"


@bug(f"{LOG}.commit")
def a_commit_is_no_compare_and_set(original, log, *arguments, **named):
    """Who comes second commits what he decided on an older state."""
    try:
        original(log, *arguments, **named)
    except Conflict:
        log.refresh()
        original(log, *arguments, **named)


@bug(f"{COMMIT}:_put", change=without_answers)
def a_commit_without_an_answer_is_taken_for_done(original, log, version, entry):
    """A put whose answer was lost is not looked after."""
    try:
        log.files.put_if_absent(log.entry_path(version), encode(entry))
    except StoreUnavailableError:
        return True
    except Exception:
        return original(log, version, entry)
    return True


@bug(f"{COMMIT}:_put", change=without_answers)
def a_commit_without_an_answer_is_made_again(original, log, version, entry):
    """A put whose answer was lost is taken for failed, and put again as the next version."""
    try:
        log.files.put_if_absent(log.entry_path(version), encode(entry))
    except StoreUnavailableError:
        return original(log, version + 1, entry)
    except Exception:
        return original(log, version, entry)
    return True


@bug(f"{COMMIT}:_put")
def a_put_overwrites(original, log, version, entry):
    """The store's put-if-absent is an ordinary put, as on a file system without exclusive creation."""
    path = log.entry_path(version)
    if log.files.info(path) is not None:
        log.files.delete(path)
    return original(log, version, entry)


@bug(
    "core.queue.records:expired_records",
    lambda s: s.maintain_every_s is not None,
    as_is(replace(TWINS, maintain_every_s=0.5)),
)
def a_checkpoint_loses_the_records_of_sinks(original, transactions, now_ms):
    """After a checkpoint nobody knows which batches are in."""
    return [app for app in transactions if app.startswith("partq:sink/")]


@bug("core.queue.records:expired_records", lambda s: s.maintain_every_s is not None)
def a_checkpoint_loses_the_next_offset(original, transactions, now_ms):
    """After a checkpoint offsets begin anew."""
    return [app for app in transactions if app == "partq:next"]


@bug(
    "core.queue.records:expired_records",
    change=as_is(replace(SEALED_OFTEN, maintain_every_s=0.3, faults=Faults(kill=0.01))),
)
def a_checkpoint_loses_the_seal(original, transactions, now_ms):
    """After a checkpoint a table does not know which map was sealed."""
    return [app for app in transactions if app.startswith("partq:sealed")]


@bug("core.group.snapshot:to_json", test=states.test_snapshots_are_exact)
def a_snapshot_forgets_the_lineage_epoch(original, state):
    """Who starts from a snapshot takes each partition for newly owned."""
    partitions = {id_: replace(own, lineage_epoch=own.epoch) for id_, own in state.partitions.items()}
    return original(replace(state, partitions=partitions))


# ---- compaction of acknowledgements
def _beats(rows: list[AckRow], live: list[str]) -> list[AckRow]:
    return [AckRow(i, beat) for i, beat in Acks.of(rows).beats.items() if i in live]


@bug("core.group.acks:compacted", test=acknowledgements.test_compaction_keeps_what_can_still_count)
def compaction_keeps_the_newest_row(original, rows, live):
    """Of each partition the last row is kept, whoever wrote it."""
    rows = list(rows)
    last = {row.partition_id: row for row in rows if row.partition_id is not None}
    return [*last.values(), *_beats(rows, live)]


@bug("core.group.acks:compacted", test=acknowledgements.test_compaction_keeps_what_can_still_count)
def compaction_keeps_the_highest_offset(original, rows, live):
    """Of each partition the row with the highest offset is kept, of whatever epoch."""
    rows = list(rows)
    best: dict = {}
    for row in rows:
        if row.partition_id is not None and (
            row.partition_id not in best or row.offset > best[row.partition_id].offset
        ):
            best[row.partition_id] = row
    return [*best.values(), *_beats(rows, live)]


@bug("core.group.acks:compacted", test=acknowledgements.test_compaction_keeps_what_can_still_count)
def compaction_loses_heartbeats(original, rows, live):
    """A member that only sends heartbeats seems to have sent none."""
    return original(rows, ())


@bug("core.group.acks:compacted", test=acknowledgements.test_compaction_keeps_what_can_still_count)
def compaction_forgets_what_was_delivered(original, rows, live):
    """Of what former owners were given nothing is known after a compaction."""
    return [replace(row, delivered=row.offset) for row in original(rows, live)]
