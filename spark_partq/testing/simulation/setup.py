"""What a run is made of, drawn from a seed: the queue, who uses it, what is done to it, and what goes wrong."""

from __future__ import annotations

import random
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
    """

    sink: str
    query: str
    batches: int
    twins: int = 1
    pause_s: float = 0.5


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
        ``drop``: it gets the lowest priority, so that all others who can go on do so first; else as in `Faults`.
    """

    job: str
    at_s: float
    after: int
    count: Literal["operations", "commits", "turns"] = "operations"
    what: Literal["drop", "stall", "kill before", "kill after"] = "drop"


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
        When ingress is disabled, and when it is enabled again.
    replicas : int
        How many replicas are kept. `promoted_s`: when the first is promoted; `primary_lost`: its primary cannot be reached then.
    anew_s : float or None
        When the queue is deleted and made anew, and its producers begin again there.
    other_promoted_s : float or None
        When the second replica is promoted, too.
    removed_s : float or None
        When the primary removes its first replica.
    old_checkpoints : bool
        After a promotion queries are first started with the checkpoints that they had.
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
    maintain_every_s: float | None = None
    replicas: int = 0
    promoted_s: float | None = None
    primary_lost: bool = False
    lost_after: int | None = None
    other_promoted_s: float | None = None
    removed_s: float | None = None
    old_checkpoints: bool = False
    put_back_s: tuple[float, float] | None = None
    ingress_s: tuple[float, float] | None = None
    delete_group_s: tuple[str, float] | None = None
    copy_stuck_s: float | None = None
    anew_s: float | None = None
    retention_ms: int | None = None
    rebalance_delay_ms: int = 0
    max_handoff_time_ms: int = 500
    max_barrier_wait_ms: int = 2_000
    skew: bool = False
    faults: Faults = NONE


# What may happen in a run besides producers and consumers. A run draws a few of these, so that each two often meet.
FEATURES = (
    "resize", "resize", "another resize", "maintenance", "retention", "promotion", "promotion", "replica", "ingress", "group is deleted",
    "manual acknowledgement", "shared sink", "twins", "exclusive", "late members", "two groups",
)  # fmt: skip


# What the members of a group support: all the same, or, during an upgrade, not all the same. One of them each supports.
_ASSIGNORS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("balanced",),),
    (("balanced",),),
    (("range",),),
    (("cooperative-sticky",),),
    (("cooperative-sticky", "range"), ("range", "cooperative-sticky"), ("range",)),
)


def draw(seed: int) -> Setup:
    """The run of a seed."""
    rng = random.Random(f"setup {seed}")
    features = set(rng.sample(FEATURES, rng.choice((1, 2, 2, 3, 4))))
    setup = Setup(
        seed,
        partitions=0 if "exclusive" in features else rng.choice((1, 2, 2, 3, 4)),
        local=rng.random() < 0.25,
        drops=tuple(sorted(rng.sample(range(rng.choice((200, 800, 2_000))), rng.randint(1, 5)))),
        keys=rng.randint(1, 5),
        producers=_producers(rng, features),
        queries=_queries(rng, features),
        scalings=_scalings(rng, features),
        maintain_every_s=rng.choice((1.0, 1.0, 3.0)) if features & {"maintenance", "retention"} else None,
        rebalance_delay_ms=rng.choice((0, 0, 1_000)),
        max_handoff_time_ms=rng.choice((0, 500, 3_000)),
        skew=rng.random() < 0.2,
        faults=_faults(rng) if rng.random() < 0.6 else NONE,
    )
    if features & {"promotion", "replica"}:
        promoted_s = _moment(rng, 0, 3) if "promotion" in features else None
        lost = promoted_s is not None and rng.random() < 0.5
        setup = replace(setup, replicas=rng.choice((1, 1, 2)), promoted_s=promoted_s, primary_lost=lost)
        if promoted_s is not None and rng.random() < 0.6:  # at once, or with one pass between
            at_s = max(0.0, promoted_s - rng.choice((0.0, 0.5)))
            setup = replace(setup, scalings=tuple(replace(scaling, at_s=at_s) for scaling in setup.scalings))
    if "ingress" in features:
        setup = replace(setup, ingress_s=(_moment(rng, 0, 2), _moment(rng, 2, 4)))
    if "group is deleted" in features:
        setup = replace(setup, delete_group_s=("g0", _moment(rng, 0.5, 3)))
    if "retention" in features:
        queries = tuple(replace(q, fail_on_data_loss=False) for q in setup.queries)
        setup = replace(setup, retention_ms=rng.choice((300, 1_000, 3_000)), queries=queries)
    if "exclusive" in features and rng.random() < 0.7:
        setup = replace(setup, copy_stuck_s=_moment(rng, 1, 4))
    setup = possible(_by_hand(setup))
    setup = _lost(replace(setup, blows=_blows(rng, setup), chaos_s=rng.uniform(3, 5)))
    return _anew(possible(_beside_a_promotion(setup)))


def _anew(s: Setup) -> Setup:
    """In a few runs nothing else is done to the queue than that it is deleted and made anew, mostly on an object store."""
    rng = random.Random(f"anew {s.seed}")
    if rng.random() < 0.96:
        return s
    at_s = _moment(rng, 0, 2)
    producers = tuple(replace(p, sink=f"s{i}", query=f"query-{i}") for i, p in enumerate(s.producers))
    s = replace(
        s, anew_s=at_s, local=rng.random() < 0.2, producers=producers, partitions=rng.choice((1, 2)), scalings=(), replicas=0,
        queries=tuple(replace(q, sequence=0) for q in s.queries), promoted_s=None, primary_lost=False, lost_after=None, ingress_s=None,
        other_promoted_s=None, removed_s=None, old_checkpoints=False, put_back_s=None,
        delete_group_s=None, copy_stuck_s=None, retention_ms=None,
    )  # fmt: skip
    names = [f"{producer.query}a" for producer in producers]
    meets = (
        Blow(rng.choice(names), at_s, rng.randrange(20), "operations", rng.choice(_BLOWS))
        for _ in range(rng.choice((0, 1, 2)))
    )
    return replace(s, blows=tuple(meets))


def _by_hand(s: Setup) -> Setup:
    """More of the runs with a resize have applications that acknowledge by hand, and beside them some that do not."""
    rng = random.Random(f"by hand {s.seed}")
    s = replace(s, max_barrier_wait_ms=rng.choice((0, 500, 2_000, 2_000, 5_000)))
    queries, size = s.queries, rng.choice((2, 3))
    if s.scalings and rng.random() < 0.25:
        queries = tuple(replace(q, sequence=q.sequence or size) for q in queries)
    if rng.random() < 0.2:
        queries = tuple(replace(q, sequence=0) if n and rng.random() < 0.5 else q for n, q in enumerate(queries))
    return replace(s, queries=queries)


def _lost(s: Setup) -> Setup:
    """A primary that is lost is often lost in the midst of something, and a pass is then late."""
    rng = random.Random(f"lost {s.seed}")
    if not s.primary_lost or s.promoted_s is None or rng.random() < 0.4:
        return s
    pass_ = Blow("replicate-copy", s.promoted_s, rng.randrange(12), "turns")
    return replace(s, lost_after=rng.randrange(800), blows=(*s.blows, pass_) if rng.random() < 0.7 else s.blows)


def _beside_a_promotion(s: Setup) -> Setup:
    """Two replicas are promoted at once, or one is removed; a primary with replicas is put back to what it was."""
    rng = random.Random(f"beside {s.seed}")
    if s.promoted_s is None:
        put_back = s.replicas > 0 and rng.random() < 0.5
        return replace(s, put_back_s=(_moment(rng, 0.5, 1.5), _moment(rng, 2, 3))) if put_back else s
    at_s, old, x = float(s.promoted_s), rng.random() < 0.5, rng.random()
    s = replace(s, old_checkpoints=old)
    if x < 0.3:
        s = replace(s, replicas=2, other_promoted_s=at_s + rng.choice((0.0, 0.0, 0.5)))
    elif x < 0.5 and not s.primary_lost:
        s = replace(s, removed_s=at_s)
    else:
        return s
    counts: tuple[Literal["operations", "commits", "turns"], ...] = ("operations", "commits", "turns")
    blow = Blow("promote", at_s, rng.randrange(16), rng.choice(counts), rng.choice(_BLOWS))
    return replace(s, blows=(*s.blows, blow) if rng.random() < 0.7 else s.blows)


def jobs(s: Setup) -> dict[str, float]:
    """The names of those who do something in a run, each with the moment at which it begins."""
    found = {f"{p.query}{'ab'[twin]}": 0.0 for p in s.producers for twin in range(p.twins)}
    found |= {q.instance: q.begins_s for q in s.queries}
    found |= {f"scale{i}": scaling.at_s for i, scaling in enumerate(s.scalings)}
    found |= {f"replicate-{uri[6:]}": 0.0 for uri in (COPY, OTHER_COPY)[: s.replicas]}
    optional = {
        "maintain": None if s.maintain_every_s is None else 0.0,
        "promote": s.promoted_s,
        "promote-other": s.other_promoted_s,
        "remove": s.removed_s,
        "put-back": None if s.put_back_s is None else s.put_back_s[0],
        "ingress": None if s.ingress_s is None else s.ingress_s[0],
        "delete-group": None if s.delete_group_s is None else s.delete_group_s[1],
        "copy-stuck": s.copy_stuck_s,
        "anew": s.anew_s,
    }
    return found | {name: at_s for name, at_s in optional.items() if at_s is not None}


def _blows(rng: random.Random, s: Setup) -> tuple[Blow, ...]:
    """Two procedures meet where one of them stands still early in what it does, or dies, when the other begins."""
    begins = jobs(s)
    commands = [name for name in begins if name.startswith(_COMMANDS)] or list(begins)
    blows = []
    for _ in range(rng.choice((0, 1, 1, 2))):
        command = rng.choice(commands)
        at_s = begins[command]
        if rng.random() < 0.7:
            others = [name for name, begun_s in begins.items() if begun_s <= at_s]
            keepers = [name for name in others if name.startswith(("replicate", "maintain", *_COMMANDS))]
            other = rng.choice(keepers if keepers and rng.random() < 0.5 else others)
            if rng.random() < 0.5:
                blows.append(Blow(other, at_s, rng.randrange(16), "turns", rng.choice(_BLOWS)))
            else:
                blows.append(Blow(other, at_s, rng.randrange(rng.choice((8, 30, 80))), what=rng.choice(_BLOWS)))
        if rng.random() < 0.5:
            blows.append(Blow(command, at_s, rng.randrange(rng.choice((4, 12))), "commits", rng.choice(_BLOWS)))
    return tuple(blows)


_COMMANDS = "scale", "promote", "ingress", "delete-group", "copy-stuck"
_BLOWS: tuple[Literal["drop", "stall", "kill before", "kill after"], ...] = (
    "drop", "drop", "drop", "drop", "stall", "kill before", "kill after",
)  # fmt: skip


def _moment(rng: random.Random, first_s: float, last_s: float) -> float:
    """One of a few moments. What an actor does takes no time, so only what begins at the same moment meets."""
    return first_s + 0.5 * rng.randint(0, int((last_s - first_s) * 2))


def possible(s: Setup) -> Setup:
    """The same without what cannot end."""
    if _shares_a_sink(s) or s.retention_ms is not None or s.primary_lost:
        # What is refused, too old, or lost with its store completes no sequence.
        s = replace(s, queries=tuple(replace(q, sequence=0) for q in s.queries))
    if s.primary_lost:  # and with it, perhaps, that ingress was enabled again
        s = replace(s, ingress_s=None)
    if s.replicas < 2 or s.promoted_s is None:
        s = replace(s, other_promoted_s=None)
    if (
        s.promoted_s is None or s.primary_lost
    ):  # a primary that is removed from and then lost leaves nothing that is used
        s = replace(s, removed_s=None)
    if s.put_back_s is not None:  # readers would be given again, and not marked, what they had read before
        s = replace(s, queries=(), scalings=(), delete_group_s=None, ingress_s=None, copy_stuck_s=None, promoted_s=None)
    deleted = s.delete_group_s
    lasting = any(q.ends_s is None and (deleted is None or q.group != deleted[0]) for q in s.queries)
    if not lasting or any(q.sequence for q in s.queries):
        # A drain ends once everything is acknowledged: never if nobody reads to the end, or if an application waits for the end of a
        # sequence that cannot come while ingress is disabled.
        s = replace(s, scalings=tuple(replace(scaling, mode="live") for scaling in s.scalings))
    # A drain with which nobody goes on keeps ingress disabled.
    scalings = (scaling if scaling.mode == "live" else replace(scaling, repeated=True) for scaling in s.scalings)
    return replace(s, scalings=tuple(scalings))


def _producers(rng: random.Random, features: set[str]) -> tuple[ProducerSetup, ...]:
    producers = [
        ProducerSetup(f"s{i}", f"query-{i}", rng.randint(1, 5), pause_s=rng.choice((0.0, 0.5, 1.0)))
        for i in range(rng.choice((1, 1, 2)))
    ]
    if "twins" in features:
        producers[0] = replace(producers[0], twins=2)
    if "shared sink" in features:  # two queries that were given one sink id
        producers.append(replace(producers[0], query="another-query", twins=1))
    return tuple(producers)


def _queries(rng: random.Random, features: set[str]) -> tuple[QuerySetup, ...]:
    queries = []
    for g in range(2 if "two groups" in features else rng.choice((0, 1, 1, 1, 1))):
        sequence = rng.choice((2, 3)) if "manual acknowledgement" in features else 0
        assignors = rng.choice(_ASSIGNORS)
        for i in range(rng.choice((1, 1, 2, 3))):
            begins = _moment(rng, 0, 3) if "late members" in features or rng.random() < 0.3 else 0.0
            ends = begins + _moment(rng, 1, 3) if rng.random() < 0.3 and i else None
            queries.append(
                QuerySetup(
                    f"g{g}", f"g{g}-{i}", rng.randint(1, 2), begins, ends, sequence, rng.random() < 0.3, rng.choice((None, None, 3)),
                    assignors=rng.choice(assignors), work_s=rng.choice((0.0, 0.0, 0.3, 1.0)),
                )
            )  # fmt: skip
    return tuple(queries)


def _scalings(rng: random.Random, features: set[str]) -> tuple[Scaling, ...]:
    modes: tuple[Mode, ...] = ("live", "live", "live", "live", "drain", "delete")
    resizes = len(features & {"resize", "another resize"})
    return tuple(
        Scaling(_moment(rng, 0, 3), rng.choice((0, 1, 2, 3, 4, 5)), rng.choice(modes), rng.random() < 0.3)
        for _ in range(resizes)
    )


def _faults(rng: random.Random) -> Faults:
    return Faults(
        unknown=rng.choice((0.0, 0.01, 0.03)),
        kill=rng.choice((0.0, 0.003, 0.01)),
        stall=rng.choice((0.0, 0.0, 0.003)),
        stall_s=rng.choice((2.0, 8.0)),
        slow=rng.choice((0.0, 0.05, 0.2)),
        jump=rng.choice((0.0, 0.0, 0.01)),
    )


def _shares_a_sink(s: Setup) -> bool:
    return len({p.sink for p in s.producers}) < len(s.producers)
