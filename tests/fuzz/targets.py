"""What reads stored values, each with a valid input. A seed changes the input; the reader takes it or says why not."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from spark_partq.core import format
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.errors import PartqError
from spark_partq.core.group import snapshot
from spark_partq.core.group.acks import Acks, compacted
from spark_partq.core.group.facts import GroupFact
from spark_partq.core.group.reading import ack_row
from spark_partq.core.group.state import GroupState
from spark_partq.core.patterns import matches
from spark_partq.core.queue import manifest
from spark_partq.core.queue import state as queue_state
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.replica import state as replica_state
from spark_partq.core.replica.facts import ReplicaFact
from spark_partq.core.stored import body_of
from spark_partq.storage.log.entries import ForeignEntry, decode

# What storage turns into a CorruptTableError with the table's name.
REFUSED = (PartqError, ForeignEntry, ValueError, KeyError, TypeError)
STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 3, 2**31 - 1, 2**63 - 1, 2**63, -(2**63), 10**30, 0.5, 1e308, float("nan"), float("inf"), "", "0", "a", "a/0",
    "../x", "a\0b", "\x1b[2J", "\ud800", "(a|aa)+b", "[" * 50_000, "x" * 20_000, [], [[]], {}, {"a": 1}, [1, 2, 3], {"0": -1}, {"0": 2**70},
]  # fmt: skip

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
_QUEUE = [
    ["QueueCreated", _CREATED], ["PartitionsCreated", {"partitions": 2}], ["ScalingStarted", {"partitions": 3, "mode": "live"}],
    ["GenerationOpened", {"partitions": 3, "cuts": {"0": 4, "1": 5, "2": 0}}], ["ReplicaAdded", {"location": "/r"}],
    ["QueueFenced", {"location": "/r"}], ["Promoted", {"incarnation": "i", "ends": {"0": 5}}], ["FormatRaised", _FORMAT | {"features": ["addedColumns"]}],
    ["ColumnsAdded", {"columns": [{"name": "note", "type": "string", "nullable": True, "metadata": {}}]}],
]  # fmt: skip
_REPLICA = [
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
_GROUP: list[dict[str, Any]] = [
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
_ACKS = [
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
_ENTRY = [
    {"commitInfo": {"engineInfo": "spark_partq", "operation": "WRITE", "txnId": "0" * 32, "actionCount": 4}}, {"add": _ADD},
    {"remove": {"path": "b", "deletionTimestamp": 1, "dataChange": True}}, {"txn": {"appId": "partq:next", "version": 1}},
]  # fmt: skip
_MANIFEST = {
    **_FORMAT, "sink": "_group.g", "batch": 7, "query": "q", "generation": 1, "partition_count": 2, "placed": {"0": [0, 1]},
    "files": [{"partition": 1, "path": "a.parquet", "rows": 1, "size_bytes": 9, "stats": '{"numRecords": 1}', "order": 0}],
    "positions": {"partq:g/u": {"0": 5, "-1": 0}, "partq:g/small/i": {"3": 7}},
}  # fmt: skip
_OFFSET = {
    "group": "g",
    "instance": "i",
    "queues": {"q": {"id": "u", "incarnation": "i", "partitions": {"0": [1, 0, 5]}, "former": [["u", {"0": 3}]]}},
    "version": 1,
}


def _fact(plain: dict[str, Any]) -> GroupFact:
    return GroupFact(**{**plain, "body": json.dumps(plain["body"])} if "body" in plain else plain)


def _group(facts: list[dict[str, Any]]) -> GroupState:
    state = GroupState()
    for fact in facts:
        state.replay(_fact(fact))
    return _used(state)


def _used(state: GroupState) -> GroupState:
    """What everybody asks of a state; it must be what the state's own snapshot says."""
    _ = state.flows, state.view(), state.subscribed_partitions, state.rebalance_delay_ms
    for partition_id in state.partitions:
        state.delivered(partition_id, Acks())
    again = snapshot.from_json(body_of(json.dumps(snapshot.to_json(state))))
    if again != state:
        raise AssertionError("a snapshot says something else than its state")
    return state


def _acks(rows: list[dict[str, Any]]) -> None:
    compacted([ack_row(row) for row in rows], ["i"])


def _queue(facts: list[Any]) -> None:
    found = queue_state.replay("q", (QueueFact(kind, body_of(json.dumps(body))) for kind, body in facts))
    if found is not None and found.usable:
        _ = found.status, found.partition_numbers, found.removing, found.all_partitions, found.stuck, found.key_types


def _replica(facts: list[Any]) -> None:
    replica_state.replay("q", (ReplicaFact(kind, body_of(json.dumps(body))) for kind, body in facts))


def _entry(lines: list[Any]) -> None:
    decode("".join(f"{json.dumps(line)}\n" for line in lines).encode())


def _manifest(plain: dict[str, Any]) -> None:
    name = manifest.ManifestName("_group.g", 7, 0)
    found = manifest.decode(name, json.dumps(plain).encode())
    if manifest.decode(name, manifest.encode(found)) != found:
        raise AssertionError("a manifest that is written again says something else")


TARGETS: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "group": (_GROUP, _group),
    "snapshot": (snapshot.to_json(_group(_GROUP)), lambda plain: _used(snapshot.from_json(body_of(json.dumps(plain))))),
    "acks": (_ACKS, _acks),
    "queue": (_QUEUE, _queue),
    "replica": (_REPLICA, _replica),
    "entry": (_ENTRY, _entry),
    "manifest": (_MANIFEST, _manifest),
    "offset": (_OFFSET, lambda plain: StreamOffset.from_json(plain).to_json()),
    "pattern": (["([a-z0-9_]+)*-eu"], lambda plain: [matches(p, "a" * 128) for p in plain if isinstance(p, str)]),
}


def changed(valid: Any, chance: random.Random) -> Any:
    """The value with one to three places replaced, removed, doubled or added."""
    value = copy.deepcopy(valid)
    for _ in range(chance.randint(1, 3)):
        place = value
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(place[key], (dict, list)) and chance.random() < 0.8:
                place = place[key]
                continue
            _change(place, key, chance)
            break
    return value


def _change(place: Any, key: Any, chance: random.Random) -> None:
    how = chance.random()
    if how < 0.15:
        del place[key]
    elif how < 0.3 and isinstance(place, list):
        place.insert(key, place[key])
    elif how < 0.3:
        place[chance.choice(["new", "first", "0", "-1", "4096"])] = chance.choice(STRANGE)
    elif how < 0.5 and isinstance(place[key], str):
        at = chance.randrange(len(place[key]) + 1)
        place[key] = place[key][:at] + chance.choice("*+?(){}[]|\\/.%\0é0") + place[key][at:]
    else:
        place[key] = chance.choice(STRANGE)
