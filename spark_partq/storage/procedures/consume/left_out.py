"""Messages that a query's planner does not give to its flows: they were delivered too often, follow such a message of their key, or are too old.

Also: how many messages that fail the planner gives at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_partq.core.delivery.member import left_to_others, plannable, replayed
from spark_partq.core.delivery.offsets import Range
from spark_partq.core.group.attempts import deliveries, is_dead, is_suspect, piece
from spark_partq.core.group.events import EndLineage, Isolate, RaiseFloors, Skip
from spark_partq.core.group.held_keys import check_room, withheld
from spark_partq.core.ids import PartitionId
from spark_partq.storage.procedures.consume.held import HeldMessages, Run, hashes
from spark_partq.storage.procedures.consume.lifetimes import Lifetimes
from spark_partq.storage.procedures.consume.membership import Membership
from spark_partq.storage.procedures.consume.subscription import Subscription
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.queue.clock import checked_ms
from spark_partq.storage.queue.handle import Queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.queue.starting import first_in

Offsets = Mapping[PartitionId, int]
Tables = Mapping[PartitionId, PartitionTable]

DEAD, HELD, EXPIRED = "dead", "held", "expired"


@dataclass(frozen=True)
class Due:
    """Messages that are to be left out.

    Attributes
    ----------
    dead_letter_queue : str or None
        None if the messages are discarded.
    held : frozenset of int
        The keys that were held when these messages were found to have one of them.
    """

    partition_id: PartitionId
    messages: DeadMessages
    dead_letter_queue: str | None
    held: frozenset[int] = frozenset()


class LeftOut:
    """Used under the lock of `membership`, as of its last refresh."""

    def __init__(self, subscription: Subscription, membership: Membership) -> None:
        self._subscription, self._membership = subscription, membership
        self._sent: dict[str, DeadLetters] = {}
        self._held_messages = HeldMessages()
        self._lifetimes = Lifetimes()
        self._now_us = 0  # when the present plan began: ages are as of then until it ends
        self._others_came = False  # the last micro-batch held messages that are not suspect

    # ---- messages that are left out
    def due(self, tables: Tables, starts: Offsets, ends: Offsets) -> list[Due]:
        """The messages to leave out before the next micro-batch: in each partition at most a few, at its position."""
        found = []
        self._now_us = self._membership.store.now_ms() * 1000
        self._lifetimes.forget_others(starts)
        for partition_id, queue in self._queues().items():
            if partition_id not in starts or starts[partition_id] != self._membership.group.position(partition_id):
                continue  # before it are messages to acknowledge, or removed ones
            start, end = starts[partition_id], ends[partition_id]
            if start < end:
                table = tables[partition_id]
                free = self._free_of_held(queue, table, start, end)
                found += (
                    self._dead(partition_id, queue, start)
                    or self._held(partition_id, queue, table, start, end)
                    or self._expired(partition_id, queue, table, start, free)
                )
        return found

    def leave_out(self, due: list[Due], tables: Tables) -> None:
        """Send the messages to their dead-message queues, and go on behind them.

        Raises
        ------
        QueueNotFoundError, SchemaMismatchError, IngressDisabledError, CorruptTableError
            If a message cannot be sent. A message that is not sent is not left out.
        KeysHeldError
            If too many keys would be held back.
        ClockSkewError
            If messages seem too old by a clock that is wrong.
        """
        membership, queues = self._membership, self._subscription.queues
        self._commit_floors(due)
        for queue in {queues[item.partition_id[0]] for item in due if item.messages.reason == EXPIRED}:
            checked_ms(queue.store, queue.name, queue.state.settings.max_clock_skew_ms, read_ms=self._now_us // 1000)
        if any(item.held for item in due):
            membership.group.refresh()  # after the tables: messages may have been put back since
        for item in due:
            messages, name = item.messages, item.dead_letter_queue
            if item.partition_id not in plannable(membership.group.state, membership.incarnation):
                continue  # a decision took the partition from this process meanwhile
            if not self._is_at_floor(item):
                continue  # an acknowledgement came too late to count, or another owner had read on
            if not item.held <= membership.group.state.held.get(item.partition_id[0], frozenset()):
                continue  # the keys were released
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
        membership.called_s = membership.runtime.monotonic_s()  # the query counts as alive, however many there were

    def _commit_floors(self, due: list[Due]) -> None:
        """Make the positions of messages that are about to be sent floors.

        A dead-message queue takes all messages below the last one that was sent for sent. So the next owner must not begin before the first
        one.
        """
        if all(map(self._is_at_floor, due)):
            return
        numbers: dict[str, tuple[int, ...]] = {}
        for queue_id, number in (item.partition_id for item in due if item.dead_letter_queue is not None):
            numbers[queue_id] = (*numbers.get(queue_id, ()), number)
        self._membership.decide(lambda: [RaiseFloors(*of_queue) for of_queue in numbers.items()])

    def _is_at_floor(self, item: Due) -> bool:
        """Whether messages may be sent: no later owner begins before them, and they are not finished."""
        floor = self._membership.group.state.committed_floor(item.partition_id)
        return item.dead_letter_queue is None or item.messages.start == floor

    def _dead(self, partition_id: PartitionId, queue: Queue, start: int) -> list[Due]:
        settings, (attempts, delivered) = queue.state.settings, self._attempts(partition_id)
        if settings.max_deliveries is None or not is_dead(attempts, start, settings.max_deliveries):
            return []
        count, _ = deliveries(attempts, delivered, start)
        return [Due(partition_id, DeadMessages(start, start + 1, DEAD, count), settings.dead_letter_queue)]

    def _delivered_as_often(
        self, partition_id: PartitionId, queue: Queue, start: int, end: int
    ) -> tuple[int | None, int]:
        """How often a message was delivered, and the end of the messages that were delivered as often. None if deliveries are not counted."""
        if queue.state.settings.max_deliveries is None:
            return None, end
        count, same_until = deliveries(*self._attempts(partition_id), start)
        return count, min(end, same_until) if same_until > start else end

    def _held(self, partition_id: PartitionId, queue: Queue, table: PartitionTable, start: int, end: int) -> list[Due]:
        run, name = self._run(queue, table, start, end), queue.state.settings.dead_letter_queue
        if run is None or not run.first == start < run.end:
            return []
        count, held_end = self._delivered_as_often(partition_id, queue, start, min(end, run.end))
        return [Due(partition_id, DeadMessages(start, held_end, HELD, count), name, run.keys)]

    def _run(self, queue: Queue, table: PartitionTable, start: int, end: int) -> Run | None:
        """The first messages of held keys; None if no key is held."""
        held = self._membership.group.state.held.get(queue.state.queue_id, frozenset())
        keys = withheld(held, queue.state.settings.dead_letter_order)
        if not keys:
            return None
        return self._held_messages.run(queue, table, keys, start, end)

    def _free_of_held(self, queue: Queue, table: PartitionTable, start: int, end: int) -> int:
        """The offset up to which a partition is known to have no message of a held key."""
        run = self._run(queue, table, start, end)
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
        """Where the next micro-batch may end, so that no message in it has a held key or is too old.

        Such a message is left out once it is the next one.
        """
        queues = self._queues()
        return {
            p: self._free(queues[p], tables[p], starts[p], end) if p in queues and end > starts[p] else end
            for p, end in ends.items()
        }

    def _free(self, queue: Queue, table: PartitionTable, start: int, end: int) -> int:
        free = self._free_of_held(queue, table, start, end)
        if self._old_files_end(queue, table, start, free, first_alone=True) > start:
            return start
        if queue.state.settings.message_ttl_column is None or free <= start:
            return free
        return self._lifetimes.first_old(queue, table, start, free, self._now_us)

    def _expired(
        self, partition_id: PartitionId, queue: Queue, table: PartitionTable, start: int, end: int
    ) -> list[Due]:
        settings = queue.state.settings
        name = settings.dead_letter_queue if settings.expired_messages == "dead_letter" else None
        # Messages that are copied into the dead-message queue are copied one file at a time.
        expired = self._old_files_end(queue, table, start, end, first_alone=name is not None)
        if start == expired < end and settings.message_ttl_column is not None:
            expired = self._lifetimes.old_end(queue, table, start, end, self._now_us)
        if expired == start:
            return []
        if name is None:
            return [Due(partition_id, DeadMessages(start, expired, EXPIRED, None), None)]
        count, expired = self._delivered_as_often(partition_id, queue, start, expired)
        return [Due(partition_id, DeadMessages(start, expired, EXPIRED, count), name)]

    def _old_files_end(self, queue: Queue, table: PartitionTable, start: int, end: int, *, first_alone: bool) -> int:
        """The end of the first files that are too old as a whole; with `first_alone`, of the first file only."""
        ttl_ms = queue.state.settings.message_ttl_ms
        if ttl_ms is None:
            return start
        oldest_us = self._now_us - ttl_ms * 1000
        index, expired = table.index, start
        for i in index.overlapping(start, end):
            if first_alone and expired > start:
                break
            if index.enqueued_us[i] >= oldest_us:
                return max(
                    expired, min(end, first_in(table, i, oldest_us))
                )  # a segment may have messages of both kinds
            expired = min(end, int(index.end[i]))
        return expired

    # ---- messages that fail
    def limited(self, starts: Offsets, ends: Offsets) -> dict[PartitionId, int]:
        """Where the next micro-batch ends in each partition, so that messages that failed before come in pieces.

        A suspect piece comes alone, so that nothing else fails with it. Suspect pieces and other messages take turns, so the others make
        progress.
        """
        most = self._most_deliveries()
        filled = [p for p, end in ends.items() if starts[p] < end]
        suspects = [p for p in filled if p in most and is_suspect(*self._attempts(p), starts[p], most[p])]
        others = [p for p in filled if p not in suspects]
        self._others_came = bool(others) and not (suspects and self._others_came)
        given = others if self._others_came else suspects[:1]
        pieces = {p: piece(*self._attempts(p), starts[p], ends[p], most[p]) for p in given if p in most}
        return {p: pieces.get(p, end) if p in given else starts[p] for p, end in ends.items()}

    def attempts(self, ranges: Mapping[PartitionId, Range]) -> dict[PartitionId, int]:
        """The number of the delivery that is about to begin, for partitions where deliveries are counted."""
        counted = self._most_deliveries()
        return {
            p: deliveries(*self._attempts(p), r.start)[0] + 1
            for p, r in ranges.items()
            if p in counted and r.end > r.start
        }

    def isolate(self, ranges: Mapping[PartitionId, Range]) -> bool:
        """Give up the plan of messages that were delivered too often, so that they come in pieces. Returns whether there were any.

        Parameters
        ----------
        ranges : dict
            The ranges that are planned again after a restart.
        """
        most, incarnation = self._most_deliveries(), self._membership.incarnation
        events = []
        for partition_id, r in ranges.items():
            if partition_id not in most or r.end <= r.start:
                continue
            attempts = self._attempts(partition_id)
            if is_suspect(*attempts, r.start, most[partition_id]):
                times = deliveries(*attempts, r.start)[0]
                why = (
                    f"its messages were delivered {times} times and not acknowledged; they come again, fewer at a time"
                )
                events.append(Isolate(partition_id, incarnation, why))
        if events:
            self._membership.decide(lambda: events)
        return bool(events)

    def give_up(self, planned: Mapping[PartitionId, Range]) -> None:
        """Give up ranges that a query planned when it did not yet acknowledge by hand: their messages come in the next micro-batch.

        Otherwise, if the query later acknowledges by micro-batch again, the end of this micro-batch would acknowledge messages that the
        application has not.
        """
        group, incarnation = self._membership.group, self._membership.incarnation
        own = replayed(group.state, group.acks, incarnation, planned, manual=True)
        why = "the query acknowledges by hand now; what it had planned before comes again"
        if own:
            self._membership.decide(lambda: [Isolate(partition_id, incarnation, why) for partition_id in own])

    def leave_to_others(self, planned: Mapping[PartitionId, Range]) -> None:
        """End the lineages of what a replay leaves out because another instance planned it: the group delivers its messages again.

        Otherwise that instance, if it runs from this checkpoint later, would find the micro-batch finished, and acknowledge them.
        """
        group, me = self._membership.group, self._membership.me

        def events() -> list[EndLineage]:
            incarnation = self._membership.incarnation
            found = left_to_others(group.state, group.acks, incarnation, planned)
            return [EndLineage(partition_id, epoch, me.instance, incarnation) for partition_id, epoch in found.items()]

        if events():
            self._membership.decide(events)

    # ----
    def _attempts(self, partition_id: PartitionId) -> tuple[Mapping[tuple[int, int], int], int]:
        group = self._membership.group
        since = group.state.reset_epochs.get(partition_id, 0)  # messages that users read again are counted from 0
        return group.acks.attempts_since(partition_id, since), group.acks.delivered(partition_id, since)

    def _most_deliveries(self) -> dict[PartitionId, int]:
        """For the partitions that this process owns and where deliveries are counted: the most deliveries."""
        return {p: n for p, queue in self._queues().items() if (n := queue.state.settings.max_deliveries) is not None}

    def _queues(self) -> dict[PartitionId, Queue]:
        """For the partitions that this process owns and where messages may be left out: their queues."""
        queues = {id_: queue for id_, queue in self._subscription.queues.items() if queue.state.settings.leaves_out}
        if not queues:
            return {}
        partitions, incarnation = self._membership.group.state.partitions, self._membership.incarnation
        return {p: queues[p[0]] for p, own in partitions.items() if p[0] in queues and own.incarnation == incarnation}
