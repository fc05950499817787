"""Inputs that are whole, one for each reader: what a queue, a group, a replica and a sink may have stored."""

from __future__ import annotations

import json
from typing import Any

from spark_partq.core import format
from spark_partq.storage.rows import Row

_COLUMN = {"name": "k", "type": "string", "nullable": True, "metadata": {}}
_FORMAT = format.of_new_tables().body()
_CREATED = {
    "queue_id": "u",
    "schema": {"type": "struct", "fields": [_COLUMN]},
    "key": ["k"],
    "partitions": 2,
    "settings": {"retention_ms": 5},
    **_FORMAT,
}
QUEUE = [
    ["QueueCreated", _CREATED], ["PartitionsCreated", {"partitions": 2}], ["ScalingStarted", {"partitions": 3, "mode": "live"}],
    ["GenerationOpened", {"partitions": 3, "cuts": {"0": 4, "1": 5, "2": 0}}], ["ReplicaAdded", {"location": "/r"}],
    ["QueueFenced", {"location": "/r"}], ["Promoted", {"incarnation": "i", "ends": {"0": 5}}], ["FormatRaised", _FORMAT | {"features": ["addedColumns"]}],
    ["ColumnsAdded", {"columns": [{"name": "note", "type": "string", "nullable": True, "metadata": {}}]}],
]  # fmt: skip
REPLICA = [
    ["ReplicaOf", {"replica_id": "r", "primary": "/p", "location": "/l", "queue_id": "u", **_FORMAT}], ["Jumping", {"folder": "f", "version": 3}],
    ["OtherReplica", {"location": "/m"}], ["Promoting", {"incarnation": "i", "others": ["/o"]}], ["FormatRaised", _FORMAT],
]  # fmt: skip
_MEMBER = {
    "session_timeout_ms": 1000,
    "assignors": ["balanced"],
    "queues": ["q"],
    "pattern": "q.*",
    "weight": 1.0,
    "executors": [],
}
_PARTITION = {"queue": "q", "queue_id": "u", "partition": 0, "offset": 0, "epoch": 0}
_OWNED = {
    "delivered": 0,
    "epoch_before": 0,
    "epoch": 1,
    "lineage_epoch": 1,
    "flow": "a/0",
    "instance": "a",
    "incarnation": "i",
}
GROUP: list[dict[str, Any]] = [
    {"kind": "GroupCreated", "body": _FORMAT},
    {
        "kind": "QueueAdded",
        "queue": "q",
        "queue_id": "u",
        "body": {"partitions": 1, "rebalance_delay_ms": 0, "max_handoff_time_ms": 0},
    },
    {"kind": "PartitionAdded", **_PARTITION},
    {"kind": "MemberJoined", "instance": "a", "incarnation": "i", "flows": 1, "body": _MEMBER},
    {"kind": "StatusChanged", "status": "Rebalancing"},
    {"kind": "AssignmentComputed", "body": {"assignor": "balanced", "protocol": "cooperative"}},
    {"kind": "Granted", **_PARTITION, **_OWNED},
    {"kind": "StatusChanged", "status": "Ready"},
    {"kind": "Floor", **_PARTITION, "offset": 3, "epoch_before": 1, "epoch": 1},
    {"kind": "FormatRaised", "body": _FORMAT},
]
ACKS = [
    {
        "incarnation": "i",
        "beat": 1,
        "queue_id": "u",
        "partition": 0,
        "epoch": 1,
        "offset": 2,
        "delivered": 3,
        "start": 2,
        "attempt": 1,
    }
]
_ADD = {
    "path": "a",
    "partitionValues": {"x": "1"},
    "size": 1,
    "modificationTime": 1,
    "dataChange": True,
    "stats": '{"numRecords": 1}',
}
ENTRY = [
    {"commitInfo": {"engineInfo": "spark_partq", "operation": "WRITE", "txnId": "0" * 32, "actionCount": 4}}, {"add": _ADD},
    {"remove": {"path": "b", "deletionTimestamp": 1, "dataChange": True}}, {"txn": {"appId": "partq:next", "version": 1}},
]  # fmt: skip
MANIFEST = {
    **_FORMAT, "sink": "_group.g", "batch": 7, "query": "q", "offsets_digest": "0a", "generation": 1, "partition_count": 2, "placed": {"0": [0, 1]},
    "files": [{"partition": 1, "path": "a.parquet", "rows": 1, "size_bytes": 9, "stats": '{"numRecords": 1}', "order": 0}],
    "positions": {"partq:g/u": {"0": 5, "-1": 0}, "partq:g/small/i": {"3": 7}},
    "follows": {"0": 2, "-1": 0},
}  # fmt: skip
OFFSET = {
    "group": "g",
    "instance": "i",
    "queues": {"q": {"id": "u", "incarnation": "i", "partitions": {"0": [1, 0, 5]}, "former": [["u", {"0": 3}]]}},
    "version": 1,
}


def numbered(facts: list[list[Any]]) -> list[Row]:
    """Rows of a table of facts, from kinds and bodies."""
    return [{"seq": seq, "kind": kind, "body": body} for seq, (kind, body) in enumerate(facts)]


def stored(rows: list[Row]) -> list[Row]:
    """The rows as they are in a table, where a body is JSON."""
    return [{**row, "body": json.dumps(row["body"])} if row.get("body") is not None else row for row in rows]


def group_rows() -> list[Row]:
    """The same of a group's facts, whose other columns are empty."""
    return [{"seq": seq, "cause": "", "by": "", **fact} for seq, fact in enumerate(GROUP)]
