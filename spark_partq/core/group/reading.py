"""The tables of a group, read from plain values. A value of a wrong type or out of its range is a `ValueError`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from spark_partq.core import stored
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.facts import GroupFact, Member, Ownership, QueueInGroup
from spark_partq.core.ids import PartitionId
from spark_partq.core.patterns import check_pattern
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.stored import MAX_FLOWS, MAX_MS, MAX_PARTITIONS, MOST

_MEMBER = {f.name for f in fields(Member)} - {"more"}
_QUEUE = {f.name for f in fields(QueueInGroup)} - {"more"}
_NUMBERS = {
    "partition": (PARENT, MAX_PARTITIONS - 1),
    "flows": (0, MOST),  # of a member, or of a whole group
    **dict.fromkeys(("offset", "delivered", "epoch_before", "epoch", "lineage_epoch"), (0, MOST)),
}
_TEXTS = ("queue_id", "incarnation", "host", "status")


def check_columns(fact: GroupFact) -> None:
    """Check the columns of a fact of any kind. In most facts most columns are empty."""
    values = vars(fact)
    for column, (least, most) in _NUMBERS.items():
        if values[column] is not None:
            stored.whole(values[column], column, least, most)
    for column in _TEXTS:
        if values[column] is not None:
            stored.text(values[column], column)
    for column in ("flow", "to_flow"):
        flow(values[column], column)
    if fact.queue is not None:
        stored.name(fact.queue, "queue")
    if fact.instance is not None:
        stored.name(fact.instance, "instance")
    if fact.forced is not None:
        stored.flag(fact.forced, "forced")


def ack_row(plain: Mapping[str, Any]) -> AckRow:
    queue_id, partition = plain["queue_id"], plain["partition"]
    if (queue_id is None) != (partition is None):
        raise ValueError("queue_id or partition is there without the other")
    if queue_id is not None:
        partition_id(queue_id, partition)
    return AckRow(
        stored.text(plain["incarnation"], "incarnation"),
        stored.whole(plain["beat"], "beat"),
        queue_id,
        partition,
        stored.whole(plain["epoch"], "epoch"),
        stored.whole(plain["offset"], "offset"),
        stored.whole(plain["delivered"], "delivered"),
        stored.whole(plain["start"], "start", 0, plain["delivered"]),
        stored.whole(plain["attempt"], "attempt"),
    )


def flow(value: object, what: str) -> str | None:
    """A flow's name: an instance, and the number of one of its flows."""
    if value is None:
        return None
    instance, _, number = stored.text(value, what).rpartition("/")
    stored.name(instance, f"instance of {what}")
    if not (number.isascii() and number.isdigit()) or str(int(number[:6])) != number or int(number) >= MAX_FLOWS:
        raise ValueError(f"{what} is {value!r:.60}, which is no flow of an instance")
    return stored.text(value, what)


def member(plain: Mapping[str, Any]) -> Member:
    _check_object(plain, "a member")
    values = {f.name: plain.get(f.name, f.default) for f in fields(Member)}
    pattern = stored.text_or_none(values["pattern"], "pattern")
    if pattern is not None:
        try:
            check_pattern(pattern)
        except ValueError as error:
            raise ValueError(f"pattern {pattern[:60]!r}: {error}") from error
    return Member(
        instance=stored.name(values["instance"], "instance"),
        incarnation=stored.text(values["incarnation"], "incarnation"),
        flows=stored.whole(values["flows"], "flows", 1, MAX_FLOWS),
        session_timeout_ms=stored.whole(values["session_timeout_ms"], "session_timeout_ms", 1, MAX_MS),
        assignors=stored.texts(values["assignors"], "assignors"),
        queues=tuple(stored.name(queue, "queues") for queue in stored.texts(values["queues"], "queues")),
        pattern=pattern,
        cooperative=stored.flag(values["cooperative"], "cooperative"),
        static=stored.flag(values["static"], "static"),
        manual=stored.flag(values["manual"], "manual"),
        weight=stored.positive(values["weight"], "weight"),
        application=stored.text(values["application"], "application"),
        executors=stored.texts(values["executors"], "executors"),
        anew=stored.flag(values["anew"], "anew"),
        stateful=stored.flag(values["stateful"], "stateful"),
        host=stored.text(values["host"], "host"),
        order=stored.whole(values["order"], "order"),
        more=stored.others(plain, _MEMBER),
    )


def queue(plain: Mapping[str, Any]) -> QueueInGroup:
    _check_object(plain, "a queue")
    return QueueInGroup(
        stored.name(plain["name"], "queue"),
        stored.whole(plain["partitions"], "partitions", 0, MAX_PARTITIONS),
        stored.whole(plain["rebalance_delay_ms"], "rebalance_delay_ms", 0, MAX_MS),
        stored.whole(plain["max_handoff_time_ms"], "max_handoff_time_ms", 0, MAX_MS),
        stored.whole(plain.get("first", 0), "first", PARENT, 0),
        stored.whole(plain.get("revision", 0), "revision"),
        stored.flag(plain.get("durable", False), "durable"),
        stored.others(plain, _QUEUE),
    )


def _check_object(plain: object, what: str) -> None:
    if not isinstance(plain, Mapping):
        raise ValueError(f"{what} is no object")


def partition_id(queue_id: object, number: object) -> PartitionId:
    return stored.text(queue_id, "queue_id"), stored.whole(number, "partition", PARENT, MAX_PARTITIONS - 1)


def ownership(
    owner: object, last_flow: object, incarnation: object, epoch: object, lineage_epoch: object, start: object,
    delivered: object, to_flow: object, handoff: object,
) -> Ownership:  # fmt: skip
    return Ownership(
        flow(owner, "flow"),
        flow(last_flow, "last_flow"),
        stored.text(incarnation, "incarnation"),
        stored.whole(epoch, "epoch"),
        stored.whole(lineage_epoch, "lineage_epoch"),
        stored.whole(start, "start"),
        stored.whole(delivered, "delivered"),
        flow(to_flow, "to_flow"),
        stored.whole(handoff, "handoff", -1),
    )


def basis(plain: object) -> dict[str, list[Any]]:
    """What an assignor was given: for each flow the names of its queues, its weight, and whether it is static."""
    if not isinstance(plain, dict):
        raise ValueError("basis is no object")
    for name, (queues, weight, static) in plain.items():
        flow(name, "basis")
        stored.texts(queues, "basis")
        stored.positive(weight, "basis")
        stored.flag(static, "basis")
    return plain
