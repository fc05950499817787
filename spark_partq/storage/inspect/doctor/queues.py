"""Checks a queue: its control table, and the run of offsets of each partition."""

from __future__ import annotations

import contextlib
from functools import partial

import numpy as np

from spark_partq.core.errors import CorruptTableError, PartqError, QueueNotFoundError, QueueNotReadyError
from spark_partq.core.invariants import InvariantError
from spark_partq.core.queue.invariants import check_state
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.state import QueueState
from spark_partq.core.stored import MALFORMED
from spark_partq.storage.group.handle import Group
from spark_partq.storage.inspect.backlog import told_of_stuck
from spark_partq.storage.inspect.doctor.check import NEXT_SYNC, RESTORE, Check
from spark_partq.storage.inspect.doctor.findings import Diagnosis, Finding
from spark_partq.storage.inspect.doctor.groups import GroupCheck
from spark_partq.storage.inspect.doctor.manifests import ManifestCheck
from spark_partq.storage.log import DeltaLog, LogFolder
from spark_partq.storage.queue import clock
from spark_partq.storage.queue.control import COLUMNS, MOST_FACTS
from spark_partq.storage.queue.handle import Queue, open_queue, queue_state
from spark_partq.storage.queue.partition_table import CLOCK, PartitionTable
from spark_partq.storage.replica.table import SYNCED, is_replica
from spark_partq.storage.rows import RowTable
from spark_partq.storage.store import Store, manifests_folder, partition_folder, partition_numbers, queue_folder

# The folders of a queue.
_PARTS = frozenset({"control", "partitions", "manifests", "replica"})


class QueueCheck(Check):
    """One queue: its control table, and the run of offsets of each partition (I1, I2)."""

    def __init__(self, store: Store, name: str, found: Diagnosis) -> None:
        super().__init__(store, f"queue {name}", found)
        self.name = name

    def check(self) -> None:
        names = self.store.names(queue_folder(self.name))
        if not names or not self.holds(names, _PARTS.__contains__, queue_folder(self.name)):
            return
        self.found.queues += 1
        folder = f"{queue_folder(self.name)}/control"
        try:
            replica = is_replica(self.store, self.name)
        except CorruptTableError:
            if self._is_being_deleted():  # the replica table goes first
                self.warn("its deletion was interrupted", "delete it again to finish that")
                return
            raise
        if "_delta_log" not in self.store.names(folder):
            if replica:
                self._warn_of_half_made()
            elif set(names) == {"control"} and self.has_only_first_files(folder):
                remedy = f"unless that is under way just now, create it again, or remove the folder {queue_folder(self.name)}"
                self.warn("the process that created it ended before its first commit", remedy)
            else:
                self._report_lost_log(folder)
            return
        try:
            state = queue_state(self.store, self.name)
        except QueueNotReadyError:
            self.warn("its deletion was interrupted", "delete it again to finish that")
            return
        except QueueNotFoundError:
            if replica:
                self._warn_of_half_made()
            elif "partitions" in names:
                self._report_lost_log(folder)
            else:
                self.warn("nothing but folders is left of it", f"remove the folder {queue_folder(self.name)}")
            return
        except (PartqError, *MALFORMED) as error:
            self.unreadable(error, RESTORE.format(folder), "its control table cannot be read")
            return
        if not state.usable:
            undo = "delete it again" if state.deleted else "create it again"
            self.warn(f"it is {state.status}", f"unless that is under way just now, {undo} to finish it")
            return
        try:
            check_state(state)
        except InvariantError as error:
            self.fault(f"{error}", RESTORE.format(folder))
        is_used = not replica and state.fenced_by is None  # else another store's programs finish changes and copies
        if state.scaling is not None and is_used:
            to = f"scaled to {state.scaling.partition_count} partitions (mode {state.scaling.mode})"
            self.warn(f"it is being {to}", "unless that is under way just now, run the same change again to finish it")
        control = RowTable(self.store, folder, f"the control table of {self.about}", COLUMNS, MOST_FACTS)
        control.refresh()
        numbers = sorted(int(row["seq"]) for row in control.rows())
        if numbers != list(range(len(numbers))):
            self.fault(f"its facts are numbered {numbers}: some are missing or doubled", RESTORE.format(folder))
        if is_used:  # else the groups may come with the next pass
            self._check_groups(state)
            self._check_dead_letter_queue(state.settings.dead_letter_queue)
        queue = open_queue(self.store, self.name)
        if is_used and (stuck := told_of_stuck(queue)):
            self.warn(stuck, f"copy them into the partitions: spark-partq copy-stuck {self.name}")
        tables = [*queue.partitions, *([queue.table(PARENT)] if state.stuck else [])]
        dated_ms = 0
        for messages, findings, committed_ms in self.store.map(self._check_partition, tables):
            self.found.partitions += 1
            self.found.messages += messages
            self.found.findings += findings
            dated_ms = max(dated_ms, committed_ms)
        self._check_own_clock(dated_ms, state.settings.max_clock_skew_ms)
        self._check_marks(queue, replica)
        manifests = ManifestCheck(queue, self.found)
        manifests.guarded(
            partial(manifests.check, state.fenced_by is not None),
            RESTORE.format(manifests_folder(self.name, state.queue_id)),
        )

    def _is_being_deleted(self) -> bool:
        with contextlib.suppress(PartqError, *MALFORMED):
            return queue_state(self.store, self.name).deleted
        return False

    def _report_lost_log(self, folder: str) -> None:
        """On an object store a process that stood still while the queue was deleted may write a file afterwards. No log names that file."""
        remedy = RESTORE.format(folder)
        tables = [
            LogFolder(self.store, partition_folder(self.name, n)) for n in partition_numbers(self.store, self.name)
        ]
        if not any(log.has_beginning() for log in tables):
            remedy += f"; if the queue was deleted, remove the folder {queue_folder(self.name)}: a process wrote there too late"
        self.fault("its control table has no log any more", remedy)

    def _warn_of_half_made(self) -> None:
        remedy = NEXT_SYNC
        if self.store.files.info(f"{queue_folder(self.name)}/replica/{SYNCED}") is None:  # no pass ever ended
            remedy += (
                f"; if its primary is gone, delete it (spark-partq delete-queue {self.name}): it cannot be promoted"
            )
        self.warn("its control table has no log yet", remedy)

    def _check_marks(self, queue: Queue, replica: bool) -> None:
        """Check that the control table explains the seal and the fence of every table (S5, S7)."""
        for table in [queue.table(number) for number in queue.state.all_partitions]:
            with contextlib.suppress(PartqError, *MALFORMED):  # the table's own check reports it
                if not table.exists() or _is_explained(queue, table):
                    continue
                what = "fenced" if table.fenced else f"sealed under generation {table.sealed}"
                what = f"partition {table.partition} is {what}, and the queue's control table does not say why"
                if replica:
                    self.warn(what, NEXT_SYNC)
                else:
                    control = f"{queue_folder(self.name)}/control"
                    what += ": producers wait for it. The control table is older than the partition, or was edited"
                    self.fault(what, RESTORE.format(control))

    def _check_dead_letter_queue(self, name: str | None) -> None:
        """Check that there is a dead-message queue, which somebody may have deleted: without it queries stop at the first dead message."""
        if name is not None and not self.store.names(queue_folder(name)):
            self.warn(
                f"there is no dead-message queue {name}, so no query can put a message aside",
                f"make it again: spark-partq alter-queue {self.name} --set dead_letter_queue={name}",
            )

    def _check_groups(self, state: QueueState) -> None:
        """Check that every attached group reads the queue. Otherwise the queue keeps messages that no query reads."""
        limited = state.settings.retention_ms is not None or state.settings.max_bytes is not None
        kept = (
            "only messages that are too old or too many are removed"
            if limited
            else "no message of the queue is removed"
        )
        for name in sorted(state.groups):
            group = Group(self.store, name)
            of_group = Diagnosis(self.store.uri)
            try:
                exists = group.exists()
                if not exists:
                    GroupCheck(self.store, name, of_group).check()
            except (PartqError, *MALFORMED):  # its own check reports it
                continue
            if of_group.faults:  # the group has lost its control table, and a query would make another one
                continue
            if not exists or state.queue_id not in group.state.queues:
                start = f"start a query of the group that reads queue {self.name}"
                self.warn(
                    f"group {name} is attached and has not joined, so {kept}",
                    start if exists else f"{start}, or forget it: spark-partq delete-group {name}",
                )

    def _check_own_clock(self, dated_ms: int, most_ms: int) -> None:
        """Check this machine's clock against the time that the store gave the newest commit: every other check of a time relies on this clock."""
        behind_ms = clock.behind_ms(self.store, dated_ms)
        if behind_ms > most_ms:
            self.warn(
                f"{clock.differ(self.store, self.name, behind_ms, most_ms)}, so what is told here of times may be wrong",
                "set this machine's clock by a time server, and look again",
            )

    def _check_partition(self, table: PartitionTable) -> tuple[int, list[Finding], int]:
        """How many messages it holds, what is wrong with it, and when its last commit came by the store's clock."""
        found = Diagnosis(self.store.uri)
        check = Check(self.store, f"partition {table.partition} of queue {self.name}", found)
        remedy = RESTORE.format(table.folder)
        count = committed_ms = 0

        def checked() -> None:
            nonlocal count, committed_ms
            table.refresh()
            committed_ms = table.committed_ms
            count = int(table.index.left.sum())  # an index is checked to have no gaps
            self._check_table(check, table, committed_ms, remedy)

        check.guarded(checked, remedy)
        return count, found.findings, committed_ms

    def _check_table(self, check: Check, table: PartitionTable, committed_ms: int, remedy: str) -> None:
        times = table.index.enqueued_us
        if np.any(np.diff(times) < 0) or (len(times) and int(times[-1]) > table.recorded(CLOCK, 0)):
            check.fault("the times at which its files were enqueued go back: its log was edited", remedy)
        self._check_clock(check, table, committed_ms)
        log = DeltaLog(self.store, table.folder, check.about)
        check.check_files(log, f"{remedy}; what is gone from the disk cannot be made again")

    def _check_clock(self, check: Check, table: PartitionTable, committed_ms: int) -> None:
        """A partition's time goes on from the latest time of any producer. A clock that was far ahead stops retention."""
        now_ms = max(committed_ms, self.store.now_ms())
        ahead_ms = table.recorded(CLOCK, 0) // 1_000 - now_ms
        if ahead_ms > queue_state(self.store, self.name).settings.max_clock_skew_ms:
            check.warn(
                f"its newest messages say that they were enqueued {ahead_ms / 1000:,.0f} s from now, and so will all messages that are "
                "written before that time",
                "retention_ms removes none of these messages before that time. Set the clocks of the machines that write the queue by a time server",
            )


def _is_explained(queue: Queue, table: PartitionTable) -> bool:
    """Whether the control table explains the table's marks.

    It is read later, and its facts come first. A fence may be taken back between the two reads.
    """
    for _ in range(2):
        table.refresh()
        queue.control.refresh()
        if queue.state.explains(table.sealed, table.fenced):
            return True
    return False
