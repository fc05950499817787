"""What the oracle knows of batches: the rows of one that are in a queue are those of one attempt, whoever computed the batch again (Q5)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

Key = tuple[str, int]  # a producer's query, and the number of its batch


@dataclass
class Batches:
    """Every attempt at every batch, and which attempts are in which store.

    Attributes
    ----------
    may_discard : bool
        The queue discards what it does not take.
    discarded : dict
        Batches of which a producer was told that they are in, and no row is: how many rows they have.
    """

    may_discard: bool = False
    discarded: dict[Key, int] = field(default_factory=dict)
    _attempts: dict[Key, list[Sequence[str]]] = field(default_factory=dict)
    _of: dict[str, tuple[Key, int]] = field(default_factory=dict)  # of a row, its batch and attempt
    _stored: dict[tuple[str, Key], int] = field(default_factory=dict)  # by store and batch, the attempt that is in

    def tried(self, key: Key, ids: Sequence[str]) -> None:
        """A producer has computed the rows of a batch, once more."""
        attempts = self._attempts.setdefault(key, [])
        self._of.update((id_, (key, len(attempts))) for id_ in ids)
        attempts.append(ids)

    def attempts(self, key: Key) -> int:
        """How often that was."""
        return len(self._attempts.get(key, ()))

    def added(self, uri: str, ids: Iterable[str]) -> str:
        """Rows are in a queue; returns what is wrong."""
        for id_ in ids:
            key, attempt = self._of[id_]
            before = self._stored.setdefault((uri, key), attempt)
            if before != attempt:
                return f"MIXED: {id_} is of attempt {attempt} at batch {key[1]} of {key[0]}, of which attempt {before} is in"
        return ""

    def forget(self, uri: str) -> None:
        """The queue of a store was deleted."""
        self._stored = {(place, key): attempt for (place, key), attempt in self._stored.items() if place != uri}

    def accepted(
        self, uri: str, key: Key, there: Collection[str], removed: Collection[str]
    ) -> tuple[Sequence[str], str]:
        """A producer was told that a batch is in; the rows that this promises, and what is wrong.

        Parameters
        ----------
        there, removed : collection of str
            The rows that the store has, and those that were in one and need not be there any more.
        """
        attempts = self._attempts.get(key, [])
        in_ = [ids for ids in attempts if any(id_ in there for id_ in ids)]
        in_ = in_ or [ids for ids in attempts if any(id_ in removed for id_ in ids)]
        if not in_ and self.may_discard:
            self.discarded[key] = len(attempts[0]) if attempts else 0
            return (), ""
        missing = [id_ for ids in in_ for id_ in ids if id_ not in there and id_ not in removed]
        if missing or not in_:
            return (), f"PART: batch {key[1]} of {key[0]} is said to be in, and {missing or 'all of it'} is not"
        return in_[0], ""
