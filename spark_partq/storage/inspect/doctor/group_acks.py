"""Checks the state of a group against its acknowledgements and its queues."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence

from spark_partq.core.errors import PartqError, StoreUnavailableError
from spark_partq.core.group import invariants
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.facts import Kind, Member
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps.promotion import BY_A_PROMOTION
from spark_partq.core.invariants import InvariantError
from spark_partq.core.stored import MALFORMED
from spark_partq.storage.inspect.doctor.check import LOOK_AGAIN, RESTORE_GROUP, Check
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.rows import Row

_LONG_AGO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _timeout(member: Member) -> dt.timedelta:
    """How long a member may be silent, including a member that has just joined."""
    return dt.timedelta(milliseconds=member.session_timeout_ms)


def check_acks(
    check: Check,
    state: GroupState,
    facts: Iterable[Row],
    acks: Acks,
    newer: Sequence[str],
    beats_by_now: Callable[[], bool],
    now: dt.datetime,
) -> None:
    """Check the state against the acknowledgements, which were read before it."""
    joined = {row["incarnation"]: row["at"] for row in facts if row["kind"] == Kind.MEMBER_JOINED}
    known = joined.keys()
    silent = [m for m in state.members.values() if now - joined.get(m.incarnation, _LONG_AGO) > _timeout(m)]
    processes = acks.beats.keys() - {BY_A_PROMOTION}
    if not processes and silent and not beats_by_now():
        check.warn(
            "no process has acknowledged or sent a heartbeat, though the group has members",
            "if its ack table was removed, messages since each partition's last change of owner are delivered again",
        )
    strangers = sorted(processes - known)
    if strangers and newer:
        check.fault(
            f"process {strangers[0]} acknowledged, and no fact says that it joined, but {newer[0]} was written and is in no log: the "
            "newest log file was removed",
            RESTORE_GROUP,
        )
    elif strangers:
        check.warn(
            f"process {strangers[0]} acknowledged, and no fact says that it joined; its acknowledgements do not count",
            "stop the queries that were started before the group was deleted or put back to an older state",
        )
    for partition_id, epoch, incarnation in acks.rows:
        own = state.partitions.get(partition_id)
        if incarnation in known and own is not None and epoch > own.epoch:
            check.fault(
                f"partition {partition_id[1]} of queue {_name(state, partition_id[0])} was acknowledged under epoch {epoch}, but its history "
                f"ends at epoch {own.epoch}: the newest facts are missing",
                RESTORE_GROUP,
            )
            return
    try:
        invariants.check_state(state, acks)
    except InvariantError as error:
        check.fault(f"{error}", RESTORE_GROUP)
    _check_positions(check, state, acks)


def _check_positions(check: Check, state: GroupState, acks: Acks) -> None:
    for queue_id, known in state.queues.items():
        for table in _tables(check, known.name, queue_id):
            position = state.position((queue_id, table.partition), acks) or 0
            if position > table.next_offset:
                check.fault(
                    f"it has acknowledged partition {table.partition} of queue {known.name} up to {position}, but the partition ends at "
                    f"{table.next_offset}",
                    f"restore {table.folder}, which was put back to an older state, or let another group read it",
                )


def _tables(check: Check, name: str, queue_id: str) -> list[PartitionTable]:
    """The partitions of a queue that can be read."""
    queue, found = None, []
    with _compared(check, f"queue {name}"):
        queue = open_queue(check.store, name)
    for table in queue.partitions if queue is not None and queue.state.queue_id == queue_id else ():
        with _compared(check, f"partition {table.partition} of queue {name}"):
            table.refresh()
            found.append(table)
    return found


@contextlib.contextmanager
def _compared(check: Check, what: str) -> Iterator[None]:
    """Skip damaged tables: their own check reports them."""
    try:
        yield
    except StoreUnavailableError as error:
        check.unreadable(error, LOOK_AGAIN, f"its positions cannot be compared with {what}")
    except (PartqError, *MALFORMED):
        pass


def _name(state: GroupState, queue_id: str) -> str:
    queue = state.queues.get(queue_id)
    return queue_id if queue is None else queue.name
