"""How far one process may deliver beyond the cuts of a resize, if members acknowledge by hand (S5, H5).

An application that acknowledges by hand may wait with a sequence of messages until the last one has come. If the last one lies above a cut,
the barrier must not wait for the acknowledgement of the messages below the cut, or both would wait for ever. So the messages that such a
member was *given* count. For its own process they count at once, as that process gets each key's messages in order anyway. For other
processes they count only after a time, as the two processes may then work on the same key.

Only deliveries use this rule. Removals, and the floors that are committed, depend on what is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_partq.core.delivery.offsets import Range
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.facts import Ownership
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId, instance_of
from spark_partq.core.queue.partition_map import Barrier

Ends = Mapping[PartitionId, int]


def by_hand(state: GroupState, own: Ownership | None) -> bool:
    """Whether a partition's owner is a member whose application acknowledges by hand."""
    member = None if own is None or own.flow is None else state.members.get(instance_of(own.flow))
    return member is not None and member.manual


def counted(state: GroupState, given: Ends) -> dict[PartitionId, int]:
    """What counts as settled for a process that was given `given` of its partitions: nothing, unless it acknowledges by hand."""
    return {
        partition_id: end for partition_id, end in given.items() if by_hand(state, state.partitions.get(partition_id))
    }


@dataclass
class Waits:
    """Measures for how long other processes have not acknowledged messages below a cut. Belongs to one process; not shared and not stored."""

    _since_ms: dict[tuple[PartitionId, int, int], int] = field(default_factory=dict)  # partition, epoch, cut

    def overdue(
        self,
        state: GroupState,
        acks: Acks,
        incarnation: str,
        barriers: Mapping[str, Barrier],
        now_ms: int,
        most_ms: int,
    ) -> dict[PartitionId, int]:
        """The partitions for which this process no longer waits, each with the cut up to which it had waited.

        Such a partition belongs to another process that acknowledges by hand, and was delivered up to the cut. For a new owner the time
        begins again. An owner that has not yet been given all messages below the cut is waited for.

        Parameters
        ----------
        incarnation : str
            The incarnation of the process that waits.
        barriers : dict
            By queue id. A barrier opens for settled messages.
        now_ms : int
            A clock of this process that does not go back.
        most_ms : int
            How long it waits.
        """
        seen, self._since_ms = self._since_ms, {}
        found: dict[PartitionId, int] = {}
        for queue_id, barrier in barriers.items():
            for number, cut in barrier.open_cuts:
                partition_id = queue_id, number
                own = state.partitions.get(partition_id)
                if own is None or not by_hand(state, own) or own.incarnation == incarnation:
                    continue
                if state.handed_out(partition_id, acks) < cut:
                    continue
                wait = partition_id, own.epoch, cut
                self._since_ms[wait] = seen.get(wait, now_ms)
                if now_ms - self._since_ms[wait] >= most_ms:
                    found[partition_id] = max(cut, found.get(partition_id, 0))
        return found


@dataclass(frozen=True)
class Deliverable:
    """How far a partition may be delivered.

    Attributes
    ----------
    end : int
        The offset up to which it may be delivered (exclusive).
    let_go : dict
        The partitions that messages below `end` no longer wait for, each with a cut below which not all messages are acknowledged.
    """

    end: int
    let_go: Mapping[int, int]


def deliverable(
    barrier: Barrier, given: Mapping[int, int], overdue: Mapping[int, int], partition: int, start: int, end: int
) -> Deliverable:
    """How far messages ``[start, end)`` of a partition may be delivered now.

    Parameters
    ----------
    barrier : Barrier
        The barrier of the partition's queue. It opens for settled messages.
    given, overdue : dict
        By partition number, the results of `counted` and `Waits.overdue`.
    """
    mine = barrier.counting(given)
    within = mine.counting(overdue).limit(partition, start, end)
    return Deliverable(within, mine.waits(partition, start, within))


def replayable(barriers: Mapping[str, Barrier], ranges: Mapping[PartitionId, Range]) -> dict[PartitionId, Range]:
    """The part of a replay that lies before the barrier, as a new process was given nothing yet. The rest is planned again."""
    kept = {}
    for partition_id, r in ranges.items():
        barrier = barriers.get(partition_id[0])
        end = r.end if barrier is None else barrier.limit(partition_id[1], r.start, r.end)
        if end > r.start:
            kept[partition_id] = Range(r.epoch, r.start, end)
    return kept


def waiting(
    state: GroupState, acks: Acks, queue_id: str, barrier: Barrier, ends: Mapping[int, int]
) -> dict[int, dict[int, int]]:
    """What the next messages of each partition wait for: other partitions, each with a cut. Partitions that wait for nothing are left out.

    A process that waits for members that acknowledge by hand may know more: how long it has waited already.

    Parameters
    ----------
    ends : dict
        The next offset of each partition, by its number.
    """
    given: dict[
        str, dict[int, int]
    ] = {}  # for each process that acknowledges by hand, what it was given of partitions that others wait for
    for a in {a for a, _ in barrier.open_cuts}:
        own = state.partitions.get((queue_id, a))
        if own is not None and by_hand(state, own):
            given.setdefault(own.incarnation, {})[a] = state.handed_out((queue_id, a), acks)
    found: dict[int, dict[int, int]] = {}
    for number, end in ends.items():
        own = state.partitions.get((queue_id, number))
        if own is None:
            continue
        mine = given.get(own.incarnation, {})
        start = state.handed_out((queue_id, number), acks)
        waits = barrier.counting(mine).waits(number, start, min(start + 1, end))
        if waits:
            found[number] = waits
    return found
