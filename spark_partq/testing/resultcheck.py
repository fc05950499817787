"""Checks a table of results that a sink of this package has written: each message's row once, and those of a key in order.

The table is written by commits, which are numbered. A message is in order if its row does not come in an earlier commit than those of the
key's messages before it, and in one commit behind them, by its offset. Offsets of two partitions say nothing, so a commit has a key's
messages of one partition only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import NamedTuple

from spark_partq.testing.keycheck import KeyReport, Message


class Result(NamedTuple):
    """A row of the table; `commit` is the number of the commit that added it."""

    key: Hashable
    value: int
    partition: int
    offset: int
    commit: int

    @property
    def message(self) -> Message:
        return self.key, self.value


def check_results(rows: Iterable[Result], sent: Iterable[Message]) -> KeyReport:
    """Compare what the table has with what was sent, of which a key's values rise.

    Rows that nobody has sent count as twice.
    """
    found = sorted(rows, key=lambda row: (str(row.key), row.value, row.commit))
    counts, wanted = Counter(row.message for row in found), set(sent)
    twice = [message for message, count in counts.items() if count > 1 or message not in wanted]
    out_of_order = [
        after.message
        for before, after in pairwise(found)
        if before.key == after.key and before.value < after.value and not _in_order(before, after)
    ]
    return KeyReport(len(counts), sorted(wanted - counts.keys(), key=str), twice, out_of_order)


def _in_order(before: Result, after: Result) -> bool:
    if before.partition == after.partition:
        return before.commit <= after.commit and before.offset < after.offset
    return before.commit < after.commit
