"""Whether a group makes progress with its messages, for probes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from spark_partq.core.group.events import Leave
from spark_partq.core.group.health import GroupCondition, condition
from spark_partq.core.group.observer import Observer
from spark_partq.core.ids import PartitionId
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.inspect.describe_group import described, queues_of
from spark_partq.storage.inspect.describe_queue import fenced_by
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.replica.group_copies import is_copy
from spark_partq.storage.store import Store

# Shorter than the longest time that counts as watched, so that a silent member is found after its session timeout.
_EVERY_S = 0.5


@dataclass(frozen=True)
class Progress:
    """What `check` saw of a group.

    Attributes
    ----------
    group : str
        The name of the group.
    state : str
        The state of the group, as in `describe_group`.
    healthy : bool
        True if the group has nothing to read, or has acknowledged a message during the check.
    lag : int
        Messages that the group had not acknowledged when the check began.
    acknowledged : int
        Messages that the group has acknowledged since the check began.
    waited_s : float
        For how many seconds the check watched the group.
    why : str
        For people: what the check saw, and what to do if the group is not healthy.
    """

    group: str
    state: str
    healthy: bool
    lag: int
    acknowledged: int
    waited_s: float
    why: str

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON-able values."""
        return dataclasses.asdict(self)


def check_progress(store: Store, name: str, within_s: float) -> Progress:
    """Watch a group until it acknowledges a message, has nothing to read, cannot make progress, or the time is over. Changes nothing.

    A member counts as dead by the same rule as for decisions: if the member was silent for its session timeout while this call watched it.

    Raises
    ------
    NotAStoreError, GroupNotFoundError, CorruptTableError
        If the group cannot be read, or has nothing to read in the queues that can be read, and another cannot be read.
    """
    return _Watch(store, name).run(within_s)


class _Watch:
    def __init__(self, store: Store, name: str) -> None:
        self._store, self._runtime = store, store.runtime
        self._began_s = self._runtime.monotonic_s()
        self._group, self._observer = open_group(store, name, deleted=True), Observer()
        self._first = self._positions()
        self._queues: dict[str, Queue] = {}
        self._lag = self._lag_now() if self._group.state.exists else 0

    def run(self, within_s: float) -> Progress:
        group = self._group
        while True:
            verdict = self._verdict(within_s)
            if verdict is not None:
                return verdict
            self._runtime.sleep(min(_EVERY_S, max(0.01, within_s - self._waited_s)))
            group.refresh()

    @property
    def _waited_s(self) -> float:
        return self._runtime.monotonic_s() - self._began_s

    def _verdict(self, within_s: float) -> Progress | None:
        """The result; None as long as the group may still make progress."""
        group = self._group
        due = self._observer.due(group.state, group.acks, int(self._runtime.monotonic_s() * 1000))
        expired = [event.instance for event in due if isinstance(event, Leave)]
        if expired and is_copy(group):  # its heartbeats come with the passes
            expired = []
        state = condition(group.state, expired)
        if state is GroupCondition.DEAD:
            return self._progress(state, False, "it was deleted")
        if not self._lag:
            return self._progress(state, True, "it has nothing to read")
        acknowledged = self._acknowledged()
        if acknowledged:
            return self._progress(
                state, True, f"it has acknowledged {_messages(acknowledged)} within {self._waited_s:.1f} s"
            )
        why = self._stands_still(state, within_s)
        if why is None:
            return None
        # What it had to read may have gone meanwhile: with a partition that was drained, with its queue, or as it was too old.
        if not self._first.keys() <= group.state.partitions.keys() or not self._lag_now():
            return self._progress(
                state, True, "messages that it had to read were removed, or their partition was drained"
            )
        return self._progress(
            state, False, f"{_messages(self._lag)} {'is' if self._lag == 1 else 'are'} left, and {why}"
        )

    def _stands_still(self, state: GroupCondition, within_s: float) -> str | None:
        """Why the group does not make progress; None as long as it still may."""
        if state in (GroupCondition.EMPTY, GroupCondition.EXPIRED):
            for queue in self._queues.values():
                if (replica := fenced_by(queue)) is not None:
                    return f"queue {queue.name} was taken over by its replica in {replica}. Use that store"
        if state is GroupCondition.EMPTY:
            return f"no query is in the group. Start one; spark-partq history {self._group.name} says why the last one left"
        if state is GroupCondition.EXPIRED:
            return "no member was heard of for its session timeout. Start its queries again"
        if self._waited_s >= within_s:
            return f"none was acknowledged within {within_s:g} s. spark-partq explain says what a partition waits for"
        return None

    def _lag_now(self) -> int:
        self._queues, unread = queues_of(self._store, self._group)
        lag = described(self._group, self._queues, (), unread).lag
        if unread and not lag:
            first, *_ = unread.values()
            raise first
        return lag

    def _progress(self, state: GroupCondition, healthy: bool, why: str) -> Progress:
        waited_s = round(self._waited_s, 3)
        return Progress(self._group.name, state.value, healthy, self._lag, self._acknowledged(), waited_s, why)

    def _positions(self) -> dict[PartitionId, int]:
        return {id_: self._group.position(id_) or 0 for id_ in self._group.state.partitions}

    def _acknowledged(self) -> int:
        now = self._positions()
        return sum(max(0, now[id_] - before) for id_, before in self._first.items() if id_ in now)


def _messages(n: int) -> str:
    return f"{n:,} message{'' if n == 1 else 's'}"
