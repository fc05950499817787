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
    NotPermittedError,
    PartqError,
    QueueNotFoundError,
    ReplicaError,
    StoreUnavailableError,
)
from spark_partq.core.group.events import Promoted
from spark_partq.core.group.facts import Kind
from spark_partq.core.names import check_name
from spark_partq.core.queue import decide as decide_queue
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica import decide as decide_replica
from spark_partq.core.replica.facts import Phase
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.group.handle import groups_of
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.procedures.primary import fence, fence_partitions
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.queue.partition_table import PartitionTable
from spark_partq.storage.replica.table import Options, ReplicaTable
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
        Whether its producers and consumers get `QueueFencedError`. If not, `problem` says why: it could not be reached, and may have had messages
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
    replica = table.refresh()
    if replica is None:
        raise ReplicaError(f"queue {queue!r} in {store.uri} is no replica, so it cannot be promoted", queue=queue)
    decide_replica.check_can_be_promoted(replica, force)
    problem = _take_over(store, replica, force, options)
    if not DeltaLog(store, f"{queue_folder(queue)}/control", "the control table").exists():
        raise ReplicaError(
            f"the first pass of the replica of queue {queue!r} in {store.uri} never ended, and its primary {replica.primary} cannot "
            f"be reached ({problem}): there is nothing that could be used",
            queue=queue,
        )
    fenced = not problem
    table.decide(lambda state: decide_replica.start_promotion(state, force or fenced))
    state = queue_state(store, queue)
    _close(store, state)
    floors = _begin_groups_anew(store, state)
    fence_partitions(store, state, False)
    open_control(store, queue).decide(decide_queue.become_primary)
    table.decide(decide_replica.finish_promotion)
    return Promotion(queue, replica.primary, fenced, problem, floors)


def _take_over(store: Store, replica: ReplicaState, force: bool, options: Options | None) -> str:
    """Fence the primary and copy what is left; returns why not, if it cannot be reached."""
    queue, primary = replica.queue, store.sibling(replica.primary, options)
    try:
        state = _reached(primary, queue)
    except PartqError as error:
        lost = isinstance(error, (NotAStoreError, StoreUnavailableError, QueueNotFoundError))
        if not force and (not lost or isinstance(error, NotPermittedError)):
            raise _insist(primary, queue, error) from error
        return str(error)
    if state.queue_id != replica.queue_id:
        return f"queue {queue!r} in {primary.uri} was deleted and made anew"
    try:
        fence(primary, queue, replica.location)
        if replica.phase is not Phase.PROMOTING:
            Replicator(primary, queue, store.uri, store.storage_options, taking_over=True).sync()
    except PartqError as error:
        now = ReplicaTable(store, queue).refresh()
        if now is not None and now.takes_over:
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
    for queue in store.named("queues"):
        replica = ReplicaTable(store, queue).refresh()
        for folder, version in replica.jumps if replica is not None else ():
            jumps.setdefault(folder, set()).add(version)
    folders = [f"{queue_folder(state.name)}/control"]
    folders += [
        f"{queue_folder(state.name)}/partitions/{name}"
        for name in store.names(f"{queue_folder(state.name)}/partitions")
    ]
    for group in groups_of(store, state):
        folders += [f"{group_folder(group.name)}/control", group.acks_folder]
    folders = [folder for folder in folders if DeltaLog(store, folder, folder).exists()]

    def end(folder: str) -> None:
        close(store, folder, jumps.get(folder, ()))
        drop_ahead(store, folder)

    store.map(end, folders)


def _begin_groups_anew(store: Store, state: QueueState) -> tuple[tuple[str, int, int, int], ...]:
    """Unbind the primary's members; whatever is there may have been delivered after the last pass (H4).

    Positions go on to the first message where those below are gone: a pass copies removals before the floors that allowed them (Q8).
    """
    raised: list[tuple[str, int, int, int]] = []
    firsts, ends = {}, {}
    for number in state.all_partitions:
        table = PartitionTable(store, state.name, number, state.schema)
        table.refresh()
        firsts[number], ends[number] = table.first_offset, table.next_offset
    for group in groups_of(store, state):
        before = {number: group.position((state.queue_id, number)) for number in firsts}
        for fact in group.decide(lambda: [Promoted(state.queue_id, firsts, ends)], "promotion"):
            if fact.kind == Kind.FLOOR and fact.partition is not None and fact.offset is not None:
                raised.append((group.name, fact.partition, before[fact.partition] or 0, fact.offset))
    return tuple(raised)


def _insist(primary: Store, queue: str, error: PartqError) -> ReplicaError:
    return ReplicaError(
        f"the primary of queue {queue!r} in {primary.uri} is there, but cannot be fenced and copied ({error}). Repair it and promote "
        "again, stop all who use it, or pass force to go on with what the replica has",
        queue=queue,
    )
