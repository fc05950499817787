"""Checks a group: whether its tables exist and are complete, and then what they say."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from spark_partq.core.errors import CorruptTableError, PartqError, StoreUnavailableError
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.steps.promotion import BY_A_PROMOTION
from spark_partq.core.stored import MALFORMED
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.group.control import SNAPSHOT, kind_of
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.doctor.check import NEXT_SYNC, RESTORE_GROUP, Check
from spark_partq.storage.inspect.doctor.findings import Diagnosis
from spark_partq.storage.inspect.doctor.group_acks import check_acks
from spark_partq.storage.inspect.doctor.group_history import replay
from spark_partq.storage.inspect.doctor.group_limits import check_limits
from spark_partq.storage.inspect.group_history import control_files, control_log
from spark_partq.storage.log import DeltaLog, LogFolder
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.rows import Row, in_order, version_of
from spark_partq.storage.runtime import Runtime
from spark_partq.storage.store import Store, deletions_before, group_folder, queue_folder

_MOMENTS_S = 0.5


class GroupCheck(Check):
    """One group: its history from fact 0, its snapshots, its acknowledgements."""

    def __init__(self, store: Store, name: str, found: Diagnosis) -> None:
        super().__init__(store, f"group {name}", found)
        self.name = name
        self._replicas, self._unseen = set[str](), ""

    def check(self) -> None:
        names = self.store.names(group_folder(self.name))
        if not names or not self.holds(names, _is_part, group_folder(self.name)):
            return
        self.found.groups += 1
        try:
            self._check()
        except CorruptTableError as error:
            self.unreadable(error, RESTORE_GROUP)

    def _check(self) -> None:
        self._replicas, self._unseen = _replicas(self.store)
        # Acknowledgements are read first: a member that wrote one joined by a fact, which exists when the facts are read.
        acks = self._read_acks()
        control = control_log(self.store, self.name)
        if not control.exists():
            writers = set[str]() if acks is None else set(acks.beats)
            if writers != {BY_A_PROMOTION}:  # else it has attached, and no member has joined
                self._no_log("control", f"{group_folder(self.name)}/control", existed=bool(writers - {BY_A_PROMOTION}))
            return
        control.refresh()
        newer = self._check_truncated(control)
        if self.check_files(control, RESTORE_GROUP):
            disk = control_files(self.store, self.name)
            rows = [row for path in sorted(control.snapshot.files) for row in disk.read(path, control.version)]
            self.guarded(lambda: self._check_facts(rows, control.version, acks, newer), RESTORE_GROUP)

    def _check_facts(self, rows: Sequence[Row], version: int, acks: Acks | None, newer: Sequence[str]) -> None:
        if any(row["seq"] is None for row in rows):
            self.fault("its history has a fact without a number: the table was edited", RESTORE_GROUP)
            return
        facts = sorted((row for row in rows if row["kind"] != "Snapshot"), key=lambda row: int(row["seq"]))
        facts = in_order(facts, f"the control table of {self.about} in {self.store.uri}", version)
        self.found.facts += len(facts)
        state = replay(self, facts, {int(row["seq"]): row["body"] for row in rows if row["kind"] == "Snapshot"})
        if state is None:
            return
        if not any(queue_id in self._replicas for queue_id in state.queues):  # a copy's facts come with the next pass
            check_limits(self, self.name, state, facts, self.store.now())
        if acks is not None:
            check_acks(self, state, facts, acks, newer, self._beats_by_now, self.store.now())

    def _read_acks(self) -> Acks | None:
        """The acknowledgements, or None if they cannot be read."""
        try:
            return self._acks_there()
        except StoreUnavailableError as error:  # the facts are checked without acknowledgements
            self.unreadable(error, RESTORE_GROUP)
            return None

    def _acks_there(self) -> Acks | None:
        told = map(deletions_before, self.store.names(group_folder(self.name)))
        found = [number for number in told if number is not None]
        deletions = max(found, default=0)  # older ones are being removed
        if found and self._is_deleted_since(deletions):
            return Acks()
        table = AckTable(self.store, self.name, deletions)
        folder = table.folder
        if not table.exists():
            if not self.files(folder):
                return Acks()
            if not _comes_soon(self.store.runtime, table.exists):
                self._no_log("ack", folder)
                return None
        log = DeltaLog(self.store, folder, f"the acknowledgements of group {self.name!r}")
        if not self.readable(log.refresh, RESTORE_GROUP) or not self.check_files(log, RESTORE_GROUP):
            return None
        return table.acks if self.readable(table.refresh, RESTORE_GROUP) else None

    def _is_deleted_since(self, deletions: int) -> bool:
        """Whether the group was deleted more often than so: then the acknowledgements that are there are being removed."""
        group = Group(self.store, self.name)
        with contextlib.suppress(PartqError, *MALFORMED):  # the check of the facts reports it
            group.refresh_control()
        if group.state.deletions <= deletions:
            return False
        if not group.state.queues:  # else it is in use again, and nothing of these acknowledgements counts
            self.warn("its deletion was interrupted", "unless that is under way just now, delete it again to finish it")
        return True

    def _beats_by_now(self) -> bool:
        """Whether a member that joined after the acknowledgements were read has sent a heartbeat since."""
        acks = self._read_acks()
        return acks is None or bool(acks.beats.keys() - {BY_A_PROMOTION})

    def _no_log(self, table: str, folder: str, existed: bool = False) -> None:
        """Report a table without a log. `existed` says that another table shows that it had one.

        Without the control table it is not known what the group reads, so it may be a copy with any replica of the store.
        """
        if self._replicas:
            self.warn(f"its {table} table has no log yet", NEXT_SYNC)
        elif not existed and self.has_only_first_files(folder):
            what = f"its {table} table has no log and no file of a later commit than the first: the process that made it ended before that"
            self.warn(what, "nothing, if nobody has removed the log: the next query of the group makes the table")
        elif self._unseen:
            self.fault(f"its {table} table has no log", self._perhaps_a_copy())
        else:
            self.fault(f"its {table} table has no log any more", RESTORE_GROUP)

    def _perhaps_a_copy(self) -> str:
        """The remedy for a fault that is no fault if the folder that cannot be read is a replica."""
        return f"look again when {self._unseen} can be read: if a replica is there, a pass has not ended, and nothing is damaged"

    def _is_copied(self) -> bool:
        """Whether the group reads a queue that is a replica here."""
        group = Group(self.store, self.name)
        group.refresh_control()
        return any(queue_id in self._replicas for queue_id in group.state.queues)

    def _check_truncated(self, control: DeltaLog) -> list[str]:
        """Report that the log ends too early. Returns the files of the very next version, as a crash leaves such files, too."""
        named = [(v, path) for path in self.files(control.folder) if (v := version_of(path)) is not None]
        last = max([LogFolder(self.store, control.folder).names().last, *(version for version, _ in named)])
        control.refresh()  # commits since the first refresh do not count as missing
        if last > control.version + 1:
            what = f"its log ends at version {control.version}, but there are files of version {last}"
            if self._is_copied():  # a pass copies files before the commits that name them
                self.warn(what, NEXT_SYNC)
            elif self._unseen:
                self.fault(what, self._perhaps_a_copy())
            else:
                self.fault(f"{what}: the newest log files were removed", RESTORE_GROUP)
        return [path for version, path in named if version == control.version + 1 and kind_of(path) != SNAPSHOT]


def _comes_soon(runtime: Runtime, exists: Callable[[], bool]) -> bool:
    """Whether a table whose first file exists is just being made: then its log follows within moments."""
    deadline = runtime.monotonic_s() + _MOMENTS_S
    while runtime.monotonic_s() < deadline:
        if exists():
            return True
        runtime.sleep(_MOMENTS_S / 50)
    return exists()


def _is_part(name: str) -> bool:
    return name == "control" or deletions_before(name) is not None


def _replicas(store: Store) -> tuple[set[str], str]:
    """Ids of the queues that are replicas here, and not promoted; and a folder that cannot be read, if there is any."""
    found, unseen = [], ""
    try:
        names = store.named("queues")
    except StoreUnavailableError:
        return set(), "queues"
    for name in names:
        try:
            found.append(ReplicaTable(store, name).refresh())
        except StoreUnavailableError:
            unseen = queue_folder(name)
        except PartqError:  # the check of that queue reports it
            pass
    return {replica.queue_id for replica in found if replica is not None and not replica.promoted}, unseen
