"""The metrics: their names, kinds, labels and meanings, after Prometheus' conventions. docs/monitoring.md has the same table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_UNITS = ("seconds", "bytes", "messages")


@dataclass(frozen=True)
class Metric:
    """One metric; the name of a counter ends in ``_total``."""

    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    help: str

    @property
    def family(self) -> str:
        """The metric's name without the suffix ``_total`` of a counter."""
        return self.name.removesuffix("_total")

    @property
    def unit(self) -> str:
        """The unit in the metric's name; empty if there is none."""
        return next((unit for unit in _UNITS if self.family.endswith(f"_{unit}")), "")


_QUEUE, _GROUP = ("queue",), ("group",)
_PARTITION, _OF_GROUP = ("queue", "partition"), ("group", "queue", "partition")
_MEMBER = ("group", "member")

UP = Metric(
    "partq_up",
    "gauge",
    (),
    "1 if the store could be listed. 0 if not: then there is only the duration of the scrape beside it.",
)
UNREADABLE = Metric(
    "partq_unreadable", "gauge", ("kind", "name", "error"),
    "1 for each queue or group (kind) that could not be read, with the class of the error. Its other metrics are missing.",
)  # fmt: skip
DURATION = Metric("partq_scrape_duration_seconds", "gauge", (), "How long it took to read the store.")

QUEUE_STATUS = Metric(
    "partq_queue_status",
    "gauge",
    ("queue", "status"),
    "1 for the status that the queue has: Ready, ScalingUp or ScalingDown.",
)
QUEUE_PARTITIONS = Metric(
    "partq_queue_partitions",
    "gauge",
    ("queue", "count"),
    "Partitions, configured and operating; 0 is an exclusive queue.",
)
INGRESS = Metric(
    "partq_queue_ingress_enabled", "gauge", _QUEUE, "1 if the queue takes messages, 0 if ingress is disabled."
)
STUCK = Metric(
    "partq_queue_stuck_messages",
    "gauge",
    _QUEUE,
    "Messages left in the parent of a queue that became partitioned, which nobody is given.",
)
DISCARDED = Metric(
    "partq_queue_discarded_messages_total",
    "counter",
    _QUEUE,
    "Messages that were discarded while ingress was disabled, ever.",
)
APPENDED = Metric(
    "partq_queue_appended_messages_total",
    "counter",
    _PARTITION,
    "Messages that were ever appended: the offset of the next one.",
)
DEPTH = Metric(
    "partq_queue_depth_messages", "gauge", _PARTITION, "Stored messages that not every group has acknowledged."
)
FILES = Metric("partq_queue_files", "gauge", _PARTITION, "Files of stored messages.")
SIZE = Metric("partq_queue_size_bytes", "gauge", _PARTITION, "Size of these files.")
STORED_AGE = Metric(
    "partq_queue_oldest_message_age_seconds",
    "gauge",
    _PARTITION,
    "Age of the oldest stored message; 0 if there is none.",
)

STATE = Metric(
    "partq_group_state", "gauge", ("group", "state"),
    "1 for the state that the group has: Ready, Holddown, Rebalancing, Expired (the sessions of all members have expired) or Empty.",
)  # fmt: skip
MEMBERS = Metric("partq_group_members", "gauge", _GROUP, "Members, also those whose sessions have expired.")
EXPIRED = Metric(
    "partq_group_expired_members",
    "gauge",
    _GROUP,
    "Members whose sessions have expired and whom nobody has taken out yet.",
)
HEARTBEAT = Metric(
    "partq_group_heartbeat_age_seconds",
    "gauge",
    _MEMBER,
    "Age of a member's last heartbeat, if it has sent one.",
)
UNASSIGNED = Metric(
    "partq_group_unassigned_partitions",
    "gauge",
    _GROUP,
    "Partitions that a member reads and nobody owns; without members, all.",
)
HANDOFFS = Metric("partq_group_handoffs_in_progress", "gauge", _GROUP, "Partitions that their owners are giving up.")
WAITING = Metric(
    "partq_group_waiting_partitions",
    "gauge",
    _GROUP,
    "Partitions whose next messages wait for others because of a resize.",
)
LAG = Metric("partq_group_lag_messages", "gauge", _OF_GROUP, "Stored messages that the group has not acknowledged.")
IN_FLIGHT = Metric(
    "partq_group_delivered_messages",
    "gauge",
    _OF_GROUP,
    "Messages that were delivered to the group and are not acknowledged yet.",
)
POSITION = Metric(
    "partq_group_position", "gauge", _OF_GROUP, "Offset of the next message that the group wants; a reset sets it back."
)
OLDEST_AGE = Metric(
    "partq_group_oldest_message_age_seconds", "gauge", _OF_GROUP,
    "Age of the oldest message that the group has not acknowledged; 0 if there is none.",
)  # fmt: skip
SUBSCRIBED = Metric(
    "partq_group_subscribed",
    "gauge",
    ("group", "queue"),
    "1 if a member subscribes to a queue of which the group has positions, or the group has no members; 0 if only other queues are read.",
)
HELD_KEYS = Metric(
    "partq_group_held_keys",
    "gauge",
    ("group", "queue"),
    "Keys that the group holds back, because a message of each is dead.",
)
REBALANCES = Metric(
    "partq_group_rebalances_total", "counter", _GROUP, "Rebalances that began since the exporter first saw the group."
)
ENDED_HANDOFFS = Metric(
    "partq_group_handoffs_total", "counter", ("group", "result"),
    "Handoffs that ended since the exporter first saw the group: released in time, forced as the time ran out, or cancelled.",
)  # fmt: skip
REDELIVERED = Metric(
    "partq_group_redelivered_messages_total", "counter", _GROUP,
    "Messages that were delivered and not acknowledged when an owner lost the partition, each time, since the exporter first saw the group.",
)  # fmt: skip
SKIPPED = Metric(
    "partq_group_skipped_messages_total", "counter", ("group", "reason"),
    "Messages that were left out since the exporter first saw the group: dead (delivered too often), held (behind a dead one of their key) or expired.",
)  # fmt: skip

RETRIES = Metric(
    "partq_query_commit_retries_total", "counter", _MEMBER,
    "Commits to the group's tables that a query had to try again, as somebody else was first, since its process began.",
)  # fmt: skip
PLANNER_SECONDS = Metric(
    "partq_query_planner_seconds_total",
    "counter",
    _MEMBER,
    "Time that a query's planner took for its calls since its process began.",
)
PLANNER_CALLS = Metric(
    "partq_query_planner_calls_total",
    "counter",
    _MEMBER,
    "Calls of a query's planner since its process began; each plans a micro-batch, or finds nothing to do.",
)

METRICS = (
    UP, UNREADABLE, DURATION,
    QUEUE_STATUS, QUEUE_PARTITIONS, INGRESS, STUCK, DISCARDED, APPENDED, DEPTH, FILES, SIZE, STORED_AGE,
    STATE, MEMBERS, EXPIRED, HEARTBEAT, UNASSIGNED, HANDOFFS, WAITING, LAG, IN_FLIGHT, POSITION, OLDEST_AGE, SUBSCRIBED, HELD_KEYS,
    REBALANCES, ENDED_HANDOFFS, REDELIVERED, SKIPPED, RETRIES, PLANNER_SECONDS, PLANNER_CALLS,
)  # fmt: skip
