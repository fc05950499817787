"""What a query's planner does not give its flows: messages that were delivered too often, follow such a one of their key, or are too old; and
how many of those that fail it gives at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_partq.core.delivery.member import plannable
from spark_partq.core.delivery.offsets import Range
from spark_partq.core.group.attempts import deliveries, is_dead, is_suspect, piece
from spark_partq.core.group.events import Isolate, Skip
from spark_partq.core.group.facts import PartitionState
from spark_partq.core.group.held_keys import check_room
from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.storage.procedures.consume.held import HeldMessages, Run, hashes
from spark_partq.storage.procedures.consume.lifetimes import Lifetimes
from spark_partq.storage.procedures.consume.membership import Membership
from spark_partq.storage.procedures.consume.subscription import Subscription
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.queue.clock import checked_ms
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.partition_table import PartitionTable

Offsets = Mapping[PartitionId, int]
Tables = Mapping[PartitionId, PartitionTable]

DEAD, HELD, EXPIRED = "dead", "held", "expired"


@dataclass(frozen=True)
class Due:
    """Messages that are to be left out."""

    partition_id: PartitionId
    messages: DeadMessages
    dead_letter_queue: str | None  # None discards them


class LeftOut:
    """Used under the lock of `membership`, as of its last refresh."""

    def __init__(self, subscription: Subscription, membership: Membership) -> None:
        self._subscription, self._membership = subscription, membership
        self._sent: dict[str, DeadLetters] = {}
        self._held_messages = HeldMessages()
        self._lifetimes = Lifetimes()
        self._now_us = 0  # of the plan that is made: what is not too old when it begins is not while it goes on
        self._others_came = False  # the last micro-batch held what is not suspect

    # ---- messages that are left out
    def due(self, tables: Tables, starts: Offsets, ends: Offsets) -> list[Due]:
        """What is to be left out before the next micro-batch: of each partition at most a few messages at its position."""
        found = []
        self._now_us = self._membership.store.now_ms() * 1000
        self._lifetimes.forget_others(starts)
        for partition_id, settings in self._settings().items():
            if partition_id not in starts or starts[partition_id] != self._membership.group.position(partition_id):
                continue  # behind what the application has still to acknowledge, or what was removed
            start, end = starts[partition_id], ends[partition_id]
            if start < end:
                table = tables[partition_id]
                free = self._free_of_held(partition_id, settings, table, start, end)
                found += (
                    self._dead(partition_id, settings, start)
                    or self._held(partition_id, settings, table, start, end)
                    or self._expired(partition_id, settings, table, start, free)
                )
        return found

    def leave_out(self, due: list[Due], tables: Tables) -> None:
        """Send them to their dead-message queues, and go on behind them.

        Raises
        ------
        QueueNotFoundError, SchemaMismatchError, IngressDisabledError, CorruptTableError
            If one cannot be sent; nothing is left out then that is not sent.
        KeysHeldError
            If too many keys would be held back.
        ClockSkewError
            If messages seem too old to a clock that is wrong.
        """
        membership, queues = self._membership, self._queues()
        for queue_id in {item.partition_id[0] for item in due if item.messages.reason == EXPIRED}:
            queue = queues[queue_id]
            checked_ms(queue.store, queue.name, queue.state.settings.max_clock_skew_ms)
        for item in due:
            messages, name = item.messages, item.dead_letter_queue
            if item.partition_id not in plannable(membership.group.state, membership.incarnation):
                continue  # it was taken from this process by what was decided meanwhile
            queue, table, holds = queues[item.partition_id[0]], tables[item.partition_id], frozenset[int]()
            if name is not None:
                holds = self._keys(queue, table, messages)
                if name not in self._sent:
                    self._sent[name] = DeadLetters(membership.store, name, membership.name)
                state = membership.group.state
                epoch, since = state.partitions[item.partition_id].epoch, state.reading_since(item.partition_id)
                self._sent[name].send(queue, table, epoch, messages, since)
            skip = Skip(
                item.partition_id, membership.incarnation, messages.start, messages.end, messages.reason, name, holds
            )
            membership.decide(lambda skip=skip: [skip])  # type: ignore[misc]
        membership.called_s = membership.runtime.monotonic_s()  # it goes on, however many there are

    def _dead(self, partition_id: PartitionId, settings: QueueSettings, start: int) -> list[Due]:
        attempts, delivered = self._attempts(partition_id)
        if settings.max_deliveries is None or not is_dead(attempts, start, settings.max_deliveries):
            return []
        count, _ = deliveries(attempts, delivered, start)
        return [Due(partition_id, DeadMessages(start, start + 1, DEAD, count), settings.dead_letter_queue)]

    def _held(
        self, partition_id: PartitionId, settings: QueueSettings, table: PartitionTable, start: int, end: int
    ) -> list[Due]:
        run = self._run(partition_id, settings, table, start, end)
        if run is None or not run.first == start < run.end:
            return []
        count, _ = deliveries(*self._attempts(partition_id), start)
        return [Due(partition_id, DeadMessages(start, min(end, run.end), HELD, count), settings.dead_letter_queue)]

    def _run(
        self, partition_id: PartitionId, settings: QueueSettings, table: PartitionTable, start: int, end: int
    ) -> Run | None:
        """The first messages of held keys; None if no key is held."""
        keys = self._membership.group.state.held.get(partition_id[0])
        if not keys or settings.dead_letter_order == "skip":
            return None
        return self._held_messages.run(self._queues()[partition_id[0]], table, keys, start, end)

    def _free_of_held(
        self, partition_id: PartitionId, settings: QueueSettings, table: PartitionTable, start: int, end: int
    ) -> int:
        """How far a partition is known to have no message of a held key."""
        run = self._run(partition_id, settings, table, start, end)
        return end if run is None else min(end, run.first)

    def _keys(self, queue: Queue, table: PartitionTable, messages: DeadMessages) -> frozenset[int]:
        """The keys that are held back from these messages on.

        Raises
        ------
        KeysHeldError
        """
        if queue.state.settings.dead_letter_order == "skip" or messages.reason == HELD:
            return frozenset()
        found = hashes(queue, table, messages.start, messages.end)
        keys = frozenset(hash_ for _, hash_ in found if hash_ is not None)
        check_room(keys | self._membership.group.state.held.get(queue.state.queue_id, frozenset()), queue.name)
        return keys

    def without_left_out(self, tables: Tables, starts: Offsets, ends: Offsets) -> dict[PartitionId, int]:
        """Where the next micro-batch may end, so that no message of a held key or that is too old is in it: it is left out when it is next."""
        settings = self._settings()
        return {
            p: self._free(p, settings[p], tables[p], starts[p], end) if p in settings and end > starts[p] else end
            for p, end in ends.items()
        }

    def _free(
        self, partition_id: PartitionId, settings: QueueSettings, table: PartitionTable, start: int, end: int
    ) -> int:
        free = self._free_of_held(partition_id, settings, table, start, end)
        if self._old_files_end(settings, table, start, free, copied=True) > start:
            return start
        if settings.message_ttl_column is None or free <= start:
            return free
        return self._lifetimes.first_old(self._queues()[partition_id[0]], table, start, free, self._now_us)

    def _expired(
        self, partition_id: PartitionId, settings: QueueSettings, table: PartitionTable, start: int, end: int
    ) -> list[Due]:
        name = settings.dead_letter_queue if settings.expired_messages == "dead_letter" else None
        expired = self._old_files_end(settings, table, start, end, copied=name is not None)
        if start == expired < end and settings.message_ttl_column is not None:
            expired = self._lifetimes.old_end(self._queues()[partition_id[0]], table, start, end, self._now_us)
        if expired == start:
            return []
        count, _ = deliveries(*self._attempts(partition_id), start)
        return [Due(partition_id, DeadMessages(start, expired, EXPIRED, count), name)]

    def _old_files_end(
        self, settings: QueueSettings, table: PartitionTable, start: int, end: int, *, copied: bool
    ) -> int:
        """The end of the first files that are too old as a whole; of what is copied it is one file at a time."""
        if settings.message_ttl_ms is None:
            return start
        oldest_us = self._now_us - settings.message_ttl_ms * 1000
        index, expired = table.index, start
        for i in index.overlapping(start, end):
            if index.enqueued_us[i] >= oldest_us or (copied and expired > start):
                break
            expired = min(end, int(index.end[i]))
        return expired

    # ---- messages that fail
    def limited(self, starts: Offsets, ends: Offsets) -> dict[PartitionId, int]:
        """Where the next micro-batch ends in each partition, so that what failed before comes in pieces.

        A piece that is suspect comes alone, so that nothing else fails with it; in turn with what is not, which goes on meanwhile.
        """
        most = {p: n for p, settings in self._settings().items() if (n := settings.max_deliveries) is not None}
        filled = [p for p, end in ends.items() if starts[p] < end]
        suspects = [p for p in filled if p in most and is_suspect(*self._attempts(p), starts[p], most[p])]
        others = [p for p in filled if p not in suspects]
        self._others_came = bool(others) and not (suspects and self._others_came)
        given = others if self._others_came else suspects[:1]
        pieces = {p: piece(*self._attempts(p), starts[p], ends[p], most[p]) for p in given if p in most}
        return {p: pieces.get(p, end) if p in given else starts[p] for p, end in ends.items()}

    def attempts(self, ranges: Mapping[PartitionId, Range]) -> dict[PartitionId, int]:
        """The number of the delivery that is about to begin, where that is counted."""
        counted = {p for p, settings in self._settings().items() if settings.max_deliveries is not None}
        return {
            p: deliveries(*self._attempts(p), r.start)[0] + 1
            for p, r in ranges.items()
            if p in counted and r.end > r.start
        }

    def isolate(self, ranges: Mapping[PartitionId, Range]) -> bool:
        """Give up the plan of messages that were delivered too often, so that they come in pieces; was there any?

        Parameters
        ----------
        ranges : dict
            What is planned again after a restart.
        """
        settings, group, incarnation = self._settings(), self._membership.group, self._membership.incarnation
        events = []
        for partition_id, r in ranges.items():
            if partition_id not in settings or r.end <= r.start:
                continue
            most, attempts = settings[partition_id].max_deliveries, self._attempts(partition_id)
            owned = group.state.partitions[partition_id].state is PartitionState.OWNED
            if most is not None and owned and is_suspect(*attempts, r.start, most):
                events.append(Isolate(partition_id, incarnation, deliveries(*attempts, r.start)[0]))
        if events:
            self._membership.decide(lambda: events)
        return bool(events)

    # ----
    def _attempts(self, partition_id: PartitionId) -> tuple[Mapping[tuple[int, int], int], int]:
        group = self._membership.group
        since = group.state.reset_epochs.get(partition_id, 0)  # what its users want to read again is counted anew
        return group.acks.attempts_since(partition_id, since), group.acks.delivered(partition_id, since)

    def _queues(self) -> dict[str, Queue]:
        return {queue.state.queue_id: queue for queue in self._subscription.queues}

    def _settings(self) -> dict[PartitionId, QueueSettings]:
        """Of the partitions that this process owns, where messages may be left out."""
        queues = {
            queue_id: queue.state.settings
            for queue_id, queue in self._queues().items()
            if queue.state.settings.leaves_out
        }
        if not queues:
            return {}
        partitions, incarnation = self._membership.group.state.partitions, self._membership.incarnation
        return {p: queues[p[0]] for p, own in partitions.items() if p[0] in queues and own.incarnation == incarnation}
