"""A replica takes over from its primary (S7).

1. If the primary can be reached, it is fenced: a fact in its control table, and a mark in the log of each partition, which every process that
   appends meets. Then a last pass copies what is left.
2. ``Promoting`` ends the replication: from now on no pass begins. A commit in each table takes the number of the commit that a pass which is
   still under way would make. The first of a group's queues that is promoted closes the group's tables; after that the group uses them here.
3. The control table of what was the replica forgets the primary's replicas and its fence, and gets a new incarnation. ``Promoted`` opens it.

The primary's other replicas are asked before anything is changed, and again after ``Promoting``. If two replicas are promoted at once, each has
recorded that before it asks, so at least one finds the other. Between the two questions, each other replica is told of this one, as its copy may
be older and not name it.

Each step finds what was done of it before, so promoting again finishes a promotion that was interrupted. A process that slept meanwhile, and
goes on after the promotion has ended, changes nothing: each step is valid only on the state that the promotion saw, and takes back only the
fence that it found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

from spark_partq.core.errors import (
    NotAStoreError,
    NotPermittedError,
    PartqError,
    QueueNotFoundError,
    ReplicaError,
    StoreUnavailableError,
)
from spark_partq.core.names import check_name
from spark_partq.core.queue import replicas as decide_replicas
from spark_partq.core.queue.alter import require_features
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.state import QueueState
from spark_partq.core.queue.stuck import go_on_copying
from spark_partq.core.replica import decide as decide_replica
from spark_partq.core.replica.facts import Phase
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.group.handle import groups_of
from spark_partq.storage.log import DeltaLog
from spark_partq.storage.procedures.missing_stuck import copied_at_the_primary
from spark_partq.storage.procedures.other_replicas import (
    check_alone,
    check_is_no_copy,
    check_not_taken_over,
    make_known,
    other_replicas,
)
from spark_partq.storage.procedures.primary import fence, know_replica, unfence_partitions
from spark_partq.storage.procedures.promoted_groups import begin_groups_anew
from spark_partq.storage.procedures.promoted_positions import restate_positions
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.procedures.settled import settled_groups
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.queue.handle import features_of, open_queue, queue_state
from spark_partq.storage.queue.manifests import Manifests
from spark_partq.storage.queue.partition_table import FENCED, PartitionTable
from spark_partq.storage.replica.closing import close
from spark_partq.storage.replica.complete import is_whole
from spark_partq.storage.replica.rivals import patiently
from spark_partq.storage.replica.table import Options, ReplicaTable, replica_state
from spark_partq.storage.store import Store, group_folder, partition_folder, partition_numbers, queue_folder


@dataclass(frozen=True)
class Promotion:
    """What `promote` did.

    Attributes
    ----------
    queue : str
        The name of the queue.
    problem : str
        Why the primary was not fenced, or not copied to its end; empty if both were done.
    primary : str
        The store of the former primary.
    fenced : bool
        Whether producers and consumers of the former primary get `QueueFencedError`. If not, `problem` says why: the primary could not be
        reached, and may have had messages that were never copied. If it comes back, the next process that opens the queue there fences it, provided
        that this store can be reached.
    floors : tuple
        (group, partition, from, to): the group's position in the partition was moved from one offset to the other. The primary had removed the
        messages between, as acknowledged by all groups or as too old, and the replica did not know yet that they were acknowledged.
    """

    queue: str
    primary: str
    fenced: bool
    problem: str = ""
    floors: tuple[tuple[str, int, int, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return dict(json.loads(json.dumps(asdict(self))))


class _Primary(NamedTuple):
    """The outcome for the primary: whether it is fenced, what went wrong, and which replicas it knows."""

    fenced: bool
    problem: str = ""
    others: Collection[str] = ()


def promote(store: Store, queue: str, *, force: bool = False, options: Options | None = None) -> Promotion:
    """Make the replica in this store the queue that is used.

    If the primary can be reached, it is fenced, and a last pass copies what is left, so that nothing is lost. Promoting again finishes a
    promotion that was interrupted.

    Parameters
    ----------
    force : bool
        Go on although the primary exists but cannot be fenced or copied, or although the replica was removed and its primary is lost. Also
        cancel a promotion of another replica that has not ended. `force` does not overrule a replica that is promoted already, nor a primary
        that goes on.
    options : dict, optional
        Storage options of the primary.

    Raises
    ------
    ReplicaError
        If the queue is no replica, is promoted already, or has never been complete; if another replica takes over; or in the cases above.
    """
    store.check_exists()
    table = ReplicaTable(store, check_name("queue", queue))
    replica = table.refresh()
    if replica is None:
        raise ReplicaError(f"queue {queue!r} in {store.uri} is no replica, so it cannot be promoted", queue=queue)
    decide_replica.check_can_be_promoted(replica, force)
    check_is_no_copy(store, replica)
    if is_whole(store, replica):
        queue_state(store, queue)  # so decisions here are forced to the disk if the queue's messages are
    if force:
        check_not_taken_over(replica, store.sibling(replica.primary, options))
    others = {*replica.others, *other_replicas(store, replica)}
    check_alone(store, table, replica, others, force)
    fenced, problem, known = _take_over(store, table, replica, force, options)
    if not is_whole(store, replica):
        raise ReplicaError(
            f"the first pass of the replica of queue {queue!r} in {store.uri}, or the first since its primary was itself promoted, never ended, "
            f"and its primary {replica.primary} could not be {'copied to its end' if fenced else 'reached'} ({problem}): there is no whole copy that could be used{_way_back(replica) if fenced else ''}", queue=queue,
        )  # fmt: skip
    others |= {location for location in (*known, *other_replicas(store, replica)) if location != replica.location}
    incarnation = str(store.runtime.new_uuid())
    promoting = table.decide(lambda now: decide_replica.start_promotion(now, replica, incarnation, others, force))
    if promoting is None:
        raise ReplicaError(
            f"the replica of queue {queue!r} in {store.uri} was deleted while it was promoted", queue=queue
        )
    others.update(promoting.others)
    make_known(store, promoting, others)
    check_alone(store, table, promoting, others, force)
    _close(store, queue_state(store, queue), promoting)
    state = queue_state(store, queue)
    tables = _partitions(store, state)

    def goes_on() -> None:
        decide_replica.check_goes_on(table.refresh(), promoting)

    goes_on()  # so the tables were read before the promotion's end: a later fence was not copied
    copied_fence = max((table.recorded(FENCED) for table in tables), default=-1)
    firsts = {table.partition: table.first_offset for table in tables}
    ends = {table.partition: table.next_offset for table in tables}
    floors = begin_groups_anew(store, state, firsts, ends, goes_on)
    unfence_partitions(store, state, copied_fence)
    Manifests(store, queue, state.queue_id).make_folder()
    opened = open_queue(store, queue)
    restate_positions(opened, tables, goes_on)
    copied = copied_at_the_primary(opened)

    def become_primary(now: QueueState) -> Sequence[QueueFact]:
        facts = decide_replicas.become_primary(now, promoting.incarnation, ends, state.incarnation)
        return [*facts, *go_on_copying(now, *copied), *require_features(now, *features_of(tables))] if facts else facts

    open_control(store, queue).decide(become_primary)
    table.decide(lambda now: decide_replica.finish_promotion(now, promoting))
    return Promotion(queue, replica.primary, fenced, problem, floors)


# ---- the primary
def _take_over(
    store: Store, table: ReplicaTable, replica: ReplicaState, force: bool, options: Options | None
) -> _Primary:
    """Fence the primary and copy what is left, if it can be reached."""
    queue, primary = replica.queue, store.sibling(replica.primary, options)
    try:
        state = patiently(primary.runtime, lambda: queue_state(primary, queue))
    except PartqError as error:
        lost = isinstance(error, (NotAStoreError, StoreUnavailableError, QueueNotFoundError))
        if not force and (not lost or isinstance(error, NotPermittedError)):
            raise _insist(primary, queue, error) from error
        return _Primary(False, str(error))
    if state.queue_id != replica.queue_id:
        return _Primary(False, f"queue {queue!r} in {primary.uri} was deleted and created again")
    _check_is_no_replica(primary, queue)
    if replica.removed and replica.location in state.replicas and state.fenced_by != replica.location:
        raise ReplicaError(
            f"queue {queue!r} in {store.uri} was removed as a replica of {primary.uri}, which is there and goes on without it. Use the queue there, or "
            "replicate it again",
            queue=queue,
            location=replica.location,
        )
    others = [location for location in state.replicas if location != replica.location]
    check_alone(store, table, replica, others, force)
    try:
        if not force and replica.phase is not Phase.PROMOTING:
            # While the primary is still in use.
            _unless_begun(table, lambda: Replicator(primary, queue, store.uri, store.storage_options).check(state))
        if force and not replica.removed:  # the primary may have been restored to a state before the replica
            know_replica(primary, state, replica.location, replica.replica_id)
        fence(primary, state, replica.location, replica.replica_id)
    except ReplicaError:  # it goes on, or another replica has taken over: force cannot change that
        raise
    except PartqError as error:
        if not force:
            raise _insist(primary, queue, error) from error
        return _Primary(False, str(error), others)
    try:
        if replica.phase is not Phase.PROMOTING:
            # A reset that was announced before the fence is either copied or void.
            settled_groups(open_queue(primary, queue))
            last = Replicator(primary, queue, store.uri, store.storage_options, taking_over=True)
            if _unless_begun(table, last.sync):
                return _Primary(True, "", others)
        # The process that began this promotion may have taken the primary for lost. No pass begins any more.
        return _Primary(True, _left_behind(primary, store, queue), others)
    except PartqError as error:
        if not force:
            raise _insist(primary, queue, error, _way_back(replica)) from error
        return _Primary(True, str(error), others)


def _check_is_no_replica(primary: Store, queue: str) -> None:
    """Refuse before anything is changed there: a commit into a replica would end its following.

    Raises
    ------
    ReplicaError
    """
    found = replica_state(primary, queue)
    if found is not None and not found.promoted:
        raise ReplicaError(
            f"queue {queue!r} in {primary.uri}, the primary of this replica, is itself a replica of {found.primary}: either that name leads to "
            "another store on this machine, or the primary became a replica. Run this where the name leads to the primary, or use the queue in "
            f"{found.primary}",
            queue=queue,
            location=primary.uri,
        )


def _unless_begun(table: ReplicaTable, act: Callable[[], object]) -> bool:
    """Call `act`, whose errors count for nothing if another process has begun the promotion meanwhile. Returns False in that case."""
    try:
        act()
    except PartqError:
        now = table.refresh()
        if now is None or not now.takes_over:
            raise
        return False
    return True


def _left_behind(primary: Store, store: Store, queue: str) -> str:
    """Which messages of a fenced primary were not copied; empty if all were."""
    copied = {table.partition: table.next_offset for table in _partitions(store, queue_state(store, queue))}
    left = [
        f"partition {table.partition} from {copied.get(table.partition, 0)} to {table.next_offset - 1}"
        for table in _partitions(primary, queue_state(primary, queue))
        if table.next_offset > copied.get(table.partition, 0)
    ]
    if not left:
        return ""
    return (
        f"the promotion was interrupted when {primary.uri} could not be reached, and these messages there were not copied: {', '.join(left)}. "
        "Read them from that store as a DataFrame, and append them here before that store is deleted; they come behind newer messages of their keys"
    )


def _close(store: Store, state: QueueState, promoting: ReplicaState) -> None:
    """Close the copies: a pass that is still under way can write nothing more into them."""
    jumps: dict[str, set[int]] = {}
    for queue in store.named("queues"):
        replica = ReplicaTable(store, queue).refresh()
        for folder, version in replica.jumps.items() if replica is not None else ():
            jumps.setdefault(folder, set()).add(version)
    own = {state.queue_id: state.name}
    owners: dict[str, Mapping[str, str]] = {f"{queue_folder(state.name)}/control": own}
    owners |= {partition_folder(state.name, number): own for number in partition_numbers(store, state.name)}
    for group in groups_of(store, state):
        read = own | {id_: known.name for id_, known in group.state.queues.items()}
        owners |= {f"{group_folder(group.name)}/control": read, group.acks_folder: read}

    def end(folder: str) -> None:
        taking_over = partial(_taking_over, store, owners[folder])
        close(store, folder, promoting.incarnation, jumps.get(folder, ()), taking_over)

    store.map(end, [folder for folder in owners if DeltaLog(store, folder, folder).exists()])


def _taking_over(store: Store, queues: Mapping[str, str]) -> list[ReplicaState]:
    """Those of these queues (id to name) that were promoted here, or are being promoted."""
    replicas = [(id_, ReplicaTable(store, name).refresh()) for id_, name in queues.items()]
    return [replica for id_, replica in replicas if replica and replica.queue_id == id_ and replica.takes_over]


def _partitions(store: Store, state: QueueState) -> list[PartitionTable]:
    tables = [PartitionTable(store, state.name, number, state.schema) for number in state.all_partitions]
    for table in tables:
        table.refresh()
    return tables


def _way_back(replica: ReplicaState) -> str:
    """For the text of an error after which the queue takes messages nowhere."""
    return (
        f". The primary is fenced by now; to use it again: spark-partq --store {replica.primary} replicate {replica.queue} --to {replica.location} "
        "--remove --force"
    )


def _insist(primary: Store, queue: str, error: PartqError, after: str = "") -> ReplicaError:
    return ReplicaError(
        f"the primary of queue {queue!r} in {primary.uri} is there, but cannot be fenced and copied ({error}). Repair it and promote "
        f"again. Or stop all programs that use it, and then promote with force: the queue goes on with what the replica has{after}",
        queue=queue,
    )
