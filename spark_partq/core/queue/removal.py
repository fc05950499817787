"""Which files of a partition maintenance removes (Q8)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spark_partq.core.queue.settings import QueueSettings

Ints = NDArray[np.int64]


def removable(
    end: Ints,
    size: Ints,
    enqueued_us: Ints,
    floor: int,
    settings: QueueSettings,
    now_ms: int,
    *,
    operating: bool,
    stuck: bool = False,
) -> int:
    """How many files are removed, from the first on.

    Parameters
    ----------
    end, size, enqueued_us : array
        For each file, in the order of the offsets: the offset after its last message, its bytes, and when its last message was
        enqueued.
    floor : int
        Every group has acknowledged the messages below it.
    now_ms : int
        By the store's clock.
    operating : bool
        Whether consumers share the partition. Messages that are kept in any other partition could not be given to a consumer.
    stuck : bool
        Whether a group wants messages here that it cannot be given until they are copied. They do not become too old, nor too many: nobody could
        have read them in time, and no query would hear of their loss.
    """
    settled = int(np.searchsorted(end, floor, side="right"))
    if operating and settings.min_retention_ms:
        settled = min(settled, older(enqueued_us, settings.min_retention_ms, now_ms))
    if stuck:
        return settled
    expired = 0 if settings.retention_ms is None else older(enqueued_us, settings.retention_ms, now_ms)
    return max(settled, expired, too_many(size, settings.max_bytes))


def older(enqueued_us: Ints, than_ms: int, now_ms: int) -> int:
    """How many files, from the first on, are older than that."""
    return int(np.searchsorted(enqueued_us, (now_ms - than_ms) * 1000, side="left"))


def too_many(size: Ints, most: int | None) -> int:
    """How many files must be removed, from the first on, so that the others together have at most `most` bytes."""
    if most is None:
        return 0
    left = size[::-1].cumsum()[::-1]  # from each file on
    return int((left > most).sum())
