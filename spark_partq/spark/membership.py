"""A query's membership in its group: joining, heartbeats, deciding, releasing and leaving.

Two threads of the planner process share it. Spark's own thread plans micro-batches; a daemon beats, decides what is due, and
releases what has drained while a micro-batch is long. Whatever plans or releases holds `lock` from its look to its commit, so nothing
is planned on a look that is older than a release. The daemon beats and decides on a view of its own, without the lock.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from spark_partq.core.delivery.member import (
    Handed,
    ack_rows,
    by_flow,
    finished,
    owned,
    standing,
)
from spark_partq.core.delivery.offsets import Range, StreamOffset
from spark_partq.core.errors import AssignorError, FencedError, ListenerError, UnknownAssignorError
from spark_partq.core.group.choice import choose
from spark_partq.core.group.events import Event, Join, Leave, LoadsMeasured
from spark_partq.core.group.observer import Observer
from spark_partq.core.group.state import GroupState, Held, Member, PartitionId, Status
from spark_partq.spark.channel import Message, PlannerEnd
from spark_partq.spark.loads import LoadMeter
from spark_partq.spark.subscription import Subscription, by_id
from spark_partq.storage.group import assignors
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.drain import remove_drained
from spark_partq.storage.queue.handle import open_queue
from spark_partq.storage.store import Store

Ranges = Mapping[PartitionId, Range]
Ack = tuple[PartitionId, int, int]  # partition, epoch, offset

# How often the daemon looks at the control table. On a local disk a look that finds nothing is a `stat`.
_TICK_LOCAL_S, _TICK_REMOTE_S = 0.1, 1.0
# How long the daemon leaves it to the next planner call to acknowledge a finished micro-batch, in the same commit as it plans.
_PLANNER_FIRST_S = 0.2
# How often the loads are looked at, for an assignor that heeds them.
_LOADS_EVERY_S = 10.0
# How often partitions that this group has drained are looked at, whether they can be removed.
_REMOVE_EVERY_S = 1.0
# How long a query that is stopped waits to hear whether its last micro-batch has finished.
_LAST_WORD_S = 2.0

_log = logging.getLogger("spark_partq")


class Membership:
    """One process's membership.

    Parameters
    ----------
    me : Member
        Who joins; each join gets an incarnation of its own. A static one, with a name of the user's, keeps its partitions through a
        restart: it never leaves, its session expires (K6).
    subscription : Subscription
        The queues that it reads. Used under `lock`.
    loads : LoadMeter
        What its planner measures of them.
    """

    def __init__(
        self,
        store: Store,
        group: str,
        me: Member,
        subscription: Subscription,
        loads: LoadMeter,
        *,
        manual: bool,
        max_poll_interval_ms: int,
    ) -> None:
        self._store, self._name, self._subscription, self._loads = store, group, subscription, loads
        self._me = replace(me, host=socket.gethostname())
        self._manual = manual
        self._heeds_loads = any(assignors.find(name).loads for name in me.assignors)  # else the group's cannot
        self._max_poll_s = max_poll_interval_ms / 1000
        self.group = Group(store, group)
        self.lock = threading.RLock()
        self.incarnation = ""
        self._handed = Handed()
        self._beats = itertools.count(1)
        self._beaten_s = 0.0
        self._called_s = time.monotonic()
        self._ended: tuple[float, Ranges] | None = None  # a micro-batch that has ended, and when that was heard
        self._stopping = threading.Event()
        self._terminated = threading.Event()
        self._names: dict[str, str] = {}  # of all queues that the group ever had
        self._failure: AssignorError | UnknownAssignorError | None = None  # of a decision between planner calls
        self._loads_s = time.monotonic()
        # Queues with partitions that go and that this group has settled; the planner says so.
        self.drained: list[str] = []
        self._removed_s = 0.0
        self._told: dict[PartitionId, int] = {}
        self._told_active: dict[str, bool] = {}
        self._told_flows: Message = {}
        self._channel: PlannerEnd | None = None

    # ---- for the planner, under `lock`
    def begin(self) -> None:
        """A planner call begins: the driver makes progress. Joins at the first."""
        self._called_s = time.monotonic()
        if not self.incarnation:
            if self._channel is None:
                hello = {"group": self._name, "instance": self._me.instance, "store": self._store.uri}
                self._channel = PlannerEnd(hello, self._on_message)
            self._join()
            threading.Thread(target=self._run, daemon=True, name="partq-member").start()

    def settle(self, done: Ranges) -> list[Ack]:
        """Look at the group, and do what must be done before planning: `done` is finished.

        Returns
        -------
        list
            Acknowledgements that `hand_out` shall commit.

        Raises
        ------
        FencedError
            If a newer process has this instance id.
        """
        self.look()
        acks = self._unacknowledged(done)
        if any(own.held is Held.DRAINING for own in owned(self.group.state, self.incarnation).values()):
            self._acknowledge(acks, {})
            acks = []
            self._release()
            self._tell_owned()
        return acks

    def hand_out(self, acks: list[Ack], ranges: Ranges) -> None:
        """One commit before a micro-batch: what is finished, and what is about to be delivered."""
        if acks or any(r.end > r.start for r in ranges.values()):
            self._acknowledge(acks, ranges)
        self._handed.plan(ranges)
        if ranges:
            self._tell_flows()

    def handed_out(self, where: PartitionId) -> Range | None:
        """The end of what this process has handed out of a partition; None if it has not yet."""
        return self._handed.last(where)

    def look(self) -> None:
        """Look at the group, and tell the application what is new; join again if the session has expired.

        Raises
        ------
        FencedError
            If a newer process has this instance id.
        CheckpointMismatchError, QueueNotFoundError
            If a queue was deleted.
        AssignorError, UnknownAssignorError
            If the group's assignor fails while this query has nothing. One that has partitions goes on with them.
        """
        self.group.refresh()
        if self._failure is not None and not owned(self.group.state, self.incarnation):
            raise self._failure
        self._names |= {queue_id: queue.name for queue_id, queue in self.group.state.queues.items()}
        if not set(self._subscription.ids.values()) <= self.group.state.queues.keys():
            self._subscription.check()
        found = standing(self.group.state, self._me.instance, self.incarnation)
        if found.fenced:
            newer = self.group.state.members[self._me.instance]
            with contextlib.suppress(ListenerError):
                self._tell({"lost": self._named(list(self._told))})
            self._told = {}
            raise FencedError(
                f"instance {self._me.instance!r} of group {self._name!r} was started again (on {newer.host}); this query stops, and "
                "what it has not acknowledged is delivered there. Give each running query its own instanceId and checkpoint",
                group=self._name,
                instance=self._me.instance,
            )
        if not found.member:  # the session expired though this process lives, or all were unbound: an ordinary event
            _log.warning("%s is no member of group %s any more; it joins again", self._me.instance, self._name)
            self._subscription.renew()
            self._join()
        self._tell_lost()
        self._tell_owned()

    def _join(self) -> None:
        incarnation = uuid.uuid4().hex
        about = {} if self._channel is None else self._channel.ask({"joins": True})
        application, executors = about.get("application", ""), tuple(about.get("executors", ()))
        me = replace(self._me, incarnation=incarnation, application=application, executors=executors)
        found = self._subscription
        self.decide(lambda: [Join(me, found.in_group, found.first_starts(self.group.state))])
        self.incarnation, self._handed = incarnation, Handed()
        self.group.refresh()

    def decide(self, events: Callable[[], Sequence[Event]], view: Group | None = None) -> None:
        """Commit what follows from the events, which are asked for again after every look."""
        group = view or self.group
        loads = self._loads.loads(group.state, group.acks) if self._heeds_loads else None
        group.decide(events, self._me.instance, loads)
        self._names |= {queue_id: queue.name for queue_id, queue in group.state.queues.items()}

    def _unacknowledged(self, done: Ranges) -> list[Ack]:
        if self._manual:
            return []
        state, acks = self.group.state, self.group.acks
        return [
            (where, epoch, offset)
            for where, epoch, offset in finished(state, self.incarnation, done)
            if offset > (state.position(where, acks) or 0)
        ]

    def _acknowledge(self, acks: list[Ack], ranges: Ranges) -> None:
        if acks or ranges:
            self._beaten_s = time.monotonic()
            self.group.acknowledge(ack_rows(self.incarnation, next(self._beats), acks, ranges))

    def _release(self) -> None:
        """Give up what has drained, in one commit that also grants it to its new owner."""
        ready = self._handed.drained(self.group.state, self.group.acks, self.incarnation)
        mine = owned(self.group.state, self.incarnation)
        if not ready or (len(ready) < len(mine) and any(own.target is None for own in mine.values())):
            return  # an eager rebalance revokes everything in one call, as applications expect (K4)
        self._tell({"revoked": self._named([event.where for event in ready])})
        for event in ready:
            self._told.pop(event.where, None)
        self.decide(lambda: self._handed.drained(self.group.state, self.group.acks, self.incarnation))

    # ---- telling the driver, under `lock`
    def _tell_lost(self) -> None:
        mine = owned(self.group.state, self.incarnation)
        lost = [w for w, base in self._told.items() if w not in mine or mine[w].base_epoch != base]
        if not lost:
            return
        for where in lost:
            del self._told[where]
        finished = [where for where in lost if self._is_finished(where)]
        rest = [where for where in lost if where not in finished]
        self._tell({"revoked": self._named(finished), "lost": self._named(rest)})

    def _is_finished(self, where: PartitionId) -> bool:
        """Whether the queue has the partition no longer, and all that was handed out of it is acknowledged (S2)."""
        removed, last = self.group.state.removed.get(where), self._handed.last(where)
        return removed is not None and (last is None or removed[1] >= last.end)

    def _tell_owned(self) -> None:
        """Newly owned partitions, and flows that became active or standbys."""
        mine = owned(self.group.state, self.incarnation)
        new = [where for where in mine if where not in self._told]
        held = {own.flow for own in mine.values()}
        active = {flow: flow in held for flow in self._me.flow_names}
        changed = {
            flow: is_active for flow, is_active in active.items() if self._told_active.get(flow) is not is_active
        }
        if new or changed:
            self._told.update({where: mine[where].base_epoch for where in new})
            self._told_active = active
            self._tell({"assigned": self._named(new), "active": changed})

    def _tell_flows(self) -> None:
        """What each flow holds in the micro-batch that begins, and what it gained and lost since the last."""
        now = {flow: self._named(held) for flow, held in by_flow(self.group.state, self.incarnation).items()}
        before = self._told_flows.get("owned", {})
        flows = {
            flow: {
                "gained": [p for p in now.get(flow, []) if p not in before.get(flow, [])],
                "lost": [p for p in before.get(flow, []) if p not in now.get(flow, [])],
            }
            for flow in self._me.flow_names
        }
        mine = owned(self.group.state, self.incarnation)
        epochs = [[*self._named([where])[0], *where, own.epoch] for where, own in sorted(mine.items())]
        message = {"owned": now, "changes": flows, "epochs": epochs, "incarnation": self.incarnation}
        if message != self._told_flows:
            self._told_flows = message
            self._tell({"batch": message})

    def _tell(self, message: Message, timeout_s: float | None = None) -> None:
        if self._channel is not None:
            self._channel.ask({"group": self._name, **message}, timeout_s)

    def _named(self, partitions: list[PartitionId]) -> list[list[str | int]]:
        return [[self._names[queue_id], number] for queue_id, number in sorted(partitions)]

    # ---- the daemon
    def _run(self) -> None:
        view = Group(self._store, self._name)
        observer = Observer()
        tick = _TICK_LOCAL_S if self._store.is_local else _TICK_REMOTE_S
        while not self._stopping.wait(tick):
            try:
                view.refresh()
                observer.incarnation = self.incarnation
                self._beat(view)
                due = observer.due(view.state, view.acks, _now_ms())
                if due or self._loads_are_due(view.state):
                    self._decide_between_calls(view, observer)
                self._acknowledge_between_calls()
                self._release_between_calls(view)
                self._remove_drained()
            except Exception as error:  # without this thread the session would expire; the planner meets the error too
                _log.warning("group %s: %s: %s", self._name, type(error).__name__, error)

    def _decide_between_calls(self, view: Group, observer: Observer) -> None:
        loads: list[Event] = [LoadsMeasured()] if self._loads_are_due(view.state) else []
        try:
            self.decide(lambda: [*observer.due(view.state, view.acks, _now_ms()), *loads], view)
            self._failure = None
        except (AssignorError, UnknownAssignorError) as error:
            if str(error) != str(self._failure):
                _log.warning("group %s cannot be assigned: %s", self._name, error)
            self._failure = error  # for the next planner call
        if loads:
            self._loads_s = time.monotonic()

    def _loads_are_due(self, state: GroupState) -> bool:
        """The member that joined first looks at the loads: what two measure would never quite agree."""
        if time.monotonic() - self._loads_s < _LOADS_EVERY_S or state.status is not Status.READY or not state.members:
            return False
        first = min(state.members.values(), key=lambda m: (m.order, m.instance))
        return first.incarnation == self.incarnation and assignors.find(choose(state.members.values())[0]).loads

    def _beat(self, view: Group) -> None:
        now_s = time.monotonic()
        alive = now_s - self._called_s < self._max_poll_s
        due = now_s - self._beaten_s >= self._me.session_timeout_ms / 1000 / 3
        if alive and due and standing(view.state, self._me.instance, self.incarnation).member:
            self._beaten_s = now_s
            view.acknowledge(ack_rows(self.incarnation, next(self._beats), [], {}))

    def _remove_drained(self) -> None:
        """Remove partitions that a scaling left to be drained, once every group is through (S2); now and then, as all groups are asked."""
        if not self.drained or time.monotonic() - self._removed_s < _REMOVE_EVERY_S:
            return
        self._removed_s = time.monotonic()
        for name in self.drained:
            remove_drained(open_queue(self._store, name))

    def _release_between_calls(self, view: Group) -> None:
        if not any(own.held is Held.DRAINING for own in owned(view.state, self.incarnation).values()):
            return
        if self.lock.acquire(blocking=False):
            try:
                self.group.refresh()
                self._release()
            finally:
                self.lock.release()

    def _acknowledge_between_calls(self) -> None:
        """With a long trigger the next planner call may be too late for a handoff."""
        ended = self._ended
        if ended is None or time.monotonic() - ended[0] < _PLANNER_FIRST_S or not self.lock.acquire(blocking=False):
            return
        try:
            self._ended = None
            if self._called_s < ended[0]:
                self.group.refresh()
                self._acknowledge(self._unacknowledged(ended[1]), {})
        finally:
            self.lock.release()

    # ---- what the driver says
    def _on_message(self, message: Message) -> None:
        """In the thread that also brings the answers: it must wait for nothing."""
        if "terminated" in message:
            self._terminated.set()
        else:
            done = StreamOffset.from_json(message["finished"])
            if not set(done.queue_ids.values()) <= self._names.keys():
                return  # of a group and instance of the same names in another store
            self._ended = (time.monotonic(), by_id(done))

    # ---- leaving
    def leave(self) -> None:
        """The query has ended: acknowledge what has finished, and unbind."""
        if not self.incarnation or self._stopping.is_set():
            return
        self._stopping.set()
        deadline = time.monotonic() + _LAST_WORD_S
        while self._in_flight() and not self._terminated.wait(0.02) and time.monotonic() < deadline:
            pass
        with self.lock:
            self.group.refresh()
            if self._ended is not None:
                self._acknowledge(self._unacknowledged(self._ended[1]), {})
            with contextlib.suppress(ListenerError):
                self._tell({"revoked": self._named(list(self._told))}, _LAST_WORD_S)
            if not self._me.static:
                self.decide(lambda: [Leave(self._me.instance, self.incarnation)])

    def _in_flight(self) -> bool:
        """Whether something that was handed out is not known to have finished."""
        if self._manual or self._channel is None or self._channel.ended.is_set():
            return False
        done = {} if self._ended is None else self._ended[1]
        with self.lock:
            self.group.refresh()
            state, acks = self.group.state, self.group.acks
            mine = owned(state, self.incarnation)
            ends = {w: max(state.position(w, acks) or 0, done[w].end if w in done else 0) for w in mine}
            handed = {w: self.handed_out(w) for w in mine}
            return any(last is not None and ends[w] < last.end for w, last in handed.items())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
