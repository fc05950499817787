"""Partition maps and their generations: what keeps a key's order while the partition count changes (S5).

A queue's map has a *generation*, 0, 1, 2…, and each generation a partition count. To change the count, every partition is
*sealed* under the old generation: its log says up to which offset, the *cut*, messages were placed by it. When all are
sealed the next generation opens. So the generation of a message follows from its offset and the cuts of its partition.

A message of generation j in partition b waits for each partition a in which an earlier generation g could have placed its key: ``a ≡ b
(mod gcd(N_g, N_j))``. The message may be delivered once all messages of these partitions are settled up to the cut. That is the
*barrier*. *Settled* offsets are those in the group's control table, which no decision sets back; acknowledgements alone never count.
`core.delivery.barrier` says what else counts for a member that acknowledges by hand.

A count of 0 is an exclusive queue: one partition, the *parent*, which has the number -1. No partition waits for the parent: messages
that are left in it when the queue becomes partitioned are stuck until they are copied (S6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import gcd

PARENT = -1


def partition_numbers(count: int) -> range:
    """Numbers of the partitions over which a map of this count spreads keys.

    Examples
    --------
    >>> list(partition_numbers(3)), list(partition_numbers(0))
    ([0, 1, 2], [-1])
    """
    return range(count) if count else range(PARENT, 0)


@dataclass(frozen=True)
class Generation:
    """One map of a queue.

    Attributes
    ----------
    partition_count : int
        0 is exclusive.
    cuts : dict
        For each partition that was sealed when the map ended, the offset from which on later generations placed messages. Empty while
        the map is in force.
    """

    partition_count: int
    cuts: Mapping[int, int] = field(default_factory=dict)


def generation_at(generations: Sequence[Generation], partition: int, offset: int) -> int:
    """The generation that placed the message at this offset."""
    ended = [g for g, past in enumerate(generations) if past.cuts.get(partition, offset + 1) <= offset]
    return max(ended, default=-1) + 1


class Barrier:
    """How far each partition of a queue may be given to a group, as of one refresh.

    Parameters
    ----------
    generations : sequence of Generation
        The queue's generations, in order; they were read no earlier than the partitions' logs.
    settled : function
        Maps a partition number to the offset below which the group never wants a message again, by its control table.
    removed_ends : dict
        For each partition that was removed, the offset below which there is nothing to wait for.
    first : int
        Generations before this one are known to be settled.
    """

    def __init__(
        self,
        generations: Sequence[Generation],
        settled: Callable[[int], int],
        removed_ends: Mapping[int, int],
        first: int = 0,
    ) -> None:
        self._generations = generations
        # generation -> partition -> its cut, if not all messages below are settled
        self._open: dict[int, dict[int, int]] = {}
        for g in range(first, len(generations) - 1):
            if not generations[g].partition_count:
                continue  # the parent keeps its own order, and no other partition waits for it
            cuts = generations[g].cuts
            left = {
                a: cuts[a]
                for a in partition_numbers(generations[g].partition_count)
                if max(settled(a), removed_ends.get(a, 0)) < cuts[a]
            }
            if left:
                self._open[g] = left

    @property
    def first_open(self) -> int:
        """The first generation that is not settled; the one in force if all before it are."""
        return min(self._open, default=len(self._generations) - 1)

    @property
    def missing(self) -> dict[int, int]:
        """The partitions that are waited for, each with its first cut that is not settled: it is not settled further before."""
        return {a: cut for _, left in sorted(self._open.items(), reverse=True) for a, cut in left.items()}

    def passed(self, partition: int, generation: int) -> bool:
        """Whether messages that `generation` placed in `partition` may be delivered."""
        return not any(
            g < generation and self._blocks(g, left, partition, generation) for g, left in self._open.items()
        )

    @property
    def open_cuts(self) -> set[tuple[int, int]]:
        """Each partition that is not fully settled, with each cut that it has not reached."""
        return {(a, cut) for left in self._open.values() for a, cut in left.items()}

    def counting(self, ends: Mapping[int, int]) -> Barrier:
        """The same barrier, but messages below these ends count as settled, too."""
        barrier = copy(self)
        left = {g: {a: cut for a, cut in cuts.items() if ends.get(a, 0) < cut} for g, cuts in self._open.items()}
        barrier._open = {g: cuts for g, cuts in left.items() if cuts}
        return barrier

    def _blocks(self, g: int, left: Mapping[int, int], b: int, j: int) -> bool:
        before, after = self._generations[g].partition_count, self._generations[j].partition_count
        common = gcd(before, after) if after else 1
        return any((a - b) % common == 0 for a in left)

    def limit(self, partition: int, start: int, end: int) -> int:
        """How far messages ``[start, end)`` of a partition may be delivered now: at least `start`, at most `end`."""
        for first, generation in self._placed(partition, start, end):
            if not self.passed(partition, generation):
                return first
        return end

    def waits(self, partition: int, start: int, end: int) -> dict[int, int]:
        """The partitions that messages ``[start, end)`` of a partition wait for, each with the highest cut that must be settled."""
        found: dict[int, int] = {}
        for _, generation in self._placed(partition, start, end):
            for g, left in self._open.items():
                for a, cut in left.items():
                    if g < generation and self._blocks(g, {a: cut}, partition, generation):
                        found[a] = max(cut, found.get(a, 0))
        return found

    def _placed(self, partition: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        """For messages ``[start, end)``: the first message of each generation after generation 0, with its generation.

        Nothing if all cuts are settled.
        """
        past = self._generations if self._open else ()
        ended = [(ended.cuts[partition], g) for g, ended in enumerate(past) if partition in ended.cuts]
        for i, (cut, g) in enumerate(ended):
            until = ended[i + 1][0] if i + 1 < len(ended) else end
            if max(start, cut) < min(end, until):
                yield max(start, cut), g + 1


def target(hash_: int, count: int) -> int:
    """The partition of a row with this hash, under a map of this count."""
    return hash_ % count if count else PARENT


def may_append(sealed: int, fenced: bool, generation: int) -> bool:
    """Whether a table that was last sealed under generation `sealed` (-1: none) takes rows that `generation` placed.

    It takes only rows of the map in force: not of a map that has ended, and not of a map for which the table was not made ready. It
    takes no rows while the queue's replica takes over (S7).
    """
    return not fenced and sealed == generation - 1


def is_fenced(fenced: int, unfenced: int) -> bool:
    """Whether a table is fenced. `fenced`: the number of its last fence. `unfenced`: fences up to this number are taken back. -1 means none (S7)."""
    return fenced > unfenced


def drained(ends: Mapping[int, int], groups: Iterable[Callable[[int], int]]) -> bool:
    """Whether every group has settled each of these partitions up to its end, so that it may be removed.

    Parameters
    ----------
    ends : dict
        For each partition, its next offset.
    groups : iterable of functions
        Each maps a partition number to the group's settled offset.
    """
    return all(settled(partition) >= end for settled in groups for partition, end in ends.items())
