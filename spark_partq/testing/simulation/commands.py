"""Those who administer a queue: they scale it, maintain it, keep and promote its replicas, and so on. Each is a process that is started
again when it dies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

from spark_partq.core.errors import (
    GroupNotFoundError,
    InvalidArgumentError,
    NotAStoreError,
    OffsetOutOfRangeError,
    QueueAlreadyExistsError,
    QueueNotFoundError,
    QueueNotReadyError,
    ScalingInProgressError,
)
from spark_partq.storage.procedures.alter import add_columns, alter_queue
from spark_partq.storage.procedures.copy_stuck import copy_stuck
from spark_partq.storage.procedures.delete import delete_group, delete_queue
from spark_partq.storage.procedures.ingress import set_ingress
from spark_partq.storage.procedures.maintain import maintain
from spark_partq.storage.procedures.reset_offsets import OffsetReset, reset_offsets
from spark_partq.storage.procedures.scale import scale
from spark_partq.storage.queue.handle import first_left, open_queue
from spark_partq.storage.store import Store
from spark_partq.testing.simulation import keepers, moves, redriving, relayed
from spark_partq.testing.simulation.backup import kept, put_back
from spark_partq.testing.simulation.deleting import delete_key
from spark_partq.testing.simulation.notes import COLUMN
from spark_partq.testing.simulation.process import Process
from spark_partq.testing.simulation.setup import COPY, OTHER_COPY, PRIMARY, Altering, Reset, Scaling
from spark_partq.testing.simulation.stored import StoredQueue

if TYPE_CHECKING:
    from spark_partq.testing.simulation.run import Run

Body = Callable[[Process], None]
_ANY_LOSS = 1_000_000
# A process of a group that is reset and that has not ended by then stands still.
_STANDS_STILL_S = 2.0
# Who is refused a count so often leaves it to another operator who insists on one.
_INSISTS = 5


class Once:
    """Something that is done when it has been done once."""

    def __init__(self, do: Body) -> None:
        self._do, self.done = do, False

    def __call__(self, process: Process) -> None:
        self._do(process)
        self.done = True

    def is_done(self) -> bool:
        return self.done


def start(run: Run) -> None:
    """Start all that the setup asks for."""
    s = run.setup
    wanted = list(s.scalings)
    for i, scaling in enumerate(s.scalings):
        _once(run, f"scale{i}", _scale(run, scaling, wanted), scaling.at_s)
    for i, altering in enumerate(s.alterings):
        _once(run, f"alter{i}", _alter(run, altering), altering.at_s)
    if s.column_added_s is not None:
        _once(run, "add-column", _add_column(run), s.column_added_s)
    if s.deleted_key is not None:
        key, at_s = s.deleted_key
        _once(run, "delete-messages", delete_key(run, key), at_s)
    if s.maintain_every_s is not None:
        run.supervise("maintain", _maintain(run, s.maintain_every_s), lambda: _has_maintained(run), required=False)
    for uri in (COPY, OTHER_COPY)[: s.replicas]:
        is_over = lambda uri=uri: run.ending or run.live != PRIMARY or uri in run.removed  # noqa: E731
        run.supervise(f"replicate-{uri[6:]}", keepers.replicate(run, uri), is_over, required=False)
    if s.promoted_s is not None:
        _once(run, "promote", keepers.promote(run, COPY), s.promoted_s)
    if s.dead_promoted_s is not None:
        _once(run, "promote-dead", keepers.promote_dead(run), s.dead_promoted_s)
    if s.other_promoted_s is not None:
        _once(run, "promote-other", keepers.promote(run, OTHER_COPY), s.other_promoted_s)
    if s.removed_s is not None:
        _once(run, "remove", keepers.remove(run), s.removed_s)
    if s.relayed_scaled_s is not None:
        _once(run, "scale-relayed", _scale_relayed, s.relayed_scaled_s)
    if s.maintain_every_s is not None and any(query.relays for query in s.queries):
        run.supervise(
            "maintain-relayed", _maintain_relayed(run, s.maintain_every_s), lambda: run.ending, required=False
        )
    if s.put_back_s is not None:
        _once(run, "put-back", _put_back(run, *s.put_back_s), s.put_back_s[0])
    if s.ingress_s is not None:
        _once(run, "ingress", _ingress(run, *s.ingress_s), s.ingress_s[0])
    if s.delete_group_s is not None:
        group, at_s = s.delete_group_s
        _once(run, "delete-group", _delete_group(run, group), at_s)
    if s.reset is not None:
        _once(run, "reset", _reset(run, s.reset), s.reset.at_s)
    if s.redriven:
        _once(run, "redrive", redriving.put_back(run), 0.0)
    if s.recreated_s is not None:
        _once(run, "anew", _create_again(run), s.recreated_s)
    copies_s = s.copy_stuck_s
    if s.partitions == 0 or any(scaling.partitions == 0 for scaling in s.scalings):
        for number in range(s.copiers):
            run.supervise(
                f"copy-stuck-{number + 1}" if number else "copy-stuck",
                _copy_stuck(run),
                lambda: run.ending,
                s.chaos_s if copies_s is None else copies_s,
                required=False,
            )


def _once(run: Run, name: str, do: Body, at_s: float) -> None:
    once = Once(do)
    run.supervise(name, once, once.is_done, at_s)


def _scale(run: Run, scaling: Scaling, wanted: list[Scaling]) -> Body:
    """Scale to one count; of several who insist on theirs, which `wanted` has, all but the last give up, as the error asks them to agree."""
    asked: list[str] = []
    refused: list[str] = []

    def body(process: Process) -> None:
        asked.append(run.live)
        if run.live != asked[0] and not scaling.repeated:
            run.world.note("nobody asks again for what was asked for elsewhere")
            wanted.remove(scaling)
            return
        queue = open_queue(process.store(run.live), "q")
        try:
            scale(queue, scaling.partitions, scaling.mode, _ANY_LOSS if scaling.mode == "delete" else None)
        except InvalidArgumentError as error:  # it has that count already
            run.world.note(str(error))
        except ScalingInProgressError as error:
            refused.append(str(error))
            if len(refused) < _INSISTS or scaling == wanted[-1]:
                raise
            run.world.note(f"left to who asked for another count: {error}")
        wanted.remove(scaling)

    return body


def _alter(run: Run, altering: Altering) -> Body:
    def body(process: Process) -> None:
        alter_queue(open_queue(process.store(run.live), "q"), dict(altering.settings))

    return body


def _add_column(run: Run) -> Body:
    def body(process: Process) -> None:
        add_columns(open_queue(process.store(run.live), "q"), f"{COLUMN} string")

    return body


def _has_maintained(run: Run) -> bool:
    """At the end nothing becomes too old: what waits for ever would go away by that."""
    return run.ending or (run.calm and run.setup.removes_unread)


def _maintain(run: Run, every_s: float) -> Body:
    def body(process: Process) -> None:
        while not _has_maintained(run):
            maintain(open_queue(process.store(run.live), "q"))
            process.sleep(every_s)

    return body


def _scale_relayed(process: Process) -> None:
    with contextlib.suppress(InvalidArgumentError):  # it has that count already
        scale(open_queue(process.store(relayed.URI), relayed.QUEUE), 3)


def _maintain_relayed(run: Run, every_s: float) -> Body:
    def body(process: Process) -> None:
        while not run.ending:
            maintain(open_queue(process.store(relayed.URI), relayed.QUEUE))
            process.sleep(every_s)

    return body


def _put_back(run: Run, _: float, back_s: float) -> Body:
    """Somebody copies the primary's files away at one moment, and puts them back at another, with its producers stopped."""
    files = run.world.files(PRIMARY)
    before: dict[str, bytes] = {}
    queues: list[dict[tuple[str, str], StoredQueue]] = []

    def body(process: Process) -> None:
        process.fallible = False
        if not before:
            before.update(kept(files))
            queues.append({key: deepcopy(q) for key, q in run.oracle.queues.items() if key[0] == PRIMARY})
        process.sleep(max(0.0, back_s - run.scheduler.now_s))
        run.kill_all(process, but="replicate" if _replicators_only_read(run) else None)
        put_back(files, before)
        moves.put_back(run.oracle, queues[0])
        run.world.deletions += 1
        run.world.changes += 1
        run.world.note(f"{PRIMARY} is put back")

    return body


def _replicators_only_read(run: Run) -> bool:
    """Whether no pass has still to tell the primary of its replica."""
    state = run.oracle.queues[PRIMARY, "q"].state
    return state is not None and len(state.replicas) == run.setup.replicas


def _ingress(run: Run, _: float, enabled_s: float) -> Body:
    def body(process: Process) -> None:
        set_ingress(open_queue(process.store(run.live), "q"), False)
        process.sleep(max(0.0, enabled_s - run.scheduler.now_s))
        set_ingress(open_queue(process.store(run.live), "q"), True)

    return body


def _delete_group(run: Run, group: str) -> Body:
    """While its queries stop, one of them may attach the group again; so it is deleted again once all have stopped, and after a promotion."""

    def delete(process: Process) -> None:
        try:
            delete_group(process.store(run.live), group)
        except GroupNotFoundError as error:
            run.world.note(str(error))

    def body(process: Process) -> None:
        delete(process)
        while run.is_running(group):
            process.sleep(0.5)
        delete(process)
        while run.setup.primary_lost and run.live == PRIMARY:
            process.sleep(0.5)
        if run.live != PRIMARY:  # the copy may not know of it
            delete(process)

    return body


def _reset(run: Run, reset: Reset) -> Body:
    """Its queries stop when it begins; a process of theirs that stands still does not, and finds the group reset when it goes on."""

    def to(store: Store) -> object:
        if reset.to != "some":
            return reset.to
        queue = open_queue(store, "q")
        queue.refresh()
        some = [table for table in queue.partitions if run.rng.random() < 0.7] or queue.partitions[:1]
        return {"q": {t.partition: run.rng.randint(first_left(queue, t), t.next_offset) for t in some}}

    def body(process: Process) -> None:
        while run.is_running(reset.group):
            process.sleep(0.2)
            if run.scheduler.now_s > reset.at_s + _STANDS_STILL_S:
                break
        store = process.store(run.live)
        wanted = to(store)
        try:
            found = reset_offsets(store, reset.group, wanted)
            run.oracle.fail(
                _misplaced(found, wanted, removes=run.setup.maintain_every_s is not None or bool(run.setup.scalings))
            )
        except (GroupNotFoundError, OffsetOutOfRangeError) as error:
            run.world.note(str(error))
        run.reset_is_done = True

    return body


def _misplaced(found: Sequence[OffsetReset], wanted: object, removes: bool) -> str:
    """Which partition was set to another offset than it was to be; or nothing.

    Parameters
    ----------
    removes : bool
        Messages may be removed, so that nobody else knows which is the first.
    """
    for reset in found:
        expected = wanted["q"][reset.partition] if isinstance(wanted, dict) else 0
        if reset.new != expected and (isinstance(wanted, dict) or (wanted == "earliest" and not removes)):
            return f"RESET: partition {reset.partition} was set to {reset.new}, and was to be to {expected}"
    return ""


def _create_again(run: Run) -> Body:
    """Delete the queue and create it again, each until that has been done; somebody who reads it keeps the two apart."""
    deleted = [False]

    def body(process: Process) -> None:
        store = process.store(run.live)
        if not deleted[0]:
            with contextlib.suppress(QueueNotFoundError, NotAStoreError):  # an empty place is none
                delete_queue(store, "q")
            deleted[0] = True
        try:
            with contextlib.suppress(QueueAlreadyExistsError):
                run.create(store)
        except QueueNotReadyError:
            # Somebody who slept has put something into its log since: it is to be deleted again, as the error says.
            deleted[0] = False
            raise
        run.is_recreated = True

    return body


def _copy_stuck(run: Run) -> Body:
    def body(process: Process) -> None:
        while not run.ending:
            queue = open_queue(process.store(run.live), "q")
            if queue.state.stuck:
                copy_stuck(queue)
            process.sleep(2.0)

    return body
