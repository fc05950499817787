"""What must hold when a run has come to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_partq.storage.files import Files
from spark_partq.storage.log import LogFolder
from spark_partq.storage.store import Store
from spark_partq.testing.simulation.oracle import Oracle
from spark_partq.testing.simulation.reader import Reader
from spark_partq.testing.simulation.setup import PRIMARY
from spark_partq.testing.simulation.stored import Violation


def check_stored(oracle: Oracle, uri: str, lost: bool = False) -> None:
    """Every message that a producer was promised is in the queue; `lost`: the store of some of them is."""
    places = oracle.queues[uri, "q"].places
    missing = sorted(oracle.promised - places.keys() - oracle.removed)
    if missing and not lost:
        raise Violation(f"LOST: {', '.join(missing[:5])} and so on ({len(missing)}) are not in the queue")


def check_discarded(oracle: Oracle, counted: int) -> None:
    """What was discarded is counted once, and what is counted is not stored (S3)."""
    discarded = sum(oracle.batches.discarded.values())
    if counted != discarded:
        raise Violation(f"DISCARDED: {discarded} messages were, and {counted} are counted")


def check_strays(oracle: Oracle, uri: str, files: Files) -> None:
    """What was put into another table's log keeps nobody from reading that to its end."""
    for number, partition in oracle.queues[uri, "q"].partitions.items():
        version = LogFolder(Store.over(files), f"queues/q/partitions/partition={number}").load().version
        if version != partition.version:
            raise Violation(f"DAMAGED: partition {number} ends at {version}, and has version {partition.version}")


def check_settings(oracle: Oracle, uri: str, groups: Sequence[str], wanted: Mapping[str, object]) -> None:
    """What was asked for last is in force, and each group that reads the queue knows it."""
    queue = oracle.queues[uri, "q"].state
    if queue is None:
        return
    settings = queue.settings.model_dump()
    lost = {name: value for name, value in wanted.items() if settings[name] != value}
    if lost:
        raise Violation(f"SETTINGS: {lost} were set, and are { ({name: settings[name] for name in lost}) }")
    for group in groups:
        state = oracle.groups.get((uri, group))
        known = None if state is None else state.queues.get(queue.queue_id)
        if state is not None and not state.members and uri != PRIMARY:
            continue  # it was copied before it knew; its next member, or maintenance, tells it
        for name in ("rebalance_delay_ms", "max_handoff_time_ms"):
            if known is not None and getattr(known, name) != settings[name]:
                raise Violation(
                    f"SETTINGS: group {group} goes by {name}={getattr(known, name)}, and it is {settings[name]}"
                )


def check_read(oracle: Oracle, uri: str, group: str) -> None:
    """The group was given everything from where it started."""
    if oracle.retention:
        return
    queue, reader = oracle.queues[uri, "q"], oracle.readers.get(group, Reader())
    for id_, (number, offset) in queue.places.items():
        if id_ not in reader.given and id_ not in reader.excused and id_ not in oracle.dead.of(group):
            raise Violation(f"UNREAD: group {group} never got {id_} ({number}@{offset})")


def check_redriven(oracle: Oracle, group: str) -> None:
    """What was put back, as no message kills any more, the group was given; or put aside again, while it held keys that another group did not,
    or behind a message that it was given and whose consumers were killed by something else.
    """
    put_back, given = oracle.dead.redriven.get(group, set()), oracle.readers.get(group, Reader()).given
    again = oracle.dead.of(group)
    held = {oracle.sent[id_].key for id_ in again & given}
    behind = again if len(oracle.readers) > 1 else {id_ for id_ in again if oracle.sent[id_].key in held}
    missing = sorted(put_back - given - oracle.rewritten.gone - behind)
    if missing:
        raise Violation(f"REDRIVEN: group {group} never got {', '.join(missing[:3])}, which was put back")


def check_results(oracle: Oracle, uri: str, group: str, written: set[str]) -> None:
    """What the group was given is in the table of results."""
    if oracle.retention:
        return
    reader = oracle.readers.get(group, Reader())
    explained = written | reader.excused | reader.left_out | oracle.dead.of(group)
    for id_, (number, offset) in oracle.queues[uri, "q"].places.items():
        if id_ not in explained:
            raise Violation(f"RESULT LOST: group {group} has written nothing of {id_} ({number}@{offset})")
