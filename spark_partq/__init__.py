"""Partitioned message queues for Spark.

A name is imported when it is first used. So a worker does not load Spark, nor does a program that only asks for the depth of a
queue.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.3.0"

# Each name stands three times: for `import *` and readers, for type checkers and editors, and for `__getattr__`.
# fmt: off
# isort: off
__all__ = [
    "AssignorError", "CheckpointMismatchError", "ClockSkewError", "CommitFailedError", "ConstraintViolatedError", "CorruptTableError",
    "DataLossError", "DeadMessage", "DeltaSink", "Explanation", "FencedError", "FlowChange", "FlowDescription", "GroupActiveError",
    "GroupDescription", "GroupMismatchError", "GroupNotFoundError", "GroupPartition", "IngressDisabledError", "InvalidArgumentError", "KeysHeldError", "ListenerError",
    "MaintenanceReport", "Member", "MemberDescription", "NewerStoreError", "NotAStoreError", "NotPermittedError", "OffsetOutOfRangeError",
    "OffsetReset", "OtherHistoryError", "PartitionDescription", "PartqError", "Position", "Promotion", "QueueAlreadyExistsError", "QueueDescription",
    "QueueFencedError", "QueueNotFoundError", "QueueNotReadyError", "QueueSink", "RebalanceListener", "ReplicaError", "ReplicaStatus",
    "ScaleProgress", "ScalingInProgressError", "SchemaMismatchError", "SessionWait", "SinkAheadError", "Store", "StoreUnavailableError", "TargetAheadError",
    "UnknownAssignorError", "UnsupportedTableError", "acknowledge", "add_column", "add_listener", "alter_queue", "append", "assign", "copy_stuck", "create_queue",
    "dead_letters", "delete_group", "delete_messages", "delete_queue", "delta_sink", "describe_group", "describe_queue", "explain", "flow_changes", "history",
    "list_groups", "list_queues", "maintain", "partition_of", "positions", "promote", "queue_sink", "redrive", "register", "reject", "remove_replica",
    "replicas", "replicate", "reset_offsets", "scale", "session", "set_ingress",
]

if TYPE_CHECKING:
    from spark_partq.api.dead_letters import dead_letters, redrive, reject
    from spark_partq.api.groups import acknowledge, delete_group, describe_group, explain, history, list_groups, reset_offsets
    from spark_partq.api.listeners import add_listener, flow_changes
    from spark_partq.api.queues import add_column, alter_queue, copy_stuck, create_queue, delete_messages, delete_queue, describe_queue, list_queues, maintain, scale, set_ingress
    from spark_partq.api.replicas import promote, remove_replica, replicas, replicate
    from spark_partq.api.sinks import append, delta_sink, positions, queue_sink
    from spark_partq.core.assignors import Member, assign
    from spark_partq.core.errors import (
        AssignorError, CheckpointMismatchError, ClockSkewError, CommitFailedError, ConstraintViolatedError, CorruptTableError, DataLossError,
        FencedError, GroupActiveError, GroupMismatchError, GroupNotFoundError, IngressDisabledError, InvalidArgumentError, KeysHeldError, ListenerError,
        NewerStoreError, NotAStoreError, NotPermittedError, OffsetOutOfRangeError, OtherHistoryError, PartqError, QueueAlreadyExistsError,
        QueueFencedError, QueueNotFoundError, QueueNotReadyError, ReplicaError, ScalingInProgressError, SchemaMismatchError, SinkAheadError,
        StoreUnavailableError, TargetAheadError, UnknownAssignorError, UnsupportedTableError,
    )
    from spark_partq.core.delivery.positions import Position
    from spark_partq.core.group.explain import Explanation
    from spark_partq.core.payload.keys import partition_of
    from spark_partq.spark.delta_sink import DeltaSink
    from spark_partq.spark.driver import FlowChange, RebalanceListener
    from spark_partq.spark.session import register, session
    from spark_partq.spark.sink import QueueSink
    from spark_partq.storage.inspect.describe_group import (
        FlowDescription, GroupDescription, GroupPartition, MemberDescription,
    )
    from spark_partq.storage.inspect.describe_queue import PartitionDescription, QueueDescription
    from spark_partq.storage.inspect.replicas import ReplicaStatus
    from spark_partq.storage.procedures.inactive import SessionWait
    from spark_partq.storage.procedures.maintain import MaintenanceReport
    from spark_partq.storage.procedures.promote import Promotion
    from spark_partq.storage.procedures.redrive import DeadMessage
    from spark_partq.storage.procedures.remainder import ScaleProgress
    from spark_partq.storage.procedures.reset_offsets import OffsetReset
    from spark_partq.storage.store import Store
else:
    _NAMES = {
        "api.dead_letters": "dead_letters redrive reject",
        "api.groups": "acknowledge delete_group describe_group explain history list_groups reset_offsets",
        "api.listeners": "add_listener flow_changes",
        "api.queues": "add_column alter_queue copy_stuck create_queue delete_messages delete_queue describe_queue list_queues maintain scale set_ingress",
        "api.replicas": "promote remove_replica replicas replicate",
        "api.sinks": "append delta_sink positions queue_sink",
        "core.assignors": "Member assign",
        "core.errors": " ".join(name for name in __all__ if name.endswith("Error")),
        "core.delivery.positions": "Position",
        "core.group.explain": "Explanation",
        "core.payload.keys": "partition_of",
        "spark.delta_sink": "DeltaSink",
        "spark.driver": "FlowChange RebalanceListener",
        "spark.session": "register session",
        "spark.sink": "QueueSink",
        "storage.inspect.describe_group": "FlowDescription GroupDescription GroupPartition MemberDescription",
        "storage.inspect.describe_queue": "PartitionDescription QueueDescription",
        "storage.inspect.replicas": "ReplicaStatus",
        "storage.procedures.inactive": "SessionWait",
        "storage.procedures.redrive": "DeadMessage",
        "storage.procedures.remainder": "ScaleProgress",
        "storage.procedures.reset_offsets": "OffsetReset",
        "storage.procedures.maintain": "MaintenanceReport",
        "storage.procedures.promote": "Promotion",
        "storage.store": "Store",
    }
    _MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return found

    def __dir__():
        return sorted({*globals(), *__all__})
