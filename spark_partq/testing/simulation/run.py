"""One run of the simulation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

from spark_partq.core.errors import CheckpointMismatchError, CorruptTableError, SinkAheadError
from spark_partq.core.group import decide as group_core
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.files import Files
from spark_partq.storage.files.memory import MemoryFiles
from spark_partq.storage.group import handle as group_handle
from spark_partq.storage.procedures.create import create_queue
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store
from spark_partq.testing.simulation import commands, dead, ending, relayed, results
from spark_partq.testing.simulation.decoding import decoding_once
from spark_partq.testing.simulation.job import Job
from spark_partq.testing.simulation.oracle import Oracle
from spark_partq.testing.simulation.process import Loss, Process, World
from spark_partq.testing.simulation.producing import Source, files_of, lives_ms
from spark_partq.testing.simulation.query import Checkpoint, CheckpointInUse, Query
from spark_partq.testing.simulation.scheduler import Killed, Scheduler
from spark_partq.testing.simulation.setup import COPY, NONE, PRIMARY, ProducerSetup, QuerySetup, Setup
from spark_partq.testing.simulation.stored import Message, Violation
from spark_partq.testing.simulation.unseen import Watch, unseen

# How long everything may take to come to its end once nothing goes wrong any more, and how many operations a run may have.
CALM_S, STEPS = 90.0, 150_000
# How fast the clock of a process may go.
DRIFTS = 0.8, 1.0, 1.25


@dataclass
class Outcome:
    """How a run went; `problem` is empty if well."""

    problem: str
    trace: list[tuple[float, str, str]]
    operations: int
    injected: int


class Run:
    """A world, set up as a seed says."""

    def __init__(self, setup: Setup, places: Callable[[World, str], Files] | None = None) -> None:
        self.setup, self.rng = setup, random.Random(setup.seed)
        self.scheduler = Scheduler(self.rng, set(setup.drops))
        place = places or (lambda world, _: MemoryFiles(world.time_ns))
        self.world = World(self.rng, self.scheduler, lambda uri: place(self.world, uri), setup.local)
        self.oracle = Oracle(self.world)
        self.world.oracle = self.oracle
        self.oracle.retention = setup.removes_unread
        self.oracle.expires_ms = None if setup.max_bytes is not None else setup.expires_ms
        self.oracle.batches.may_discard = setup.discards
        self.oracle.dead.holds = setup.holds
        self.oracle.dead.apart = setup.may_expire and len({query.group for query in setup.queries}) > 1
        if setup.may_expire and not (setup.skew or setup.faults.jump):  # else a clock may be ahead
            self.oracle.dead.too_old = self._too_old
        self.oracle.manual = any(query.sequence for query in setup.queries)
        self.oracle.alternates = any(query.alternates for query in setup.queries)
        fastest = max(DRIFTS) if setup.skew else 1.0
        self.oracle.owners.most_s = setup.max_barrier_wait_ms / 1000 / fastest
        self.calm = False
        self.is_recreated = setup.recreated_s is None  # the queue that is used to the end is there
        self.ending = False
        self.reset_is_done = False
        self.cured = False  # no message kills any more
        self.jobs: list[Job] = []
        self.synced: set[str] = set()  # replicas that were complete once
        self.removed: set[str] = set()  # replicas that the primary has removed
        self.got: dict[str, dict[str, set[int]]] = {}  # what the applications of each group remember
        self._indexes: dict[str, tuple[str, int]] = {}  # of a message: producer and key, its number among those
        self._watch = Watch(self.world)
        self._operator = Process(self.world, "operator", fallible=False)
        self._processes: list[Process] = [self._operator]

    @property
    def live(self) -> str:
        """Where users work."""
        return self.oracle.live

    # ---- what runs
    def execute(self) -> Outcome:
        """From beginning to end."""
        problem = ""
        with self._decisions_watched():
            try:
                self._begin()
                problem = self._go_on()
            finally:
                for process in self._processes:
                    process.dead = True
                self.scheduler.notify()
                self.scheduler.run(lambda: True, 0.0, STEPS)
        return Outcome(problem, self.world.trace, self.world.operations, self.world.injected)

    def _begin(self) -> None:
        s = self.setup
        self.create(unseen(self.world, PRIMARY))
        results.create(unseen(self.world, results.URI))
        if any(query.relays for query in s.queries):
            relayed.create(unseen(self.world, relayed.URI))
        self.world.durable = s.durable
        self.world.faults, self.world.blows = s.faults, {blow: blow.after for blow in s.blows}
        for i, producer in enumerate(s.producers):
            source = Source(producer, self._batches(producer, i))
            for twin in range(producer.twins):
                self.supervise(f"{producer.query}{'ab'[twin]}", self._produce(source), source.is_exhausted)
        for query in s.queries:
            self._start_query(query)
        if s.lost_after is not None and s.promoted_s is not None:
            self.world.loss = Loss(PRIMARY, s.promoted_s, s.lost_after, lambda: COPY in self.synced)
        commands.start(self)

    def create(self, store: Store) -> None:
        """Make the queue."""
        s = self.setup
        create_queue(
            store, "q", "k string, id string, ttl long", "k", s.partitions, rebalance_delay_ms=s.rebalance_delay_ms,
            max_handoff_time_ms=s.max_handoff_time_ms, retention_ms=s.retention_ms, max_bytes=s.max_bytes, min_retention_ms=s.min_retention_ms, segment_ms=s.segment_ms, durability="disk" if s.durable else "process",
            reject_to_sender="off" if s.discards else "including_when_shutdown", max_deliveries=s.max_deliveries,
            message_ttl_ms=s.message_ttl_ms, message_ttl_column="ttl" if s.lifetimes else None, expired_messages="dead_letter" if s.max_deliveries else "discard",
            dead_letter_queue=dead.QUEUE if s.max_deliveries else None, dead_letter_order="hold" if s.holds else "skip",
        )  # fmt: skip

    def _go_on(self) -> str:
        s = self.setup
        self.scheduler.run(
            lambda: bool(self.oracle.violations) or self.scheduler.now_s >= s.chaos_s, s.chaos_s + 1.0, STEPS
        )
        if not self.oracle.violations:
            self.calm, self.world.faults = True, NONE
            # Dead messages are put back in calm, and whoever does that may die of it.
            self.world.blows = {blow: left for blow, left in self.world.blows.items() if blow.job == "redrive"}
            self.world.note("nothing goes wrong from here on")
            ended = self.scheduler.run(self._converged, CALM_S, STEPS)
            if not ended and not self.oracle.violations:
                return f"STUCK: {self.scheduler.stopped}: {self._what_waits()}"
        if self.oracle.violations:
            return self.oracle.violations[0]
        try:
            self._check_end()
        except Violation as violation:
            return str(violation)
        return ""

    def supervise(
        self,
        name: str,
        body: Callable[[Process], None],
        is_done: Callable[[], bool],
        begins_s: float = 0.0,
        required: bool = True,
    ) -> Job:
        """Start a process that does this, and again whenever it has ended before it is done."""
        job = Job(name, is_done, required)
        self.jobs.append(job)

        def operate() -> None:
            self._operator.sleep(begins_s)
            while not is_done() and not self.ending:
                job.starts += 1
                process = Process(self.world, f"{name}#{job.starts}")
                if self.setup.skew:
                    process.drift = self.rng.choice(DRIFTS)
                self._processes.append(process)
                job.running = True
                error = self._run_to_its_end(process, body)
                job.running = False
                if error is not None and not isinstance(error, Killed):
                    self.world.note(f"{name}: {type(error).__name__}: {error}")
                    job.failed(error)
                    if self.setup.recreated_s is not None and isinstance(error, CorruptTableError) and job.required:
                        job.unexpected = f"CORRUPT: {name}: {error}"
                    if job.unexpected:
                        self.oracle.violations.append(job.unexpected)
                # A supervisor starts what failed again at once. What has done its work, as an AvailableNow query, is started by a schedule:
                # members that come and go without a pause would let nobody finish a micro-batch where handoffs are forced.
                self._operator.sleep(self.rng.choice((0.0, 0.5, 2.0) if error is not None else (2.0, 5.0, 10.0)))

        self._operator.run(f"of {name}", operate)
        return job

    def kill_all(self, caller: Process, but: str | None) -> None:
        """Stop every process but the caller, and those of jobs whose name begins with `but`."""
        for process in self._processes:
            spared = process in (caller, self._operator) or (but is not None and process.job.startswith(but))
            if not spared and not process.dead:
                process.kill()

    def _run_to_its_end(self, process: Process, body: Callable[[Process], None]) -> BaseException | None:
        actor = process.run("", lambda: body(process))
        self.scheduler.wait(None, lambda: actor.done)
        process.dead = True
        self.scheduler.notify()
        return actor.error

    # ---- producers
    def _batches(self, setup: ProducerSetup, n: int) -> list[list[Message]]:
        rng = random.Random(f"{self.setup.seed} {setup.query}")
        counts: dict[str, int] = {}
        batches: list[list[Message]] = []
        number = 0

        def message(key: str | None) -> Message:
            nonlocal number
            found = Message(f"p{n}", number, key)
            number += 1
            if key is not None:
                self._indexes[found.id] = f"p{n} {key}", counts.get(key, 0)
                counts[key] = counts.get(key, 0) + 1
            return found

        for _ in range(setup.batches):
            keys = [
                f"k{rng.randrange(self.setup.keys)}" if rng.random() < 0.9 else None for _ in range(rng.randint(1, 6))
            ]
            batches.append([message(key) for key in keys])
        size = math.lcm(*(query.sequence or 1 for query in self.setup.queries))
        if size > 1:  # every sequence is completed
            batches.append(
                [message(key) for key in sorted(counts) for _ in range(-counts[key] % size)] or [message("k0")]
            )
            batches.append([message(key) for key in sorted(counts) for _ in range(-counts[key] % size)])
        return [batch for batch in batches if batch]

    def _computed(self, source: Source, number: int) -> list[Message]:
        """The rows of a batch, as a producer computes them now."""
        key, batch, batches = (source.setup.query, number), source.batches[number], self.oracle.batches
        attempt = batches.attempts(key)
        if attempt and not source.setup.recomputes:
            return batch
        computed = [replace(message, attempt=attempt) for message in batch]
        for before, message in zip(batch, computed, strict=True):
            self.oracle.sent[message.id] = message
            if before.id in self._indexes:
                self._indexes[message.id] = self._indexes[before.id]
        batches.tried(key, [message.id for message in computed])
        return computed

    def sequence_of(self, message: Message) -> tuple[str, int]:
        """Producer and key of a message, and its number among those; an empty name if it has no key."""
        return self._indexes.get(message.id, ("", 0))

    def _produce(self, source: Source) -> Callable[[Process], None]:
        def body(process: Process) -> None:
            uri = self.live
            queue = open_queue(process.store(uri), "q")
            self.oracle.lives.open(queue.state.queue_id, {message.producer for message in source.batches[0]})
            producer = Producer(queue)
            while not source.is_exhausted():
                number = source.done
                producer.refresh()
                record = BatchRecord(source.setup.sink, number, source.setup.query)
                try:
                    producer.write(
                        record,
                        lambda number=number: files_of(queue, self._computed(source, number)),  # type: ignore[misc]
                        lambda number=number: len(self._computed(source, number)),  # type: ignore[misc]
                    )
                except SinkAheadError:
                    if source.done > number:
                        continue  # its twin has gone on
                    shared = [p for p in self.setup.producers if p.sink == source.setup.sink]
                    if len(shared) > 1:
                        self.world.note(f"{source.setup.query} is refused, as another query has its sink's id")
                        source.refused = True
                        return
                    raise
                self.world.scheduler.point()
                self.oracle.accepted(uri, source.setup.query, number)
                source.done = max(source.done, number + 1)
                process.sleep(source.setup.pause_s)

        return body

    # ---- queries
    def _start_query(self, setup: QuerySetup) -> None:
        checkpoints: dict[str, Checkpoint] = {}

        def body(process: Process) -> None:
            if self.is_paused(setup.group):
                return
            before = checkpoints.get(PRIMARY)
            if self.setup.old_checkpoints and self._where not in checkpoints and before is not None and before.offsets:
                try:
                    Query(self, process, setup, before)
                except CheckpointMismatchError as error:
                    self.world.note(f"{setup.instance} is refused: {error}")
                else:
                    self.oracle.copies.resumed(setup.group)
            by_batch = setup.alternates and self.rng.random() < 0.5
            now = replace(setup, sequence=0) if by_batch else setup
            if setup.renamed:
                now = replace(now, static=True, instance=f"{setup.instance}{self.rng.choice(('', '-again'))}")
            Query(self, process, now, checkpoints.setdefault(self._where, Checkpoint())).run()

        job = self.supervise(setup.instance, body, lambda: self.is_over(setup), setup.begins_s, required=False)
        job.expected = (CheckpointInUse,)

    @property
    def _where(self) -> str:
        """Where users work; whoever opens a queue that was created again begins with a new checkpoint."""
        state = self.oracle.queues[self.live, "q"].state if (self.live, "q") in self.oracle.queues else None
        return self.live if self.setup.recreated_s is None or state is None else f"{self.live} {state.queue_id}"

    def is_running(self, group: str) -> bool:
        """Whether a process of one of the group's queries runs."""
        instances = [query.instance for query in self.setup.queries if query.group == group]
        return any(job.running for job in self.jobs if job.name in instances)

    def is_paused(self, group: str) -> bool:
        """Whether the queries of the group are not to run, as its positions are being set."""
        reset = self.setup.reset
        asked = reset is not None and reset.group == group and self.scheduler.now_s >= reset.at_s
        return asked and not self.reset_is_done and not self.ending

    def is_over(self, setup: QuerySetup) -> bool:
        """Whether a query is to stop."""
        deleted = self.setup.delete_group_s
        ends = [setup.ends_s, deleted[1] if deleted is not None and deleted[0] == setup.group else None]
        return self.ending or any(end is not None and self.scheduler.now_s >= end for end in ends)

    @property
    def lasting_groups(self) -> list[str]:
        """The groups that read to the end."""
        deleted = self.setup.delete_group_s
        return sorted(
            {q.group for q in self.setup.queries if q.ends_s is None and (deleted is None or deleted[0] != q.group)}
        )

    # ---- the end
    @property
    def _given_up(self) -> bool:
        """Whether a change of the count may have begun with which nobody goes on."""
        return self.live != PRIMARY and not all(scaling.repeated for scaling in self.setup.scalings)

    def _converged(self) -> bool:
        """Everything has come to its end. Looked at when nobody can go on at this moment."""
        if self.oracle.violations:
            return True
        if not self.is_recreated or any(job.required and not job.is_done() for job in self.jobs):
            return False
        return self._watch.is_at_end(self.live, self.lasting_groups, self._given_up)

    def _what_waits(self) -> str:
        """For people, in a run that does not end."""
        waiting = [job.name for job in self.jobs if job.required and not job.is_done()]
        last = {job.name: job.last_error for job in self.jobs if job.last_error and not job.is_done()}
        told = (
            self._watch.told(self.live, self.lasting_groups) if self.is_recreated else "the queue is not created again"
        )
        unfinished = f"unfinished: {', '.join(waiting) or 'nothing'}"
        return "; ".join([told, unfinished, *(f"{name}: {error}" for name, error in last.items())])

    def _check_end(self) -> None:
        ending.check_stored(self.oracle, self.live, lost=self.setup.primary_lost)
        if self.setup.recreated_s is not None:
            ending.check_strays(self.oracle, self.live, self.world.files(self.live))
        if not (self.setup.primary_lost or self.setup.put_back_s):
            wanted = dict(setting for altering in self.setup.alterings for setting in altering.settings)
            ending.check_settings(self.oracle, self.live, self.lasting_groups, wanted)
        ending.check_discarded(self.oracle, open_queue(unseen(self.world, self.live), "q").control.discarded)
        for group in self.lasting_groups:
            ending.check_read(self.oracle, self.live, group)
            if not self.setup.may_expire:
                ending.check_redriven(self.oracle, group)
            self._check_written(group, [query for query in self.setup.queries if query.group == group])

    def _check_written(self, group: str, queries: list[QuerySetup]) -> None:
        if all(query.writes for query in queries):
            ending.check_results(self.oracle, self.live, group, self.world.results.of(group))
        if all(query.relays for query in queries):
            ending.check_results(self.oracle, self.live, group, self.world.relayed.of(group))

    def _too_old(self, id_: str, enqueued_ms: int) -> bool:
        return self.world.time_ns() // 1_000_000 > enqueued_ms + lives_ms(self.setup, id_)

    @contextmanager
    def _decisions_watched(self) -> Iterator[None]:
        """Every decision about a group is checked before it is committed."""
        original = group_core.decide

        def decide(state, acks, events, by="", **more):  # type: ignore[no-untyped-def]
            facts = original(state, acks, events, by, **more)
            self.oracle.decided(state, acks, facts, events)
            return facts

        with mock.patch(f"{group_handle.__name__}.decide", decide), decoding_once():
            yield
