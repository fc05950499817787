"""Which of a partition's records of batches nobody needs any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from spark_partq.core.queue.sink_ids import keeps_positions

# A sink that has been silent for so long is taken for dead: its records are forgotten, and so is that its last batch is in.
KEPT_MS = 30 * 86_400_000

_SINK, _DISCARDED = "partq:sink/", "partq:discarded/"


class Record(Protocol):
    """An application transaction: its version, and when it was written."""

    @property
    def version(self) -> int: ...

    @property
    def updated_ms(self) -> int | None: ...


def expired_records(transactions: Mapping[str, Record], now_ms: int) -> Iterator[str]:
    """App ids that a checkpoint may leave out (Q5).

    - A record of a sink under a generation is not needed once the sink has a newer one in this table: only its
      last batch can be replayed.
    - All records of a sink are given up when the table was written, but not by this sink, for `KEPT_MS`. Not those of one that keeps
      positions of a group: it would write all of its messages again.

    Time is the earlier of `now_ms` and the last record's: a clock that is wrong makes nothing expire too soon by itself.
    """
    newest = min(now_ms, max((txn.updated_ms or 0 for txn in transactions.values()), default=0))
    for app, txn in transactions.items():
        if app.startswith(_SINK):
            last = transactions.get(_SINK + app.split("/")[1])
            is_silent = last is not None and _is_old(last, newest) and not keeps_positions(app.split("/")[1])
            if last is None or txn.version < last.version or is_silent:
                yield app
        elif app.startswith(_DISCARDED) and _is_old(txn, newest) and not keeps_positions(app.removeprefix(_DISCARDED)):
            yield app


def _is_old(txn: Record, newest: int) -> bool:
    return txn.updated_ms is not None and newest - txn.updated_ms > KEPT_MS
