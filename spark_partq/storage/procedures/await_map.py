"""A producer waits for the next partition map, or for a fence to be taken back. It logs that it waits, and gives up after a time (S5, S7)."""

from __future__ import annotations

import logging
from collections.abc import Collection

from spark_partq.core.errors import QueueFencedError, ScalingInProgressError
from spark_partq.core.queue.facts import Kind
from spark_partq.storage.procedures.partition_map import open_generation
from spark_partq.storage.procedures.primary import check_primary, unfence
from spark_partq.storage.procedures.rewrites import NOT_LOST
from spark_partq.storage.queue.handle import Queue, check_usable

# A producer that waits asks again after pauses. Each is twice as long as the pause before, up to the longest.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 1.0
# After the first time it opens the map itself, as the process that was opening the map may have died. After the second it
# warns. After the third it gives up.
_HELP_AFTER_S, _WARN_AFTER_S, MAX_WAIT_S = 1.0, 5.0, 300.0

_log = logging.getLogger("spark_partq")


def await_map(queue: Queue, generation: int) -> None:
    """Wait until a later map is in force. The process that opens the map may have died, so after a while open it here.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError
        If the queue cannot be written any more.
    ScalingInProgressError
        If the wait takes too long.
    """
    patience = _Patience(queue)
    while True:
        _refresh(queue)
        waiting = open_generation(queue) if patience.waited_s > _HELP_AFTER_S else None
        if queue.state.generation > generation:
            return
        holdup = f"; the change waits for {waiting.what} ({waiting.left} left)" if waiting is not None else ""
        if patience.is_over:
            raise _too_long(queue, patience.waited_s, holdup)
        if patience.warns():
            _log.warning("%s%s; this producer waits for the next map", _what_is_under_way(queue), holdup)
        patience.pause()


def await_unfenced(queue: Queue, partitions: Collection[int]) -> None:
    """For partitions that were fenced: raise if a replica has taken over, or take the partitions' fences back, as the queue's control table has done.

    Raises
    ------
    QueueNotFoundError, QueueNotReadyError, QueueFencedError, ReplicaError
        If the queue cannot be written any more. QueueFencedError also if partitions stay fenced although no replica has taken
        over.
    """
    patience = _Patience(queue)
    while True:
        _refresh(queue)
        tables = unfence(queue, partitions)
        fenced = [table.partition for table in tables if table.fenced]
        if not fenced:
            return
        if patience.is_over:
            raise QueueFencedError(
                f"partitions {fenced} of queue {queue.name!r} in {queue.store.uri} are fenced, as for a replica that takes over, but the queue's "
                f"control table names no such replica. {NOT_LOST}. "
                "spark-partq doctor shows the queue's state",
                queue=queue.name,
            )
        if patience.warns():
            _log.warning("partitions %s of queue %s are fenced; this producer waits", fenced, queue.name)
        patience.pause()


class _Patience:
    """How long a producer has waited."""

    def __init__(self, queue: Queue) -> None:
        self._runtime = queue.store.runtime
        self._began_s = self._runtime.monotonic_s()
        self._pause_s = _FIRST_PAUSE_S
        self._has_warned = False

    @property
    def waited_s(self) -> float:
        return self._runtime.monotonic_s() - self._began_s

    @property
    def is_over(self) -> bool:
        return self.waited_s > MAX_WAIT_S

    def warns(self) -> bool:
        """Whether it is time for the warning, which comes once."""
        due = not self._has_warned and self.waited_s > _WARN_AFTER_S
        self._has_warned = self._has_warned or due
        return due

    def pause(self) -> None:
        self._runtime.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def _refresh(queue: Queue) -> None:
    queue.control.refresh()
    check_usable(queue.control)
    check_primary(queue)


def _what_is_under_way(queue: Queue) -> str:
    """Which change of the partition count is under way, since when, and who asked for it."""
    state = queue.state
    sealed = f"partitions of queue {queue.name!r} in {queue.store.uri} are sealed under generation {state.generation}"
    if state.scaling is None:
        return f"{sealed} of its map, and no change of the partition count is under way"
    (started,) = [row for row in queue.control.history() if row["kind"] == Kind.SCALING_STARTED][-1:]
    return (
        f"{sealed} of its map: {started['by']} scales it to {state.scaling.partition_count} partitions (mode {state.scaling.mode}) "
        f"since {started['at']:%Y-%m-%d %H:%M:%S} UTC"
    )


def _too_long(queue: Queue, waited_s: float, holdup: str) -> ScalingInProgressError:
    scaling = queue.state.scaling
    again = "spark-partq doctor shows its state"
    if scaling is not None:
        mode = "" if scaling.mode == "live" else f" --mode {scaling.mode}"
        again = f"Finish the change with: spark-partq scale {queue.name} {scaling.partition_count}{mode}"
    return ScalingInProgressError(
        f"{_what_is_under_way(queue)}{holdup}. This producer has waited {waited_s:.0f} s for the next map. {NOT_LOST}. {again}",
        queue=queue.name,
        generation=queue.state.generation,
    )
