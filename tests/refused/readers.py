"""Options of readers, and offsets: in calls, in checkpoints, and of messages that are gone."""

from __future__ import annotations

from spark_partq.core.errors import (
    CheckpointMismatchError,
    DataLossError,
    GroupMismatchError,
    InvalidArgumentError,
    ListenerError,
    NewerStoreError,
    OffsetOutOfRangeError,
    QueueNotFoundError,
    UnknownAssignorError,
)
from tests.refused import damage, others
from tests.refused.case import Case, python

# fmt: off
CASES: dict[str, list[Case]] = {
    "Options of a reader": [
        python("read('', 'q')", InvalidArgumentError, "option 'path' is missing: .option('path', …)"),
        python("read(store, '')", InvalidArgumentError, "option 'queue' is missing: .option('queue', …), or queuePattern for all whose names match"),
        python("read(store, 'q,q')", InvalidArgumentError, "option queue='q,q' names a queue twice or none"),
        python("read(store, '../q')", InvalidArgumentError, "'../q' cannot name a queue: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("read(store, 'nowhere')", QueueNotFoundError, "there is no queue 'nowhere' in STORE; its queues: other, q"),
        python("read(store, 'q,other')", InvalidArgumentError, "queues 'q' and 'other' have different columns (struct<k:string,v:long> and struct<v:string>); read them apart"),
        python("read(Store(store), 'q')", InvalidArgumentError, "option path=Store('STORE'): an option of Spark is text and cannot be a Store; give .option('path', store.uri)"),
        python("read(store, 'q', startOffsets='earliest')", InvalidArgumentError, "options of format partq: startoffsets: there is no such option. Known options:"),
        python("read(store, 'q', failOnDataLoss='perhaps')", InvalidArgumentError, "options of format partq: failOnDataLoss: Input should be a valid boolean, unable to interpret input (given: 'perhaps')."),
        python("read(store, 'q', storageOptions='key')", InvalidArgumentError, "options of format partq: storageOptions: give each storage option as .option('storageOptions.NAME', …). Known options:"),
        python("read(store, 'q', **{'storageOptions': 'key', 'storageOptions.aws_region': 'eu'})", InvalidArgumentError, "options of format partq: storageOptions: give each storage option as .option('storageOptions.NAME', …). Known options:"),
        python("consume(store, 'q', queuePattern='q.*')", InvalidArgumentError, "options queue and queuePattern exclude each other; give one"),
        python("consume(store, None, queuePattern='q(')", InvalidArgumentError, "option queuePattern='q(' is no pattern of queue names: missing ): q(. See docs/options.md"),
        python("consume(store, None, queuePattern='orders.*')", QueueNotFoundError, "no queue in STORE matches queuePattern='orders.*'; its queues: other, q"),
        python("consume(store, group='a/b')", InvalidArgumentError, "'a/b' cannot name a group: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("consume(store, instanceId='..')", InvalidArgumentError, "'..' cannot name an instance: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("consume(store, flows=0)", InvalidArgumentError, "options of format partq: flows: Input should be greater than or equal to 1 (given: '0'). Known options:"),
        python("consume(store, flows=2**31)", InvalidArgumentError, "options of format partq: flows: Input should be less than or equal to 10000 (given: '2147483648'). Known options:"),
        python("consume(store, flows='two')", InvalidArgumentError, "options of format partq: flows: Input should be a valid integer, unable to parse string as an integer (given: 'two')."),
        python("consume(store, sessionTimeoutMs=1)", InvalidArgumentError, "options of format partq: sessionTimeoutMs: Input should be greater than or equal to 500 (given: '1'). Known options:"),
        python("consume(store, maxPollIntervalMs='1 minute')", InvalidArgumentError, "options of format partq: maxPollIntervalMs: Input should be a valid integer, unable to parse string as an integer (given:"),
        python("consume(store, maxRowsPerTrigger=0)", InvalidArgumentError, "options of format partq: maxRowsPerTrigger: Input should be greater than or equal to 1 (given: '0'). Known options:"),
        python("consume(store, maxFilesPerTrigger=1.5)", InvalidArgumentError, "options of format partq: maxFilesPerTrigger: Input should be a valid integer, unable to parse string as an integer (given:"),
        python("consume(store, maxBytesPerTrigger='1x')", InvalidArgumentError, "options of format partq: maxBytesPerTrigger: Input should be a valid integer, unable to parse string as an integer (given:"),
        python("consume(store, maxUnackedPerFlow=-1)", InvalidArgumentError, "options of format partq: maxUnackedPerFlow: Input should be greater than or equal to 1 (given: '-1'). Known options:"),
        python("consume(store, ack='never')", InvalidArgumentError, "options of format partq: ack: Input should be 'batch' or 'manual' (given: 'never'). Known options:"),
        python("consume(store, assignor='fair')", UnknownAssignorError, "there is no assignor 'fair'; there are balanced, range, roundrobin, sticky, cooperative-sticky, weighted, and packages add"),
        python("consume(store, assignor='range, range')", InvalidArgumentError, "option assignor='range, range' names an assignor twice or none; known:"),
        python("consume(store, assignor='range', weight=2)", InvalidArgumentError, "option weight=2: assignor range gives every flow the same share; leave weight out, or use balanced or weighted"),
        python("consume(store, weight='nan')", InvalidArgumentError, "options of format partq: weight: Input should be less than"),
        python("consume(store, endingOffsets='latest')", InvalidArgumentError, "option endingOffsets: a stream has no end. Leave it out, or read a batch"),
        python("consume(store, endingTimestamp=0)", InvalidArgumentError, "option endingTimestamp: a stream has no end. Leave it out, or read a batch"),
        python("consume(store, **{'kafka.bootstrap.servers': 'x'})", InvalidArgumentError, "options of format partq: kafka.bootstrap.servers: there is no such option. Known options:"),
        python("consume(store, group='g', instanceId='i', sessionTimeoutMs=20000)", GroupMismatchError, "i has sessionTimeoutMs=20000, but b is in the group with sessionTimeoutMs=10000;", others.a_member),
        python("consume(store, group='g', instanceId='i', assignor='range')", GroupMismatchError, "the members of the group have no assignor in common (i: range; b: balanced); add one that all have", others.a_member),
        python("consume(store, group='fails')", ListenerError, "a listener of group 'fails' failed: OSError: no connection; the query stops, since the listener may not know what the query owns.", others.a_listener_that_fails),
    ],
    "Offsets and times": [
        python("read(store, 'q', startingOffsets='first')", InvalidArgumentError, 'startingOffsets=\'first\' is none of earliest, latest, {"queue": {"partition": offset}} (offset -2 for earliest, -1 for latest)'),
        python('read(store, \'q\', startingOffsets=\'{"x": {"0": 0}}\')', InvalidArgumentError, "startingOffsets names queue 'x', which is not read here (q are)"),
        python('read(store, \'q\', startingOffsets=\'{"q": {"7": 0}}\')', InvalidArgumentError, "startingOffsets names partition 7 of queue 'q', which has partitions 0 to 1"),
        python('read(store, \'q\', startingOffsets=\'{"q": {"0": -3}}\')', InvalidArgumentError, "startingOffsets: partition 0 of queue 'q' can have no offset -3; offsets are 0 to 2^63 - 1, -2 means earliest and -1 latest"),
        python('read(store, \'q\', startingOffsets=\'{"q": {"0": 99}}\')', OffsetOutOfRangeError, "startingOffsets: partition 0 of queue 'q' ends at offset 11, 99 lies beyond it; use an offset up to the end, or -1 for latest"),
        python('read(store, \'q\', endingOffsets=\'{"q": {"0": 1.5}}\')', InvalidArgumentError, 'endingOffsets=\'{"q": {"0": 1.5}}\' is none of earliest, latest, {"queue": {"partition":'),
        python('read(store, \'q\', startingOffsets=\'{"q": {"0": 1}}\')', OffsetOutOfRangeError, "startingOffsets: messages 1 to 10 of partition 0 of queue 'q' have been removed; start at 11 or set failOnDataLoss=false", damage.removed_messages),
        python("read(store, 'q', startingTimestamp='yesterday')", InvalidArgumentError, "options of format partq: startingTimestamp: Input should be a valid integer, unable to parse string as an integer (given:"),
        python("read(store, 'q', startingTimestamp=253402300799999)", OffsetOutOfRangeError, "startingTimestamp=253402300799999: partition 0 of queue 'q' has no message of that time or later;"),
        python("consume(store, group='h')", DataLossError, "messages 11 to 12 of partition 0 of queue 'q' were removed before group 'h' read them (retention_ms or max_bytes of the queue);", damage.removed_before_read),
        python("consume(store, group='h')", DataLossError, "partition 0 of queue 'q' ends at offset 0, but group 'h' has already been given messages up to 10:", damage.an_older_state),
    ],
    "Checkpoints": [
        python("consume(store, group='i')", CheckpointMismatchError, "the checkpoint belongs to group 'h', this query to 'i'; use that group or another checkpointLocation", others.a_checkpoint),
        python("consume(store, 'other', group='h')", CheckpointMismatchError, "the checkpoint belongs to queue 'q', this query reads other; read that queue or use another checkpointLocation", others.a_checkpoint),
        python("consume(store, group='h')", CheckpointMismatchError, "the checkpoint belongs to an earlier queue 'q' that was deleted since; use another checkpointLocation", others.a_queue_created_again),
        python("consume(store, group='h')", CheckpointMismatchError, "the checkpoint holds no offset of this source (it has no 'version'); use another checkpointLocation", others.a_checkpoint_of_another_source),
        python("consume(store, group='h')", CheckpointMismatchError, "the checkpoint holds no offset of this source (end is 9223372036854775808 and not a whole number from 0 to", others.a_checkpoint_with_a_wrong_offset),
        python("consume(store, group='h')", NewerStoreError, "an offset in the checkpoint needs version 2 of offsets, and this program (spark_partq 0.3.0) has 1:", others.a_newer_checkpoint),
    ],
}
# fmt: on
