"""A replica takes over from its primary (S7).

1. If the primary can be reached, it is fenced: a fact in its control table, and a mark in the log of each partition, which whoever
   appends meets. Then a last pass copies what is left.
2. ``Promoting`` ends the following: from now on no pass begins, and a commit in each table takes the number that a pass which is still
   under way would put.
3. The control table of what was the replica forgets the primary's replicas and its fence. ``Promoted`` opens it.

Each step finds what was done of it before, so a promotion that was interrupted is finished by promoting again.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_partq.core.errors import (
    NotAStoreError,
    PartqError,
    QueueNotFoundError,
    ReplicaError,
    StoreUnavailableError,
)
from spark_partq.core.group.facts import GroupFact, Kind
from spark_partq.core.names import check_name
from spark_partq.core.queue.state import QueueFact, QueueState
from spark_partq.storage.group.ack_table import AckTable
from spark_partq.storage.group.control import ControlTable
from spark_partq.storage.group.handle import groups_of
from spark_partq.storage.log import DeltaLog, retrying
from spark_partq.storage.procedures.primary import fence, fence_partitions
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.table import (
    About,
    Options,
    ReplicaFact,
    ReplicaTable,
    tell,
)
from spark_partq.storage.replica.table_copy import close, drop_ahead
from spark_partq.storage.store import Store, group_folder, queue_folder

# A primary that cannot be reached so often, with such pauses, is taken for lost.
_ATTEMPTS, _PAUSE_S = 6, 1.0


@dataclass(frozen=True)
class Promotion:
    """What `promote` did.

    Attributes
    ----------
    primary : str
        The store that was the primary's.
    fenced : bool
        Whether it takes and gives nothing any more. If not, `problem` says why: it could not be reached, and may have had messages
        that nobody has copied. Should it come back, whoever opens the queue there while this store can be reached fences it.
    floors : tuple
        (group, partition, from, to) where the primary had removed messages, as acknowledged by all groups or as too old, of which the
        replica did not know yet that they were acknowledged.
    """

    queue: str
    primary: str
    fenced: bool
    problem: str = ""
    floors: tuple[tuple[str, int, int, int], ...] = ()


def promote(store: Store, queue: str, *, force: bool = False, options: Options | None = None) -> Promotion:
    """Make the replica in this store the queue that is used.

    If the primary can be reached it is fenced, then a last pass copies what is left, so that nothing is lost. A promotion that was
    interrupted is finished by promoting again.

    Parameters
    ----------
    force : bool
        Go on although the primary is there but cannot be fenced or copied, or the replica was removed.
    options : dict, optional
        Storage options of the primary.

    Raises
    ------
    ReplicaError
        If it is no replica, is promoted already, has never been complete, or the above.
    """
    store.check_exists()
    table = ReplicaTable(store, check_name("queue", queue))
    about = table.look()
    if about is None:
        raise ReplicaError(f"queue {queue!r} in {store.uri} is no replica, so it cannot be promoted", queue=queue)
    if about.promoted:
        raise _already(store, queue)
    if about.removed and not force:
        raise ReplicaError(
            f"queue {queue!r} in {store.uri} was removed as a replica of {about.primary}, which goes on without it; pass force to "
            "use it none the less",
            queue=queue,
        )
    problem = _take_over(store, queue, about, force, options)
    if not DeltaLog(store, f"{queue_folder(queue)}/control", "the control table").exists():
        raise ReplicaError(
            f"the first pass of the replica of queue {queue!r} in {store.uri} never ended, and its primary {about.primary} cannot be "
            f"reached ({problem}): there is nothing that could be used",
            queue=queue,
        )

    def begin(was: About | None) -> list[ReplicaFact]:
        if was is not None and was.promoted:
            raise _already(store, queue)
        return [] if was is None or was.promoting else [("Promoting", {})]

    table.tell(begin)
    state = queue_state(store, queue)
    _close(store, state)
    floors = _settle(store, state)
    fence_partitions(store, state, False)
    tell(store, queue, _free)

    def end(was: About | None) -> list[ReplicaFact]:
        if was is not None and was.promoted:
            raise _already(store, queue)
        return [("Promoted", {})]

    table.tell(end)
    return Promotion(queue, about.primary, not problem, problem, floors)


def _take_over(store: Store, queue: str, about: About, force: bool, options: Options | None) -> str:
    """Fence the primary and copy what is left; returns why not, if it cannot be reached."""
    primary = store.sibling(about.primary, options)
    try:
        state = _reached(primary, queue)
    except (NotAStoreError, StoreUnavailableError, QueueNotFoundError) as error:
        return str(error)
    except PartqError as error:
        if not force:
            raise _insist(primary, queue, error) from error
        return str(error)
    if state.queue_id != about.queue_id:
        return f"queue {queue!r} in {primary.uri} was deleted and made anew"
    try:
        if state.fenced_by not in (None, about.location):
            raise ReplicaError(f"another replica, {state.fenced_by}, has taken over from it", queue=queue)
        if about.location not in state.replicas:
            raise ReplicaError("it does not know this replica any more", queue=queue)
        fence(primary, queue, about.location)
        if not about.promoting:
            Replicator(primary, queue, store.uri, store.storage_options, taking_over=True).sync()
    except PartqError as error:
        met = ReplicaTable(store, queue).look()
        if met is not None and (met.promoting or met.promoted):
            return ""  # by somebody else, whose last pass has ended
        if not force:
            raise _insist(primary, queue, error) from error
        return str(error)
    return ""


def _reached(primary: Store, queue: str) -> QueueState:
    """The primary's queue. One answer that is lost does not make a lost store: what nobody has copied would be lost with it."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return queue_state(primary, queue)
        except StoreUnavailableError:
            primary.runtime.sleep(_PAUSE_S)
    return queue_state(primary, queue)


def _close(store: Store, state: QueueState) -> None:
    """Nothing that a pass had still on its way may be put into the copies any more."""
    jumps: dict[str, set[int]] = {}
    for queue in store.names("queues"):
        about = ReplicaTable(store, queue).look()
        for folder, version in about.jumps if about is not None else ():
            jumps.setdefault(folder, set()).add(version)
    folders = [f"{queue_folder(state.name)}/control"]
    folders += [
        f"{queue_folder(state.name)}/partitions/{name}"
        for name in store.names(f"{queue_folder(state.name)}/partitions")
    ]
    for group in groups_of(store, state.queue_id):
        folders += [f"{group_folder(group.name)}/control", f"{group_folder(group.name)}/acks"]
    folders = [folder for folder in folders if DeltaLog(store, folder, folder).exists()]

    def end(folder: str) -> None:
        close(store, folder, jumps.get(folder, ()))
        drop_ahead(store, folder)

    store.map(end, folders)


def _settle(store: Store, state: QueueState) -> tuple[tuple[str, int, int, int], ...]:
    """Floors where messages are gone. A pass copies removals before it copies the floors that allowed them (Q8)."""
    raised = []
    firsts = {}
    for number in state.every:
        table = PartitionTable(store, state.name, number, state.schema)
        table.refresh()
        firsts[number] = table.first_offset
    for group in groups_of(store, state.queue_id):
        control, acks = ControlTable(store, group.name), AckTable(store, group.name)

        def attempt(control: ControlTable = control, acks: AckTable = acks) -> list[tuple[int, int, int]]:
            if acks.exists():
                acks.refresh()
            control.refresh()
            behind = []
            facts = []
            for number, first in firsts.items():
                where = state.queue_id, number
                own, position = control.state.partitions.get(where), control.state.position(where, acks.acks)
                if own is None or position is None or position >= first:
                    continue
                behind.append((number, position, first))
                facts.append(
                    GroupFact(
                        Kind.FLOOR,
                        state.name,
                        *where,
                        offset=first,
                        epoch_before=own.epoch,
                        epoch=own.epoch,
                        lineage_epoch=own.lineage_epoch,
                        cause="the replica was promoted; what lies below was removed",
                        by="promotion",
                    )
                )
            if facts:
                control.commit(facts)
            return behind

        raised += [
            (group.name, *floor)
            for floor in retrying(group.store.runtime, attempt, f"a decision of group {group.name!r}")
        ]
    return tuple(raised)


def _free(state: QueueState) -> list[QueueFact]:
    """What makes a queue out of a replica: it has none itself, and nobody has taken over from it."""
    facts = [QueueFact("ReplicaRemoved", {"location": location}) for location in state.replicas]
    return [*facts, QueueFact("QueueFenced", {"location": None})] if state.fenced_by is not None else facts


def _already(store: Store, queue: str) -> ReplicaError:
    return ReplicaError(f"the replica of queue {queue!r} in {store.uri} is already promoted; use it", queue=queue)


def _insist(primary: Store, queue: str, error: PartqError) -> ReplicaError:
    return ReplicaError(
        f"the primary of queue {queue!r} in {primary.uri} is there, but cannot be fenced and copied ({error}). Repair it and promote "
        "again, stop all who use it, or pass force to go on with what the replica has",
        queue=queue,
    )
