"""What a table is made as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_partq.core.payload.schema import Struct

# So many entries after a checkpoint the next one is due: the more, the more live files it has to name, from the first number to
# the second.
CHECKPOINT_INTERVALS = 25, 100
LONG_LOG = {
    "delta.checkpointInterval": str(CHECKPOINT_INTERVALS[0]),
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.enableExpiredLogCleanup": "true",
}
# For tables with several commits a second.
SHORT_LOG = {
    **LONG_LOG,
    "delta.logRetentionDuration": "interval 1 minutes",
    "delta.deletedFileRetentionDuration": "interval 1 minutes",
}


@dataclass(frozen=True)
class TableSpec:
    """What a table is made as."""

    schema: Struct
    partition_by: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=lambda: LONG_LOG)
