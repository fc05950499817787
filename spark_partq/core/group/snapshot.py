"""A group's state as plain values: the snapshot from which a reader of the control table begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from spark_partq.core import format, stored
from spark_partq.core.group import held_keys, reading
from spark_partq.core.group.facts import Member, Protocol, QueueInGroup, Status
from spark_partq.core.group.state import GroupState


def to_json(state: GroupState) -> dict[str, Any]:
    """The whole state as plain values."""
    return {
        "format": state.format.body(),
        "seq": state.seq,
        "status": state.status.value,
        "status_seq": state.status_seq,
        "baseline": state.baseline,
        "trigger": state.trigger,
        "assignor": state.assignor,
        "protocol": state.protocol.value,
        "assigned_seq": state.assigned_seq,
        "basis": state.basis,
        "queues": {queue_id: _plain(q) for queue_id, q in state.queues.items()},
        "members": {name: _plain(m) for name, m in state.members.items()},
        "partitions": [[*partition_id, *vars(own).values()] for partition_id, own in state.partitions.items()],
        "floors": [[*partition_id, floor] for partition_id, floor in state.floors.items()],
        "removed": [[*partition_id, *last] for partition_id, last in state.removed.items()],
        "resets": state.resets,
        "reset_epochs": [[*partition_id, epoch] for partition_id, epoch in state.reset_epochs.items()],
        "deletions": state.deletions,
        "last_epoch": state.last_epoch,
        "exists": state.exists,
        "unbound": sorted(state.unbound),
        "held": [[queue_id, sorted(keys)] for queue_id, keys in sorted(state.held.items())],
    }


def _plain(value: Member | QueueInGroup) -> dict[str, Any]:
    fields = asdict(value)
    return {**fields.pop("more"), **fields}


def from_json(value: Mapping[str, Any]) -> GroupState:
    """Read back `to_json`.

    Raises
    ------
    ValueError, KeyError, TypeError
        If the value is no such state.
    """
    for name in ("queues", "members"):
        if not isinstance(value[name], dict):
            raise ValueError(f"{name} is no object")
    return GroupState(
        stored.whole(value["seq"], "seq"),
        Status(value["status"]),
        stored.whole(value["status_seq"], "status_seq", -1),
        stored.whole(value["baseline"], "baseline"),
        stored.text(value["trigger"], "trigger"),
        stored.text(value["assignor"], "assignor"),
        stored.one_of(Protocol, value["protocol"], "protocol"),
        stored.whole(value["assigned_seq"], "assigned_seq", -1),
        reading.basis(value["basis"]),
        {stored.text(queue_id, "queue_id"): reading.queue(q) for queue_id, q in value["queues"].items()},
        {stored.name(instance, "instance"): reading.member(m) for instance, m in value["members"].items()},
        {reading.partition_id(q, p): reading.ownership(*rest) for q, p, *rest in value["partitions"]},
        {reading.partition_id(q, p): stored.whole(floor, "floor") for q, p, floor in value["floors"]},
        {
            reading.partition_id(q, p): (stored.whole(epoch, "epoch"), stored.whole(offset, "offset"))
            for q, p, epoch, offset in value["removed"]
        },
        stored.whole(value["resets"], "resets"),
        {reading.partition_id(q, p): stored.whole(epoch, "epoch") for q, p, epoch in value["reset_epochs"]},
        stored.whole(value["deletions"], "deletions"),
        stored.whole(value["last_epoch"], "last_epoch", -1),
        stored.flag(value["exists"], "exists"),
        format.parse(value["format"]),
        {stored.name(instance, "instance") for instance in stored.texts(value["unbound"], "unbound")},
        {stored.text(queue_id, "queue_id"): held_keys.parse(keys) for queue_id, keys in value["held"]},
    )
