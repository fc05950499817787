"""What the page gets from a look: the store in short, a queue, a group. The descriptions are the same as those of the commands."""

from __future__ import annotations

from typing import Any

from spark_partq.console.looks import Look, Looks
from spark_partq.console.rates import total
from spark_partq.core.errors import PartqError, QueueNotFoundError
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.describe_group import GroupDescription, describe_group, described
from spark_partq.storage.inspect.describe_queue import describe
from spark_partq.storage.inspect.watch import GroupSample, QueueSample, unread_queues

Json = dict[str, Any]


def told(error: PartqError) -> Json:
    """An error in the form that programs read."""
    return {"class": error.error_class, "message": error.message, "next_step": error.next_step}


def store_answer(looks: Looks) -> Json:
    """The store in short, as of the last look that saw it, and the queues and groups that could not be read."""
    found = looks.last
    about = {
        "store": looks.store.uri,
        "every_s": looks.every_s,
        "error": None if looks.error is None else told(looks.error),
    }
    if found is None:
        return {**about, "look": 0, "at": None, "took_s": None, "failed": [], "queues": [], "groups": []}
    failed = [
        {"kind": kind, "name": name, **told(error)} for (kind, name), error in sorted(found.sample.failed.items(), key=lambda one: one[0])
    ]  # fmt: skip
    return {
        **about,
        "look": found.number,
        "at": found.at.isoformat(),
        "took_s": round(found.took_s, 3),
        "failed": failed,
        "queues": [_queue_in_short(looks, queue) for queue in found.sample.queues],
        "groups": [_group_in_short(looks, group) for group in found.sample.groups],
    }


def _queue_in_short(looks: Looks, queue: QueueSample) -> Json:
    opened = looks.watch.queue(queue.name)
    return {
        "name": queue.name,
        "status": queue.status,
        "configured_partitions": queue.configured_partitions,
        "operating_partitions": queue.operating_partitions,
        "ingress": queue.ingress,
        "stuck": queue.stuck,
        "depth": sum(p.depth for p in queue.partitions),
        "size_bytes": sum(p.size_bytes for p in queue.partitions),
        "oldest_s": _rounded(max(queue.oldest_s.values(), default=0.0)),
        "in_per_s": _rounded(total(looks.rates.of((queue.name, p.partition)) for p in queue.partitions)),
        "groups": sorted(opened.state.groups) if opened is not None else [],
        "trend": looks.trend("queue", queue.name),
    }


def _group_in_short(looks: Looks, sample: GroupSample) -> Json:
    found = sample.description
    return {
        "name": found.group,
        "state": found.state,
        "status": found.status,
        "trigger": found.trigger,
        "assignor": found.assignor,
        "protocol": found.protocol,
        "members": len(found.members),
        "expired": sum(member.expired for member in found.members),
        "partitions": len(found.partitions),
        "unassigned": found.unassigned,
        "handoffs": sum(p.draining for p in found.partitions),
        "waiting": sum(bool(p.waits_for) for p in found.partitions),
        "lag": found.lag,
        "oldest_s": _rounded(
            max(
                (sample.oldest_s.get((p.queue, p.partition), 0.0) for p in found.partitions if p.subscribed),
                default=0.0,
            )
        ),
        "out_per_s": _rounded(total(looks.rates.of((found.group, p.queue, p.partition)) for p in found.partitions)),
        "queues": sorted({p.queue for p in found.partitions}),
        "trend": looks.trend("group", found.group),
    }


def queue_answer(looks: Looks, name: str) -> Json:
    """A queue as `describe_queue` shows it; and ages in seconds and messages per second, in the order of its partitions.

    Raises
    ------
    PartqError
    """
    look = looks.checked("queue", name)
    queue = looks.watch.queue(name)
    sample = next((one for one in look.sample.queues if one.name == name), None)
    if queue is None or sample is None:
        known = ", ".join(one.name for one in look.sample.queues) or "none"
        raise QueueNotFoundError(
            f"there is no queue {name!r} in {looks.store.uri}; its queues: {known}", queue=name, store=looks.store.uri
        )
    readers = [looks.watch.group(group) or Group(looks.store, group) for group in sorted(queue.state.groups)]
    description = describe(queue, readers)
    numbers = [p.partition for p in description.partitions]
    return {
        "look": look.number,
        "description": description.to_dict(),
        "oldest_s": [_rounded(sample.oldest_s.get(number, 0.0)) for number in numbers],
        "in_per_s": [_rounded(looks.rates.of((name, number))) for number in numbers],
    }


def group_answer(looks: Looks, name: str) -> Json:
    """A group as `describe_group` shows it, also a deleted group; and the same figures as for a queue.

    Raises
    ------
    PartqError
    """
    look = looks.checked("group", name)
    description = _description(looks, look, name)
    sample = next((one for one in look.sample.groups if one.description.group == name), None)
    oldest_s = {} if sample is None else sample.oldest_s
    partitions = description.partitions
    return {
        "look": look.number,
        "description": description.to_dict(),
        "oldest_s": [_rounded(oldest_s.get((p.queue, p.partition), 0.0)) for p in partitions],
        "in_per_s": [_rounded(looks.rates.of((p.queue, p.partition))) for p in partitions],
        "out_per_s": [_rounded(looks.rates.of((name, p.queue, p.partition))) for p in partitions],
    }


def _description(looks: Looks, look: Look, name: str) -> GroupDescription:
    group = looks.watch.group(name)
    if group is None:
        return describe_group(looks.store, name)
    unread = unread_queues(look.sample.failed)
    return described(group, looks.watch.queues_of(group), looks.recent(group), unread)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
