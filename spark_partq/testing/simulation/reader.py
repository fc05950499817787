"""What a group was given of a queue, and what it must not be given again, or any more."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from spark_partq.core.ids import PartitionId
from spark_partq.core.queue.partition_map import PARENT, generation_at
from spark_partq.core.queue.state import QueueState
from spark_partq.testing.simulation.stored import Message, StoredPartition, StoredQueue

Epoch = tuple[str, PartitionId, int]  # a store, and of a partition there an epoch


@dataclass
class Reader:
    """What a group was given of a queue.

    Attributes
    ----------
    given_under, released : dict
        The end of what was given under each epoch, and where the partition was released.
    let_go : dict
        Of each partition what was not waited for any longer: messages below may come after later ones of their keys.
    began : bool
        The group has added the queue.
    """

    ends: dict[int, int] = field(default_factory=dict)  # of each partition, what was ever delivered
    late: dict[int, int] = field(default_factory=dict)  # what was delivered in the store of before, after the promotion
    last: dict[tuple[str, str], int] = field(default_factory=dict)  # producer and key: the newest delivered
    given: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)  # what was removed, or stuck, before the group began
    left_out: set[str] = field(default_factory=set)  # at any time: a table of results does not go back to it
    given_under: dict[Epoch, int] = field(default_factory=dict)
    released: dict[Epoch, int] = field(default_factory=dict)
    let_go: dict[int, int] = field(default_factory=dict)
    began: bool = False
    upto: dict[int, int] = field(default_factory=dict)  # what was delivered without a gap; of a reset, since then
    least: dict[int, int] = field(default_factory=dict)  # where a reset has set each partition
    since: dict[int, int] = field(default_factory=dict)  # the last epochs before that
    unmarked: set[tuple[int, int]] = field(
        default_factory=set
    )  # partition and offset of what was delivered without a mark

    def begin(self, queue: StoredQueue) -> None:
        """The group begins: what is not there any more, about to go, or stuck in the parent, it need not be given."""
        self.began, self.last = True, {}
        state = queue.state
        for number, log in queue.partitions.items():
            live = {i for low, high in log.files.values() for i in log.between(low, high).values()}
            stuck = state is None or (number == PARENT and state.first != PARENT)
            gone = 0 if state is None else state.removed_ends.get(number, 0)
            gone = max(gone, queue.removed.get(number, 0))  # its files may be there for a while
            self.excused |= {i for n, i in enumerate(log.ids) if i not in live or stuck or n < gone}

    def lose(self, number: int, ids: list[str], end: int) -> None:
        """What lies in a partition below `end` it need not be given any more; what was planned before may still come."""
        self.excused.update(ids)
        self.left_out.update(ids)
        if number in self.upto:
            self.upto[number] = max(end, self.upto[number])

    def moved(
        self,
        ends: dict[int, int],
        before: StoredQueue,
        copy: StoredQueue,
        missing: Iterable[Message],
        put_aside: set[str],
    ) -> None:
        """It goes on with a copy of the queue, which has so much of what it was given, and lacks what is missing.

        What it had put aside is in the copy of the dead-message queue, or it is given it there.
        """
        gone = {(message.producer, message.key, message.number) for message in missing}
        self.last = {(producer, key): n for (producer, key), n in self.last.items() if (producer, key, n) not in gone}
        lost = {} if copy.state is None else copy.state.removed_ends
        self.upto = {
            number: min(upto, max(ends.get(number, 0), self.least.get(number, 0), lost.get(number, 0)))
            for number, upto in self.upto.items()
            if number in ends or number in self.least
        }
        # The copy may have nothing of a file of which these were the last messages.
        for number, log in before.partitions.items():
            self.pass_over(number, log.deleted.union(n for n, id_ in enumerate(log.ids) if id_ in put_aside))
        self.excused -= put_aside
        self.ends = ends
        self.unmarked = {(number, offset) for number, offset in self.unmarked if offset < ends.get(number, 0)}

    def reset(self, number: int, offset: int, log: StoredPartition, epochs: dict[int, int]) -> None:
        """Its position in a partition was set: all that is there from there on comes again, and nothing below.

        Parameters
        ----------
        epochs : dict
            Of each partition the last epoch by then: what is delivered under it or an earlier one is late.
        """
        self.upto[number] = self.least[number] = offset
        self.ends.setdefault(number, 0)
        self.given -= set(log.ids[offset:])
        self.excused = (self.excused | set(log.ids[:offset])) - set(log.between(offset, len(log.ids)).values())
        self.since, self.last, self.let_go = epochs, {}, {}

    def is_late(self, number: int, epoch: int | None, id_: str) -> bool:
        """Whether a message was planned before positions were set. Where they stayed as they were it is given all the same."""
        late = epoch is not None and epoch <= self.since.get(number, -1)
        if late and number not in self.least:
            self.given.add(id_)
        return late

    def forget(self) -> None:
        """The group was deleted. Should there be one of that name again, it is another; epochs go on."""
        self.ends, self.late, self.last, self.given, self.excused, self.began = {}, {}, {}, set(), set(), False
        self.upto, self.least, self.since, self.unmarked = {}, {}, {}, set()

    def take(self, epoch: Epoch, offset: int, again: bool) -> str:
        """Take a message that was planned under this epoch, perhaps once more; what is wrong with that (H1), or nothing."""
        given, released, number = self.given_under.get(epoch, 0), self.released.get(epoch), epoch[1][1]
        self.given_under[epoch] = max(given, offset + 1) if again else offset + 1
        if offset < given and not again:
            return f"AGAIN: it got {number}@{offset} after {given - 1}, all under epoch {epoch[2]}"
        if released is not None and offset >= released:
            return f"RELEASED: it got {number}@{offset} under epoch {epoch[2]}, which was released before"
        return ""

    def release(self, epochs: list[Epoch], offset: int, flow: str, by_hand: bool) -> str:
        """The partition is released at an offset by the flow that had it under these epochs; what is wrong with that (H1), or nothing."""
        self.released.update(dict.fromkeys(epochs, offset))
        given = max(self.given_under.get(epoch, 0) for epoch in epochs)
        if given > offset and not by_hand:
            return f"RELEASED: {epochs[0][1][1]} at {offset} by {flow}, which was given {given}"
        return ""

    def pass_over(self, number: int, deleted: Collection[int]) -> None:
        """What was deleted it is not given; it may go on behind it."""
        while self.upto.get(number, -1) in deleted:
            self.upto[number] += 1

    def stray(self, number: int, offset: int, redelivered: bool, is_live: bool) -> str:
        """Take a message from somebody who lost the partition, or who still uses the former store: he gives what he had planned.

        What is wrong with that (H4), or nothing.
        """
        ends = self.upto if is_live else self.late
        ends[number] = max(offset + 1, ends.get(number, 0))
        return self._mark(number, offset, redelivered) if is_live else ""

    def _mark(self, number: int, offset: int, redelivered: bool) -> str:
        """Of several who plan a message only the first delivers it without a mark, whoever is first to deliver."""
        if redelivered:
            return ""
        if (number, offset) in self.unmarked:
            return f"UNMARKED: it got {number}@{offset} twice, both without a mark"
        self.unmarked.add((number, offset))
        return ""

    def follow(self, number: int, offset: int, redelivered: bool, skips: bool) -> str:
        """Take a message of a partition from its owner; what is wrong with that (H4), or nothing.

        Parameters
        ----------
        skips : bool
            Messages may be left out.
        """
        end, upto = self.ends.get(number, -1), self.upto.get(number, -1)
        self.ends[number], self.upto[number] = max(end, offset + 1), max(upto, offset + 1)
        if offset < self.least.get(number, 0):
            return f"BEFORE: it got {number}@{offset}, and was set to {self.least[number]}"
        if 0 <= upto < offset and not skips:
            return f"SKIPPED: it got {number}@{offset} after {upto - 1}"
        if offset < max(end, self.late.get(number, 0)) and not redelivered:
            return f"UNMARKED: it got {number}@{offset} again, and it was not marked"
        return self._mark(number, offset, redelivered)


def was_stuck(queue: QueueState, number: int, offset: int) -> bool:
    """Whether a message lay in the parent while the queue was partitioned: what is stuck comes later than what follows it (S6)."""
    if number != PARENT:
        return False
    placed = generation_at(queue.generations, number, offset)
    return any(generation.partition_count for generation in queue.generations[placed + 1 :])
