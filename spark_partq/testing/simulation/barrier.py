"""What must hold where the partition count has changed: what a consumer may be given above a cut (S5, H5).

It follows who owned each partition and up to where it was handed out, from the tables as they grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any

from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import PartitionId, instance_of
from spark_partq.core.queue.partition_map import generation_at
from spark_partq.core.queue.state import QueueState

Place = tuple[str, str, PartitionId]  # a store, a group there, and a partition


@dataclass(frozen=True)
class Turn:
    """One micro-batch of a process.

    Attributes
    ----------
    incarnation : str
        The process.
    since : int
        How many changes of ownerships there had been when it began to plan: what it rests on was so then or later.
    finished : dict
        Of each partition the epoch under which the process was given it last, and the end of that, all in earlier micro-batches.
    replays : bool
        It was planned before a restart, by a member that does not acknowledge by hand.
    """

    incarnation: str
    since: int
    finished: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    replays: bool = False


@dataclass
class Ownership:
    """A time in which a partition had one owner under one epoch.

    Attributes
    ----------
    ended : int or None
        How many changes of ownerships there were when it ended; None while it lasts.
    """

    at_s: float
    incarnation: str
    lineage_epoch: int
    epoch: int
    by_hand: bool
    ended: int | None = None
    ended_s: float | None = None


@dataclass
class Ownerships:
    """Who owned what, and when what was handed out.

    Attributes
    ----------
    most_s : float
        So long at least a consumer waits for another that acknowledges by hand, whatever its clock does.
    """

    most_s: float = 0.0
    changes: int = 0
    _of: dict[Place, list[Ownership]] = field(default_factory=dict)
    _handed_out: dict[Place, list[tuple[float, int, int]]] = field(default_factory=dict)  # when, epoch, up to where

    def decided(self, uri: str, group: str, state: GroupState, now_s: float) -> None:
        """The group's control table has grown."""
        for partition_id in state.partitions:
            self._of.setdefault((uri, group, partition_id), [])
        for place, known in self._of.items():
            if place[:2] != (uri, group):
                continue
            owner = state.partitions.get(place[2])
            last = known[-1] if known and known[-1].ended is None else None
            now = None if owner is None or owner.flow is None else owner
            if (last and (last.incarnation, last.epoch)) == (now and (now.incarnation, now.epoch)):
                continue
            self.changes += 1
            if last is not None:
                last.ended, last.ended_s = self.changes, now_s
            if now is not None:
                member = state.members.get(instance_of(now.flow or ""))
                hand = member is not None and member.manual
                known.append(Ownership(now_s, now.incarnation, now.lineage_epoch, now.epoch, hand))

    def acknowledged(self, uri: str, group: str, rows: Sequence[dict[str, Any]], now_s: float) -> None:
        """The group's ack table has grown."""
        for row in rows:
            place = uri, group, (row["queue_id"], row["partition"])
            if row["queue_id"] is not None:
                self._handed_out.setdefault(place, []).append((now_s, row["epoch"], row["delivered"]))

    def was_given(self, place: Place, cut: int, turn: Turn) -> bool:
        """Whether the process owned it, acknowledging by hand, and had been given it up to the cut in that lineage."""
        epoch, end = turn.finished.get(place[2][1], (-1, 0))
        return end >= cut and any(
            own.by_hand and own.incarnation == turn.incarnation and own.lineage_epoch <= epoch <= own.epoch
            for own in self._during(place, turn)
        )

    def was_waited_for(self, place: Place, cut: int, turn: Turn, now_s: float) -> bool:
        """Whether another process owned it, acknowledging by hand, for the stated time since all below the cut was handed out under its epoch."""
        for own in self._during(place, turn):
            out_s = next(
                (at_s for at_s, epoch, end in self._handed_out.get(place, ()) if end >= cut and epoch >= own.epoch),
                None,
            )
            if out_s is not None and own.by_hand and own.incarnation != turn.incarnation:
                ended_s = now_s if own.ended_s is None else own.ended_s
                if ended_s - max(own.at_s, out_s) >= self.most_s - 1e-6:
                    return True
        return False

    def _during(self, place: Place, turn: Turn) -> Iterator[Ownership]:
        """The ownerships that the process can have seen: those since it began to plan. A replay was planned at some time before."""
        for own in self._of.get(place, ()):
            if turn.replays or own.ended is None or own.ended > turn.since:
                yield own


def overtaken(
    queue: QueueState, group: GroupState, owners: Ownerships, uri: str, name: str, place: tuple[int, int], turn: Turn, now_s: float
) -> tuple[str, dict[int, int]]:  # fmt: skip
    """What a message must not be given before (S5); or nothing, and which partitions were not waited for any longer, with their cuts.

    Of each partition in which an earlier map put what could have the message's key, all below the cut

    - is settled; or
    - belonged, when the micro-batch was planned, to the very process that is given the message. That acknowledges by hand, and was given
      all below the cut in this lineage, in micro-batches that had ended. So in what one process is given each key is in order; or
    - belonged then to another process, which acknowledges by hand, and was handed out up to the cut under its epoch; and the stated time
      had passed since.

    Of a member that does not acknowledge by hand only the first counts.
    """
    number, offset = place
    placed = generation_at(queue.generations, number, offset)
    count = queue.generations[placed].partition_count
    let_go: dict[int, int] = {}
    for g, earlier in enumerate(queue.generations[:placed]):
        for other in range(earlier.partition_count):
            cut, partition_id = earlier.cuts[other], (queue.queue_id, other)
            settled = max(group.committed_floor(partition_id), queue.removed_ends.get(other, 0))
            near = count == 0 or (other - number) % gcd(earlier.partition_count, count) == 0
            if not near or settled >= cut or owners.was_given((uri, name, partition_id), cut, turn):
                continue
            if not owners.was_waited_for((uri, name, partition_id), cut, turn, now_s):
                told = f"{number}@{offset} of map {placed}, and {other} is settled up to {settled} of {cut} of map {g}"
                return f"BARRIER: it got {told}", let_go
            let_go[other] = max(cut, let_go.get(other, 0))
    return "", let_go
