"""This machine's clock, compared with the store's before it decides what cannot be taken back (Q8).

`_enqueued_at` never goes back. So one producer whose clock is a year ahead would keep retention from removing anything for a year, and one
process of maintenance whose clock is ahead would remove what is young. The store's clock is the one that all who use a store share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_partq.core.errors import ClockSkewError
from spark_partq.storage.queue.file_age import FileAge
from spark_partq.storage.store import Store, queue_folder

# So long an answer of the store counts, by the clock that does not go back, from when the writer began to write what it asked about.
_COUNTS_S = 300.0
# An object store tells whole seconds.
_TICK_MS = 1_000


class ComparedClock:
    """A producer's clock. Used by the thread of one producer and those that commit for it.

    Parameters
    ----------
    max_skew_ms : function
        How far it may lie ahead of the store's, or behind, by now.

    Attributes
    ----------
    halts : int
        How often it was seen that the clock that does not go back had stood still.
    """

    def __init__(self, store: Store, queue: str, max_skew_ms: Callable[[], int]) -> None:
        self._store, self._queue, self._max_skew_ms = store, queue, max_skew_ms
        self._compared_s: float | None = None
        self.halts = 0
        # What must be added to the clock that does not go back for the time in the store, in milliseconds: between these two.
        self._least_ms = self._most_ms = 0.0

    def is_due(self) -> bool:
        """Whether the store is to be asked: for the first time, after five minutes, and when this machine's clock has jumped."""
        if self._compared_s is None or self._store.runtime.monotonic_s() - self._compared_s > _COUNTS_S:
            return True
        return self._skew_ms(self._store.now_ms()) > self._max_skew_ms()

    def compare(self, paths: Sequence[str], began_s: float, ended_s: float) -> None:
        """Ask the store when files were written. One request for each, in parallel.

        The oldest one counts: if this machine stood still after it was written, `written` finds that.

        Parameters
        ----------
        began_s, ended_s : float
            They were written between these two, by `Runtime.monotonic_s`.
        """
        found = [info for info in self._store.map(self._store.files.info, paths) if info is not None]
        if len(found) < len(paths):  # maintenance has deleted it, or somebody the queue
            self._halted()
            return
        written_ms = min(info.modified_ns for info in found) / 1e6
        self._least_ms, self._most_ms = written_ms - ended_s * 1000, written_ms - began_s * 1000 + _TICK_MS
        self._compared_s = began_s

    def time_us(self) -> int:
        """Microseconds since 1970 by this machine's clock.

        Raises
        ------
        ClockSkewError
            If that is not about the time in the store.
        """
        now_us = self._store.runtime.time_ns() // 1_000
        if self._compared_s is not None:
            skew_ms, most_ms = self._skew_ms(now_us // 1_000), self._max_skew_ms()
            if skew_ms > most_ms:
                raise skewed(self._store, self._queue, skew_ms, most_ms, "no more messages are committed")
        return now_us

    def written(self, dated_ns: int, most_ms: float) -> None:
        """A file was just written, at that time by the store. Learn from it whether the clock that does not go back stood still for longer than
        `most_ms` since the store was asked. If so, ask the store again next time.
        """
        now_ms = self._store.runtime.monotonic_s() * 1000
        if self._compared_s is not None and dated_ns / 1e6 - (now_ms + self._most_ms) > most_ms:
            self._halted()

    def is_over(self, age: FileAge) -> bool:
        """Whether half of the grace may have passed since files were begun: by this clock, or because this clock was seen to stand still."""
        return self.halts > age.halts or age.is_over(self._store.runtime)

    def _halted(self) -> None:
        self._compared_s = None
        self.halts += 1

    def _skew_ms(self, now_ms: int) -> float:
        """How far this machine's clock is ahead, or behind, at least."""
        gone_ms = self._store.runtime.monotonic_s() * 1000
        return max(now_ms - (gone_ms + self._most_ms), gone_ms + self._least_ms - now_ms)


def measured_ms(store: Store, queue: str) -> int:
    """The store's time, milliseconds since 1970. Three requests."""
    return store.clock_ms(f"{queue_folder(queue)}/control")


def checked_ms(
    store: Store, queue: str, max_skew_ms: int, so: str = "nothing is removed", *, read_ms: int | None = None
) -> int:
    """The store's time, milliseconds since 1970, if it is about this machine's, by which removed files and decisions are dated.

    Parameters
    ----------
    so : str
        What does not happen otherwise; for the error.
    read_ms : int, optional
        What this machine's clock said before, if something was decided by that: it may have been set right since.

    Raises
    ------
    ClockSkewError
    """
    before_ms = store.now_ms()
    store_ms = measured_ms(store, queue)
    ahead_ms = max(before_ms, before_ms if read_ms is None else read_ms) - store_ms
    skew_ms = max(ahead_ms, store_ms - store.now_ms() - _TICK_MS)
    if skew_ms > max_skew_ms:
        raise skewed(store, queue, skew_ms, max_skew_ms, so)
    return store_ms


def behind_ms(store: Store, dated_ms: int) -> int:
    """How far this machine's clock is behind the store's at least, as the store has dated a file so. Whether it is ahead no file tells."""
    return dated_ms - store.now_ms()


def differ(store: Store, queue: str, skew_ms: float, max_skew_ms: int) -> str:
    return (
        f"this machine's clock and that of {store.uri} differ by {skew_ms / 1000:,.0f} s, and queue {queue!r} allows "
        f"{max_skew_ms / 1000:,.0f} s (max_clock_skew_ms)"
    )


def skewed(store: Store, queue: str, skew_ms: float, max_skew_ms: int, so: str) -> ClockSkewError:
    return ClockSkewError(
        f"{differ(store, queue, skew_ms, max_skew_ms)}; {so}. Set this machine's clock by a time server, and start again",
        queue=queue,
        store=store.uri,
        skew_s=round(skew_ms / 1000),
        max_clock_skew_ms=max_skew_ms,
    )
