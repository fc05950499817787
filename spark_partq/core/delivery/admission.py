"""How much of each partition's backlog one micro-batch takes, within the query's limits (Q7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """Limits of one micro-batch; None is unlimited."""

    max_rows: int | None = None
    max_bytes: int | None = None
    max_files: int | None = None

    def __bool__(self) -> bool:
        return not (self.max_rows is None and self.max_bytes is None and self.max_files is None)


@dataclass(frozen=True)
class Backlog:
    """What a partition has to deliver: its files in order, of the first and the last perhaps only a part."""

    rows: Ints
    bytes: Ints


def admit(backlogs: list[Backlog], limits: Limits) -> list[int]:
    """Rows to take from each partition.

    Each limit is shared evenly: a partition that has less than its share leaves the rest to the others. A remainder goes to
    the first partitions of the list, and the first one that has any row gets at least one. So if the caller puts the partition
    that has waited longest first, none starves. `max_rows` and `max_files` hold exactly. `max_bytes` counts stored
    (compressed) bytes, spread evenly over a file's rows; it may be exceeded by less than one row for each partition.

    Examples
    --------
    >>> one = np.array([1]); hundred = np.array([100])
    >>> admit([Backlog(hundred, hundred), Backlog(one, one), Backlog(hundred, hundred)], Limits(max_rows=11))
    [5, 1, 5]
    >>> admit([Backlog(hundred, hundred), Backlog(one, one), Backlog(hundred, hundred)], Limits(max_rows=2))
    [1, 1, 0]
    """
    have = np.array([b.rows.sum() for b in backlogs], dtype=np.int64)
    take = have.copy()
    if limits.max_rows is not None:
        take = share(have, limits.max_rows)
    if limits.max_files is not None:
        files = share(np.array([len(b.rows) for b in backlogs], dtype=np.int64), limits.max_files)
        take = np.minimum(take, [b.rows[:n].sum() for b, n in zip(backlogs, files, strict=True)])
    if limits.max_bytes is not None:
        sizes = share(np.array([b.bytes.sum() for b in backlogs], dtype=np.int64), limits.max_bytes)
        within = [_rows_within(b, int(size)) for b, size in zip(backlogs, sizes, strict=True)]
        if have.any():
            first = int(np.argmax(have > 0))
            within[first] = max(within[first], 1)
        take = np.minimum(take, within)
    return [int(n) for n in take]


def share(have: Ints, total: int) -> Ints:
    """Divide `total` evenly, so that no partition gets more than it has. A remainder goes to the first of the list."""
    if have.sum() <= total:
        return have
    left, level = total, 0
    for done, most in enumerate(np.sort(have)):
        level = left // (len(have) - done)
        if most > level:
            break
        left -= int(most)
    given = np.minimum(have, level)
    odd = np.flatnonzero(have > level)[: total - int(given.sum())]
    given[odd] += 1
    return given


def _rows_within(backlog: Backlog, size: int) -> int:
    ends = np.cumsum(backlog.bytes)
    whole = int(np.searchsorted(ends, size, side="right"))
    rows = int(backlog.rows[:whole].sum())
    if whole < len(ends):
        used = int(ends[whole - 1]) if whole else 0
        rows += int((size - used) * int(backlog.rows[whole]) // max(1, int(backlog.bytes[whole])))
    return rows
