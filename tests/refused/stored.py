"""What lies in a store and cannot be: logs, files, facts and acknowledgements, and formats of newer releases."""

from __future__ import annotations

from spark_partq.core.errors import (
    CorruptTableError,
    NewerStoreError,
    QueueNotFoundError,
)
from tests.refused import damage
from tests.refused.case import Case, python

# fmt: off
CASES: dict[str, list[Case]] = {
    "Logs": [
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read:", damage.a_cut_entry),
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read:", damage.an_entry_without_its_last_line),
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read:", damage.no_json),
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read:", damage.a_missing_entry),
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read:", damage.another_program),
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read: 00000000000000000001.json: it names the file '../../../../../etc/passwd', which is no plain name in the table's folder", damage.a_file_elsewhere),
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read: 00000000000000000001.json: it names the file 'file:///etc/passwd', which is no plain name in the table's folder", damage.a_file_with_a_scheme),
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read:", damage.a_deletion_vector),
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read:", damage.an_unknown_action),
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read:", damage.a_newer_delta),
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read:", damage.another_predecessor),
        python("read(store)", CorruptTableError, "partition 0 of queue 'q' has no Delta log at STORE/queues/q/partitions/partition=0; it was removed or never made.", damage.no_log),
        python("read(store)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read:", damage.a_damaged_checkpoint),
        python("write(store, batch_id=1)", CorruptTableError, "the Delta log of partition 0 of queue 'q' at STORE/queues/q/partitions/partition=0 cannot be read:", damage.another_program),
        python("replicate(store, 'q', there)", CorruptTableError, "the log of STORE/queues/q/partitions/partition=0 cannot be read (00000000000000000001.json: it names the file '../../../../../etc/passwd', which is no plain name in the table's folder", damage.a_file_elsewhere, begun=True),
    ],
    "Files of messages": [
        python("read(store)", CorruptTableError, "file FILE of queue 'q' (offsets 0 to 10 of partition 0) cannot be read: it is missing. Restore it from a backup;", damage.no_file_of_messages),
        python("read(store)", CorruptTableError, "file FILE of queue 'q' (offsets 0 to 10 of partition 0) cannot be read: Parquet magic bytes not found in footer.", damage.no_parquet),
        python("read(store)", CorruptTableError, "file FILE of queue 'q' (offsets 0 to 10 of partition 0) cannot be read: it declares 1 rows, and the log says 11.", damage.fewer_rows),
        python("read(store)", CorruptTableError, "file FILE of queue 'q' (offsets 0 to 10 of partition 0) cannot be read: it is missing. Restore it from a backup;", damage.a_link_to_messages),
        python("consume(store, group='h')", CorruptTableError, "file FILE of queue 'q' (offsets 0 to 10 of partition 0) cannot be read: Parquet magic bytes not found in footer.", damage.no_parquet),
        python("replicate(store, 'q', there)", CorruptTableError, "STORE/queues/q/partitions/partition=0 names FILE, which is not there; restore it from a backup, or promote the replica", damage.no_file_of_messages, begun=True),
    ],
    "Facts and acknowledgements": [
        python("describe_queue(store, 'q')", CorruptTableError, "file FILE of the control table of queue 'q' in STORE, version 2, is missing; restore it from a backup", damage.a_missing_fact_of_the_queue),
        python("describe_queue(store, 'q')", CorruptTableError, "the control table of queue 'q' in STORE, version 2, holds a fact that cannot be (number 1, Nonsense: kind is 'Nonsense', which this program does not know)", damage.an_unknown_fact),
        python("describe_queue(store, 'q')", CorruptTableError, "the control table of queue 'q' in STORE, version 2, holds a fact that cannot be (number 1, ScalingEnded: kind ScalingEnded cannot follow ScalingUp (Creating))", damage.a_fact_that_cannot_follow),
        python("describe_queue(store, 'q')", CorruptTableError, "the control table of queue 'q' in STORE, version 2, holds a fact that cannot be (number 0, QueueCreated: its body is no JSON", damage.a_body_that_is_no_json),
        python("describe_queue(store, 'q')", CorruptTableError, "the control table of queue 'q' in STORE, version 2, holds a fact that cannot be (number 0, QueueCreated: message_ttl_column='gone': the column is not there", damage.a_column_of_a_setting_that_is_not_there),
        python("describe_queue(store, 'q')", CorruptTableError, "the control table of queue 'q' in STORE, version 2, holds a fact that cannot be (number 0, QueueCreated: key_hash='md5': a queue places its keys by one of xxhash64, murmur2", damage.an_unknown_key_hash),
        python("describe_queue(store, 'q')", CorruptTableError, "the control table of queue 'q' in STORE, version 2, holds a fact that cannot be (number 0, QueueCreated: settings: retention_ms:", damage.a_setting_out_of_range),
        python("describe_queue(store, 'q')", CorruptTableError, "the control table of queue 'q' in STORE, version 2, holds a fact that cannot be (number 0, QueueCreated: partitions is 1099511627776 and not a whole number from 0 to 4096)", damage.too_many_partitions),
        python("describe_queue(store, 'q')", CorruptTableError, "the control table of queue 'q' in STORE, version 2, holds a fact that cannot be (number 0, QueueCreated: schema: column k is nested more than 50 levels deep", damage.a_schema_that_is_too_deep),
        python("describe_queue(store, 'q')", QueueNotFoundError, "there is no queue 'q' in STORE; its queues: other", damage.no_control_table),
        python("write(store, batch_id=1)", CorruptTableError, "the control table of queue 'q' in STORE, version 2, holds a fact that cannot be (number 1, Nonsense: kind is 'Nonsense', which this program does not know)", damage.an_unknown_fact),
        python("describe_group(store, 'g')", CorruptTableError, "file FILE of the control table of group 'g' in STORE, version 1, is missing; restore it from a backup", damage.a_missing_fact_of_the_group),
        python("describe_group(store, 'g')", CorruptTableError, "file FILE of the control table of group 'g' in STORE, version 1, cannot be read (Parquet file size is 5 bytes, smaller than the minimum file", damage.facts_of_the_group_that_are_no_parquet),
        python("describe_group(store, 'g')", CorruptTableError, "the control table of group 'g' in STORE, version 1, is damaged: fact 2 (PartitionAdded of partition 0 of queue 'q') cannot follow those before it (epoch is -5", damage.an_edited_epoch),
        python("describe_group(store, 'g')", CorruptTableError, "the acknowledgements of group 'g' in STORE, version 1, hold a row that cannot be (offset is -7 and not a whole number from 0 to", damage.an_impossible_acknowledgement),
        python("describe_group(store, 'g')", CorruptTableError, "the control table of group 'g' in STORE, version 1, is damaged: fact 9 (Nonsense) cannot follow those before it (kind is 'Nonsense', which this program does not know):", damage.an_unknown_fact_of_the_group),
        python("describe_group(store, 'g')", CorruptTableError, "the control table of group 'g' in STORE, version 1, is damaged: fact 6 (AssignmentComputed) cannot follow those before it ('assignor' is missing):", damage.an_assignment_without_an_assignor),
        python("describe_group(store, 'g')", CorruptTableError, "the control table of group 'g' in STORE, version 1, holds a row that is no fact (kind is None and not a text", damage.a_fact_of_the_group_without_a_kind),
        python("describe_group(store, 'g')", CorruptTableError, "file FILE of the acknowledgements of group 'g' in STORE, version 1, is missing; restore it from a backup", damage.a_missing_acknowledgement),
        python("promote(there, 'q')", CorruptTableError, "the replica table of queue 'q' in THERE, version 0, holds a fact that cannot be (number 0, ReplicaOf: 'location' is missing)", damage.a_replica_of_nowhere),
        python("consume(store, group='g')", CorruptTableError, "the control table of group 'g' in STORE, version 1, is damaged: fact 2 (PartitionAdded of partition 0 of queue 'q') cannot follow those before it (epoch is -5", damage.an_edited_epoch),
    ],
    "Newer formats": [
        python("read(store)", NewerStoreError, "the control table of queue 'q' in STORE needs reader version 2, and this program (spark_partq 0.3.0) has 1:", damage.a_newer_queue),
        python("read(store)", NewerStoreError, "the control table of queue 'q' in STORE needs the feature 'tides', and this program (spark_partq 0.3.0) has addedColumns, deletedMessages, forcedWrites, keyHashMurmur2, minRetention, segments:", damage.a_feature_of_the_queue),
        python("describe_queue(store, 'q')", NewerStoreError, "the control table of queue 'q' in STORE needs reader version 2, and this program (spark_partq 0.3.0) has 1:", damage.a_newer_queue),
        python("scale(store, 'q', 3)", NewerStoreError, "the control table of queue 'q' in STORE needs writer version 2, and this program (spark_partq 0.3.0) has 1:", damage.a_queue_for_newer_writers),
        python("delete_queue(store, 'q')", NewerStoreError, "the control table of queue 'q' in STORE needs reader version 2, and this program (spark_partq 0.3.0) has 1:", damage.a_newer_queue),
        python("describe_group(store, 'g')", NewerStoreError, "the control table of group 'g' in STORE needs reader version 2, and this program (spark_partq 0.3.0) has 1:", damage.a_newer_group),
        python("delete_group(store, 'g')", NewerStoreError, "the control table of group 'g' in STORE needs reader version 2, and this program (spark_partq 0.3.0) has 1:", damage.a_newer_group),
    ],
}
# fmt: on
