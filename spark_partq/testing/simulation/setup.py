"""What a run is made of: the queue, who uses it, what is done to it, and what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from spark_partq.core.queue.facts import Mode


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong at an operation on a store, as probabilities.

    Attributes
    ----------
    unknown : float
        The answer is lost: the operation was done, or was not.
    kill : float
        The process is killed before the operation, or after it.
    stall : float
        The process stands still for `stall_s` seconds before the operation.
    slow : float
        The operation takes up to 50 ms.
    jump : float
        The process's clock is set to another time.
    """

    unknown: float = 0.0
    kill: float = 0.0
    stall: float = 0.0
    stall_s: float = 4.0
    slow: float = 0.0
    jump: float = 0.0


NONE = Faults()
PRIMARY, COPY, OTHER_COPY = "sim://primary", "sim://copy", "sim://other-copy"


@dataclass(frozen=True)
class ProducerSetup:
    """A producer: a streaming query with a sink, restarted from its checkpoint whenever it dies.

    Attributes
    ----------
    twins : int
        Processes that run it at once, as when one is taken for dead.
    recomputes : bool
        A batch that is computed again has other rows.
    """

    sink: str
    query: str
    batches: int
    twins: int = 1
    pause_s: float = 0.5
    recomputes: bool = False


@dataclass(frozen=True)
class QuerySetup:
    """A streaming query that reads.

    Attributes
    ----------
    begins_s : float
        When it is started.
    ends_s : float or None
        When it is stopped; None is at the end of the run.
    sequence : int
        Manual acknowledgement at the end of sequences of so many messages of a key; 0 acknowledges by micro-batch.
    assignors : tuple of str
        Those that it supports, best first.
    work_s : float
        How long it works on what each flow gets of a micro-batch, at most.
    writes : bool
        It writes what becomes of the messages into a table, of each once. `relays`: into a queue.
    available_now : bool
        It ends when it has read what was there when it began (Trigger.AvailableNow), and is started again a little later.
    alternates : bool
        With `sequence`: each of its starts acknowledges by hand or by micro-batch, as it happens.
    renamed : bool
        Each of its starts is under one of two names that its user gives it, as it happens, from the same checkpoint.
    """

    group: str
    instance: str
    flows: int = 1
    begins_s: float = 0.0
    ends_s: float | None = None
    sequence: int = 0
    static: bool = False
    max_rows: int | None = None
    fail_on_data_loss: bool = True
    assignors: tuple[str, ...] = ("balanced",)
    work_s: float = 0.0
    writes: bool = False
    relays: bool = False
    available_now: bool = False
    alternates: bool = False
    renamed: bool = False


@dataclass(frozen=True)
class Scaling:
    """A change of the partition count.

    Attributes
    ----------
    repeated : bool
        Who asked for it asks again where the queue is used after a promotion.
    """

    at_s: float
    partitions: int
    mode: Mode = "live"
    repeated: bool = True


@dataclass(frozen=True)
class Altering:
    """Settings of the queue that somebody changes; nobody else changes the same."""

    at_s: float
    settings: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Blow:
    """Something that befalls a job at one of its first operations from some moment on.

    Attributes
    ----------
    job : str
        One of `jobs`.
    after : int
        How many of these it does before, all its threads together.
    count : str
        ``operations``; ``commits``; or ``turns``, from one folder of tables to another: what lies between two tables nothing compares.
    what : str
        ``drop``: it gets the lowest priority, so that all others who can go on do so first; ``pause``: its machine stands still for hours, with
        its clocks; else as in `Faults`.
    """

    job: str
    at_s: float
    after: int
    count: Literal["operations", "commits", "turns"] = "operations"
    what: Literal["drop", "stall", "pause", "kill before", "kill after"] = "drop"


@dataclass(frozen=True)
class Reset:
    """The positions of a group are set; its queries stop before, and start again after.

    Attributes
    ----------
    to : str
        ``some``: to offsets somewhere in some of the partitions; else as a user writes it.
    """

    group: str
    at_s: float
    to: str


@dataclass(frozen=True)
class Setup:
    """A run.

    Attributes
    ----------
    drops : tuple of int
        Steps at which the running actor's priority drops.
    blows : tuple of Blow
        What befalls a job when another one begins, so that both meet.
    chaos_s : float
        So long faults happen; afterwards everything must come to its end.
    max_barrier_wait_ms : int
        How long consumers wait at the barrier for others that acknowledge by hand.
    ingress_s : tuple or None
        When ingress is disabled, and when it is enabled again. `discards`: what comes in between is discarded, not refused.
    column_added_s : float or None
        When the queue gets a column, which producers write from then on.
    deleted_key : tuple or None
        A key whose messages are deleted, and when.
    replicas : int
        How many replicas are kept. `promoted_s`: when the first is promoted; `primary_lost`: its primary cannot be reached then.
    recreated_s : float or None
        When the queue is deleted and created again, and its producers begin again there.
    other_promoted_s : float or None
        When the second replica is promoted, too.
    removed_s : float or None
        When the primary removes its first replica.
    dead_is_copied : bool
        The dead-message queue has a replica, too. `dead_promoted_s`: when that is promoted, if the queue's is.
    poison : int
        So many of a hundred messages kill the process that is given them; after `max_deliveries` they go to the dead-message queue.
    message_ttl_ms : int or None
        Messages that are older when they would be delivered are not; with `max_deliveries` they go there, too.
    lifetimes : bool
        Each message says itself after which time it is too old.
    holds : bool
        With `max_deliveries`: the messages that follow a dead one of their key go there, too.
    redriven : bool
        When the producers have ended, no message kills any more and all that are dead are put back.
    relayed_scaled_s : float or None
        When the partition count of the queue is changed into which consumers write.
    old_checkpoints : bool
        After a promotion queries are first started with the checkpoints that they had.
    copiers : int
        How many processes copy what is stuck in the parent, from `copy_stuck_s` on.
    put_back_s : tuple or None
        When the primary's files are copied away, and when they are put back, with the producers stopped.
    lost_after : int or None
        The primary is lost so many operations after that moment, in the midst of what is under way, and the promotion waits for
        that; None is when the promotion begins.
    """

    seed: int
    partitions: int = 2
    local: bool = True
    drops: tuple[int, ...] = ()
    blows: tuple[Blow, ...] = ()
    chaos_s: float = 6.0
    keys: int = 4
    producers: tuple[ProducerSetup, ...] = (ProducerSetup("s", "query", 4),)
    queries: tuple[QuerySetup, ...] = ()
    scalings: tuple[Scaling, ...] = ()
    alterings: tuple[Altering, ...] = ()
    column_added_s: float | None = None
    deleted_key: tuple[str, float] | None = None
    maintain_every_s: float | None = None
    replicas: int = 0
    promoted_s: float | None = None
    primary_lost: bool = False
    lost_after: int | None = None
    other_promoted_s: float | None = None
    removed_s: float | None = None
    dead_is_copied: bool = False
    dead_promoted_s: float | None = None
    poison: int = 0
    max_deliveries: int | None = None
    message_ttl_ms: int | None = None
    lifetimes: bool = False
    holds: bool = False
    redriven: bool = False
    relayed_scaled_s: float | None = None
    old_checkpoints: bool = False
    put_back_s: tuple[float, float] | None = None
    ingress_s: tuple[float, float] | None = None
    discards: bool = False
    delete_group_s: tuple[str, float] | None = None
    reset: Reset | None = None
    copy_stuck_s: float | None = None
    copiers: int = 1
    recreated_s: float | None = None
    retention_ms: int | None = None
    max_bytes: int | None = None
    min_retention_ms: int = 0
    segment_ms: int | None = None
    durable: bool = False
    rebalance_delay_ms: int = 0
    max_handoff_time_ms: int = 500
    max_barrier_wait_ms: int = 2_000
    skew: bool = False
    faults: Faults = NONE

    @property
    def removes_unread(self) -> bool:
        """Whether maintenance removes messages that nobody has read."""
        return self.retention_ms is not None or self.max_bytes is not None

    @property
    def expires_ms(self) -> int | None:
        """The shortest time for which messages stay that nobody has read."""
        altered = (value for altering in self.alterings for name, value in altering.settings if name == "retention_ms")
        return None if self.retention_ms is None else min([self.retention_ms, *altered])

    @property
    def may_expire(self) -> bool:
        """Whether messages can be too old to be delivered."""
        return self.message_ttl_ms is not None or self.lifetimes


def possible(s: Setup) -> Setup:
    """The same without what cannot end."""
    if _shares_a_sink(s) or s.removes_unread or s.primary_lost or s.discards:
        # What is refused, discarded, too old, or lost with its store completes no sequence.
        s = replace(s, queries=tuple(replace(q, sequence=0) for q in s.queries))
    if s.primary_lost:  # and with it, perhaps, that ingress was enabled again
        s = replace(s, ingress_s=None, discards=False)
    if s.replicas < 2 or s.promoted_s is None:
        s = replace(s, other_promoted_s=None)
    if (
        s.promoted_s is None or s.primary_lost
    ):  # a primary that is removed from and then lost leaves nothing that is used
        s = replace(s, removed_s=None)
    if s.reset is not None and (s.primary_lost or not any(q.group == s.reset.group for q in s.queries)):
        s = replace(s, reset=None)  # a reset is lost with its store
    if s.put_back_s is not None:  # readers would be given again, and not marked, what they had read before
        s = replace(
            s,
            queries=(),
            scalings=(),
            delete_group_s=None,
            ingress_s=None,
            copy_stuck_s=None,
            promoted_s=None,
            reset=None,
        )
    if s.max_deliveries is None:
        s = replace(s, poison=0)
    if s.poison or s.may_expire:  # what is not delivered completes no sequence
        s = replace(s, queries=tuple(replace(q, sequence=0) for q in s.queries))
    if (s.replicas and not s.dead_is_copied) or s.recreated_s is not None or s.put_back_s is not None:
        s = replace(s, poison=0, max_deliveries=None, message_ttl_ms=None, lifetimes=False)
    s = _with_copied_dead_messages(s)
    if s.max_deliveries is None:
        s = replace(s, holds=False, redriven=False)
    if s.holds:  # what a slow application has not acknowledged may be dead, and what follows it is not delivered
        s = replace(s, queries=tuple(replace(q, sequence=0) for q in s.queries))
    # Who acknowledges by hand does so between two planner calls here, and a query that ends stays in one.
    s = replace(s, queries=tuple(replace(q, available_now=q.available_now and not q.sequence) for q in s.queries))
    if s.removes_unread:
        s = replace(s, redriven=False)
    if s.redriven:
        # A group that does not read to the end blocks it; who is given a message again has written its results; a copy of the parent, or
        # a position that is set, gives messages again in another order.
        s = replace(
            s,
            queries=tuple(replace(q, ends_s=None, writes=False, relays=False) for q in s.queries),
            delete_group_s=None,
            reset=None,
            copy_stuck_s=None,
            scalings=tuple(replace(x, partitions=max(1, x.partitions), mode="live") for x in s.scalings),
            partitions=max(1, s.partitions),
            ingress_s=None,
            discards=False,
        )
    if not any(q.relays for q in s.queries):
        s = replace(s, relayed_scaled_s=None)
    deleted = s.delete_group_s
    lasting = any(q.ends_s is None and (deleted is None or q.group != deleted[0]) for q in s.queries)
    if not lasting or any(q.sequence for q in s.queries):
        # A drain ends once everything is acknowledged: never if nobody reads to the end, or if an application waits for the end of a
        # sequence that cannot come while ingress is disabled.
        s = replace(s, scalings=tuple(replace(scaling, mode="live") for scaling in s.scalings))
    # An interrupted drain keeps ingress disabled, and any interrupted change keeps the next one waiting, until somebody asks again.
    if len(s.scalings) > 1 or any(scaling.mode != "live" for scaling in s.scalings):
        s = replace(s, scalings=tuple(replace(scaling, repeated=True) for scaling in s.scalings))
    return s


def _with_copied_dead_messages(s: Setup) -> Setup:
    if not s.replicas or s.max_deliveries is None:
        return replace(s, dead_is_copied=False, dead_promoted_s=None)
    at_s = None if s.promoted_s is None else s.promoted_s if s.dead_promoted_s is None else s.dead_promoted_s
    return replace(
        s, replicas=1, other_promoted_s=None, removed_s=None, message_ttl_ms=None, lifetimes=False, dead_promoted_s=at_s
    )


def _shares_a_sink(s: Setup) -> bool:
    return len({p.sink for p in s.producers}) < len(s.producers)
