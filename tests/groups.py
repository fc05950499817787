"""Consumers of a group without Spark: each does what a query's driver does, step by step."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

from spark_partq.core.assignors import BUILTIN
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.events import DeadlinePassed, Drained, HolddownOver, Join, Leave
from spark_partq.core.group.facts import GroupFact, Member, PartitionState
from spark_partq.core.ids import PartitionId
from spark_partq.storage.group.handle import Group
from spark_partq.storage.queue.handle import attach_group, in_group, open_queue
from spark_partq.storage.store import Store, StorePath

_incarnations = itertools.count(1)


class Consumer:
    """A process that has joined."""

    def __init__(
        self,
        store: StorePath,
        instance: str,
        flows: int = 1,
        *,
        group: str = "g",
        queues: tuple[str, ...] = ("q",),
        session_timeout_ms: int = 10_000,
        starts: int = 0,
        assignors: tuple[str, ...] = ("balanced",),
        **options: Any,
    ) -> None:
        self.store, self.instance = store, instance
        place = Store.at(store)
        found = [open_queue(place, name) for name in queues]
        self.group = Group(place, group)
        self.ids = {queue.name: queue.state.queue_id for queue in found}
        known = {queue.state.queue_id: in_group(queue.state) for queue in found}
        first = {(queue.state.queue_id, p): starts for queue in found for p in queue.state.partition_numbers}
        self._join, self._queues = (known, first), found
        options.setdefault("cooperative", all(BUILTIN[name].cooperative for name in assignors))
        reads = () if "pattern" in options else queues
        self._member = Member(
            instance, "", flows, session_timeout_ms, assignors, reads, host=f"host-{instance}", **options
        )
        self._beats = itertools.count(1)
        self.incarnation = ""
        self.start_again()

    def start_again(self) -> None:
        """Another process, of the same instance, takes this one's place."""
        self.incarnation = f"{self.instance}-process-{next(_incarnations)}"
        join = Join(replace(self._member, incarnation=self.incarnation), *self._join)

        def events() -> list[Join]:
            for queue in self._queues:
                attach_group(queue, self.group.name, self.group.state.deletions)
            return [join]

        self.group.decide(events, self.instance)

    def partition_id(self, partition: int, queue: str = "q") -> PartitionId:
        return self.ids[queue], partition

    def beat(self) -> None:
        self.group.acknowledge([AckRow(self.incarnation, next(self._beats))])

    def ack(self, partition: int, offset: int, delivered: int | None = None, queue: str = "q") -> None:
        """Acknowledge up to `offset`, having handed out up to `delivered`."""
        self.group.refresh()
        partition_id = self.partition_id(partition, queue)
        epoch = self.group.state.partitions[partition_id].epoch
        row = AckRow(self.incarnation, next(self._beats), *partition_id, epoch, offset, delivered or offset)
        self.group.acknowledge([row])

    def release(self, *partitions: int) -> list[GroupFact]:
        """Give up what drains (only these), as if everything that was handed out were acknowledged."""
        self.group.refresh()
        state = self.group.state
        events = [
            Drained(partition_id, self.incarnation, own.epoch, 0)
            for partition_id, own in state.partitions.items()
            if own.state is PartitionState.DRAINING
            and own.incarnation == self.incarnation
            and partition_id[1] in (partitions or [partition_id[1]])
        ]
        return self.group.decide(lambda: events, self.instance)

    def leave(self) -> None:
        self.group.decide(lambda: [Leave(self.instance, self.incarnation)], self.instance)

    def expire(self, by: str = "somebody") -> None:
        """The others have not heard of it."""
        self.group.decide(lambda: [Leave(self.instance, self.incarnation, expired=True)], by)

    def end_holddown(self) -> None:
        self.group.refresh()
        seq = self.group.state.status_seq
        self.group.decide(lambda: [HolddownOver(seq)], self.instance)

    def force(self) -> None:
        """The time of every handoff under way has run out."""
        self.group.refresh()
        events = [
            DeadlinePassed(w, own.handoff)
            for w, own in self.group.state.partitions.items()
            if own.state is PartitionState.DRAINING
        ]
        self.group.decide(lambda: events, self.instance)


# One whose session does not end while a test takes its time.
Lasting = functools.partial(Consumer, session_timeout_ms=600_000)
