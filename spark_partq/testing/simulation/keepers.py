"""Those who keep replicas of a queue, and of its dead-message queue: passes, promotions, and one that is removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_partq.core.errors import ReplicaError
from spark_partq.core.replica.state import ReplicaState
from spark_partq.storage.procedures import promote as procedure
from spark_partq.storage.procedures.remove_replica import remove_replica
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.queue.control import open_control
from spark_partq.storage.replica.table import ReplicaTable
from spark_partq.testing.simulation import dead, moves
from spark_partq.testing.simulation.process import Process
from spark_partq.testing.simulation.setup import COPY, OTHER_COPY, PRIMARY
from spark_partq.testing.simulation.unseen import unseen

if TYPE_CHECKING:
    from spark_partq.testing.simulation.run import Run

Body = Callable[[Process], None]


def replicate(run: Run, uri: str) -> Body:
    def body(process: Process) -> None:
        names = ("q", dead.QUEUE) if run.setup.dead_is_copied else ("q",)
        replicators = [Replicator(process.store(PRIMARY), name, uri) for name in names if not is_promoted(name)]
        for replicator in replicators:
            replicator.register()
        while run.live == PRIMARY:
            for replicator in replicators:
                if not is_promoted(replicator.queue):
                    replicator.sync()
            run.synced.add(uri)
            process.sleep(run.rng.choice((0.0, 0.0, 0.5)))  # what begins at a moment may meet a pass in its midst

    def is_promoted(name: str) -> bool:
        return name == dead.QUEUE and run.oracle.dead.live != PRIMARY

    return body


def _replica(run: Run, uri: str) -> ReplicaState | None:
    return ReplicaTable(unseen(run.world, uri), "q").refresh()


def promote(run: Run, uri: str) -> Body:
    def body(process: Process) -> None:
        while uri not in run.synced:  # before its first pass has ended there is nothing that could be used
            if run.live != PRIMARY or uri in run.removed:
                return
            process.sleep(0.5)
        if run.setup.primary_lost and run.setup.lost_after is None:
            run.world.unreachable.add(PRIMARY)
        while run.setup.primary_lost and PRIMARY not in run.world.unreachable:
            process.sleep(0.1)
        try:
            procedure.promote(process.store(uri), "q")
        except ReplicaError as error:
            mine, primary = _replica(run, uri), open_control(unseen(run.world, PRIMARY), "q").state
            if (
                mine is not None and mine.removed
            ) or uri not in primary.replicas:  # who removed it may not have reached it
                run.world.note(f"nobody insists: {error}")
                return
            if not any(found is not None and found.promoted for found in (_replica(run, copy) for copy in copies)):
                raise
        for copy in copies:
            found = _replica(run, copy)
            if run.live == PRIMARY and found is not None and found.promoted:
                moves.promoted(run.oracle, copy, lost=run.setup.primary_lost)

    copies = (COPY, OTHER_COPY)[: run.setup.replicas]
    return body


def promote_dead(run: Run) -> Body:
    """Promote the replica of the dead-message queue, before the queue's own, after it, or at once."""

    def body(process: Process) -> None:
        while COPY not in run.synced or (run.setup.primary_lost and PRIMARY not in run.world.unreachable):
            process.sleep(0.1)
        try:
            procedure.promote(process.store(COPY), dead.QUEUE)
        except ReplicaError:
            if run.oracle.dead.live == PRIMARY:
                raise

    return body


def remove(run: Run) -> Body:
    def body(process: Process) -> None:
        while COPY not in run.synced:
            process.sleep(0.5)
        try:
            remove_replica(process.store(PRIMARY), "q", COPY)
        except ReplicaError as error:
            mine = _replica(run, COPY)
            if mine is None or not (mine.takes_over or mine.removed):
                raise
            run.world.note(f"it is not removed: {error}")
            if mine.removed and COPY in open_control(unseen(run.world, PRIMARY), "q").state.replicas:
                raise
        run.removed.add(COPY)

    return body
