"""Checks a group: whether its tables are there and whole, and then what they say."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

from spark_partq.core.errors import PartqError
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.steps.promotion import BY_A_PROMOTION
from spark_partq.storage.files import is_temporary
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.group.control import SNAPSHOT, kind_of
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.doctor.check import NEXT_SYNC, RESTORE_GROUP, Check
from spark_partq.storage.inspect.doctor.findings import Diagnosis
from spark_partq.storage.inspect.doctor.group_acks import check_acks
from spark_partq.storage.inspect.doctor.group_history import replay
from spark_partq.storage.inspect.group_history import control_files, control_log
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.storage.rows import in_order
from spark_partq.storage.runtime import Runtime
from spark_partq.storage.store import Store, group_folder

_MOMENTS_S = 0.5
# With it begin the names of files that a first commit brings.
_FIRST = f"{0:020d}-"


class GroupCheck(Check):
    """One group: its history from fact 0, its snapshots, its acknowledgements."""

    def __init__(self, store: Store, name: str, found: Diagnosis) -> None:
        super().__init__(store, f"group {name}", found)
        self.name = name
        self._replicas: set[str] = set()

    def check(self) -> None:
        self.found.groups += 1
        try:
            self._check()
        except PartqError as error:
            self.unreadable(error, RESTORE_GROUP)

    def _check(self) -> None:
        self._replicas = _replicas(self.store)
        # Acknowledgements first: whoever wrote one was let in by a fact that is there by then.
        acks = self._read_acks()
        control = control_log(self.store, self.name)
        if not control.exists():
            if acks is None or acks.beats.keys() != {BY_A_PROMOTION}:  # else it has attached, and has not joined yet
                self._no_log("control", f"{group_folder(self.name)}/control")
            return
        control.refresh()
        newer = self._check_truncated(control)
        if not self.check_files(control, RESTORE_GROUP):
            return
        disk = control_files(self.store, self.name)
        rows = [row for path in sorted(control.snapshot.files) for row in disk.read(path, control.version)]
        if any(row["seq"] is None for row in rows):
            self.fault("its history has a fact without a number: the table was edited", RESTORE_GROUP)
            return
        facts = sorted((row for row in rows if row["kind"] != "Snapshot"), key=lambda row: int(row["seq"]))
        facts = in_order(facts, f"the control table of {self.about} in {self.store.uri}", control.version)
        self.found.facts += len(facts)
        state = replay(self, facts, {int(row["seq"]): row["body"] for row in rows if row["kind"] == "Snapshot"})
        if state is not None and acks is not None:
            check_acks(self, state, facts, acks, newer, self._beats_by_now, self.store.now())

    def _read_acks(self) -> Acks | None:
        """The acknowledgements, or None if they cannot be read."""
        folders = [name for name in self.store.names(group_folder(self.name)) if name.startswith("acks")]
        deletions = max((int(name[len("acks-") :] or 0) for name in folders), default=0)  # older ones are being removed
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

    def _beats_by_now(self) -> bool:
        """Whether a member that joined after the acknowledgements were read has sent a heartbeat since."""
        acks = self._read_acks()
        return acks is None or bool(acks.beats.keys() - {BY_A_PROMOTION})

    def _no_log(self, table: str, folder: str) -> None:
        """Without its control table nobody can tell what the group reads, so any replica of the store may be it."""
        if self._replicas:
            self.warn(f"its {table} table has no log yet", NEXT_SYNC)
        elif all(name.startswith(_FIRST) or is_temporary(name) for name in self.files(folder)):
            what = f"its {table} table has no log and no file of a later commit than the first: who made it ended before that"
            self.warn(what, "nothing, if nobody has removed the log: the next query of the group makes the table")
        else:
            self.fault(f"its {table} table has no log any more", RESTORE_GROUP)

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
        control.refresh()  # what was committed since the first refresh is no sign of anything
        if last > control.version + 1:
            what = f"its log ends at version {control.version}, but there are files of version {last}"
            if self._is_copied():  # a pass brings files before it puts the commits that name them
                self.warn(what, NEXT_SYNC)
            else:
                self.fault(f"{what}: the newest log files were removed", RESTORE_GROUP)
        return [path for version, path in named if version == control.version + 1 and kind_of(path) != SNAPSHOT]


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
    found = []
    for name in store.named("queues"):
        with contextlib.suppress(PartqError):  # the check of that queue says so
            found.append(ReplicaTable(store, name).refresh())
    return {replica.queue_id for replica in found if replica is not None and not replica.promoted}
