"""Every error that a user can meet.

    PartqError
    ├── InvalidArgumentError      INVALID_ARGUMENT       an option, name or count that cannot be right
    ├── NotAStoreError            NOT_A_STORE            the path holds something else, or nothing
    ├── StoreUnavailableError     STORE_UNAVAILABLE      the path cannot be reached or read
    │   └── NotPermittedError     NOT_PERMITTED          this process may not read it, or delete there
    ├── QueueNotFoundError        QUEUE_NOT_FOUND
    ├── QueueAlreadyExistsError   QUEUE_ALREADY_EXISTS
    ├── QueueNotReadyError        QUEUE_NOT_READY        being created or being deleted
    ├── ScalingInProgressError    SCALING_IN_PROGRESS    its partition count is being changed, to another count or for too long
    ├── IngressDisabledError      INGRESS_DISABLED       the queue takes no messages now
    ├── ReplicaError              REPLICA                a replica that is written, scaled or promoted again, or cannot be reached
    │   └── OtherHistoryError     OTHER_HISTORY          a replica and its primary that no longer have one history
    ├── QueueFencedError          QUEUE_FENCED           its replica was promoted and took over
    ├── GroupNotFoundError        GROUP_NOT_FOUND
    ├── SchemaMismatchError       SCHEMA_MISMATCH        rows or queues whose columns differ
    ├── ConstraintViolatedError   CONSTRAINT_VIOLATED    a row that violates a constraint of a Delta table
    ├── UnsupportedTableError     UNSUPPORTED_TABLE      a Delta table that was replaced, or has features that a sink does not know
    ├── OffsetOutOfRangeError     OFFSET_OUT_OF_RANGE    a requested offset that the queue does not have
    ├── DataLossError             DATA_LOSS              messages were removed before they were read
    ├── CorruptTableError         CORRUPT_TABLE          a foreign or damaged file or log in the store
    ├── NewerStoreError           NEWER_STORE            data that only a newer release of this package may read or write
    ├── CheckpointMismatchError   CHECKPOINT_MISMATCH    a checkpoint of another queue or group
    ├── SinkAheadError            SINK_AHEAD             a batch id older than the one that the sink has recorded
    ├── TargetAheadError          TARGET_AHEAD           a table with results of messages that the queue does not have
    ├── GroupMismatchError        GROUP_MISMATCH         a consumer whose options disagree with its group's
    ├── GroupActiveError          GROUP_ACTIVE           a group that cannot be deleted, because queries consume in it
    ├── KeysHeldError             KEYS_HELD              too many keys with a dead message, or other messages before those to put back
    ├── FencedError               FENCED                 a newer process has the same instance id
    ├── ListenerError             LISTENER_FAILED        a callback of the user raised
    ├── UnknownAssignorError      UNKNOWN_ASSIGNOR       no assignor of that name is built in or installed
    ├── AssignorError             ASSIGNOR_FAILED        an assignor of the user raised, or gave a wrong result
    ├── ClockSkewError            CLOCK_SKEW             this machine's clock differs too much from the store's
    └── CommitFailedError         COMMIT_FAILED          the store refused a write, or the write took too long

`error_class` is stable and meant for programs; the message names what is involved and what to do next.
Spark carries errors of its Python workers to the driver as text, so the text begins with the class.
``python -m tools.errors`` makes docs/errors.md from this file.
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
    next_step : str
        What a user can do about errors of this class; the message says what to do in the case at hand.
    retry : str
        Whether the same call may succeed later: begins with "Yes" or "No".
    """

    error_class: ClassVar[str] = "PARTQ_ERROR"
    next_step: ClassVar[str] = "See the class of the error that was raised."
    retry: ClassVar[str] = "No: that depends on the class."

    def __init__(self, message: str, **params: object) -> None:
        self.params = {name: str(value) for name, value in params.items()}
        self.message = message
        super().__init__(f"[{self.error_class}] {message}")


class InvalidArgumentError(PartqError):
    """An option, a name, a schema, a count or an offset is wrong, for any store or for this queue."""

    error_class = "INVALID_ARGUMENT"
    next_step = "Correct what the message names. Nothing was changed."
    retry = "No: the same arguments are refused again."


class NotAStoreError(PartqError):
    """The path holds nothing, or something other than a store; or a call would make a store in a folder that is in use."""

    error_class = "NOT_A_STORE"
    next_step = "Check the path. `create_queue` makes a store in a new or empty folder."
    retry = "No, unless another process is making the store right now."


class StoreUnavailableError(PartqError):
    """The store, or a Kafka broker, cannot be reached, read or written, for example because of the network, the endpoint, a full disk, or a
    file system without hard links.
    """

    error_class = "STORE_UNAVAILABLE"
    next_step = (
        "Check the path, the network, the free space and the storage options. After a restart, a query goes on from "
        "its checkpoint."
    )
    retry = "Yes, once the store can be reached again."


class NotPermittedError(StoreUnavailableError):
    """The file system or the object store does not let this process read the store, delete a file there, or write down that a
    batch begins. If it may not write messages, facts or an entry of a log, the error is COMMIT_FAILED (of a replica REPLICA), with
    NOT_PERMITTED in its text.
    """

    error_class = "NOT_PERMITTED"
    next_step = "Check the user, the credentials in the storage options, and the rights of the role in SECURITY.md."
    retry = "No, until the process has the rights."


class QueueNotFoundError(PartqError):
    """The store has no queue of that name, no queue matches a pattern, or a queue was deleted, or deleted and created
    again, while the program used it.
    """

    error_class = "QUEUE_NOT_FOUND"
    next_step = (
        "Check the name; the message lists the queues of the store. After a deletion, start the program again, a "
        "query with a new checkpoint."
    )
    retry = "No, until somebody creates the queue."


class QueueAlreadyExistsError(PartqError):
    """A call would create a queue under a name that is in use."""

    error_class = "QUEUE_ALREADY_EXISTS"
    next_step = "Use the existing queue, or choose another name."
    retry = "No, while that queue exists."


class QueueNotReadyError(PartqError):
    """The queue is being created or deleted, or its creation or deletion was interrupted."""

    error_class = "QUEUE_NOT_READY"
    next_step = "Wait until that has ended. If no process does it any more, create or delete the queue again, which finishes it."
    retry = "Yes, once the queue is created; no, if it is being deleted."


class ScalingInProgressError(PartqError):
    """The partition count is being changed, to another count than the caller wants, or for longer than the caller waits."""

    error_class = "SCALING_IN_PROGRESS"
    next_step = "Wait for the change, or run the same `scale` again, which goes on with the change."
    retry = "Yes, once the change has ended."


class IngressDisabledError(PartqError):
    """A producer writes to a queue that takes no messages now, and the queue's setting `reject_to_sender` demands an
    error.
    """

    error_class = "INGRESS_DISABLED"
    next_step = (
        "Wait until ingress is enabled (`spark-partq ingress enable`), and start the query again: nothing of the "
        "batch was written, and the query then writes it."
    )
    retry = "Yes, once ingress is enabled."


class ReplicaError(PartqError):
    """A program writes or scales a replica, promotes it again, or puts a replica where something else is; or a replica
    cannot be reached, or is no longer a copy of its primary.
    """

    error_class = "REPLICA"
    next_step = "Use the primary, or the queue that took over; the message says which."
    retry = "No, unless the message says that a store could not be reached."


class OtherHistoryError(ReplicaError):
    """A replica ends at a commit that its primary does not have: the primary was put back to an older state, or another
    program has written to the copy.
    """

    error_class = "OTHER_HISTORY"
    next_step = (
        "To use what the copy has, stop all programs that use the primary, and promote the replica by force. To go on with the primary as it "
        "is, remove the replica and replicate to another place."
    )
    retry = "No: two histories are never mixed."


class QueueFencedError(PartqError):
    """The queue's replica was promoted, so the queue here takes no messages and delivers none."""

    error_class = "QUEUE_FENCED"
    next_step = "Use the queue in the store that the message names. Producers keep their checkpoints and sink ids; consumers need new checkpoints."
    retry = "No, unless the replica is removed before it has taken over."


class GroupNotFoundError(PartqError):
    """The store has no consumer group of that name, or the group was deleted while a query consumed in it."""

    error_class = "GROUP_NOT_FOUND"
    next_step = "Check the name; the message lists the groups of the store. A query creates its group when it starts."
    retry = "No, until a query of the group starts."


class SchemaMismatchError(PartqError):
    """Rows to write do not have the columns of the queue, a file has a row that does not fit its columns, queues that one
    query reads have different columns, or a reader was given a schema.
    """

    error_class = "SCHEMA_MISMATCH"
    next_step = "Select and cast the columns that the message names, or correct the file."
    retry = "No: the same rows are refused again."


class ConstraintViolatedError(PartqError):
    """A row violates a ``CHECK`` constraint, an invariant or ``NOT NULL`` of the Delta table that a sink writes."""

    error_class = "CONSTRAINT_VIOLATED"
    next_step = "Filter such rows, or change the table's constraint, and start the query again. Nothing of the micro-batch was written."
    retry = "No: the same rows are refused again."


class UnsupportedTableError(PartqError):
    """The Delta table that a sink writes has features that the sink does not support, or another table has replaced it."""

    error_class = "UNSUPPORTED_TABLE"
    next_step = "Write into another table, or in a transaction of your own with `positions`. Nothing was written."
    retry = "No; but if the table was replaced: yes, when the query is started again."


class OffsetOutOfRangeError(PartqError):
    """A starting or ending offset or time lies beyond the end of a partition, or before messages that were removed."""

    error_class = "OFFSET_OUT_OF_RANGE"
    next_step = "Use an offset that exists; with `failOnDataLoss=false` a query begins behind the removed messages."
    retry = "No, for removed messages; yes, beyond the end, once the partition has that many messages."


class DataLossError(PartqError):
    """Messages were removed, because they were too old or too many, before the group, or a job that reads a Kafka topic, had read them; or a
    partition was put back to an older state.
    """

    error_class = "DATA_LOSS"
    next_step = (
        "Find out which messages are missing. If they were removed, go on behind the gap with `failOnDataLoss=false`. If a partition was put "
        "back to an older state, restore it while no program uses the store."
    )
    retry = "No: removed messages do not come back."


class CorruptTableError(PartqError):
    """A table, a log, a file or a fact of the store is missing, damaged, edited, or made by another program."""

    error_class = "CORRUPT_TABLE"
    next_step = (
        "While no program uses the store, restore what the message names from a backup, or undo what another program did there. "
        "`spark-partq doctor` lists all damage."
    )
    retry = "No, until it is restored."


class NewerStoreError(PartqError):
    """Only a newer release of this package may read or write a table of the store. Nothing is damaged."""

    error_class = "NEWER_STORE"
    next_step = "Upgrade this program to the release that the message names."
    retry = "No, until the program is upgraded."


class CheckpointMismatchError(PartqError):
    """A query's checkpoint belongs to another queue, group or source, or to a queue that was deleted since then; or a queue has messages of
    another Kafka topic of the same name.
    """

    error_class = "CHECKPOINT_MISMATCH"
    next_step = "Use the queue and the group of the checkpoint, or another `checkpointLocation`."
    retry = "No: the checkpoint does not change."


class SinkAheadError(PartqError):
    """A sink has recorded a later batch than the one that a query writes now; or another query has written this batch; or this batch had
    other messages then. Causes: a new checkpoint with an old `sink_id`, two queries with one `sink_id`, or a checkpoint that was put back
    to an older state or lost its end.
    """

    error_class = "SINK_AHEAD"
    next_step = (
        "Give the new query its own `sink_id`, or start it with the checkpoint that belongs to the old `sink_id`. If a checkpoint was put back, "
        "or lost its end, use a new checkpoint with another `sink_id`, and let the source begin behind the messages that the queue has: messages "
        "that the source gives again are in the queue twice. Nothing of the batch was written."
    )
    retry = "No: the sink would skip the batch, so it refuses the batch again."


class TargetAheadError(PartqError):
    """A target (a table or a queue) has results of messages that the source (a queue or a Kafka topic) does not have: the source was put back
    to an older state, and will give other messages the same offsets.
    """

    error_class = "TARGET_AHEAD"
    next_step = (
        "Restore the source, or put the target back to a state of the same time. Or write to another target, or as another group or under "
        "another `name` (of a queue: `sink_id`): the query then writes the results of all messages that the source has, in addition to those "
        "that the target has."
    )
    retry = "No: the query would take new messages for those that the target has, and leave them out."


class GroupMismatchError(PartqError):
    """A query joins a group with options that disagree with those of its members: another session timeout, or no
    assignor in common.
    """

    error_class = "GROUP_MISMATCH"
    next_step = (
        "Use the options of the other members. Or stop the other members and run `spark-partq rebalance --group GROUP`, which removes them once "
        "their sessions have expired."
    )
    retry = "Yes, once the other members have left; otherwise no."


class GroupActiveError(PartqError):
    """A call would delete a group, or set its positions, while queries consume in it."""

    error_class = "GROUP_ACTIVE"
    next_step = "Stop these queries, and wait until they have left."
    retry = "Yes, once they have left."


class KeysHeldError(PartqError):
    """A queue with ``dead_letter_order='hold'`` has dead messages of more keys than a group can hold back; or a call would put them back while
    the group has not read the messages before them, or while producers write.
    """

    error_class = "KEYS_HELD"
    next_step = (
        "To put messages back: disable ingress, let each group read all messages, run `dead-letter redrive`, and enable ingress again. If "
        "`reject_to_sender` is `on` or `off`, stop the producers first, as their messages would be discarded. To "
        "go on without the order of these keys: set `dead_letter_order` to `skip`."
    )
    retry = "Yes, once no unread messages lie before those to put back."


class FencedError(PartqError):
    """Another process runs under the same `instanceId`, or this process was silent for so long that it has lost its place
    in the group.
    """

    error_class = "FENCED"
    next_step = "Let the newer query run. Give each running query its own `instanceId` and checkpoint."
    retry = "Yes, with an `instanceId` that no other query uses."


class ListenerError(PartqError):
    """A listener of the user raised an exception. The query stops, because its program may not know what it owns."""

    error_class = "LISTENER_FAILED"
    next_step = "Repair the listener, and start the query again."
    retry = "No, unless the listener failed for a reason that has passed."


class UnknownAssignorError(PartqError):
    """No assignor of that name is built in or installed."""

    error_class = "UNKNOWN_ASSIGNOR"
    next_step = "Use an assignor that the message lists, or install the package that has this assignor, for all members of the group."
    retry = "No, until the assignor is installed."


class AssignorError(PartqError):
    """An assignor of the user cannot be loaded, raised an exception, or gave a wrong result: a partition to two flows, to
    none, or to a flow that does not read it.
    """

    error_class = "ASSIGNOR_FAILED"
    next_step = "Correct the assignor, or use another one. Until then partitions keep their owners; in an eager group they have none."
    retry = "No: the assignor gives the same result again."


class ClockSkewError(PartqError):
    """The clock of this machine differs from the store's by more than the queue allows (`max_clock_skew_ms`)."""

    error_class = "CLOCK_SKEW"
    next_step = (
        "Set the clock of this machine by a time server, and start the program again. Nothing was committed or removed."
    )
    retry = "Yes, once the clock is right."


class CommitFailedError(PartqError):
    """The store refused a write, or the write took too long: a full disk, a process without the rights, a folder that is
    gone, files that were older than the vacuum grace, too many lost races against other writers.
    """

    error_class = "COMMIT_FAILED"
    next_step = (
        "Do what the message says, then start the query again, or make the call again: both find out what was written."
    )
    retry = "Yes, once the cause that the message names has passed."
