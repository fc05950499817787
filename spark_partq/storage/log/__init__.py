"""Delta's protocol, as far as the tables of a store use it: reader version 1, writer version 2, no table features but
that of times without a zone.

entries      one log entry: actions to JSON and back
snapshot     the table that the entries make up
checkpoints  a snapshot as a Parquet file
folder       the `_delta_log` folder: finding, loading and cleaning up
commit       putting an entry so that it counts once, or not at all
strangers    entries of a table that was here before
making       making a table where another one may have been
spec         what a table is made as
table        one process's handle on a table: refresh, and commit as compare-and-set
unnamed      deleting the files that no version names
"""

from __future__ import annotations

from spark_partq.storage.log.entries import Add, Metadata, Remove, Transaction
from spark_partq.storage.log.folder import Expired, LogFolder, nothing_expires
from spark_partq.storage.log.making import make, take_back
from spark_partq.storage.log.retry import Conflict, retrying
from spark_partq.storage.log.snapshot import Snapshot
from spark_partq.storage.log.spec import LONG_LOG, SHORT_LOG, TableSpec
from spark_partq.storage.log.table import VACUUMED, DeltaLog, FileChanges
from spark_partq.storage.log.unnamed import vacuum

__all__ = [
    "LONG_LOG",
    "SHORT_LOG",
    "VACUUMED",
    "Add",
    "Conflict",
    "DeltaLog",
    "Expired",
    "FileChanges",
    "LogFolder",
    "Metadata",
    "Remove",
    "Snapshot",
    "TableSpec",
    "Transaction",
    "make",
    "nothing_expires",
    "retrying",
    "take_back",
    "vacuum",
]
