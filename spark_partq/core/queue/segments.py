"""Which files of a partition are merged into segments."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from spark_partq.core import format
from spark_partq.core.queue.alter import require_features
from spark_partq.core.queue.decide import Facts
from spark_partq.core.queue.state import QueueState

Ints = NDArray[np.int64]

SMALL_BYTES = 32 << 20  # a file of this size or more is not merged
MOST_BYTES, MOST_FILES = 128 << 20, 1_000  # of a segment


def due(
    base: Ints,
    size: Ints,
    enqueued_us: Ints,
    alone: NDArray[np.bool_],
    cuts: Collection[int],
    period_us: int,
    now_us: int,
) -> list[range]:
    """The runs of files, by position, that are to be merged: all files of one period, once the period has been over for as long as it lasted.

    So each message is written again only once, however old it gets.

    Parameters
    ----------
    base, size, enqueued_us : array
        For each file, in the order of the offsets: the offset of its first message, its bytes, and when it was enqueued.
    alone : array
        For each file, whether it is an original file and no segment.
    cuts : collection of int
        Offsets that must not lie inside a segment.
    """
    period = enqueued_us // period_us
    runs: list[list[int]] = []
    filled = 0
    for i in np.flatnonzero(alone & (size < SMALL_BYTES) & ((period + 2) * period_us <= now_us)).tolist():
        filled += int(size[i])
        goes_on = runs and i == runs[-1][-1] + 1 and period[i] == period[i - 1] and base[i] not in cuts
        if not goes_on or filled > MOST_BYTES or len(runs[-1]) == MOST_FILES:
            runs.append([])
            filled = int(size[i])
        runs[-1].append(i)
    return [range(run[0], run[-1] + 1) for run in runs if len(run) > 1]


def allow_segments(state: QueueState) -> Facts:
    """Keep programs away that would read a segment like a file whose messages all have one time."""
    if not state.usable or state.fenced_by is not None:
        return ()
    return require_features(state, format.SEGMENTS)
