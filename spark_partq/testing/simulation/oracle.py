"""What must hold in a simulated world: the stores' logs as they grow, what producers were promised, and what consumers were given.

It reads every log entry at the moment at which it appears, from the files themselves, and shares nothing with the procedures but the
meaning of an entry and the replay of facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_partq.core.group import invariants
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.events import Event
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.state import GroupState
from spark_partq.core.invariants import InvariantError
from spark_partq.core.queue import invariants as queue_invariants
from spark_partq.core.queue import state as queue_core
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.sink_ids import STUCK_SINK
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.log.entries import Transaction, decode
from spark_partq.storage.log.folder import LogFolder
from spark_partq.storage.store import Store
from spark_partq.testing.simulation import dead
from spark_partq.testing.simulation.barrier import Ownerships, Turn, overtaken
from spark_partq.testing.simulation.batches import Batches
from spark_partq.testing.simulation.copies import Copies
from spark_partq.testing.simulation.lives import Lives
from spark_partq.testing.simulation.notes import Notes
from spark_partq.testing.simulation.reader import Reader, was_stuck
from spark_partq.testing.simulation.removal import DeletedGroups, undrained, unsettled, wanted, wrong_cut
from spark_partq.testing.simulation.rewritten import Rewritten
from spark_partq.testing.simulation.setup import PRIMARY
from spark_partq.testing.simulation.stored import (
    Message,
    StoredPartition,
    StoredQueue,
    Violation,
    body_in_short,
    column_of,
    fact_in_short,
    ids_at,
    rows_of,
)

if TYPE_CHECKING:
    from spark_partq.testing.simulation.process import World

_PATH = re.compile(
    r"(queues|groups)/([^/]+)/(?:(control|acks|replica)(?:-\d+)?|partitions/partition=(-?\d+))/_delta_log/(\d{20})\.(json|checkpoint\.parquet)"
)


class Oracle:
    """Watches a world; raises `Violation` in whatever does wrong."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.queues, self.groups = dict[tuple[str, str], StoredQueue](), dict[tuple[str, str], GroupState]()
        self.sent, self.promised = dict[str, Message](), set[str]()  # all messages, and those that are in as told
        self.readers, self.violations = dict[str, Reader](), list[str]()
        self.batches, self.owners, self.notes, self.deleted = Batches(), Ownerships(), Notes(), DeletedGroups()
        self.removed: set[str] = set()  # messages that every group had acknowledged, wherever that was
        # Messages that were stuck in the parent, and those that were lost with a store: should they come once more, they are others.
        self.copied, self.lost = set[str](), set[str]()
        # Messages may go unread; applications acknowledge by hand; some of those do not always.
        self.retention = self.manual = self.alternates = False
        self.expires_ms: int | None = None  # where only age makes them go unread
        self.live, self.is_lost = PRIMARY, False  # where users work; whether the store of before is lost
        self._drained_groups: set[str] = set()  # those that read the queue when it was last drained
        self.lives, self.dead, self.rewritten = Lives(), dead.DeadMessages(), Rewritten()
        self.copies = Copies(world, self.fail, lambda uri: self.queues.get((uri, "q"), StoredQueue()).state)

    # ---- what the stores say
    def changed(self, uri: str, path: str, data: bytes) -> None:
        """A file has appeared."""
        if path.startswith(f"queues/{dead.QUEUE}/"):
            self.fail(self.dead.changed(uri, self._world.files(uri), path, data))
            return
        match = _PATH.fullmatch(path)
        if match is None:
            return
        kind, name, table, partition, version = match[1], match[2], match[3], match[4], int(match[5])
        folder = path.partition("/_delta_log/")[0]
        if match[6] != "json":
            if uri != PRIMARY:  # a copy may begin with a checkpoint, or go on with a later one
                if table != "replica":
                    self.copies.jumped(uri, folder, version)
                self._jumped(uri, kind, name, table, partition, folder)
            return
        files, entry = self._world.files(uri), decode(data)
        if table == "replica":
            self.copies.decided(uri, [row for add in entry.adds for row in rows_of(files, f"{folder}/{add.path}")])
            return
        if self.lives.is_stray(uri, folder, version, entry, uri in (PRIMARY, self.live)):
            self._world.note(f"{path} is an entry of a queue of before, or late")
            return
        self.copies.committed(uri, folder, version, entry)
        if partition is not None:
            self._partition_changed(uri, name, int(partition), version, folder, entry)
        elif table == "control" and entry.operation != "OPTIMIZE":
            rows = [row for add in entry.adds for row in rows_of(files, f"{folder}/{add.path}")]
            if kind == "queues":
                if version == 0 and uri == self.live:  # created again, also where a deletion was killed
                    self._forget(uri, name)
                self._queue_decided(uri, name, rows, entry.transactions)
            else:
                self._group_decided(uri, name, rows)
        elif table == "acks" and self.manual:
            rows = [row for add in entry.adds for row in rows_of(files, f"{folder}/{add.path}")]
            self.owners.acknowledged(uri, name, rows, self._world.scheduler.now_s)

    def _jumped(self, uri: str, kind: str, name: str, table: str | None, partition: str | None, folder: str) -> None:
        """A table is what its checkpoint says; what was removed before is not known."""
        snapshot = LogFolder(Store.over(self._world.files(uri)), folder).load()
        if partition is not None:
            queue = self.queues.setdefault((uri, name), StoredQueue())
            log = queue.partitions.setdefault(int(partition), StoredPartition())
            if snapshot.version <= log.version:
                return
            offsets = log.jump(snapshot, lambda file: ids_at(self._world.files(uri), f"{folder}/{file}"))
            queue.places.update({id_: (int(partition), offset) for id_, offset in offsets.items()})
            self.fail(self.batches.added(uri, offsets))
        elif table == "control":
            paths = [path for path in snapshot.files if "-snapshot-" not in path]
            rows = [row for path in paths for row in rows_of(self._world.files(uri), f"{folder}/{path}")]
            if kind == "queues":
                self._queue_decided(uri, name, rows, snapshot.transactions)
            else:
                self._group_decided(uri, name, rows)

    def folder_deleted(self, uri: str, folder: str) -> None:
        parts = folder.split("/")
        if parts[0] == "groups" and len(parts) == 2:
            self.groups.pop((uri, parts[1]), None)
            self.readers.pop(parts[1], None)
        self.lives.folder_deleted(uri, folder)
        if parts[0] == "queues" and len(parts) == 2:
            self._forget(uri, parts[1])

    def _forget(self, uri: str, name: str) -> None:
        self.batches.forget(uri)
        self.notes.forget(uri)
        stored = self.queues.pop((uri, name), None)
        if uri == self.live and stored is not None:
            self.removed.update(stored.places)
            self.readers.clear()
            self.dead.forget_queue(stored.places)

    def _partition_changed(self, uri: str, name: str, number: int, version: int, folder: str, entry: Any) -> None:
        queue = self.queues.setdefault((uri, name), StoredQueue())
        log = queue.partitions.setdefault(number, StoredPartition())
        # The files of a deleted queue may be gone; a pass puts what another pass has skipped, below a checkpoint.
        if queue.is_deleted or (uri != self.live and version <= log.version):
            return
        if version != log.version + 1 and log.version >= 0:
            self.fail(f"partition {number} goes from version {log.version} to {version}")
        log.version, files = version, self._world.files(uri)
        if any(add.tags for add in entry.adds):
            gone, problem = self.rewritten.changed(queue, number, files, folder, entry, self.sent, uri != self.live)
            ids = column_of(files, f"{folder}/{entry.adds[0].path}", "id")
            self.fail(self.notes.wrong_with(uri, queue.state, files, f"{folder}/{entry.adds[0].path}", ids))
            self._world.note(
                f"partition {number}: {len(entry.removes)} files written again without [{' '.join(sorted(gone))}]"
            )
            self.removed.update(gone if uri == self.live else ())
            for reader in self.readers.values() if uri == self.live else ():
                reader.excused.update(gone)
            return self.fail(problem)
        copied = any(app.startswith(f"partq:sink/{STUCK_SINK}") for app in entry.transactions)
        for add in entry.adds:
            base = int(add.partition_values["base_offset"])
            if base != len(log.ids):
                self.fail(f"DENSE: partition {number} gets offset {base} after {len(log.ids)}")
            ids = column_of(files, f"{folder}/{add.path}", "id")
            self.fail(self.batches.added(uri, ids))
            self.fail(self.notes.wrong_with(uri, queue.state, files, f"{folder}/{add.path}", ids))
            redriven = dead.is_redriven(entry.transactions)
            live = queue.state if uri == self.live and not copied and not redriven else None
            self.fail(self.lives.wrong_with(add, [self.sent[i] for i in ids], live, self._world.time_ns()))
            for i in ids:
                late = uri != self.live and number == PARENT and i in self.copied  # a pass copies tables in any order
                if redriven:
                    self.fail(self.dead.put_back(i, self.readers) if uri == self.live else "")
                elif i in queue.places and not (copied and queue.places[i][0] == PARENT) and not late:
                    self.fail(f"TWICE: {i} is in partition {number}, and was in {queue.places[i]}")
                if copied:
                    self.copied.add(i)
                queue.places[i] = number, len(log.ids)
                log.ids.append(i)
            log.added(add, base)
            self._world.note(f"partition {number} has {' '.join(ids)} at {base}")
        for remove in entry.removes:
            low, high = log.files.pop(remove.path)
            self.removed.update(log.ids[low:high])
            self._world.note(f"partition {number} loses [{low}, {high})")
            if uri == self.live and (not self.retention or self.expires_ms is not None):
                groups, now_ns = self._groups_of(uri), self._world.time_ns()
                self.fail(wanted(name, queue, groups, number, low, high, now_ns, self.expires_ms))
        told, problem = log.record(number, entry)
        for what in told:
            self._world.note(what)
        self.fail(problem)

    def _queue_decided(
        self, uri: str, name: str, rows: Sequence[dict[str, Any]], transactions: Mapping[str, Transaction]
    ) -> None:
        queue = self.queues.setdefault((uri, name), StoredQueue())
        for app, txn in transactions.items():
            if app.startswith("partq:removed/"):
                queue.removed[int(app.rpartition("/")[2])] = txn.version
                self._world.note(f"{uri}: queue {name}: {app} = {txn.version}")
        if any(row["kind"] == "QueueCreated" for row in rows):
            queue.state = None
        for row in sorted(rows, key=lambda row: int(row["seq"])):
            fact = QueueFact(row["kind"], json.loads(row["body"]))
            if queue.state is not None and row["seq"] < queue.state.revision:
                continue  # merged
            before, queue.state = queue.state, queue_core.replay(name, [fact], queue.state)
            try:
                if queue.state is not None:
                    queue_invariants.check(before, queue.state, [fact])
            except InvariantError as error:
                self.fail(f"DECISION: {error}")
            self._world.note(f"{uri}: queue {name}: {fact.kind} {body_in_short(fact.body)}")
            self._check_queue(uri, name, queue, fact)
            if uri == self.live and before is not None and queue.state is not None:
                self._check_drain(name, before, queue.state, fact)

    def _check_queue(self, uri: str, name: str, queue: StoredQueue, fact: QueueFact) -> None:
        if fact.kind == "GenerationOpened":
            self.fail(wrong_cut(name, queue, fact, is_copy=uri != PRIMARY))
        elif fact.kind == "ScalingStarted":
            queue.mode = fact.body["mode"]
        elif fact.kind == "PartitionsRemoved":
            ends = {int(number): end for number, end in fact.body["ends"].items()}
            # A scaling of mode delete may also end what another began.
            if queue.mode != "delete" and not fact.body["lost"] and uri == self.live:
                groups = self.deleted.beside(self._groups_of(uri), uri, queue.state)
                self.fail(unsettled(queue, groups, ends, self._world.time_ns()))
            self._lose(queue, ends)
        elif fact.kind == "StuckCopied":  # the group is given it elsewhere
            self._lose(StoredQueue(), {PARENT: fact.body["end"]})

    def _lose(self, queue: StoredQueue, ends: Mapping[int, int]) -> None:
        """What is in these partitions nobody is given any more (mode delete)."""
        for number, end in ends.items():
            self.removed.update(ids := queue.partitions.get(number, StoredPartition()).ids[:end])
            for reader in self.readers.values():
                reader.lose(number, ids, end)

    def _check_drain(self, name: str, before: QueueState, after: QueueState, fact: QueueFact) -> None:
        """What every group had acknowledged when a queue was drained is all that there is when its count changes (S4)."""
        readers = self._groups_of(self.live)
        if fact.kind == "QueueDrained":
            self._drained_groups = set(readers)
        if fact.kind == "GenerationOpened" and before.scaling and before.scaling.mode == "drain":
            self.fail(undrained(name, before, after, readers, self._drained_groups))

    def _groups_of(self, uri: str) -> dict[str, GroupState]:
        return {group: known for (place, group), known in self.groups.items() if place == uri}

    def _group_decided(self, uri: str, name: str, rows: Sequence[dict[str, Any]]) -> None:
        state = self.groups.setdefault((uri, name), GroupState())
        for row in sorted(rows, key=lambda row: int(row["seq"])):
            if row["seq"] < state.seq:
                continue
            fact = GroupFact(**{name: row[name] for name in GroupFact.__dataclass_fields__})
            if fact.kind == Kind.RELEASED and uri == self.live:
                self._check_release(uri, name, state, fact)
            self.deleted.decided(uri, name, state, fact)
            state.replay(fact)
            if uri == self.live:
                self._group_lives(uri, name, state, fact)
            self._world.note(f"{uri}: group {name}: {fact_in_short(fact)}")
        self.owners.decided(uri, name, state, self._world.scheduler.now_s)

    def _group_lives(self, uri: str, name: str, state: GroupState, fact: GroupFact) -> None:
        reader, stored = self.readers.setdefault(name, Reader()), self.queues.get((uri, "q"), StoredQueue())
        queue = stored.state
        is_there = queue is not None and fact.queue_id == queue.queue_id  # or deleted meanwhile
        if fact.kind == Kind.GROUP_DELETED:
            reader.forget()
        if fact.kind == Kind.SKIPPED and queue is not None and is_there:
            number, log = fact.partition_id[1], stored.partitions[fact.partition_id[1]]
            left_out = {n: self.sent[id_] for n, id_ in self.dead.in_range(name, log, fact).items()}
            self.fail(self.dead.left_out(name, left_out, fact, log, queue))
            reader.lose(number, [message.id for message in left_out.values()], fact.delivered or 0)
        self.dead.decided(name, fact)
        # The copy had nothing of it: it is created now, and its format may be raised.
        if fact.kind == Kind.QUEUE_ADDED and (not reader.began or (self.is_lost and state.seq <= 3)):
            reader.begin(stored)
        if fact.kind == Kind.POSITION_RESET and is_there:
            self._drained_groups -= {name}
            log = stored.partitions[fact.partition_id[1]]
            epochs = {number: own.epoch for (_, number), own in state.partitions.items()}
            reader.reset(fact.partition_id[1], fact.offset or 0, log, epochs)

    def _check_release(self, uri: str, name: str, state: GroupState, fact: GroupFact) -> None:
        """H1: an owner releases a partition when it has acknowledged all that it was given of it."""
        own, reader = state.partitions[fact.partition_id], self.readers.setdefault(name, Reader())
        epochs = [(uri, fact.partition_id, epoch) for epoch in range(own.lineage_epoch, own.epoch + 1)]
        self.fail(reader.release(epochs, fact.offset or 0, str(own.flow), self.manual))

    # ---- what producers and consumers say
    def accepted(self, uri: str, query: str, batch: int) -> None:
        """A producer was told that a batch is in."""
        stored = self.queues.get((uri, "q"))
        if stored is None:
            return  # deleted before the producer heard of it
        ids, problem = self.batches.accepted(uri, (query, batch), stored.places, self.removed)
        self.fail("" if stored.is_deleted else problem)
        self.promised.update(ids)

    def delivered(
        self, uri: str, group: str, number: int, offset: int, id_: str, redelivered: bool, epoch: int | None, turn: Turn
    ) -> None:
        """A consumer of the group was given a message, planned under that epoch."""
        there = self.queues.get((uri, "q"), StoredQueue())
        if there.is_deleted or (id_ in self.removed and id_ not in there.places):
            return  # of a queue that was deleted
        reader, message = self.readers.setdefault(group, Reader()), self.sent[id_]
        stored = there.partitions.get(number, StoredPartition()).ids
        if stored[offset : offset + 1] != [id_]:
            self.fail(f"WRONG: group {group} got {id_} as {number}@{offset}, where {stored[offset:] or 'nothing'} is")
        # One that does not know yet that the partition was taken from it, or the queue, delivers what it had planned (H4).
        owned = uri == self.live and self._is_owned(uri, group, number, epoch)
        queue, known = there.state, self.groups.get((uri, group))
        again = redelivered and self.alternates  # a replay of what was planned by hand acknowledges nothing
        planned = None if epoch is None or queue is None else (uri, (queue.queue_id, number), epoch)
        problem = "" if planned is None else reader.take(planned, offset, again)
        deleted = known is not None and epoch is not None and epoch <= known.last_epoch  # the group that planned it
        if queue is not None and known is not None and not self.retention and not problem and not deleted:
            now_s = self._world.scheduler.now_s
            problem, let_go = overtaken(queue, known, self.owners, uri, group, (number, offset), turn, now_s)
            reader.let_go |= {n: max(cut, reader.let_go.get(n, 0)) for n, cut in let_go.items()}
        if owned:
            reader.pass_over(number, there.partitions[number].deleted if number in there.partitions else ())
            problem = problem or reader.follow(number, offset, redelivered, self.retention)
        elif uri == self.live or (not self.is_lost and not deleted and self._goes_on(uri, group)):
            problem = problem or reader.stray(number, offset, redelivered, uri == self.live and not deleted)
        self.fail(problem.replace("it got", f"group {group} got"))
        if deleted or reader.is_late(number, epoch, id_):
            return
        was_removed = self.retention and self.live != PRIMARY and id_ in self.removed  # elsewhere
        late = offset < reader.let_go.get(number, 0) or id_ in self.copied or was_removed
        late = late or (queue is not None and was_stuck(queue, number, offset)) or self.dead.is_out_of_order(group, id_)
        if owned and not late and message.key in self.dead.held.get(group, ()):
            self.fail(f"HELD: group {group} got {id_} of key {message.key}, of which a message is dead")
        # Others may have left it out.
        seen = id_ in reader.given or (not owned and id_ in reader.excused | self.removed)
        if message.key is not None and not seen and not late:
            newest = reader.last.get((message.producer, message.key), -1)
            if message.number < newest:
                self.fail(f"ORDER: group {group} got {id_} of key {message.key} after {message.producer}:{newest}")
            reader.last[message.producer, message.key] = message.number
        reader.given.add(id_)

    def _is_owned(self, uri: str, group: str, number: int, epoch: int | None) -> bool:
        queue, state = self.queues[uri, "q"].state, self.groups.get((uri, group))
        own = None if queue is None or state is None else state.partitions.get((queue.queue_id, number))
        return own is not None and epoch == own.epoch

    def _goes_on(self, uri: str, group: str) -> bool:
        before, now = self.groups.get((uri, group)), self.groups.get((self.live, group))
        return before is not None and (now is None or now.deletions == before.deletions)

    def decided(self, before: GroupState, acks: Acks, facts: Sequence[GroupFact], events: Sequence[Event]) -> None:
        """What somebody decided, on what he saw."""
        after = before.copy()
        try:
            for fact in facts:
                after.replay(fact)
            invariants.check(before, after, facts, acks, events)
        except (ValueError, InvariantError) as error:
            self.fail(f"DECISION: {error}")

    def fail(self, what: str) -> None:
        """Stop the run with what is wrong, unless that is empty."""
        if what:
            self._world.note(f"VIOLATION {what}")
            self.violations.append(what)
            raise Violation(what)
