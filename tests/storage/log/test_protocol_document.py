"""The entries that docs/PROTOCOL.md shows are what is written, to the byte."""

from __future__ import annotations

import json
import re
from pathlib import Path

from spark_partq.spark.micro_batch import digest_of
from spark_partq.storage.files import MemoryFiles
from spark_partq.storage.log.entries import decode, encode
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.runtime import derived_id
from spark_partq.storage.store import Store

DOCUMENT = Path(__file__).parents[3] / "docs" / "PROTOCOL.md"


def examples() -> list[bytes]:
    section = DOCUMENT.read_text().partition("## The log of a table")[2].partition("### Commit")[0]
    return [block.encode() for block in re.findall(r"```json\n(.*?)```", section, re.DOTALL)]


def test_each_example_is_what_is_written() -> None:
    """An example that is read and written again is the same text, so no field of it is made up or missing."""
    assert len(examples()) == 5
    for example in examples():
        assert encode(decode(example)) == example


def test_the_examples_are_one_table() -> None:
    """Put one after the other they make a log that is read: a partition whose messages were committed and removed."""
    files = MemoryFiles()
    log = LogFolder(Store.over(files), "queues/orders/partitions/partition=0")
    for version, example in enumerate(examples()):
        files.put_if_absent(log.entry_path(version), example)
    columns = {"type": "struct", "fields": [{"name": "order_id", "type": "string", "nullable": True, "metadata": {}}]}
    table = PartitionTable(Store.over(files), "orders", 0, columns)
    assert (table.first_offset, table.next_offset, len(table.index)) == (1000, 1000, 0)
    assert table.recorded("partq:sink/shop/0") == 7 and table.seal(0) == 1000


def test_the_id_of_the_examples_is_that_of_the_partition() -> None:
    told = re.search(r"of partition 0 of the queue `([0-9a-f-]{36})`", DOCUMENT.read_text())
    assert told is not None
    for example in examples():
        assert f'"tableId":"{derived_id(f"{told[1]}/0")}"'.encode() in example


def test_the_digest_of_the_example_is_that_of_the_text_beside_it() -> None:
    told = re.search(r"gives `(\{.*?\})`, and the digest", DOCUMENT.read_text())
    assert told is not None
    assert f'"offsets_digest":"{digest_of(json.loads(told[1]))}"' in DOCUMENT.read_text()


def test_the_operations_are_those_of_the_document() -> None:
    """Every operation that the package commits is named in the document, and no other."""
    named = re.search(r"`operation` is for people.*?\n\n", DOCUMENT.read_text(), re.DOTALL)
    assert named is not None
    told = set(re.findall(r"`([A-Z ]+)`", named[0])) - {"DESCRIBE HISTORY"}
    source = "\n".join(path.read_text() for path in Path("spark_partq/storage").rglob("*.py"))
    used = set(re.findall(r'operation(?:: str)? ?= ?"([A-Z ]+)"', source)) | {"CREATE TABLE", "VACUUM END"}
    assert told == used
