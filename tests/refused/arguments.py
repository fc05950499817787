"""Names, schemas, settings and counts, which nobody needs a store to refuse."""

from __future__ import annotations

from spark_partq.core.errors import (
    AssignorError,
    InvalidArgumentError,
    QueueAlreadyExistsError,
    ScalingInProgressError,
    UnknownAssignorError,
)
from tests.refused import others
from tests.refused.case import Case, python

# fmt: off
CASES: dict[str, list[Case]] = {
    "Names, keys and schemas": [
        python("create_queue(store, 'a/b', 'v long')", InvalidArgumentError, "'a/b' cannot name a queue: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("create_queue(store, '', 'v long')", InvalidArgumentError, "'' cannot name a queue: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("create_queue(store, '..', 'v long')", InvalidArgumentError, "'..' cannot name a queue: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("create_queue(store, 'n' * 129, 'v long')", InvalidArgumentError, "'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"),
        python("create_queue(store, 'ends.', 'v long')", InvalidArgumentError, "'ends.' cannot name a queue: use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit and not ending in a dot"),
        python("create_queue(store, 'new', '')", InvalidArgumentError, "a queue's schema needs at least one column"),
        python("create_queue(store, 'new', 'v')", InvalidArgumentError, "schema 'v' is not Spark DDL such as 'order_id string, amount decimal(10,2)': it is a list of columns, each a name and a type"),
        python("create_queue(store, 'new', 'v wrong')", InvalidArgumentError, "schema 'v wrong' is not Spark DDL such as 'order_id string, amount decimal(10,2)': Expecting ). Line 2, Col: 7."),
        python("create_queue(store, 'new', 'v long, V string')", InvalidArgumentError, "column names occur twice (case does not count): ['v']"),
        python("create_queue(store, 'new', '_offset long')", InvalidArgumentError, "columns ['_offset'] have names that every queue uses itself (_enqueued_at, _epoch, _flow, _offset, _partition, _queue,"),
        python("create_queue(store, 'new', '`a b` long')", InvalidArgumentError, "column name 'a b': Delta tables have no names with spaces or any of ,;{}()="),
        python("create_queue(store, 'new', 'v decimal(39,0)')", InvalidArgumentError, "column v: type decimal(39,0) cannot be kept;"),
        python("create_queue(store, 'new', 'v struct<>')", InvalidArgumentError, "schema 'v struct<>' is not Spark DDL such as 'order_id string, amount decimal(10,2)': Expecting ). Line 2, Col: 10."),
        python("create_queue(store, 'new', 'v long not null')", InvalidArgumentError, "column 'v': a queue does not check its messages, so each column may hold nulls; leave NOT NULL out,"),
        python("create_queue(store, 'new', 'v time')", InvalidArgumentError, "column v: type time cannot be kept;"),
        python("create_queue(store, 'new', 'v variant')", InvalidArgumentError, "column v: type variant cannot be kept; use one of binary, boolean, byte, date, double, float, integer, long,"),
        python("create_queue(store, 'new', 'v ' + 'array<' * 60 + 'long' + '>' * 60)", InvalidArgumentError, "column v is nested more than 50 levels deep; put what is inside into a text or other columns"),
        python("create_queue(store, 'new', 'v ' + 'array<' * 5000 + 'long' + '>' * 5000)", InvalidArgumentError, "the schema is nested too deeply; put what is inside into a text or other columns"),
        python("create_queue(store, 'new', {'type': 'array'})", InvalidArgumentError, "a queue's schema needs at least one column"),
        python("create_queue(store, 'new', 'v long', key='w')", InvalidArgumentError, "key column 'w' is not in the schema; its columns are ['v']"),
        python("create_queue(store, 'new', 'v long', key=['v', 'v'])", InvalidArgumentError, "the key names a column twice: ['v', 'v']"),
        python("create_queue(store, 'new', 'v map<string,long>', key='v')", InvalidArgumentError, "key column 'v' holds a map, which Spark cannot hash; choose another key"),
        python("partition_of(['a', 'b'], ['string'], 8)", InvalidArgumentError, "the key has 1 columns, 2 values were given"),
        python("partition_of([2**70], ['long'], 8)", InvalidArgumentError, "1180591620717411303424 is not a long: argument out of range"),
    ],
    "Settings and counts": [
        python("create_queue(store, 'new', 'v long', partitions=-1)", InvalidArgumentError, "partitions=-1: a queue has 1 to 4096 partitions, or 0 for an exclusive queue"),
        python("create_queue(store, 'new', 'v long', partitions=4097)", InvalidArgumentError, "partitions=4097: a queue has 1 to 4096 partitions, or 0 for an exclusive queue"),
        python("create_queue(store, 'new', 'v long', partitions='8')", InvalidArgumentError, "partitions='8': a queue has 1 to 4096 partitions, or 0 for an exclusive queue"),
        python("create_queue(store, 'new', 'v long', retention_ms=-1)", InvalidArgumentError, "queue settings: retention_ms: Input should be greater than or equal to 0. Known settings:"),
        python("create_queue(store, 'new', 'v long', retention_ms='7d')", InvalidArgumentError, "queue settings: retention_ms: Input should be a valid integer. Known settings:"),
        python("create_queue(store, 'new', 'v long', vacuum_grace_ms=0)", InvalidArgumentError, "queue settings: vacuum_grace_ms: Input should be greater than or equal to 3600000. Known settings:"),
        python("create_queue(store, 'new', 'v long', reject_to_sender='never')", InvalidArgumentError, "queue settings: reject_to_sender: Input should be 'off', 'on' or 'including_when_shutdown'. Known settings:"),
        python("create_queue(store, 'new', 'v long', no_such_setting=1)", InvalidArgumentError, "queue settings: no_such_setting: Extra inputs are not permitted. Known settings:"),
        python("create_queue(store, 'q', 'v long')", QueueAlreadyExistsError, "queue 'q' already exists in STORE (status Ready, 2 partitions); choose another name, or delete it first"),
        python("create_queue(store, 'q', 'v long', exist_ok=True, partitions=3)", QueueAlreadyExistsError, "queue 'q' exists in STORE and is another one than is to be created: its "),
        python("alter_queue(store, 'q', retention_ms=-1, colour='red')", InvalidArgumentError, "queue settings: retention_ms: Input should be greater than or equal to 0; colour: Extra inputs are not permitted. Known settings:"),
        python("alter_queue(store, 'q', retention_ms=1, reset=['retention_ms'])", InvalidArgumentError, "queue settings: retention_ms are both given and reset; do one of the two"),
        python("scale(store, 'q', -1)", InvalidArgumentError, "partitions=-1: a queue has 1 to 4096 partitions, or 0 for an exclusive queue"),
        python("scale(store, 'q', 5000)", InvalidArgumentError, "partitions=5000: a queue has 1 to 4096 partitions, or 0 for an exclusive queue"),
        python("scale(store, 'q', 2)", InvalidArgumentError, "queue 'q' has 2 partitions already, and nothing of a change is left to do"),
        python("scale(store, 'q', 3, mode='fast')", InvalidArgumentError, "mode='fast' is none of live, drain, delete"),
        python("scale(store, 'q', 1, mode='delete')", InvalidArgumentError, "mode delete would lose 6 messages of queue 'q' that not every group has acknowledged, and nothing was confirmed;"),
        python("scale(store, 'q', 1, mode='delete', confirm_lost=1)", InvalidArgumentError, "mode delete would lose 6 messages of queue 'q' that not every group has acknowledged, and only 1 were confirmed;"),
        python("scale(store, 'q', 3, mode='drain', timeout_s=0)", ScalingInProgressError, "scaling queue 'q' to 3 partitions still waits for consumers to acknowledge what is left (14 left); run it again to go on", begun=True),
        python("scale(store, 'q', 5)", ScalingInProgressError, "queue 'q' is being scaled to 3 partitions (mode drain);", others.being_drained),
        python("set_ingress(store, 'q', True)", ScalingInProgressError, "queue 'q' is being drained to change its partition count to 3; that disables ingress, and enables it again at its end.", others.being_drained),
        python("copy_stuck(store, 'x')", InvalidArgumentError, "queue 'x' is exclusive: its consumers read what is in the parent, and nothing is stuck", others.exclusive),
    ],
    "Assignors": [
        python("assign('fair', [Member('a', ['q'])], {'q': 2})", UnknownAssignorError, "there is no assignor 'fair'; there are balanced, range, roundrobin, sticky, cooperative-sticky, weighted"),
        python("assign('range', [Member('a', ['q']), Member('a', ['q'])], {'q': 2})", InvalidArgumentError, "two members have the id 'a'; give each its own"),
        python("assign('range', [Member('a', 'q')], {'q': 2})", InvalidArgumentError, "member 'a' has the text 'q' for its queues; give a list of names"),
        python("assign('weighted', [Member('a', ['q'], weight=0)], {'q': 2})", InvalidArgumentError, "member 'a' has the weight 0; it must be a finite number above 0"),
        python("assign('range', [Member('a', ['q'])], {'q': -1})", InvalidArgumentError, "queue 'q' cannot have -1 partitions"),
        python("assign('weighted', [Member('a', ['q'])], {'q': 1}, loads={('q', 0): nan})", InvalidArgumentError, "partition 0 of queue 'q' has the load nan; it must be a finite number, at least 0"),
        python("asked(lambda partitions: partitions[1:])", AssignorError, "partition 0 of queue 'q': assignor 'own' gave it to nobody; mend it or use another one"),
        python("asked(lambda partitions: partitions + partitions)", AssignorError, "partition 0 of queue 'q': assignor 'own' gave it to 'a' and to 'a'; mend it or use another one"),
        python("asked(lambda partitions: [*partitions, ('other', 0)])", AssignorError, "partition 0 of queue 'other': assignor 'own' gave it to 'a', but there is no such partition; mend it or use another one"),
        python("asked(lambda partitions: 1 / 0)", AssignorError, "assignor 'own' failed with ZeroDivisionError: division by zero; mend it or use another one"),
    ],
}
# fmt: on
