"""Checks a queue together with its replicas, or its former primary: exactly one of them is in use, and the others follow it (S7)."""

from __future__ import annotations

import contextlib

from spark_partq.core.errors import PartqError
from spark_partq.core.queue.state import QueueState
from spark_partq.core.replica.facts import Phase
from spark_partq.core.replica.state import ReplicaState
from spark_partq.core.stored import MALFORMED
from spark_partq.storage.inspect.doctor.check import Check
from spark_partq.storage.inspect.doctor.findings import Diagnosis
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.replica.complete import incarnation_there
from spark_partq.storage.replica.following import following_problem, misplaced
from spark_partq.storage.replica.history import queue_history_problem
from spark_partq.storage.replica.rivals import Asking, taking_over
from spark_partq.storage.replica.table import ReplicaTable, replica_role, same_place
from spark_partq.storage.store import Store

_ONE = "stop all programs that use one of the two, copy to the other what only the first has, and use only the other"
_INTERRUPTED = "if its promotion was interrupted, promote it again there, or remove the replica to go on here (spark-partq replicate {0} --to {1} --remove --force)"
_GONE = "make it again (spark-partq replicate {0} --to {1}) once that place is there, or remove the replica (spark-partq replicate {0} --to {1} --remove)"
_LOST = "if that place is lost for good, remove the replica to go on here: spark-partq replicate {0} --to {1} --remove --force"
_ELSEWHERE = "use that name if it is in use; if not, remove the replica in {0} from the queue in {1}, and replicate to this place again"
_REMOVED = "to follow it again, run spark-partq replicate {0} --to {1}; or finish its removal: spark-partq replicate {0} --to {1} --remove"
_OTHER = "replicate to another place, and remove this replica: spark-partq replicate {0} --to {1} --remove"
_APART = "stop all programs that use the primary and promote the replica by force, or remove the replica and replicate to another place"


class ReplicaCheck(Check):
    """One queue, with those of its replicas, or its former primary, that can be reached with this store's credentials."""

    def __init__(self, store: Store, name: str, found: Diagnosis) -> None:
        super().__init__(store, f"queue {name}", found)
        self.name = name

    def check(self) -> None:
        """Check the queue. The queue's own check reports tables here that cannot be read."""
        with contextlib.suppress(PartqError, *MALFORMED):
            replica = ReplicaTable(self.store, self.name).refresh()
            if (
                replica is not None
                and replica.phase is Phase.FOLLOWING
                and not same_place(self.store, replica.location)
            ):
                self.warn(
                    f"this replica was made in {replica.location}: it was moved or copied, or the store has two names",
                    _ELSEWHERE.format(replica.location, replica.primary),
                )
            state = queue_state(self.store, self.name)
            if replica is not None and replica.phase is Phase.PROMOTING:
                self.warn("its promotion has not ended", f"promote it again (spark-partq promote {self.name})")
            if replica is not None and replica.promoted and state.fenced_by is None:
                self._check_old_primary(replica, state.incarnation)
            if state.usable and (replica is None or replica.promoted):
                self._check_replicas(state)

    def _check_old_primary(self, replica: ReplicaState, incarnation: str) -> None:
        """Check that the queue is not used where this replica was made from. The queue there may have taken over from this one since."""
        state = None
        with contextlib.suppress(
            PartqError, OSError, *MALFORMED
        ):  # a primary that cannot be reached from here takes no messages from here, either
            before = self.store.sibling(replica.primary)
            if replica_role(before, self.name) != "replica":  # it may follow this queue by now
                state = queue_state(before, self.name)
        if state is None or incarnation in {former.incarnation for former in state.former}:
            return
        if state.queue_id == replica.queue_id and state.usable and state.fenced_by is None:
            self.fault(
                f"there are two primaries: this replica was promoted, and the queue in {replica.primary} is there and not fenced",
                _ONE,
            )

    def _check_replicas(self, state: QueueState) -> None:
        asking = Asking(self.store.uri, state.incarnation)
        rivals = set()
        for rival in taking_over(self.store, self.name, state.queue_id, state.replicas, asking):
            rivals.add(rival.location)
            if state.fenced_by is None and rival.has_taken_over:
                self.fault(
                    f"there are two primaries: the replica in {rival.location} was promoted, and this queue is not fenced",
                    _ONE,
                )
            elif state.fenced_by is None:
                self.warn(
                    f"the replica in {rival.location} is being promoted, and this queue is not fenced",
                    _INTERRUPTED.format(self.name, rival.location),
                )
        for location in state.replicas:
            with contextlib.suppress(PartqError, OSError, *MALFORMED):
                target = self.store.sibling(location)
                replica = ReplicaTable(target, self.name).refresh()
                if replica is None and location == state.fenced_by:
                    self.warn(
                        f"it is fenced for its replica in {location}, which is gone", _LOST.format(self.name, location)
                    )
                elif replica is None and state.fenced_by is None:
                    self.warn(
                        f"its replica in {location} is gone, or has not been made yet",
                        _GONE.format(self.name, location),
                    )
                if replica is None:
                    continue
                if location == state.fenced_by:
                    self._check_takes_over(target, replica, state)
                if location in rivals:
                    continue
                stopped = following_problem(target, replica, self.store, state)
                if stopped and state.fenced_by is None:  # else it may follow the queue that took over
                    remedy = _REMOVED if replica.removed else _OTHER
                    self.warn(
                        f"its replica in {location} gets no messages: {stopped}", remedy.format(self.name, location)
                    )
                if stopped:
                    continue
                wrong = misplaced(target, replica, self.store, state)
                if wrong is not None:
                    self.warn(*wrong)
                problem = queue_history_problem(self.store, target, self.name)
                if problem:
                    self.fault(f"its replica has another history: {problem}", _APART)

    def _check_takes_over(self, target: Store, replica: ReplicaState, state: QueueState) -> None:
        """Check that the replica for which the queue is fenced has taken over: if not, the queue can be used nowhere."""
        if replica.queue_id != state.queue_id or replica.promoted:
            return
        # A replica that has taken over may follow another store by now.
        if replica.takes_over or incarnation_there(target, self.name) in (None, state.incarnation):
            self.warn(
                f"it is fenced for its replica in {target.uri}, which has not taken over: the queue can be used nowhere",
                _INTERRUPTED.format(self.name, target.uri),
            )
