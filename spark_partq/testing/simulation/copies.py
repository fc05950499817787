"""What must hold of replicas in a simulated world (S7): each follows one history of its primary, and one queue at a time is used."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_partq.core.invariants import InvariantError
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica import invariants
from spark_partq.core.replica.facts import Phase, ReplicaFact
from spark_partq.core.replica.state import ReplicaState, replay
from spark_partq.storage.log.entries import Entry
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.store import Store
from spark_partq.testing.simulation.setup import PRIMARY

if TYPE_CHECKING:
    from spark_partq.testing.simulation.process import World


class Copies:
    """Follows the commits of the primary, by their tokens, and of its copies.

    Parameters
    ----------
    fail : function
        Told what must not be.
    queue_of : function
        The state of queue `q` in a store.
    """

    def __init__(self, world: World, fail: Callable[[str], None], queue_of: Callable[[str], QueueState | None]) -> None:
        self._world, self._fail, self._queue_of = world, fail, queue_of
        self._before: dict[str, str | None] = {}  # of each commit of the primary, by its token: the one before it
        self._at: dict[tuple[str, str], tuple[int, str | None]] = {}  # of each copy, by store and folder: its end
        self._replicas: dict[str, ReplicaState] = {}

    def committed(self, uri: str, folder: str, version: int, entry: Entry) -> None:
        """An entry has appeared in a table's log."""
        token = entry.token or ""
        if uri == PRIMARY:
            self._before[token] = entry.previous_token
        elif self._is_followed(uri):
            at, last = self._at.get((uri, folder), (-1, None))
            if token not in self._before:
                self._fail(f"MIX: version {version} of {folder} in {uri} is none of the primary's")
            if version <= at:
                return  # below a checkpoint to which the copy has jumped: nobody reads it
            if last is not None and entry.previous_token != last:
                self._fail(
                    f"MIX: version {version} of {folder} in {uri} follows another commit than the one that is there"
                )
            self._at[uri, folder] = version, token

    def jumped(self, uri: str, folder: str, version: int) -> None:
        """A checkpoint has appeared in a copy's log: it is where the copy goes on, unless it has come so far already."""
        at, last = self._at.get((uri, folder), (-1, None))
        if version <= at or not self._is_followed(uri):
            return
        log = LogFolder(Store.over(self._world.files(uri)), folder)
        token = log.checkpoint(version, tombstones=False).token
        found = token
        while found is not None and last is not None and found != last:
            found = self._before.get(found)
        if last is not None and found is None:
            self._fail(f"MIX: {folder} in {uri} jumps to version {version}, which does not follow what is there")
        self._at[uri, folder] = version, token

    def resumed(self, group: str) -> None:
        """A query of the group goes on where users work now, with a checkpoint that it wrote at the primary."""
        self._fail(f"OLD CHECKPOINT: group {group} goes on with what it had planned elsewhere")

    def _is_followed(self, uri: str) -> bool:
        replica = self._replicas.get(uri)
        return replica is not None and replica.incarnation == ""  # what is done in a promotion is not copied

    def decided(self, uri: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """A commit of a replica's own table has appeared."""
        facts = [
            ReplicaFact(row["kind"], json.loads(row["body"])) for row in sorted(rows, key=lambda row: int(row["seq"]))
        ]
        before = self._replicas.get(uri)
        after = replay("q", facts, before)
        if after is None:
            return
        self._world.note(f"{uri}: replica: {', '.join(fact.kind for fact in facts)}")
        try:
            invariants.check(before, after, facts)
        except InvariantError as error:
            self._fail(f"DECISION: {error}")
        self._replicas[uri] = after
        if after.promoted and (before is None or not before.promoted):
            self._check_promoted(uri, after)

    def _check_promoted(self, uri: str, replica: ReplicaState) -> None:
        """Nobody else is used, as far as that could be known; and the queue is another incarnation than any before."""
        for other, state in self._replicas.items():
            if other != uri and state.phase is Phase.PROMOTED:
                self._fail(f"TWO PRIMARIES: {uri} is promoted, and {other} was")
        primary, mine = self._queue_of(PRIMARY), self._queue_of(uri)
        if PRIMARY not in self._world.unreachable and primary is not None and primary.fenced_by != uri:
            self._fail(f"TWO PRIMARIES: {uri} is promoted, and {PRIMARY} is fenced for {primary.fenced_by}")
        if mine is None or mine.incarnation != replica.incarnation or mine.incarnation == mine.queue_id:
            self._fail(
                f"INCARNATION: {uri} is promoted as {replica.incarnation}, and its queue is {mine and mine.incarnation}"
            )
