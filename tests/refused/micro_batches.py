"""What a micro-batch may give to a sink that writes each message once, and what a dead-message queue takes and gives back."""

from __future__ import annotations

from spark_partq.core.errors import (
    IngressDisabledError,
    InvalidArgumentError,
    QueueNotFoundError,
    SchemaMismatchError,
    UnsupportedTableError,
)
from tests.refused import others
from tests.refused.case import Case, command, python

# fmt: off
CASES: dict[str, list[Case]] = {
    "Micro-batches that are written exactly once": [
        python("queue_sink(store, 'q', exactly_once=True)(rows(k='string', v='long', _queue='string', _partition='integer', _offset='long'), 0)", InvalidArgumentError, "these rows are not those of a micro-batch: call this in a function for writeStream.foreachBatch"),
        python("queue_sink(store, 'q', exactly_once=True)(batch('g', 'h'), 0)", InvalidArgumentError, "this query reads queues by groups g, h; positions must be those of one group. Use a query for each group"),
        python("queue_sink(store, 'q', exactly_once=True)(batch(_offset=None), 0)", InvalidArgumentError, "the rows have no _offset, so nobody can tell which messages they come from: keep these columns through select, filter and explode. An aggregate has none: keep its state"),
        python("queue_sink(store, 'q', exactly_once=True)(batch(v=None, w='long'), 0)", SchemaMismatchError, "the DataFrame does not have the columns of queue 'q': missing v long; extra w long. Select and cast the columns of the queue"),
        python("queue_sink(store, 'other', exactly_once=True)(batch(k=None), 0)", SchemaMismatchError, "the DataFrame does not have the columns of queue 'other': v is long, not string. Select and cast the columns of the queue"),
        python("queue_sink(store, 'q', exactly_once=True, sink_id='_group.g')", InvalidArgumentError, "'_group.g' cannot name a sink: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("queue_sink(store, 'q', sink_id='_stuck')", InvalidArgumentError, "'_stuck' cannot name a sink: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("positions(rows(v='long', _queue='string', _partition='integer', _offset='long'))", InvalidArgumentError, "these rows are not those of a micro-batch: call this in a function for writeStream.foreachBatch"),
        python("positions(batch(_queue=None, _offset=None))", InvalidArgumentError, "the rows have no _queue, _offset, so nobody can tell which messages they come from: keep these columns through select, filter and explode. An aggregate has none: keep"),
        python("delta_sink(there)(batch('g', 'h'), 0)", InvalidArgumentError, "this query reads queues by groups g, h; positions must be those of one group. Use a query for each group"),
        python("delta_sink(there)(batch(_queue=None), 0)", InvalidArgumentError, "the rows have no _queue, so nobody can tell which messages they come from: keep these columns through select, filter and explode. An aggregate has none: keep its state"),
        python("delta_sink(there, partition_by='day')(batch(), 0)", InvalidArgumentError, "partition_by column 'day' is none of k, v, _queue, _partition, _offset, _enqueued_at, _redelivered, _flow, _epoch; choose a column with texts, whole numbers, dates or"),
        python("delta_sink(there, create=False)(batch(), 0)", InvalidArgumentError, "there is no Delta table at THERE; check the path, or let the sink create it"),
        python("delta_sink(there)(batch(), 0)", InvalidArgumentError, "THERE holds something else than a Delta table; choose an empty or new folder", others.a_used_folder),
        python("delta_sink(there)(batch(), 0)", SchemaMismatchError, "Delta table THERE does not take the rows: it has no column k string; its column v is string, not long; its column note must not be null, and the rows have none of that", others.a_table),
        python("delta_sink(there, partition_by='v')(batch(), 0)", InvalidArgumentError, "Delta table THERE is partitioned by ['note'], not by ['v']; leave partition_by out", others.a_table),
        python("refresh_replaced(there)", UnsupportedTableError, "Delta table THERE was replaced by another table while the query ran, and nothing was written to the new one. Start the query again if the new"),
    ],
    "Messages that cannot be processed": [
        python("create_queue(store, 'new', 'v long', max_deliveries=0, dead_letter_queue='dead')", InvalidArgumentError, "queue settings: max_deliveries: Input should be greater than or equal to 1"),
        python("create_queue(store, 'new', 'v long', max_deliveries=5)", InvalidArgumentError, "queue settings: max_deliveries needs a dead_letter_queue; set both"),
        python("create_queue(store, 'new', 'v long', message_ttl_ms=0)", InvalidArgumentError, "queue settings: message_ttl_ms: Input should be greater than or equal to 1"),
        python("create_queue(store, 'new', 'v long, s string', message_ttl_column='s')", InvalidArgumentError, "queue settings: message_ttl_column='s': the column is of type string; name an integer column of the messages (v) with milliseconds"),
        python("create_queue(store, 'new', 'v long, s string', message_ttl_column='ttl')", InvalidArgumentError, "queue settings: message_ttl_column='ttl': the column is not there; name an integer column of the messages (v) with milliseconds"),
        python("create_queue(store, 'new', 'v long', message_ttl_ms=1, expired_messages='dead_letter')", InvalidArgumentError, "queue settings: expired_messages='dead_letter' needs a dead_letter_queue; set both"),
        python("create_queue(store, 'new', 'v long', dead_letter_queue='a/b')", InvalidArgumentError, "queue settings: dead_letter_queue: 'a/b' cannot name a queue"),
        python("create_queue(store, 'new', 'v long', dead_letter_queue='new')", InvalidArgumentError, "dead_letter_queue='new': a queue cannot be its own dead-message queue; choose another name"),
        python("create_queue(store, 'new', 'v long, dead_reason string', dead_letter_queue='dead')", InvalidArgumentError, "a queue with column dead_reason can have no dead_letter_queue, because a dead-message queue has columns of that name itself; rename the column"),
        python("create_queue(store, 'new', 'v long', dead_letter_queue='other')", SchemaMismatchError, "a dead message of queue 'new' does not have the columns of dead_letter_queue 'other': extra origin_queue string; extra origin_partition integer; extra origin_offset"),
        python("alter_queue(store, 'q', dead_letter_queue='other')", SchemaMismatchError, "a dead message of queue 'q' does not have the columns of dead_letter_queue 'other': extra k string; extra origin_queue string; extra origin_partition integer; extra"),
        python("alter_queue(store, 'q', max_deliveries=5)", InvalidArgumentError, "queue settings: max_deliveries needs a dead_letter_queue; set both"),
        python("alter_queue(store, 'q', reset=['dead_letter_queue'])", InvalidArgumentError, "queue settings: max_deliveries needs a dead_letter_queue; set both", others.a_dead_message),
        python("reject(rows(k='string', v='long'), 'bad')", InvalidArgumentError, "these rows are not those of a micro-batch: call this in a function for writeStream.foreachBatch"),
        python("reject(batch(), '')", InvalidArgumentError, "reason='': give a text of 1 to 10000 characters, or a column"),
        python("reject(batch(), 'x' * 10_001)", InvalidArgumentError, "reason='xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: give a text of 1 to 10000 characters, or a column"),
        python("reject(batch(), 404)", InvalidArgumentError, "reason=404: give a text of 1 to 10000 characters, or a column"),
        python("reject(batch(), 'bad')", InvalidArgumentError, "group 'g' reads a store that this process does not know; name the store: reject(rows, reason, store=...)"),
        python("reject(batch(), 'bad', store=store)", InvalidArgumentError, "queue 'q' has no dead_letter_queue, so its messages cannot be rejected; give it one with alter-queue"),
        python("reject(batch(_offset=None), 'bad', store=store)", InvalidArgumentError, "the rows have no _offset, so nobody can tell which messages they come from: keep these columns through select, filter and explode. An aggregate has none: keep its state", others.a_dead_message),
        python("reject(batch(_redelivered=None), 'bad', store=store)", SchemaMismatchError, "the DataFrame does not have the columns of queue 'q': missing _redelivered boolean. Reject rows of the micro-batch that still have all of its columns", others.a_dead_message),
        python("reject(batch(k=None, v='string'), 'bad', store=store)", SchemaMismatchError, "the DataFrame does not have the columns of queue 'q': missing k string; v is string, not long. Reject rows of the micro-batch that still have all of its columns", others.a_dead_message),
        python("reject(rejected('bad'), 'bad', store=store)", InvalidArgumentError, "this micro-batch has rejected messages for the same reason before, and those are in the dead-message queue. Leave the first call as it is, and give the second another reason.", others.a_dead_message),
        python("dead_letters(store, 'q')", InvalidArgumentError, "queue 'q' has no dead_letter_queue, and is none; name a queue that has one, or is one"),
        python("redrive(store, 'q')", InvalidArgumentError, "queue 'q' has no dead_letter_queue, and is none; name a queue that has one, or is one"),
        python("redrive(store, 'dead')", QueueNotFoundError, "there is no queue 'q' in STORE; its queues: dead, other", others.a_dead_message_of_a_deleted_queue),
        python("redrive(store, 'dead')", SchemaMismatchError, "dead-message queue 'dead' does not have the columns of queue 'q', from which messages came: missing w string; extra k string; extra v long. Read them as a DataFrame,", others.a_dead_message_of_other_columns),
        python("redrive(store, 'q')", IngressDisabledError, "queue 'q' takes no messages now (its ingress is disabled); nothing of this batch was written. Start the query, or run the command, again once ingress is enabled: the batch is then written", others.a_dead_message_and_no_ingress),
        command("dead-letter list nowhere", QueueNotFoundError, "there is no queue 'nowhere' in STORE; its queues: other, q"),
        command("dead-letter list q", InvalidArgumentError, "queue 'q' has no dead_letter_queue, and is none; name a queue that has one, or is one"),
        command("dead-letter redrive q", InvalidArgumentError, "queue 'q' has no dead_letter_queue, and is none; name a queue that has one, or is one"),
        command("create-queue new --schema 'v long' --max-deliveries 5", InvalidArgumentError, "queue settings: max_deliveries needs a dead_letter_queue; set both"),
        command("alter-queue q --set max_deliveries=0", InvalidArgumentError, "queue settings: max_deliveries: Input should be greater than or equal to 1"),
    ],
}
# fmt: on
