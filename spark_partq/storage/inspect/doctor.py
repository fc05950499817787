"""Checks a store from the beginning: nothing of what a table says is taken on trust.

A group's history is replayed from fact 0, and every snapshot must say what the facts before it say. A table whose newest log files
are gone looks whole, only older; what gives that away are the files that its later commits left in the folder, and the
acknowledgements of the processes that these commits had let in.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spark_partq.core.errors import CorruptTableError, GroupNotFoundError, PartqError, QueueNotReadyError
from spark_partq.core.group import invariants
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.group.state import GroupState
from spark_partq.core.ids import instance_of
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.group.control import SNAPSHOT, kind_of
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.group_history import control_files, control_log
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.queue.control import COLUMNS
from spark_partq.storage.queue.handle import open_queue, queue_state
from spark_partq.storage.queue.partition_table import CLOCK, PartitionTable
from spark_partq.storage.replica.table import ReplicaTable, is_replica
from spark_partq.storage.rows import Row, RowTable
from spark_partq.storage.runtime import Runtime
from spark_partq.storage.store import Store, group_folder, queue_folder

FAULT, WARNING = "fault", "warning"
_MOMENTS_S = 0.5

# What reading rows raises that somebody has edited.
_MALFORMED = (ValueError, KeyError, TypeError, AssertionError)
_FIELDS = [f.name for f in dataclasses.fields(GroupFact)]
_RESTORE = "restore {0} from a backup"
_RESTORE_GROUP = "restore its folder from a backup, or delete the group (spark-partq delete-group) and start its queries with new checkpoints"

_PASS = "it is a replica, and a pass has not ended: unless one is under way just now, replicate it again, or promote it"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes
    ----------
    severity : str
        ``fault``: a promise is broken. ``warning``: it may be, or something was interrupted.
    about : str
        The table that it is about.
    what, remedy : str
        What is wrong, and what to do next.
    """

    severity: str
    about: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.about}: {self.what}; {self.remedy}"


@dataclass
class Diagnosis:
    """What `diagnose` has looked at and found."""

    store: str
    queues: int = 0
    partitions: int = 0
    messages: int = 0
    groups: int = 0
    facts: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def faults(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == FAULT]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON-able values."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return {**plain, "healthy": not self.faults}


def diagnose(store: Store, group: str | None = None) -> Diagnosis:
    """Check one group, or every queue and group of the store. Changes nothing, and may run while the store is in use.

    Raises
    ------
    NotAStoreError, StoreUnavailableError
        If there is no store to check.
    GroupNotFoundError
        If `group` is not there.
    """
    store.check_exists()
    found = Diagnosis(store.uri)
    if group is None:
        for name in store.names("queues"):
            if store.names(f"queues/{name}"):
                _Queue(store, name, found).check()
    groups = [name for name in store.names("groups") if store.names(f"groups/{name}")]
    if group is not None and group not in groups:
        raise GroupNotFoundError(
            f"there is no group {group!r} in {store.uri}; its groups: {', '.join(groups) or 'none'}", group=group
        )
    for name in groups if group is None else [group]:
        _Group(store, name, found).check()
    return found


class _Check:
    """Gathers what is found about one thing of the store."""

    def __init__(self, store: Store, about: str, found: Diagnosis) -> None:
        self.store, self.about, self.found = store, about, found

    def fault(self, what: str, remedy: str) -> None:
        self.found.findings.append(Finding(FAULT, self.about, what, remedy))

    def warn(self, what: str, remedy: str) -> None:
        self.found.findings.append(Finding(WARNING, self.about, what, remedy))

    def readable(self, look: Callable[[], object], remedy: str) -> bool:
        """Whether the look succeeds; if not, why not is a fault."""
        try:
            look()
        except PartqError as error:
            self.fault(_text(error), remedy)
            return False
        return True

    def check_files(self, log: DeltaLog, remedy: str) -> bool:
        """Whether every file that the log names is there, and as large as it says."""
        live = log.snapshot.files
        there = self.files(log.folder)  # after the log: what it names is there by then
        wrong = []
        for name, add in live.items():
            if name not in there:
                wrong.append(f"{name} is missing")
            elif there[name] != add.size:
                wrong.append(f"{name} has {there[name]} bytes instead of {add.size}: it was replaced")
        if wrong:
            more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            self.fault(f"of {len(live)} files, {'; '.join(sorted(wrong)[:3])}{more}", remedy)
        return not wrong

    def files(self, folder: str) -> dict[str, int]:
        return {info.name: info.size for info in self.store.files.list_files(folder)}


class _Queue(_Check):
    """One queue: its control table, and the run of offsets of each partition (I1, I2)."""

    def __init__(self, store: Store, name: str, found: Diagnosis) -> None:
        super().__init__(store, f"queue {name}", found)
        self.name = name

    def check(self) -> None:
        self.found.queues += 1
        folder = f"{queue_folder(self.name)}/control"
        replica = is_replica(self.store, self.name)
        if "_delta_log" not in self.store.names(folder):
            if replica:
                self.warn("its control table has no log yet", _PASS)
                return
            self.fault("its control table has no log any more", _RESTORE.format(folder))
            return
        try:
            state = queue_state(self.store, self.name)
        except QueueNotReadyError:
            self.warn("its deletion was interrupted", "delete it again to finish that")
            return
        except (PartqError, *_MALFORMED) as error:
            self.fault(f"its control table cannot be read ({_text(error)})", _RESTORE.format(folder))
            return
        if not state.usable:
            undo = "delete it again" if state.deleted else "create it again"
            self.warn(f"it is {state.status}", f"unless that is under way just now, {undo} to finish it")
            return
        if state.scaling is not None and not replica:
            to = f"scaled to {state.scaling.partitions} partitions (mode {state.scaling.mode})"
            self.warn(f"it is being {to}", "unless that is under way just now, scale it so again to finish it")
        control = RowTable(self.store, folder, f"the control table of {self.about}", COLUMNS)
        control.refresh()
        numbers = sorted(int(row["seq"]) for row in control.rows())
        if numbers != list(range(len(numbers))):
            self.fault(f"its facts are numbered {numbers}: some are missing or doubled", _RESTORE.format(folder))
        queue = open_queue(self.store, self.name)
        for messages, findings in self.store.map(self._check_partition, queue.partitions):
            self.found.partitions += 1
            self.found.messages += messages
            self.found.findings += findings

    def _check_partition(self, table: PartitionTable) -> tuple[int, list[Finding]]:
        """How many messages it holds, and what is wrong with it."""
        found = Diagnosis(self.store.uri)
        check = _Check(self.store, f"partition {table.partition} of queue {self.name}", found)
        remedy = _RESTORE.format(table.folder)

        def look() -> None:
            table.refresh()
            _ = table.index  # checked to be dense

        if not check.readable(look, remedy):
            return 0, found.findings
        times = table.index.enqueued_us
        if np.any(np.diff(times) < 0) or (len(times) and int(times[-1]) > table.recorded(CLOCK, 0)):
            check.fault("the times at which its files were enqueued go back: its log was edited", remedy)
        log = DeltaLog(self.store, table.folder, check.about)
        check.check_files(log, f"{remedy}; what is gone from the disk cannot be made again")
        return int(table.index.rows.sum()), found.findings


class _Group(_Check):
    """One group: its history from fact 0, its snapshots, its acknowledgements."""

    def __init__(self, store: Store, name: str, found: Diagnosis) -> None:
        super().__init__(store, f"group {name}", found)
        self.name = name
        self._replicas = _replicas(store)

    def check(self) -> None:
        self.found.groups += 1
        try:
            self._check()
        except PartqError as error:
            self.fault(_text(error), _RESTORE_GROUP)

    def _check(self) -> None:
        # Acknowledgements first: whoever wrote one was let in by a fact that is there by then.
        acks = self._read_acks()
        control = control_log(self.store, self.name)
        if not control.exists():
            self._no_log("control")
            return
        control.refresh()
        newer = self._check_truncated(control)
        if not self.check_files(control, _RESTORE_GROUP):
            return
        disk = control_files(self.store, self.name)
        rows = [row for path in sorted(control.snapshot.files) for row in disk.read(path)]
        if any(row["seq"] is None for row in rows):
            self.fault("its history has a fact without a number: the table was edited", _RESTORE_GROUP)
            return
        facts = sorted((row for row in rows if row["kind"] != "Snapshot"), key=lambda row: int(row["seq"]))
        self.found.facts += len(facts)
        state = self._replay(facts, {int(row["seq"]): row["body"] for row in rows if row["kind"] == "Snapshot"})
        if state is not None and acks is not None:
            self._check_acks(state, facts, acks, newer)

    def _read_acks(self) -> Acks | None:
        """The acknowledgements, or None if they cannot be read."""
        folder = f"{group_folder(self.name)}/acks"
        table = AckTable(self.store, self.name)
        if not table.exists():
            if not self.files(folder):
                return Acks()
            if not _comes_soon(self.store.runtime, table.exists):
                self._no_log("ack")
                return None
        log = DeltaLog(self.store, folder, f"the acknowledgements of group {self.name!r}")
        if not self.readable(log.refresh, _RESTORE_GROUP) or not self.check_files(log, _RESTORE_GROUP):
            return None
        return table.acks if self.readable(table.refresh, _RESTORE_GROUP) else None

    def _beats_by_now(self) -> bool:
        """Whether a member that joined after the acknowledgements were read has sent a heartbeat since."""
        acks = self._read_acks()
        return acks is None or bool(acks.beats)

    def _no_log(self, table: str) -> None:
        """Without its control table nobody can tell what the group reads, so any replica of the store may be it."""
        if self._replicas:
            self.warn(f"its {table} table has no log yet", _PASS)
        else:
            self.fault(f"its {table} table has no log any more", _RESTORE_GROUP)

    def _is_copied(self) -> bool:
        """Whether the group reads a queue that is a replica here."""
        group = Group(self.store, self.name)
        group.refresh_control()
        return any(queue_id in self._replicas for queue_id in group.state.queues)

    def _check_truncated(self, control: DeltaLog) -> list[str]:
        """Report that the log ends too early; returns the files of the very next version, which a crash leaves too."""
        named = [(int(m[1]), path) for path in self.files(control.folder) if (m := re.match(r"(\d{20})-", path))]
        log = self.files(f"{control.folder}/_delta_log")
        last = max([v for v, _ in named] + [int(m[1]) for path in log if (m := re.match(r"(\d{20})\.", path))])
        control.refresh()  # what was committed since the first look is no sign of anything
        if last > control.version + 1:
            what = f"its log ends at version {control.version}, but there are files of version {last}"
            if self._is_copied():  # a pass brings files before it puts the commits that name them
                self.warn(what, _PASS)
            else:
                self.fault(f"{what}: the newest log files were removed", _RESTORE_GROUP)
        return [path for version, path in named if version == control.version + 1 and kind_of(path) != SNAPSHOT]

    def _replay(self, facts: Sequence[Row], snapshots: dict[int, str]) -> GroupState | None:
        """The state after all facts, or None if they do not make one."""
        state = GroupState()
        for number, row in enumerate(facts):
            seq = int(row["seq"])
            if seq != number:
                what = f"fact {seq} is there twice" if seq < number else f"facts {number} to {seq - 1} are missing"
                self.fault(f"in its history {what}", _RESTORE_GROUP)
                return None
            fact = GroupFact(**{name: row[name] for name in _FIELDS})
            try:
                _check_fact(state, fact)
                state.replay(fact)
            except (CorruptTableError, *_MALFORMED) as error:
                text = _text(error).partition(": the table was edited")[0]
                self.fault(f"{text}: fact {seq} or one before it was edited", _RESTORE_GROUP)
                return None
            if state.seq in snapshots and not self._check_snapshot(state, snapshots[state.seq]):
                return None
        beyond = [seq for seq in snapshots if seq > state.seq]
        if beyond:
            self.fault(f"its snapshot stands for {max(beyond)} facts, but there are {state.seq}", _RESTORE_GROUP)
            return None
        return state

    def _check_snapshot(self, state: GroupState, body: str) -> bool:
        try:
            told = GroupState.from_json(json.loads(body))
        except (ValueError, KeyError, TypeError) as error:
            self.fault(f"its snapshot of fact {state.seq} cannot be read ({error})", _RESTORE_GROUP)
            return False
        if told == state:
            return True
        names = [f.name for f in dataclasses.fields(state) if getattr(told, f.name) != getattr(state, f.name)]
        self.fault(
            f"its snapshot of fact {state.seq} says something else than the facts before it ({', '.join(names)}): one of "
            "them was edited",
            _RESTORE_GROUP,
        )
        return False

    def _check_acks(self, state: GroupState, facts: Iterable[Row], acks: Acks, newer: Sequence[str]) -> None:
        """The state against the acknowledgements, which were looked at before it."""
        known = {row["incarnation"] for row in facts if row["kind"] == Kind.MEMBER_JOINED}
        if not acks.beats and state.members and not self._beats_by_now():
            self.warn(
                "nobody has acknowledged or sent a heartbeat, though it has members",
                "if its ack table was removed, messages since each partition's last change of owner are delivered again",
            )
        strangers = sorted(set(acks.beats) - known)
        if strangers and newer:
            self.fault(
                f"process {strangers[0]} acknowledged, and no fact let it in, but {newer[0]} was written and is in no log: the "
                "newest log file was removed",
                _RESTORE_GROUP,
            )
        elif strangers:
            self.warn(
                f"process {strangers[0]} acknowledged, and no fact let it in; it does not count",
                "stop the queries that go on since before the group was deleted or put back to an older state",
            )
        for where, epoch, incarnation in acks.rows:
            own = state.partitions.get(where)
            if incarnation in known and own is not None and epoch > own.epoch:
                self.fault(
                    f"partition {where[1]} of queue {_name(state, where[0])} was acknowledged under epoch {epoch}, but its history "
                    f"ends at epoch {own.epoch}: the newest facts are missing",
                    _RESTORE_GROUP,
                )
                return
        try:
            invariants.check_state(state, acks)
        except invariants.InvariantError as error:
            self.fault(f"{error}", _RESTORE_GROUP)
        self._check_positions(state, acks)

    def _check_positions(self, state: GroupState, acks: Acks) -> None:
        for queue_id, known in state.queues.items():
            for table in self._tables(known.name, queue_id):
                position = state.position((queue_id, table.partition), acks) or 0
                if position > table.next_offset:
                    self.fault(
                        f"it has acknowledged partition {table.partition} of queue {known.name} up to {position}, but that ends at "
                        f"{table.next_offset}",
                        f"restore {table.folder}, which was put back to an older state, or let another group read it",
                    )

    def _tables(self, name: str, queue_id: str) -> Iterator[PartitionTable]:
        """The partitions of a queue that can be read; its own check tells of the others."""
        with contextlib.suppress(PartqError, *_MALFORMED):
            queue = open_queue(self.store, name)
            if queue.state.queue_id == queue_id:
                for table in queue.partitions:
                    with contextlib.suppress(PartqError):
                        table.refresh()
                        yield table


def _comes_soon(runtime: Runtime, exists: Callable[[], bool]) -> bool:
    """Whether a table whose first file is there is just being made: its log follows within moments."""
    deadline = runtime.monotonic_s() + _MOMENTS_S
    while runtime.monotonic_s() < deadline:
        if exists():
            return True
        runtime.sleep(_MOMENTS_S / 50)
    return exists()


def _replicas(store: Store) -> set[str]:
    """Ids of the queues that are replicas here, and not promoted."""
    found = (ReplicaTable(store, name).look() for name in store.names("queues"))
    return {about.queue_id for about in found if about is not None and not about.promoted}


def _name(state: GroupState, queue_id: str) -> str:
    queue = state.queues.get(queue_id)
    return queue_id if queue is None else queue.name


def _text(error: BaseException) -> str:
    """What an error says, without its class and its advice; in one line."""
    text = " ".join(str(error).split())
    return re.sub(r"^\[[A-Z_]+\] ", "", text) or type(error).__name__


def _check_fact(state: GroupState, fact: GroupFact) -> None:
    """What a fact must keep to beyond the transitions that its replay checks (I4, I5, I7, I14)."""
    if fact.kind == Kind.ASSIGNMENT_COMPUTED:
        invariants.check_assignment(state, json.loads(fact.body or ""))
    if fact.kind not in (Kind.GRANTED, Kind.RELEASED, Kind.UNASSIGNED):
        return
    own = state.partitions.get(fact.where)
    if own is None or fact.offset is None or fact.delivered is None:
        return  # the replay refuses it
    before = max(own.start, state.floors.get(fact.where, 0))
    if fact.offset < before:
        raise ValueError(f"the position of partition {fact.partition} goes back from {before} to {fact.offset}")
    if fact.delivered < fact.offset:
        raise ValueError(
            f"partition {fact.partition} was delivered up to {fact.delivered}, but acknowledged up to {fact.offset}"
        )
    if fact.kind == Kind.GRANTED:
        member = state.members.get(instance_of(fact.flow or ""))
        if member is None or fact.flow not in member.flow_names or fact.incarnation != member.incarnation:
            raise ValueError(f"partition {fact.partition} was granted to {fact.flow}, which is no flow of the group")
        if not state.subscribed(fact.flow, fact.where):
            raise ValueError(
                f"partition {fact.partition} was granted to {fact.flow}, which does not read queue {fact.queue}"
            )
