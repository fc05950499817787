"""The values of the metrics, from one look at a store."""

from __future__ import annotations

from collections.abc import Iterator

from spark_partq.core.group.health import GroupCondition
from spark_partq.metrics import names
from spark_partq.metrics.names import Metric
from spark_partq.storage.inspect.fact_counts import HandoffEnd
from spark_partq.storage.inspect.watch import GroupSample, QueueSample, Sample

Value = tuple[Metric, tuple[str, ...], float]  # with the values of its labels

_STATUSES = ("Ready", "ScalingUp", "ScalingDown")
_STATES = [state.value for state in GroupCondition if state is not GroupCondition.DEAD]
_REASONS = ("dead", "held", "expired")


def values(sample: Sample) -> Iterator[Value]:
    """The values of all metrics, in no particular order."""
    for (kind, name), error in sample.failed.items():
        yield names.UNREADABLE, (kind, name, error.error_class), 1
    for queue in sample.queues:
        yield from _queue(queue)
    for group in sample.groups:
        yield from _group(group)


def _queue(found: QueueSample) -> Iterator[Value]:
    name = found.name
    for status in _STATUSES:
        yield names.QUEUE_STATUS, (name, status), found.status == status
    yield names.QUEUE_PARTITIONS, (name, "configured"), found.configured_partitions
    yield names.QUEUE_PARTITIONS, (name, "operating"), found.operating_partitions
    yield names.INGRESS, (name,), found.ingress
    yield names.STUCK, (name,), found.stuck
    yield names.DISCARDED, (name,), found.discarded
    for p in found.partitions:
        at = name, str(p.partition)
        yield names.APPENDED, at, p.next_offset
        yield names.DEPTH, at, p.depth
        yield names.FILES, at, p.files
        yield names.SIZE, at, p.size_bytes
        yield names.STORED_AGE, at, found.oldest_s[p.partition]


def _group(sample: GroupSample) -> Iterator[Value]:
    found, counts = sample.description, sample.counts
    name = found.group
    for state in _STATES:
        yield names.STATE, (name, state), found.state == state
    yield names.MEMBERS, (name,), len(found.members)
    yield names.EXPIRED, (name,), sum(member.expired for member in found.members)
    for member in found.members:
        if member.heartbeat_age_s is not None:
            yield names.HEARTBEAT, (name, member.instance), member.heartbeat_age_s
    yield names.UNASSIGNED, (name,), found.unassigned
    yield names.HANDOFFS, (name,), sum(p.draining for p in found.partitions)
    yield names.WAITING, (name,), sum(bool(p.waits_for) for p in found.partitions)
    for p in found.partitions:
        at = name, p.queue, str(p.partition)
        yield names.POSITION, at, p.position
        yield names.IN_FLIGHT, at, p.delivered - p.position
        if p.lag is not None:
            yield names.LAG, at, p.lag
            yield names.OLDEST_AGE, at, sample.oldest_s.get((p.queue, p.partition), 0.0)
    for queue, subscribed in {p.queue: p.subscribed for p in found.partitions}.items():
        yield names.SUBSCRIBED, (name, queue), subscribed
    for queue, keys in found.held_keys.items():
        yield names.HELD_KEYS, (name, queue), keys
    yield names.REBALANCES, (name,), counts.rebalances
    for result in HandoffEnd:
        yield names.ENDED_HANDOFFS, (name, result.value), counts.handoffs[result]
    yield names.REDELIVERED, (name,), counts.redelivered
    for reason in _REASONS:
        yield names.SKIPPED, (name, reason), counts.skipped[reason]
    for instance, work in sample.work.items():
        of_query = name, instance
        yield names.RETRIES, of_query, work.lost_races
        yield names.PLANNER_SECONDS, of_query, work.planner_ms / 1000
        yield names.PLANNER_CALLS, of_query, work.planner_calls
