"""Simulated processes that write into a queue and change its partition count, as generators that stop after every look and commit.

They keep to docs/PROTOCOL.md step by step; which rows go where and what may follow what are the core's own functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_partq.core.errors import CommitFailedError, ScalingInProgressError
from spark_partq.core.group.facts import Status
from spark_partq.core.queue import decide
from spark_partq.core.queue import partition_map as scaling
from spark_partq.core.queue.facts import Mode, QueueFact
from spark_partq.core.queue.partition_map import partition_numbers, target
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.log import Conflict
from spark_partq.testing.queues import Look, Message

if TYPE_CHECKING:
    from spark_partq.testing.resizing import Group, Town

Step = Iterator[None]
UNCERTAIN = (Conflict, CommitFailedError)
ANY_LOSS = 1 << 40  # messages that `delete` may lose here
PATIENCE = 40  # looks of a producer at a sealed queue before it opens the next map itself


@dataclass
class Source:
    """What a query reads and its checkpoint: the same batches again after a crash.

    Attributes
    ----------
    done : int
        Batches in the commit log.
    end : int or None
        It has so many batches; None is no end.
    """

    sink: str
    draw: Callable[[str, int], list[Message]]
    batches: list[list[Message]] = field(default_factory=list)
    done: int = 0
    end: int | None = None

    @property
    def exhausted(self) -> bool:
        return self.end is not None and self.done >= self.end

    def batch(self) -> list[Message]:
        while len(self.batches) <= self.done:
            self.batches.append(self.draw(self.sink, len(self.batches)))
        return self.batches[self.done]


class Actor:
    """Somebody who uses the queue. A crash forgets it."""

    def __init__(self, town: Town, name: str) -> None:
        self.town, self.name = town, name
        self.stopped = ""
        self.looked_at = 0  # step of its last look at the groups
        self.queue = town.queue.state
        self.thread = self.run()

    @property
    def alive(self) -> bool:
        return not self.stopped

    def run(self) -> Step:
        raise NotImplementedError

    def step(self) -> None:
        self.town.acting = self
        if next(self.thread, self) is self:
            self.stop("ends")

    def stop(self, why: str) -> None:
        if self.alive:
            self.stopped = why
            self.town.note(self.name, why)

    def look(self) -> Step:
        self.queue = self.town.queue.state
        yield

    def decide(self, facts: Callable[[QueueState], Sequence[QueueFact]]) -> Step:
        """Commit what follows from the newest look, which is looked at again when a race was lost."""
        while True:
            yield from self.look()
            decided = facts(self.queue)
            if not decided:
                return
            try:
                self.town.queue.commit(self.queue, decided)
            except UNCERTAIN:
                continue
            return

    # ---- steps 3 to 5 of a change of the count
    def open_generation(self) -> Step:
        """Make the tables of the new map, seal those of both, and put the new one in force, if a change is at that point."""
        yield from self.look()
        state = self.queue
        if state.scaling is None or not state.scaling.drained or state.scaling.opened:
            return
        yield from self.update_groups()
        old, new = (
            list(partition_numbers(state.partition_count)),
            list(partition_numbers(state.scaling.partition_count)),
        )
        cuts: dict[int, int] = {}
        for number in [*(n for n in new if n not in old), *old]:
            self.town.make(number)
            yield from self.seal(number, state.generation, cuts)
        remainder = None
        if state.scaling.mode == "delete":
            removed = state.not_named_by(state.scaling.partition_count)
            remainder = decide.Remainder(self.ends(removed), self.unread(removed))
            yield
        yield from self.decide(lambda now: decide.open_generation(now, state.generation, cuts, remainder))

    def update_groups(self) -> Step:
        """Before a partition can come back, every group knows that it was removed: else it goes on with what `delete` has lost."""
        for group in self.town.readers():
            while group.revision < self.queue.revision:
                group.update(self.queue)
                yield

    def seal(self, number: int, generation: int, cuts: dict[int, int]) -> Step:
        log = self.town.logs[number]
        while True:
            look = log.look()
            yield
            if look.sealed >= generation:
                cuts[number] = look.cuts[generation]
                return
            try:
                log.seal(look, generation, look.end)
                self.town.note(self.name, f"seals {number} at {look.end} under generation {generation}")
            except UNCERTAIN:
                continue

    def ends(self, partitions: Sequence[int]) -> dict[int, int]:
        return {n: len(self.town.logs[n].messages) for n in partitions}

    def unread(self, partitions: Sequence[int]) -> int:
        """Messages that not every group has acknowledged."""
        self.looked_at = self.town.time
        return sum(self.town.unread(n) for n in partitions)


class Producer(Actor):
    """One process of a query that writes."""

    def __init__(self, town: Town, name: str, source: Source) -> None:
        self.source = source
        super().__init__(town, name)

    def run(self) -> Step:
        while not self.source.exhausted:
            batch, messages = self.source.done, self.source.batch()
            yield
            yield from self.write(batch, messages)
            if not self.alive:
                return
            self.town.check_in(self, messages)
            yield
            if self.source.done != batch:
                self.stop("finds its checkpoint in use")
                return
            self.source.done += 1

    def write(self, batch: int, messages: Sequence[Message]) -> Step:
        """A batch is in, each row once."""
        begun = False
        while self.alive:
            yield from self.look()
            state = self.queue
            if not state.ingress and not begun:
                continue  # it is refused, and tries again
            looks: dict[int, Look] = {}
            for number in state.all_partitions:
                if number in self.town.logs:
                    looks[number] = self.town.logs[number].look()
                    yield
            last = max(
                (b for look in looks.values() for (sink, _), b in look.batches.items() if sink == self.source.sink),
                default=-1,
            )
            if last > batch:
                self.stop("finds its sink ahead")
                return
            written = self.written(looks, batch, state.generation)
            todo: dict[int, list[Message]] = {}
            for message in messages:
                if not scaling.is_in(message.hash, state.generations, written):
                    todo.setdefault(target(message.hash, state.partition_count), []).append(message)
            sealed: list[int] = []
            for number in self.town.shuffled(todo):
                yield from self.append(number, todo[number], batch, state.generation, looks, sealed)
                begun = begun or number not in sealed
            if not sealed:
                return
            yield from self.await_map(state.generation)

    def record(self, generation: int) -> tuple[str, int]:
        """Under which app id a batch is recorded."""
        return self.source.sink, generation

    def written(self, looks: Mapping[int, Look], batch: int, generation: int) -> dict[int, Collection[int]]:
        """By earlier generation, the partitions that record the batch."""
        return {
            g: {n for n, look in looks.items() if look.batches.get(self.record(g)) == batch} for g in range(generation)
        }

    def append(
        self,
        number: int,
        messages: Sequence[Message],
        batch: int,
        generation: int,
        looks: Mapping[int, Look],
        sealed: list[int],
    ) -> Step:
        log = self.town.logs[number]
        while True:
            look = log.look()
            yield
            if self.recorded(look, looks.get(number), generation) >= batch:
                return
            if not scaling.may_append(look.sealed, generation):
                sealed.append(number)
                return
            before = log.version
            try:
                log.append(look, messages, self.record(generation), batch, generation)
                return
            except UNCERTAIN:
                continue
            finally:
                if log.version != before:
                    self.town.appended(self, number, messages, generation)

    def recorded(self, look: Look, earlier: Look | None, generation: int) -> int:
        """The sink's last batch here: as of the look on which the commit is made."""
        return look.batches.get(self.record(generation), -1)

    def await_map(self, generation: int) -> Step:
        waited = 0
        while True:
            yield from self.look()
            if self.queue.generation > generation:
                return
            waited += 1
            if waited > PATIENCE:
                yield from self.open_generation()


class Scaler(Actor):
    """Somebody who changes the partition count, or goes on with what another has begun."""

    def __init__(self, town: Town, name: str, partitions: int | None, mode: Mode) -> None:
        self.partitions, self.mode = partitions, mode
        super().__init__(town, name)

    def run(self) -> Step:
        if self.partitions is not None:
            yield from self.decide(self.start)
        while True:
            yield from self.look()
            state = self.queue
            if state.scaling is not None and not state.scaling.drained:
                yield from self.drain(state)
            elif state.scaling is not None and not state.scaling.opened:
                yield from self.open_generation()
            elif state.removing:
                yield from self.remove(state)
            elif state.scaling is not None:
                yield from self.end()
            else:
                return

    def start(self, state: QueueState) -> Sequence[QueueFact]:
        if self.partitions is None or (state.scaling is None and self.partitions == state.partition_count):
            return []
        try:
            return decide.start_scaling(state, self.partitions, self.mode, confirm_lost=ANY_LOSS)
        except ScalingInProgressError:
            return []  # it goes on with the other change

    def drain(self, state: QueueState) -> Step:
        drained: list[bool] = []
        yield from self.settled(list(state.partition_numbers), drained)
        if drained:
            yield from self.decide(lambda now: decide.finish_draining(now, state))

    def remove(self, state: QueueState) -> Step:
        drained: list[bool] = []
        yield from self.settled(state.removing, drained)
        if drained:
            ends = self.ends(state.removing)
            yield from self.decide(lambda now: decide.remove_drained(now, state.generation, ends))

    def settled(self, partitions: Sequence[int], drained: list[bool]) -> Step:
        """Whether every group has settled these; with no group, whether nothing is stored there."""
        ends = self.ends(partitions)
        yield
        readers = self.town.readers()
        self.looked_at = self.town.time
        if not readers:
            if not any(ends.values()):
                drained.append(True)
            return
        for group in readers:
            group.raise_floors(partitions)
            yield
        if scaling.drained(ends, [group.settled for group in readers]):
            drained.append(True)
        yield

    def end(self) -> Step:
        """Ingress begins again when every group that has members is Ready with the new partitions."""
        readers: list[Group] = self.town.readers()
        yield
        state = self.queue
        for group in readers:
            known = group.control.state
            if known.members and (
                known.status is not Status.READY or known.queues["q0"].partition_numbers != state.partition_numbers
            ):
                return
        yield from self.decide(decide.end_scaling)
