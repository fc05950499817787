"""A streaming query: what Spark's engine does around the planner, and an application that acknowledges by hand.

Spark writes the end of a micro-batch into its offset log before it runs it, and its number into its commit log after; on a restart it runs
the last one again, if that is not in the commit log, with the same start and end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.errors import PartqError
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.procedures.acknowledge import acknowledge
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.queue.messages import read_timed
from spark_partq.storage.queue.slices import Piece
from spark_partq.testing.simulation import relayed
from spark_partq.testing.simulation.barrier import Turn
from spark_partq.testing.simulation.dead import kills
from spark_partq.testing.simulation.notes import COLUMN, wrong_note
from spark_partq.testing.simulation.process import Process
from spark_partq.testing.simulation.results import URI, ResultsTable
from spark_partq.testing.simulation.setup import QuerySetup
from spark_partq.testing.simulation.stored import StoredQueue, wrong_time

if TYPE_CHECKING:
    from spark_partq.testing.simulation.run import Run

# How often a query looks for the next micro-batch, and when a silent member is given up.
TRIGGER_S, SESSION_TIMEOUT_MS = 0.5, 3_000
_NOTHING = StreamOffset("", "", {}, {}).to_json()


class CheckpointInUse(Exception):
    """Another process of the query has written this batch."""


@dataclass
class Checkpoint:
    """Spark's checkpoint of a query: it outlives the processes. `committed` is the last batch in the commit log."""

    offsets: list[dict[str, Any]] = field(default_factory=list)
    committed: int = -1

    def plan(self, batch: int, end: dict[str, Any]) -> None:
        if len(self.offsets) != batch or self.committed != batch - 1:
            raise CheckpointInUse
        self.offsets.append(end)

    def commit(self, batch: int) -> None:
        if self.committed != batch - 1:
            raise CheckpointInUse
        self.committed = batch


@dataclass
class Application:
    """Acknowledges a partition up to the first message of a sequence of which not everything has come (H5).

    Attributes
    ----------
    got : dict
        By producer and key the messages that have come, as their numbers among those of the key. It outlives the processes.
    """

    size: int
    got: dict[str, set[int]]
    waiting: dict[int, dict[int, tuple[str, int, int]]] = field(
        default_factory=dict
    )  # partition -> offset -> whose, epoch

    def take(self, number: int, offset: int, key: str, index: int, epoch: int) -> None:
        self.waiting.setdefault(number, {})[offset] = key, index, epoch

    def finished(self) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
        """Of each partition the next offset wanted, and the newest epoch under which something below was delivered."""
        offsets, epochs = dict[tuple[str, int], int](), dict[tuple[str, int], int]()
        for number, waiting in self.waiting.items():
            for offset in sorted(waiting):
                key, index, epoch = waiting[offset]
                last = (index // self.size + 1) * self.size
                if key and not all(i in self.got[key] for i in range(last - self.size, last)):
                    break
                offsets["q", number], epochs["q", number] = offset + 1, max(epoch, epochs.get(("q", number), 0))
        return offsets, epochs

    def forget(self, offsets: Iterable[tuple[tuple[str, int], int]]) -> None:
        for (_, number), end in offsets:
            self.waiting[number] = {o: v for o, v in self.waiting[number].items() if o >= end}


class Query:
    """One process of a query."""

    def __init__(self, run: Run, process: Process, setup: QuerySetup, checkpoint: Checkpoint) -> None:
        self._run, self._process, self._setup, self._checkpoint = run, process, setup, checkpoint
        self._uri = run.live
        self._store = process.store(self._uri)
        self._settings = ConsumerSettings(
            self._store,
            ("q",),
            flows=setup.flows,
            instance_id=setup.instance if setup.static else None,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            fail_on_data_loss=setup.fail_on_data_loss,
            assignors=setup.assignors,
            limits=Limits(max_rows=setup.max_rows),
            manual_acknowledgement=setup.sequence > 0,
            max_barrier_wait_ms=run.setup.max_barrier_wait_ms,
        )
        self._application = Application(setup.sequence, run.got.setdefault(setup.group, {}))
        self._schema = arrow_schema(queue_state(self._store, "q").schema)
        self._given: dict[
            int, tuple[int, int]
        ] = {}  # of each partition the epoch and the end of what this process was given
        self._turn = Turn("", 0)
        self._results = ResultsTable(process.store(URI), setup.group)
        if setup.relays:
            self._relayed = relayed.RelayedQueue(process.store(relayed.URI), setup.group)
        self._rows: dict[int, list[tuple[int, str]]] = {}  # of the running micro-batch
        before = StreamOffset.from_json(checkpoint.offsets[-1] if checkpoint.offsets else _NOTHING)
        self._planner = Planner(self._settings, setup.group, before.instance or f"{setup.instance}-x")
        self._planner.check_checkpoint(before)
        if setup.available_now:
            self._planner.stop_at_current_ends()

    def run(self) -> None:
        """Until the query is stopped."""
        checkpoint = self._checkpoint
        batch = len(checkpoint.offsets) - 1
        if batch > checkpoint.committed:
            self._begin_turn(replays=True)
            self._execute(batch)
        while not self._run.is_over(self._setup) and not self._run.is_paused(self._setup.group):
            done = checkpoint.offsets[-1] if checkpoint.offsets else _NOTHING
            limits = self._settings.limits
            self._begin_turn()
            end = self._planner.next(StreamOffset.from_json(done), limits)
            if end is not None:
                self._run.world.scheduler.point()
                checkpoint.plan(len(checkpoint.offsets), end.to_json())
                self._execute(len(checkpoint.offsets) - 1)
            self._acknowledge()
            if end is None and self._setup.available_now:
                break
            if end is None:
                self._process.sleep(TRIGGER_S)
        self._planner.leave()

    def _begin_turn(self, replays: bool = False) -> None:
        """From here on the planner looks at the tables; all that was given before lies in micro-batches that have ended."""
        changes = self._run.oracle.owners.changes
        self._turn = Turn("", changes, dict(self._given), replays and not self._setup.sequence)

    def _execute(self, batch: int) -> None:
        offsets = self._checkpoint.offsets
        start, end = (StreamOffset.from_json(offsets[i] if i >= 0 else _NOTHING) for i in (batch - 1, batch))
        self._rows = {}
        for pieces in self._planner.tasks(start, end):
            for piece in pieces:
                self._deliver(piece)
            if self._setup.work_s:
                self._process.sleep(self._process.random() * self._setup.work_s)
        if self._setup.writes:
            self._results.deliver(end, self._rows)
        if self._setup.relays:
            self._relayed.deliver(end, self._rows)
        self._run.world.scheduler.point()
        self._checkpoint.commit(batch)
        self._planner.membership.batch_finished(end)

    def _deliver(self, piece: Piece) -> None:
        part, oracle = piece.slice, self._run.oracle
        turn = replace(self._turn, incarnation=self._planner.membership.incarnation)
        for first, rows, times_us in read_timed(self._store, part, self._schema):
            there = oracle.queues.get((self._uri, "q"), StoredQueue())
            notes = rows.column(COLUMN).to_pylist() if COLUMN in rows.schema.names else [None] * rows.num_rows
            for i, (id_, note) in enumerate(zip(rows.column("id").to_pylist(), notes, strict=True)):
                oracle.fail(wrong_note(id_, note))
                offset = part.base_offset + first + i
                group, number = self._setup.group, part.partition
                oracle.fail(wrong_time(there, number, offset, id_, int(times_us[i])))
                oracle.delivered(self._uri, group, number, offset, id_, piece.redelivered, piece.epoch, turn)
                if not self._run.cured and kills(id_, self._run.setup.poison):
                    self._process.kill()
                    self._run.world.scheduler.point()
                self._given[number] = piece.epoch or 0, offset + 1
                self._rows.setdefault(number, []).append((offset, id_))
                key, index = self._run.sequence_of(oracle.sent[id_])
                self._application.got.setdefault(key, set()).add(index)  # also for those that acknowledge by hand
                if self._setup.sequence:
                    self._application.take(part.partition, offset, key, index, piece.epoch or 0)
        self._given[part.partition] = piece.epoch or 0, part.base_offset + part.last_row  # also what was deleted

    def _wait_not_for(self, messages: set[str]) -> None:
        """What is gone for the group never comes, so the sequences that it belongs to are as long as what is left."""
        sent = self._run.oracle.sent
        for id_ in messages & sent.keys():
            key, index = self._run.sequence_of(sent[id_])
            self._application.got.setdefault(key, set()).add(index)

    def _acknowledge(self) -> None:
        reader = self._run.oracle.readers.get(self._setup.group)
        if self._setup.sequence and reader is not None:
            self._wait_not_for(reader.excused | self._run.oracle.rewritten.gone)
        offsets, epochs = self._application.finished() if self._setup.sequence else ({}, {})
        if not offsets:
            return
        try:
            refused = acknowledge(self._store, self._setup.group, offsets, epochs)
        except PartqError as error:
            self._run.world.note(f"cannot acknowledge: {error}")
            return
        self._application.forget(offsets.items())
        if refused:
            self._run.world.note(f"refused: {refused}")
