"""Every error that a user can meet.

    PartqError
    ├── InvalidArgumentError      INVALID_ARGUMENT       an option, name or count that cannot be right
    ├── NotAStoreError            NOT_A_STORE            the path holds something else, or nothing
    ├── StoreUnavailableError     STORE_UNAVAILABLE      the path cannot be reached or read
    │   └── NotPermittedError     NOT_PERMITTED          this process may not read or write it
    ├── QueueNotFoundError        QUEUE_NOT_FOUND
    ├── QueueAlreadyExistsError   QUEUE_ALREADY_EXISTS
    ├── QueueNotReadyError        QUEUE_NOT_READY        being created or being deleted
    ├── ScalingInProgressError    SCALING_IN_PROGRESS    its partition count is being changed, to another one or for too long
    ├── IngressDisabledError      INGRESS_DISABLED       it takes no messages now
    ├── ReplicaError              REPLICA                a replica that is written, scaled or promoted again; or cannot be reached
    ├── QueueFencedError          QUEUE_FENCED           its replica was promoted and took over
    ├── GroupNotFoundError        GROUP_NOT_FOUND
    ├── SchemaMismatchError       SCHEMA_MISMATCH        rows or queues whose columns differ
    ├── OffsetOutOfRangeError     OFFSET_OUT_OF_RANGE    a requested offset that the queue does not have
    ├── DataLossError             DATA_LOSS              messages were removed before they were read
    ├── CorruptTableError         CORRUPT_TABLE          a foreign or damaged file or log in the store
    ├── NewerStoreError           NEWER_STORE            what only a newer release of this package may read or write
    ├── CheckpointMismatchError   CHECKPOINT_MISMATCH    a checkpoint of another queue or group
    ├── SinkAheadError            SINK_AHEAD             a batch id older than what the sink has recorded
    ├── GroupMismatchError        GROUP_MISMATCH         a consumer whose options disagree with its group's
    ├── FencedError               FENCED                 a newer process has the same instance id
    ├── ListenerError             LISTENER_FAILED        a callback of the user raised
    ├── UnknownAssignorError      UNKNOWN_ASSIGNOR       no assignor of that name is built in or installed
    ├── AssignorError             ASSIGNOR_FAILED        an assignor of the user raised, or gave a wrong result
    ├── ClockSkewError            CLOCK_SKEW             this machine's clock is not about the store's
    └── CommitFailedError         COMMIT_FAILED          the store refused a write, or it took too long

`error_class` is stable and meant for programs; the message names what is involved and what to do next.
Spark carries errors of its Python workers to the driver as text, so the text begins with the class.
"""

from __future__ import annotations

from typing import ClassVar


class PartqError(Exception):
    """Base of all errors of this package.

    Attributes
    ----------
    error_class : str
        Stable name of the kind of error.
    params : dict
        The names involved (queue, group, partition, offset…), as strings.
    message : str
        The text without the class.
    """

    error_class: ClassVar[str] = "PARTQ_ERROR"

    def __init__(self, message: str, **params: object) -> None:
        self.params = {name: str(value) for name, value in params.items()}
        self.message = message
        super().__init__(f"[{self.error_class}] {message}")


class InvalidArgumentError(PartqError):
    error_class = "INVALID_ARGUMENT"


class NotAStoreError(PartqError):
    error_class = "NOT_A_STORE"


class StoreUnavailableError(PartqError):
    error_class = "STORE_UNAVAILABLE"


class NotPermittedError(StoreUnavailableError):
    error_class = "NOT_PERMITTED"


class QueueNotFoundError(PartqError):
    error_class = "QUEUE_NOT_FOUND"


class QueueAlreadyExistsError(PartqError):
    error_class = "QUEUE_ALREADY_EXISTS"


class QueueNotReadyError(PartqError):
    error_class = "QUEUE_NOT_READY"


class ScalingInProgressError(PartqError):
    error_class = "SCALING_IN_PROGRESS"


class IngressDisabledError(PartqError):
    error_class = "INGRESS_DISABLED"


class ReplicaError(PartqError):
    error_class = "REPLICA"


class QueueFencedError(PartqError):
    error_class = "QUEUE_FENCED"


class GroupNotFoundError(PartqError):
    error_class = "GROUP_NOT_FOUND"


class SchemaMismatchError(PartqError):
    error_class = "SCHEMA_MISMATCH"


class OffsetOutOfRangeError(PartqError):
    error_class = "OFFSET_OUT_OF_RANGE"


class DataLossError(PartqError):
    error_class = "DATA_LOSS"


class CorruptTableError(PartqError):
    error_class = "CORRUPT_TABLE"


class NewerStoreError(PartqError):
    error_class = "NEWER_STORE"


class CheckpointMismatchError(PartqError):
    error_class = "CHECKPOINT_MISMATCH"


class SinkAheadError(PartqError):
    error_class = "SINK_AHEAD"


class GroupMismatchError(PartqError):
    error_class = "GROUP_MISMATCH"


class GroupActiveError(PartqError):
    error_class = "GROUP_ACTIVE"


class FencedError(PartqError):
    error_class = "FENCED"


class ListenerError(PartqError):
    error_class = "LISTENER_FAILED"


class UnknownAssignorError(PartqError):
    error_class = "UNKNOWN_ASSIGNOR"


class AssignorError(PartqError):
    error_class = "ASSIGNOR_FAILED"


class ClockSkewError(PartqError):
    error_class = "CLOCK_SKEW"


class CommitFailedError(PartqError):
    error_class = "COMMIT_FAILED"
