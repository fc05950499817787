"""In-memory twins of the control table and the ack table, which conflict, fail and stay silent on demand.

A log is what lies in the store; a handle (`MemoryControl`, `MemoryAcks`) is one process's view of it, as of its last look.
States and acknowledgements are shared between handles and never changed in place.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_partq.core.errors import CommitFailedError
from spark_partq.core.group import acks as core_acks
from spark_partq.core.group.acks import AckRow, Acks
from spark_partq.core.group.facts import GroupFact
from spark_partq.core.group.state import GroupState
from spark_partq.storage.log import Conflict

Listener = Callable[[GroupState, Sequence[GroupFact], GroupState], None]


@dataclass
class Faults:
    """How often a commit goes wrong, each as a probability.

    Attributes
    ----------
    conflict : float
        Somebody else seems to have committed first.
    lost : float
        The outcome is unknown, and it did not land.
    landed : float
        The outcome is unknown, and it landed.
    """

    rng: random.Random = field(default_factory=random.Random)
    conflict: float = 0.0
    lost: float = 0.0
    landed: float = 0.0

    def draw(self) -> str:
        """What happens to the next commit: ``conflict``, ``lost``, ``landed``, or nothing."""
        if not (self.conflict or self.lost or self.landed):
            return ""
        x = self.rng.random()
        for name in ("conflict", "lost", "landed"):
            x -= getattr(self, name)
            if x < 0:
                return name
        return ""


def _unknown() -> CommitFailedError:
    return CommitFailedError("it is not known whether the commit has landed; look again")


class ControlLog:
    """A group's control table: commits of facts, and the state after the last.

    Parameters
    ----------
    snapshot_every : int
        After so many commits the state goes through its snapshot form, as that of a process that starts does.
    clock : callable
        Milliseconds, for the column `at`.
    """

    def __init__(
        self, faults: Faults | None = None, snapshot_every: int = 4, clock: Callable[[], int] = lambda: 0
    ) -> None:
        self.faults = faults or Faults()
        self.snapshot_every, self.clock = snapshot_every, clock
        self.version = 0
        self.state = GroupState()
        self.facts: list[tuple[int, GroupFact]] = []
        self.on_commit: Listener | None = None

    def append(self, version: int, facts: Sequence[GroupFact]) -> None:
        """Commit after `version`, or not at all."""
        fault = self.faults.draw()
        if version != self.version or fault == "conflict":
            raise Conflict(f"version {version + 1} of the control table exists already")
        if fault == "lost":
            raise _unknown()
        before, after = self.state, self.state.copy()
        for fact in facts:
            after.replay(fact)
        self.version += 1
        at = self.clock()
        self.facts += [(at, fact) for fact in facts]
        if self.version % self.snapshot_every == 0:
            after = GroupState.from_json(json.loads(json.dumps(after.to_json())))
        self.state = after
        if self.on_commit is not None:
            self.on_commit(before, facts, after)
        if fault == "landed":
            raise _unknown()


class MemoryControl:
    """One process's view of a `ControlLog`."""

    def __init__(self, log: ControlLog) -> None:
        self.log = log
        self.state = GroupState()
        self._version = 0

    def exists(self) -> bool:
        return self.log.version > 0

    def refresh(self) -> bool:
        """Look at the table; True if it has changed since the last look."""
        changed = self._version != self.log.version
        self._version, self.state = self.log.version, self.log.state
        return changed

    def commit(self, facts: Sequence[GroupFact]) -> None:
        """Compare-and-set on the last look.

        Raises
        ------
        Conflict
            If somebody else committed first.
        CommitFailedError
            If the outcome is unknown.
        """
        self.log.append(self._version, facts)
        self.refresh()

    def history(self) -> list[dict[str, Any]]:
        """All facts ever, in order."""
        return [{"seq": seq, "at": at, **asdict(fact)} for seq, (at, fact) in enumerate(self.log.facts)]


class AckLog:
    """A group's ack table: rows, now and then compacted."""

    def __init__(self, faults: Faults | None = None, compact_every: int = 12) -> None:
        self.faults = faults or Faults()
        self.compact_every = compact_every
        self.version = 0
        self.rows: list[AckRow] = []
        self.acks = Acks()

    def append(self, rows: Sequence[AckRow], live: Collection[str]) -> None:
        if self.faults.draw() == "landed":
            rows = [*rows, *rows]  # its writer tried again
        self.rows += rows
        self.version += 1
        acks = Acks(dict(self.acks.beats), dict(self.acks.rows), dict(self.acks.delivered_ends))
        for row in rows:
            acks.add(row)
        if self.version % self.compact_every == 0:
            self.rows = core_acks.compacted(self.rows, live)
            acks = Acks.of(self.rows)
        self.acks = acks


class MemoryAcks:
    """One process's view of an `AckLog`."""

    def __init__(self, log: AckLog) -> None:
        self.log = log
        self.acks = Acks()
        self._version = 0

    def exists(self) -> bool:
        return self.log.version > 0

    def refresh(self) -> bool:
        """Look at the table; True if it has changed since the last look."""
        changed = self._version != self.log.version
        self._version, self.acks = self.log.version, self.log.acks
        return changed

    def append(self, rows: Sequence[AckRow], live: Collection[str]) -> None:
        """Add rows, however often that needs to be tried; `live` are the incarnations whose heartbeats are kept."""
        self.log.append(rows, live)
