"""What a partition's table records of the batches of sinks, and when these records are no longer needed (Q5)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from spark_partq.core.queue.sink_ids import STUCK_SINK, keeps_positions

# A sink that has been silent for this long counts as dead: maintenance forgets that its last batch is in.
KEPT_MS = 30 * 86_400_000
# The version of a forgotten record. A later batch of the sink replaces it.
FORGOTTEN = -1

_SINK, _DISCARDED = "partq:sink/", "partq:discarded/"
STUCK = _SINK + STUCK_SINK


@dataclass(frozen=True)
class BatchRecord:
    """Which batch of which sink a commit belongs to, so that a replay finds that the batch is in.

    Attributes
    ----------
    query_id : str or None
        The streaming query that writes it.
    offsets_digest : str or None
        A digest of where the micro-batch ends in each source of the query. It tells whether two micro-batches of one number hold the same
        messages.
    """

    sink_id: str
    batch_id: int
    query_id: str | None = None
    offsets_digest: str | None = None

    @property
    def app(self) -> str:
        """The app id of the sink's last batch, under any generation of the partition map."""
        return _SINK + self.sink_id

    def under(self, generation: int) -> str:
        return f"{self.app}/{generation}"

    def transactions(self, generation: int) -> dict[str, int]:
        return dict.fromkeys((self.app, self.under(generation)), self.batch_id)


def generation_of(app: str) -> int:
    """The generation of the map under which a transaction records a batch; -1 if it does not say."""
    sink, _, generation = app.removeprefix(_SINK).partition("/")
    return int(generation) if app == f"{_SINK}{sink}/{generation}" else -1


class Record(Protocol):
    """An application transaction: its version, and when it was written."""

    @property
    def version(self) -> int: ...

    @property
    def updated_ms(self) -> int | None: ...


def expired_records(transactions: Mapping[str, Record], now_ms: int) -> Iterator[str]:
    """App ids that a checkpoint may leave out (Q5).

    - A sink's record under a generation is not needed once the sink has a newer record in this table: only the sink's last batch can be
      replayed. Records of the copy of stuck messages stay: after a promotion they say which messages are copied.
    - A record that was forgotten says nothing.
    - The record of what a sink discarded expires when other writers have written the table for `KEPT_MS`, but not this sink. It stays if the
      sink keeps positions of a group.

    Time is the earlier of `now_ms` and the last record's: a clock that is wrong makes nothing expire too soon by itself.
    """
    newest = min(now_ms, last_written_ms(transactions))
    for app, txn in transactions.items():
        if app.startswith(_SINK):
            sink_id = app.split("/")[1]
            last = transactions.get(_SINK + sink_id)
            is_over = last is None or txn.version < last.version or last.version == FORGOTTEN
            if is_over and sink_id != STUCK_SINK:
                yield app
        elif app.startswith(_DISCARDED) and _is_old(txn, newest) and not keeps_positions(app.removeprefix(_DISCARDED)):
            yield app


def silent_sinks(transactions: Mapping[str, Record], now_ms: int) -> dict[str, bool]:
    """For each sink of which a table records a batch: whether the batch is so old that it may be forgotten."""
    return {
        app.removeprefix(_SINK): _is_old(txn, now_ms)
        for app, txn in transactions.items()
        if app.startswith(_SINK) and "/" not in app.removeprefix(_SINK) and txn.version != FORGOTTEN
    }


def may_be_forgotten(
    transactions: Mapping[str, Record], now_ms: int, sink_ids: Container[str] | None = None
) -> set[str]:
    """App ids of sinks that are silent by this table: the id under any generation of the map, and those under each. Only of `sink_ids`, if given."""
    gone = {sink for sink, is_silent in silent_sinks(transactions, now_ms).items() if is_silent}
    sinks = {app: app.split("/")[1] for app in transactions if app.startswith(_SINK)}
    return {app for app, sink in sinks.items() if sink in gone and (sink_ids is None or sink in sink_ids)}


def last_written_ms(transactions: Mapping[str, Record]) -> int:
    """When the last transaction was written; 0 if there is none."""
    return max((txn.updated_ms or 0 for txn in transactions.values()), default=0)


def _is_old(txn: Record, newest: int) -> bool:
    return txn.updated_ms is not None and newest - txn.updated_ms > KEPT_MS
