"""Paths of stores, links, rights, space, and replicas."""

from __future__ import annotations

from spark_partq.core.errors import (
    CommitFailedError,
    CorruptTableError,
    InvalidArgumentError,
    NotAStoreError,
    NotPermittedError,
    OtherHistoryError,
    QueueFencedError,
    QueueNotFoundError,
    ReplicaError,
    StoreUnavailableError,
)
from tests.refused import others
from tests.refused.case import Case, python
from tests.refused.world import NO_SPACE, NOBODYS

# fmt: off
CASES: dict[str, list[Case]] = {
    "Paths of stores": [
        python("create_queue('', 'new', 'v long')", InvalidArgumentError, "the store's path is empty; pass a folder or an object-store URI"),
        python("create_queue(folder + '/a\\0b', 'new', 'v long')", InvalidArgumentError, "'FOLDER/a\\x00b' holds the character NUL, which no path has; use another path"),
        python("create_queue(folder + '/a%20b', 'new', 'v long')", InvalidArgumentError, "'FOLDER/a%20b' holds a percent sign and two digits, which Delta reads as another character; use another path"),
        python("list_queues('s3://key:secret@bucket/store')", InvalidArgumentError, "the store's URI s3://*** has a user, a password, or something behind ? or #."),
        python("list_queues('s3://bucket/store?secret=1')", InvalidArgumentError, "the store's URI s3://*** has a user, a password, or something behind ? or #."),
        python("list_queues(Store(store), storage_options={'aws_region': 'x'})", InvalidArgumentError, "a Store has its own storage_options; pass no others"),
        python("list_queues(there)", NotAStoreError, "THERE is not a store: it holds nothing. Check the path, or create a queue there first"),
        python("list_queues(there)", NotAStoreError, "THERE is not a store: it holds something else. Check the path, or create a queue there first", others.a_used_folder),
        python("create_queue(there, 'new', 'v long')", NotAStoreError, "THERE is not empty and not a store; choose an empty or new folder for a store", others.a_used_folder),
        python("create_queue(there, 'new', 'v long')", NotAStoreError, "THERE is a file, not a store", others.a_file),
        python("describe_queue(store, 'mine')", QueueNotFoundError, "there is no queue 'mine' in STORE; its queues: other, q", others.a_foreign_folder),
        python("list_queues('s3://bucket/store', storage_options=unreachable)", StoreUnavailableError, "s3://bucket/store/ cannot be read: Generic S3 error: Error performing list request:"),
        python("list_queues('s3://bucket/store', storage_options={**unreachable, 'aws_allow_http': 'false'})", StoreUnavailableError, "s3://bucket/store/ cannot be read: its endpoint begins with http://, so nothing would be encrypted. To allow that, give the storage option allow_http='true' or set AWS_ALLOW_HTTP=true"),
        python("list_queues('s3://bucket/store', storage_options={'timeout': 'secret'})", StoreUnavailableError, 's3://bucket/store cannot be reached: Generic Config error: failed to parse "***" as Duration.'),
        python("list_queues('nowhere://bucket/store')", StoreUnavailableError, 'nowhere://bucket/store cannot be reached: Generic URL error: Unable to recognise URL "nowhere://bucket/store".'),
    ],
    "Symbolic links": [
        python("describe_queue(store, 'q')", QueueNotFoundError, "there is no queue 'q' in STORE; its queues: other", others.a_link_as_queue),
        python("describe_queue(store, 'q')", QueueNotFoundError, "there is no queue 'q' in STORE; its queues: none", others.a_link_as_queues),
        python("read(store)", CorruptTableError, "partition 0 of queue 'q' has no Delta log at STORE/queues/q/partitions/partition=0; it was removed or never made.", others.a_link_as_partition),
        python("write(store, batch_id=1)", CorruptTableError, "partition 0 of queue 'q' has no Delta log at STORE/queues/q/partitions/partition=0; it was removed or never made.", others.a_link_as_partition),
    ],
    "Rights and space": [
        python("list_queues(store)", NotPermittedError, "STORE cannot be read: Permission denied. Give this process's user the permissions, or run it as another user;", others.closed, limit=NOBODYS),
        python("describe_queue(store, 'q')", NotPermittedError, "STORE cannot be read: Permission denied. Give this process's user the permissions, or run it as another user;", others.closed, limit=NOBODYS),
        python("read(store)", NotPermittedError, "STORE cannot be read: Permission denied. Give this process's user the permissions, or run it as another user;", others.closed, limit=NOBODYS),
        python("describe_queue(store, 'q')", NotPermittedError, "FILE cannot be read: Permission denied. Give this process's user the permissions, or run it as another user; nothing is damaged", others.closed_facts_of_the_queue, limit=NOBODYS),
        python("describe_group(store, 'g')", NotPermittedError, "FILE cannot be read: Permission denied. Give this process's user the permissions, or run it as another user; nothing is damaged", others.closed_facts_of_the_group, limit=NOBODYS),
        python("describe_group(store, 'g')", NotPermittedError, "FILE cannot be read: Permission denied. Give this process's user the permissions, or run it as another user; nothing is damaged", others.closed_acknowledgements, limit=NOBODYS),
        python("read(store)", NotPermittedError, "STORE/queues/q/partitions/partition=0/_delta_log/00000000000000000001.json cannot be read: Permission denied. Give", others.a_closed_entry, limit=NOBODYS),
        python("read(store)", NotPermittedError, "STORE/queues/q/partitions/partition=0/_delta_log/00000000000000000001.checkpoint.parquet cannot be read: Permission denied. Give", others.a_closed_checkpoint, limit=NOBODYS),
        python("read(store)", NotPermittedError, "FILE cannot be read: Permission denied. Give", others.closed_messages, limit=NOBODYS),
        python("replicate(store, 'q', there)", ReplicaError, "the replica in THERE cannot be kept: [NOT_PERMITTED] STORE/queues/q/partitions/partition=0/_delta_log/00000000000000000002.json cannot be read: Permission denied. Give", others.a_closed_entry_that_is_not_copied, limit=NOBODYS, begun=True),
        python("replicate(store, 'q', there)", ReplicaError, "the replica in THERE cannot be kept: [NOT_PERMITTED] FILE cannot be read: Permission denied. Give", others.closed_messages_that_are_not_copied, limit=NOBODYS, begun=True),
        python("set_ingress(store, 'q', False)", CommitFailedError, "the control table of queue 'q' cannot be written ([NOT_PERMITTED] FILE cannot be written: Permission denied.", others.open_to_readers, limit=NOBODYS),
        python("create_queue(store, 'new', 'v long')", CommitFailedError, "the control table of queue 'new' cannot be written ([NOT_PERMITTED] STORE/queues/new/control cannot be written:", others.open_to_readers, limit=NOBODYS),
        python("write(store, batch_id=1)", CommitFailedError, "messages of queue 'q' cannot be written to STORE: [NOT_PERMITTED] FILE cannot be written: Permission denied. Give", others.open_to_readers, limit=NOBODYS),
        python("write(store, batch_id=1)", NotPermittedError, "STORE/queues/q/manifests/", others.manifests_open_to_readers, limit=NOBODYS, begun=True),
        python("delete_queue(store, 'q')", CommitFailedError, "the control table of queue 'q' cannot be written ([NOT_PERMITTED] FILE cannot be written: Permission denied.", others.open_to_readers, limit=NOBODYS),
        python("create_queue(store, 'new', 'v long')", CommitFailedError, "the control table of queue 'new' cannot be written ([STORE_UNAVAILABLE] FILE cannot be written: File too large.", limit=NO_SPACE),
        python("set_ingress(store, 'q', False)", CommitFailedError, "the control table of queue 'q' cannot be written ([STORE_UNAVAILABLE] FILE cannot be written: File too large.", limit=NO_SPACE),
        python("write(store, batch_id=1)", CommitFailedError, "messages of queue 'q' cannot be written to STORE: [Errno 27] Error writing bytes to file. Detail: [errno 27] File too large;", limit=NO_SPACE),
        python("replicate(store, 'q', there)", ReplicaError, "the replica in THERE cannot be kept: [COMMIT_FAILED] the replica table of queue 'q' cannot be written ([STORE_UNAVAILABLE]", limit=NO_SPACE, begun=True),
    ],
    "Replicas": [
        python("replicate(store, 'nowhere', there)", QueueNotFoundError, "there is no queue 'nowhere' in STORE; its queues: other, q"),
        python("replicate(store, 'q', store)", ReplicaError, "STORE is the store of queue 'q' itself; a replica needs a place of its own"),
        python("replicate(store, 'q', store + '/inside')", ReplicaError, "STORE/inside is inside or around the store of queue 'q' itself; a replica needs a place of its own"),
        python("replicate(store, 'q', there)", ReplicaError, "THERE holds a queue 'q' that is no replica of this queue; choose another location", others.another_store),
        python("replicate(store, 'q', there)", NotAStoreError, "THERE is not empty and not a store; choose an empty or new folder for a store", others.a_used_folder),
        python("replicate(store, 'q', there)", NotAStoreError, "THERE is a file, not a store", others.a_file),
        python("replicate(store, 'q', there)", ReplicaError, "the replica of queue 'q' in THERE was promoted; nothing is copied there any more", others.promoted),
        python("replicate(there, 'q', folder + '/third')", ReplicaError, "queue 'q' in THERE is a replica itself; replicate its primary", others.replicated),
        python("replicate(store, 'q', there)", OtherHistoryError, "STORE/queues/q/", others.put_back),
        python("promote(store, 'q')", ReplicaError, "queue 'q' in STORE is no replica, so it cannot be promoted"),
        python("promote(there, 'q')", ReplicaError, "the replica of queue 'q' in THERE is already promoted; use it", others.promoted),
        python("remove_replica(store, 'q', there)", ReplicaError, "THERE is no replica of queue 'q'; it has none"),
        python("remove_replica(store, 'q', there)", ReplicaError, "the replica in THERE was promoted and took over from queue 'q'; use that store", others.promoted),
        python("scale(there, 'q', 3)", ReplicaError, "queue 'q' in THERE is a replica: it can be read as a DataFrame, and nothing else. Use its primary, or promote it", others.replicated),
        python("scale(store, 'q', 3)", ReplicaError, "there is no replica of queue 'q' in THERE any more: bring it back, or remove it and add it again", others.a_lost_replica),
        python("scale(store, 'q', 3)", QueueFencedError, "queue 'q' in STORE was taken over by its replica in THERE; use that store.", others.promoted),
        python("delete_group(there, 'g')", ReplicaError, "group 'g' reads queue 'q', which is a replica in THERE; delete the group where the primary is, or promote the replica first", others.replicated),
        python("create_queue(there, 'q', 'v long')", ReplicaError, "THERE is to be a replica of a queue 'q'; choose another name or store", others.replicated),
        python("consume(there, group='g')", ReplicaError, "queue 'q' in THERE is a replica: it can be read as a DataFrame, and nothing else. Use its primary, or promote it", others.replicated),
    ],
}
# fmt: on
