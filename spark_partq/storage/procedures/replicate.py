"""Keeps a queue's replica in another store up to date (S7).

A replica has the queue's tables and the tables of the groups that read it, under the same names and with the same versions. Each table is as its
original was at some moment (`storage.replica.table_copy`). A pass reads the groups first, then the queue. It copies the manifests of batches
(`storage.replica.manifest_copy`) before the messages of these batches. Only then it moves the copies of the queue's and the groups' tables on to
the state that it had read. So wherever a pass is interrupted, no position of the replica lies past its messages, its control table names no map
whose seals are missing, and no partition is sealed or fenced without a reason in the control table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial

from spark_partq.core.errors import PartqError, ReplicaError
from spark_partq.core.names import check_name
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica import decide as decide_replica
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.replicas import ReplicaStatus, status_of
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.procedures.primary import know_replica
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica import complete
from spark_partq.storage.replica.closed_groups import closed, is_used, unused_error
from spark_partq.storage.replica.copied_tables import group_tables, queue_tables
from spark_partq.storage.replica.explained import Read, explains, go_on
from spark_partq.storage.replica.following import check_source, follow, goes_on, promoted_meanwhile
from spark_partq.storage.replica.manifest_copy import ManifestCopy
from spark_partq.storage.replica.parts import Part, each, held_back, in_use, parts
from spark_partq.storage.replica.readers import Readers
from spark_partq.storage.replica.step import Step
from spark_partq.storage.replica.table import (
    Options,
    ReplicaTable,
    check_apart,
    log_of,
    next_offset,
    reaching,
)
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.store import Store, partition_folder, partition_numbers, queue_folder


class Replicator:
    """Keeps one replica up to date. It remembers how far each copy is, so a pass without changes costs one refresh of each table.

    Used by one thread; several processes may keep the same replica.

    Parameters
    ----------
    location : str
        The replica's store: a folder or an object-store URI.
    options : dict, optional
        Storage options of that store. Without them, those of the queue's store are used if both are object stores.
    """

    def __init__(
        self,
        store: Store,
        queue: str,
        location: str | os.PathLike[str],
        options: Options | None = None,
        *,
        taking_over: bool = False,
    ) -> None:
        self.store, self.queue = store, check_name("queue", queue)
        self.target = store.sibling(location, options)
        self._taking_over = taking_over
        self._readers = Readers(store, self.target)
        self._replica_ids: dict[str, str] = {}  # by queue, the id of the copy that is remembered
        self._tables: dict[str, ReplicaTable] = {}
        self._copies: dict[str, TableCopy] = {}
        self._owners: dict[str, tuple[str, ...]] = {}
        self._offsets: dict[str, tuple[int, int]] = {}  # partition folder -> version of the copy, its next offset
        self._sources: dict[int, DeltaLog] = {}
        self._marks: dict[str, tuple[int, bool, int]] = {}  # by queue, the marks that its copied control table explains
        self._incarnations: dict[str, str] = {}  # by queue, the incarnation that its copy knows
        self._used_there: set[str] = set()  # groups that are used there, and no longer copied

    def register(self) -> None:
        """Make the replica known to both stores, unless it is known already.

        Raises
        ------
        ReplicaError, QueueFencedError, NotAStoreError, QueueNotFoundError
            If the other store cannot hold the replica; nothing was written.
        """
        self._check_follows()
        state = check_source(self.store, self.queue, self._taking_over)
        with reaching(self.target):
            self._check_target(state)
            self._force_writes(state.settings.durable)
            followed = follow(self._table(self.queue), self.store, state)
        if followed is not None:  # by the name that it has already, if the target's place has two
            know_replica(self.store, state, followed.location, followed.replica_id)

    def sync(self) -> complete.SyncReport:
        """One pass: the replica becomes what the queue and its groups were when the pass began, or newer.

        Raises
        ------
        ReplicaError
            If the replica was promoted or removed, cannot be written, or is a copy of another queue.
        QueueFencedError
            If another replica took over.
        """
        replica = self._check_follows()
        state = check_source(self.store, self.queue, self._taking_over)
        with reaching(self.target):
            follows = goes_on(self.target, replica, self.store, state, anywhere=self._taking_over)
        if replica is None or not follows or replica.queue_id != state.queue_id or replica.removed:
            raise ReplicaError(
                f"there is no replica of queue {self.queue!r} in {self.target.uri} any more: bring it back, or remove it and add it "
                "again",
                queue=self.queue,
                location=self.target.uri,
            )
        with promoted_meanwhile(self._check_follows):
            with reaching(self.target):
                self._force_writes(state.settings.durable)
                commits, problems = self._pass(state)
                report = complete.SyncReport(commits, self._lag(state))
                now = self._replica(self.queue)
                if now is not None and now.replica_id == replica.replica_id:  # else a pass of a new primary has begun
                    self._has_ended(self.queue, report.total_lag)
            if problems:
                raise problems[0]
        return report

    def _pass(self, state: QueueState) -> tuple[int, list[PartqError]]:
        if self._is_another(self.queue):  # and the copies of its groups may be others, too
            self._copies, self._offsets, self._marks, self._incarnations, self._used_there = {}, {}, {}, {}, set()
        groups = list(self._readers.of(state))
        unused = self._check_history(groups)
        captured: list[tuple[set[str], TableCopy, list[Step]]] = []  # with the names of the queues that the group reads
        problems: list[PartqError] = [*unused.values()]
        queues = {self.queue}
        for group, read in groups:
            together = None if group.name in {*self._used_there, *unused} else self._together(read)
            if together is None:
                continue  # the group is used there, with another of its queues
            try:
                self._force_writes(*(queue.durable for queue in group.state.queues.values()))
                copies = [self._copy(folder, tuple(read.values())) for folder in group_tables(group)]
                captured += reversed([(set(read.values()), copy, list(copy.steps())) for copy in copies])
            except ReplicaError as error:
                problems.append(error)
            else:
                queues |= together
        commits = 0

        def apply(part: Part) -> None:
            nonlocal commits
            commits += self._apply(*part.read)
            self._incarnations[part.state.name] = part.state.incarnation

        # After the groups, so that messages which they have put aside are copied, too. If nothing of the groups is new, none is put aside.
        read_again = queues if any(steps for _, _, steps in captured) else queues - {state.name}
        states = {state.name: state, **in_use(self.store, read_again, self._replica)}
        planned, unknown = parts(self.store, self.target, states, self.queue, self._replica)
        problems += unknown.values()
        done = each(self._begin, planned, problems)
        # Between reading and applying, so that a copy with a part of a batch also has its manifest, unless the sink went on to a later batch.
        done = each(lambda part: part.manifests.copy(), done, problems)
        done = each(apply, reversed(done), problems)
        done = each(lambda part: part.manifests.remove(), done, problems)
        behind = held_back(planned, done, unknown)
        commits += sum(copy.apply(steps) for names, copy, steps in captured if names.isdisjoint(behind))
        for part in done:
            if part.was_whole and part.state.name != self.queue:
                self._has_ended(part.state.name)
        return commits, problems

    def _has_ended(self, queue: str, lag: int = 0) -> None:
        complete.has_ended(self.target, queue, self._replica_ids[queue], self._incarnations[queue], lag)

    def _begin(self, part: Part) -> None:
        """Read what is new in a queue."""
        state = part.state
        if state.name != self.queue:
            self._is_another(state.name)
        self._force_writes(state.settings.durable)
        part.manifests = self._manifests(state)
        part.was_whole = part.manifests.lacked and complete.begin(self.target, state)
        part.read = self._read_queue(state)

    def _force_writes(self, *durable: bool) -> None:
        """If one asks for it, force to the disk what is written there, before anything of it is."""
        if any(durable):
            self.target.force_writes()

    def _is_another(self, queue: str) -> bool:
        """Whether the copy of the queue there is another one than the copy that is remembered. If so, the remembered one is forgotten."""
        replica = self._replica(queue)
        known = "" if replica is None else replica.replica_id
        if self._replica_ids.setdefault(queue, known) == known:
            return False
        self._replica_ids[queue] = known
        for folder in [folder for folder in self._copies if folder.startswith(f"{queue_folder(queue)}/")]:
            del self._copies[folder]
            self._offsets.pop(folder, None)
        self._marks.pop(queue, None)
        self._incarnations.pop(queue, None)
        return True

    def _read_queue(self, state: QueueState) -> tuple[TableCopy, list[Step], QueueState, Read]:
        """Read what is new in a queue's tables. Read again if messages may have left the parent meanwhile, as this state does not explain them (S6)."""
        queue = state.name
        control = self._copy(f"{queue_folder(queue)}/control", (queue,))
        while True:
            steps, state = self._capture(control, state)
            numbers = partition_numbers(self.store, queue)
            partitions = [self._copy(partition_folder(queue, number), (queue,)) for number in numbers]
            new = self.target.map(lambda partition: (partition, list(partition.steps())), partitions)
            newest = queue_state(self.store, queue) if PARENT in numbers else state
            if (newest.generation, newest.stuck) == (state.generation, state.stuck):
                return control, steps, state, new
            state = newest  # another pass may have copied all of it, so that no step is left

    def _apply(self, control: TableCopy, steps: list[Step], state: QueueState, partitions: Read) -> int:
        """Move the copies of a queue on to that state: partitions before the control table, but seals and fences after it, as it explains them."""
        known = self._marks.get(state.name)
        if known is None and control.version >= 0:
            known = explains(queue_state(self.target, state.name))
        if known in (None, explains(state)):
            commits = go_on(self.target, partitions, state) + control.apply(steps)
        else:
            commits = 0
            for step in steps:
                commits += go_on(self.target, partitions, queue_state(self.target, state.name), is_last=False)
                commits += control.apply([step])
            commits += go_on(self.target, partitions, state)
        self._marks[state.name] = explains(state)
        return commits

    def check(self, state: QueueState) -> None:
        """Refuse, before anything is changed, what a pass of the queue in that state would refuse."""
        with promoted_meanwhile(self._check_follows):
            for error in self._check_history(self._readers.of(state)).values():
                raise error

    def _check_history(self, groups: Iterable[tuple[Group, dict[str, str]]]) -> dict[str, PartqError]:
        """Refuse, before anything is copied, a replica if the history of one of its tables differs from its original's.
        Returns by name the groups that cannot be copied although nothing uses them there, and why."""
        copies = [self._copy(folder, (self.queue,)) for folder in queue_tables(self.target, self.queue)]
        self.target.map(lambda copy: copy.check_history(), copies)
        unused: dict[str, PartqError] = {}
        for group, read in groups:
            if group.name in self._used_there or self._together(read) is None:
                continue
            copies = [self._copy(folder, tuple(read.values())) for folder in group_tables(group)]
            folders = closed(self.store, self.target, copies)
            if folders and is_used(self.target, folders):
                self._used_there.add(group.name)
            elif folders:
                unused[group.name] = unused_error(self.target, group.name)
        return unused

    def _capture(self, copy: TableCopy, state: QueueState) -> tuple[list[Step], QueueState]:
        """What is new in a queue's control table, and the queue's state after exactly these facts.

        Parameters
        ----------
        state : QueueState
            The state that was read in this pass.
        """
        while True:
            steps = list(copy.steps())
            newest = queue_state(self.store, state.name) if steps else state
            if not newest.usable:  # a deletion is not copied: perhaps the copy is the only one that is left
                raise ReplicaError(f"queue {state.name!r} in {self.store.uri} is {newest.status}", queue=state.name)
            if newest.revision == state.revision:
                return steps, state
            state = newest

    def _together(self, read: Mapping[str, str]) -> set[str] | None:
        """Which of a group's queues have their replica there, too: the group's positions in them must not lie past their messages.

        None if one of these queues was promoted: then the group is used there.
        """
        together = set()
        for id_, name in read.items():
            replica = self._replica(name)
            if replica is None or replica.queue_id != id_ or (replica.removed and name != self.queue):
                continue
            if name != self.queue and replica.takes_over:
                return None
            if self.store.has_folder(f"{queue_folder(name)}/partitions"):
                together.add(name)
        return together

    def _copy(self, folder: str, owners: tuple[str, ...]) -> TableCopy:
        self._owners[folder] = owners
        if folder not in self._copies:
            ask, gone = partial(self._check_open, folder), partial(self._is_gone, folder)
            self._copies[folder] = TableCopy(self.store, self.target, folder, self._announce, ask, gone)
        return self._copies[folder]

    def _manifests(self, state: QueueState) -> ManifestCopy:
        check_open = partial(self._check_open, f"{queue_folder(state.name)}/control")
        return ManifestCopy(
            self.store, self.target, state.name, state.queue_id, check_open, partial(self._lacks, state)
        )

    def _lacks(self, state: QueueState) -> bool:
        """Whether the copy of a queue was made before its incarnation began."""
        return self._incarnations.get(state.name) != state.incarnation and complete.lacks(self.target, state)

    def _announce(self, folder: str, version: int) -> None:
        """Announce a jump to each queue of the table before it is made, so that a promotion can take its version's place. No jump is made after the
        promotion has begun."""
        for queue in {self.queue, *self._owners[folder]}:
            self._table(queue).decide(lambda replica: decide_replica.announce_jump(replica, folder, version))
        self._check_open(folder)

    def _check_open(self, folder: str) -> None:
        """Refuse if a copy there is no copy any more, or is another one than when the pass began."""
        for queue in {self.queue, *self._owners[folder]}:
            replica = self._replica(queue)
            if replica is not None:
                decide_replica.check_follows(replica)
            if self._replica_ids.get(queue, "") not in ("", "" if replica is None else replica.replica_id):
                raise ReplicaError(
                    f"the replica of queue {queue!r} in {self.target.uri} was removed while a pass copied to it; the pass ends",
                    queue=queue, location=self.target.uri,
                )  # fmt: skip

    def _is_gone(self, folder: str) -> bool:
        """Whether every replica to which that copy belongs was deleted, or is another one than when the pass began."""
        replicas = {queue: self._replica(queue) for queue in self._owners[folder]}
        return all(r is None or self._replica_ids.get(q, r.replica_id) != r.replica_id for q, r in replicas.items())

    def _lag(self, state: QueueState) -> dict[int, int]:
        lag = {}
        for number in state.all_partitions:
            source = self._sources.setdefault(number, log_of(self.store, self.queue, number))
            source.refresh()
            folder = f"{queue_folder(self.queue)}/partitions/partition={number}"
            version, there = self._copies[folder].version, self._offsets.get(folder, (-1, 0))
            if there[0] != version:
                there = self._offsets[folder] = version, next_offset(log_of(self.target, self.queue, number))
            lag[number] = max(0, next_offset(source) - there[1])
        return lag

    # ---- refusals
    def _check_follows(self) -> ReplicaState | None:
        """The replica's state, if it was not promoted; raises if it was."""
        with reaching(self.target):
            replica = self._replica(self.queue)
        if replica is not None:
            decide_replica.check_follows(replica)
        return replica

    def _check_target(self, state: QueueState) -> None:
        check_apart(self.store, self.target, self.queue)
        self.target.check_can_be_made()
        replica = self._replica(self.queue)
        if replica is not None:
            decide_replica.check_same_queue(replica, self.target.uri, state.queue_id)
            if goes_on(self.target, replica, self.store, state):
                return  # each pass checks the tables, and goes on despite a group that is not of the copy
        elif set(self.target.names(queue_folder(self.queue))) - {"replica"}:
            raise ReplicaError(
                f"{self.target.uri} holds a queue {self.queue!r} that is no replica of this queue; choose another location",
                queue=self.queue,
                location=self.target.uri,
            )
        for group, read in self._readers.of(state):
            if self._together(read) is not None:
                for folder in group_tables(group):
                    _ = self._copy(folder, tuple(read.values())).version
        for folder in queue_tables(self.store, self.queue):
            _ = self._copy(folder, (self.queue,)).version

    def _table(self, queue: str) -> ReplicaTable:
        return self._tables.setdefault(queue, ReplicaTable(self.target, queue))

    def _replica(self, queue: str) -> ReplicaState | None:
        return self._table(queue).refresh()


def replicate(
    store: Store, queue: str, location: str | os.PathLike[str], *, options: Options | None = None
) -> ReplicaStatus:
    """Make a replica, or bring it up to date: one pass.

    Raises
    ------
    ReplicaError
        If the other store cannot hold a replica of this queue (then nothing was written), or the replica was promoted, or cannot be written.
    QueueFencedError, NotAStoreError, QueueNotFoundError
    """
    replicator = Replicator(store, queue, location, options)
    replicator.register()
    replicator.sync()
    return status_of(store, queue_state(store, queue), replicator.target)
