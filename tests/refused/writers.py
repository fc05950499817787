"""What sinks and groups are given."""

from __future__ import annotations

from spark_partq.core.errors import (
    ClockSkewError,
    ConstraintViolatedError,
    FencedError,
    GroupActiveError,
    GroupNotFoundError,
    IngressDisabledError,
    InvalidArgumentError,
    NewerStoreError,
    OffsetOutOfRangeError,
    QueueFencedError,
    QueueNotFoundError,
    QueueNotReadyError,
    ReplicaError,
    SchemaMismatchError,
    SinkAheadError,
    TargetAheadError,
    UnsupportedTableError,
)
from tests.refused import damage, others
from tests.refused.case import Case, python

# fmt: off
CASES: dict[str, list[Case]] = {
    "Sinks": [
        python("queue_sink(store, 'nowhere')", QueueNotFoundError, "there is no queue 'nowhere' in STORE; its queues: other, q"),
        python("queue_sink(store, 'q', order_by=5)", InvalidArgumentError, "order_by=5 is neither a name nor a list of names"),
        python("queue_sink(store, 'q', order_by='at')", InvalidArgumentError, "order_by column 'at' is not a column of queue 'q'"),
        python("queue_sink(store, 'maps', order_by='m')", InvalidArgumentError, "order_by column 'm' of queue 'maps' is map<string,long>, and maps have no order; choose another column", others.a_queue_with_a_map),
        python("queue_sink(store, 'q', sink_id='a/b')", InvalidArgumentError, "'a/b' cannot name a sink: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("append(5, store, 'q')", InvalidArgumentError, "df=5 is no batch DataFrame; write a stream with writeStream.foreachBatch(queue_sink(…))"),
        python("append(rows(k='string', v='long'), store, 'q', sink_id='s')", InvalidArgumentError, "sink_id='s', batch_id=None: exactly-once needs both, and a batch_id of 0 or more; without both every call adds the rows"),
        python("append(rows(k='string', v='long'), store, 'q', batch_id=0)", InvalidArgumentError, "sink_id=None, batch_id=0: exactly-once needs both, and a batch_id of 0 or more; without both every call adds the rows"),
        python("append(rows(k='string', v='long'), store, 'q', sink_id='s', batch_id=-1)", InvalidArgumentError, "sink_id='s', batch_id=-1: exactly-once needs both, and a batch_id of 0 or more; without both every call adds the rows"),
        python("append(rows(k='string', v='long'), store, 'q', sink_id='s', batch_id='3')", InvalidArgumentError, "sink_id='s', batch_id='3': exactly-once needs both, and a batch_id of 0 or more; without both every call adds the rows"),
        python("append(rows(k='string'), store, 'q')", SchemaMismatchError, "the DataFrame does not have the columns of queue 'q': missing v long. Select and cast the columns of the queue"),
        python("append(rows(k='string', v='integer'), store, 'q')", SchemaMismatchError, "the DataFrame does not have the columns of queue 'q': v is integer, not long. Select and cast the columns of the queue"),
        python("append(rows(k='string', v='long', w='long'), store, 'q')", SchemaMismatchError, "the DataFrame does not have the columns of queue 'q': extra w long. Select and cast the columns of the queue"),
        python("append(rows(K='string', v='long'), store, 'q')", SchemaMismatchError, "the DataFrame does not have the columns of queue 'q': missing k string; extra K string."),
        python("write(store, batch_id=4)", SinkAheadError, "sink 's' has already written batch 5 to queue 'q', and batch 4 of an older position came now; it would be skipped.", others.a_later_batch),
        python("write(store, batch_id=5, query_id='two')", SinkAheadError, "sink 's' has already written batch 5 to queue 'q', and batch 5 of another query came now; it would be skipped.", others.a_batch_of_another_query),
        python("hours_ahead(2, lambda: write(store, batch_id=1))", ClockSkewError, "this machine's clock and that of STORE differ by", begun=True),
        python("write(store, batch_id=1)", IngressDisabledError, "queue 'q' takes no messages now (its ingress is disabled); nothing of this batch was written.", others.ingress_disabled),
        python("write(store, batch_id=1)", QueueNotReadyError, "queue 'q' in STORE is Deleting: that was interrupted or is under way; wait for it, or delete it again to finish it", others.half_deleted),
        python("write(store, batch_id=1)", NewerStoreError, "the control table of queue 'q' in STORE needs writer version 2, and this program (spark_partq 0.3.0) has 1:", damage.a_queue_for_newer_writers),
        python("write(store, batch_id=1)", QueueFencedError, "queue 'q' in STORE was taken over by its replica in THERE; use that store.", others.promoted),
        python("write(there, batch_id=1)", ReplicaError, "queue 'q' in THERE is a replica: it can be read as a DataFrame, and nothing else. Use its primary, or promote it", others.replicated),
    ],
    "Sinks into Delta tables": [
        python("delta_sink(there, name='a/b')", InvalidArgumentError, "'a/b' cannot name a sink: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("delta_sink('s3://key:secret@bucket/table')", InvalidArgumentError, "the store's URI s3://*** has a user, a password, or something behind ? or #."),
        python("add(there, offset=3, v=20)", ConstraintViolatedError, "a row of message 3 of partition 0 of queue 'q' does not fulfil small (v < 10) of Delta table THERE. Nothing of the micro-batch was written."),
        python("add(there, offset=9, v=2)", InvalidArgumentError, "a row says that it comes from message 9 of partition 0 of queue 'q', which is none of this micro-batch. Nothing was written."),
        python("deliver_behind(there, position=8, end=5)", TargetAheadError, "Delta table THERE has the messages of partition 0 of queue id up to 8, but that partition ends at 5: the queue was put back to an older state, and will give other messages these offsets. Nothing was written."),
        python("add_to(there)", InvalidArgumentError, "there is no Delta table at THERE; check the path, or let the sink create it"),
        python("add_to(there)", UnsupportedTableError, "Delta table THERE has features that this sink does not support: domainMetadata, rowTracking. Nothing was written.", others.a_table_with_row_tracking),
    ],
    "Groups": [
        python("describe_group(store, 'nobody')", GroupNotFoundError, "there is no group 'nobody' in STORE; its groups: g"),
        python("describe_group(store, 'a/b')", InvalidArgumentError, "'a/b' cannot name a group: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("delete_group(store, 'nobody')", GroupNotFoundError, "there is no group 'nobody' in STORE; its groups: g"),
        python("delete_group(store, 'g')", GroupActiveError, "the group is active:", others.a_member_that_beats),
        python("reset_offsets(store, 'g', 'earliest')", GroupActiveError, "the group is active:", others.a_member_that_beats),
        python("reset_offsets(store, 'g', {'q': {0: 99}})", OffsetOutOfRangeError, "partition 0 of queue 'q' cannot be set to offset 99: it ends at"),
        python("reset_offsets(store, 'g', {'q': {9: 0}})", InvalidArgumentError, "to names partition 9 of queue 'q', which has partitions 0 to 1"),
        python("reset_offsets(store, 'g', {'q': {}})", InvalidArgumentError, 'to={"q": {}} names no partition; it is none of earliest, latest,'),
        python("reset_offsets(store, 'g', 'earliest', queues='q')", InvalidArgumentError, "queues='q': give a list of names, or none for all that the group reads"),
        python("acknowledge(store, 'g', [('q', 0, 1)])", InvalidArgumentError, "offsets=[('q', 0, 1)] does not map partitions to whole numbers, as {('orders', 3): 120} does"),
        python("acknowledge(store, 'g', {'q': 1})", InvalidArgumentError, "offsets={'q': 1} does not map partitions to whole numbers, as {('orders', 3): 120} does"),
        python("acknowledge(store, 'g', {('q', 0): 1}, epochs={('q', 0): '3'})", InvalidArgumentError, "epochs={('q', 0): '3'} does not map partitions to whole numbers, as {('orders', 3): 120} does"),
        python("acknowledge(store, 'nobody', {('q', 0): 1})", GroupNotFoundError, "there is no group 'nobody' in STORE; its groups: g"),
        python("acknowledge(store, 'g', {('q', 9): 1})", InvalidArgumentError, "group 'g' has no partition 9 of queue 'q'; it reads q", others.a_member),
        python("acknowledge(store, 'g', {('q', 0): 4})", InvalidArgumentError, "no registered query of group 'g' runs in this driver, so it is not known under which epoch partition 0 of queue 'q'", others.a_member),
        python("acknowledge(store, 'g', {('q', 0): 10**9}, epochs={('q', 0): 3})", InvalidArgumentError, "offset 1000000000 of partition 0 of queue 'q' cannot be acknowledged: give the next offset that the group wants, at most 3, up to which the partition was delivered", others.a_member),
        python("acknowledge(store, 'g', {('q', 0): '4'}, epochs={('q', 0): 3})", InvalidArgumentError, "offsets={('q', 0): '4'} does not map partitions to whole numbers, as {('orders', 3): 120} does", others.a_member),
        python("consume(store, group='h', instanceId='i', maxRowsPerTrigger=5, each=taken_over)", FencedError, "instance 'i' of group 'h' was started again (on vm); this query stops, and what it has not acknowledged is delivered there."),
    ],
}
# fmt: on
