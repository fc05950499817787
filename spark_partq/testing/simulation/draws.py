"""What a run is made of, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from spark_partq.core.queue.facts import Mode
from spark_partq.testing.simulation.setup import (
    COPY,
    NONE,
    OTHER_COPY,
    Altering,
    Blow,
    Faults,
    ProducerSetup,
    QuerySetup,
    Reset,
    Scaling,
    Setup,
    possible,
)

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
        setup = _with_a_size(replace(setup, retention_ms=rng.choice((300, 1_000, 3_000)), queries=queries))
    if "exclusive" in features and rng.random() < 0.7:
        copiers = random.Random(f"copiers {seed}").choice((1, 2))
        setup = replace(setup, copy_stuck_s=_moment(rng, 1, 4), copiers=copiers)
    setup = possible(_with_a_column(_altered(_deadly(_by_hand(_renamed(_ending(_written(_recomputed(setup)))))))))
    setup = _interrupted(_lost(replace(setup, blows=_blows(rng, setup), chaos_s=rng.uniform(3, 5))))
    setup = _with_a_deletion(_anew(_reset(possible(_beside_a_promotion(_begun_beside_a_promotion(setup))))))
    if setup.maintain_every_s is not None and random.Random(f"segments {seed}").random() < 0.5:
        setup = replace(setup, segment_ms=1_000)
    setup = _paused(replace(setup, durable=random.Random(f"durable {seed}").random() < 0.25))
    rng = random.Random(
        f"least {seed}"
    )  # not with a longest time: maintenance ends with the faults there, and partitions would wait for it
    if setup.maintain_every_s is None or setup.removes_unread or rng.random() < 0.7:
        return setup
    return replace(setup, min_retention_ms=rng.choice((300, 1_000, 3_000)))


def _anew(s: Setup) -> Setup:
    """In a few runs nothing else is done to the queue than that it is deleted and created again, mostly on an object store."""
    rng = random.Random(f"anew {s.seed}")
    if rng.random() < 0.96:
        return s
    at_s = _moment(rng, 0, 2)
    producers = tuple(replace(p, sink=f"s{i}", query=f"query-{i}") for i, p in enumerate(s.producers))
    s = replace(
        s, recreated_s=at_s, local=rng.random() < 0.2, producers=producers, partitions=rng.choice((1, 2)), scalings=(), alterings=(), replicas=0,
        queries=tuple(replace(q, sequence=0) for q in s.queries), promoted_s=None, primary_lost=False, lost_after=None, ingress_s=None,
        discards=False, dead_is_copied=False, dead_promoted_s=None,
        other_promoted_s=None, removed_s=None, old_checkpoints=False, put_back_s=None, reset=None,
        delete_group_s=None, copy_stuck_s=None, retention_ms=None,
    )  # fmt: skip
    names = [f"{producer.query}a" for producer in producers]
    meets = (
        Blow(rng.choice(names), at_s, rng.randrange(20), "operations", rng.choice(_BLOWS))
        for _ in range(rng.choice((0, 1, 2)))
    )
    return replace(s, blows=tuple(meets))


def _reset(s: Setup) -> Setup:
    """In some runs somebody sets the positions of a group, mostly of one that reads to the end."""
    rng = random.Random(f"reset {s.seed}")
    deleted = {s.delete_group_s[0]} if s.delete_group_s is not None else set()
    groups = sorted({q.group for q in s.queries} - deleted)
    if rng.random() < 0.8 or not groups:
        return s
    to = rng.choice(("earliest", "earliest", "latest", "by:PT1S", "some", "some"))
    s = possible(replace(s, reset=Reset(rng.choice(groups), _moment(rng, 0.5, 4), to)))
    if s.reset is None or rng.random() < 0.5:
        return s
    keepers = [name for name in jobs(s) if name.startswith(("maintain", "scale", "copy-stuck"))] or ["reset"]
    blow = Blow(rng.choice(keepers), s.reset.at_s, rng.randrange(30), what=rng.choice(_BLOWS))
    return replace(s, blows=(*s.blows, blow))


def _by_hand(s: Setup) -> Setup:
    """More of the runs with a resize have applications that acknowledge by hand, and beside them some that do not."""
    rng = random.Random(f"by hand {s.seed}")
    s = replace(s, max_barrier_wait_ms=rng.choice((0, 500, 2_000, 2_000, 5_000)))
    queries, size = s.queries, rng.choice((2, 3))
    if s.scalings and rng.random() < 0.25:
        queries = tuple(replace(q, sequence=q.sequence or size) for q in queries)
    if rng.random() < 0.2:
        queries = tuple(replace(q, sequence=0) if n and rng.random() < 0.5 else q for n, q in enumerate(queries))
    rng = random.Random(f"alternates {s.seed}")
    if rng.random() < 0.4:
        queries = tuple(replace(q, alternates=rng.random() < 0.7) for q in queries)
    return replace(s, queries=queries)


def _renamed(s: Setup) -> Setup:
    """In some runs queries are started under other names."""
    rng = random.Random(f"renamed {s.seed}")
    if rng.random() < 0.9:
        return s
    return replace(s, queries=tuple(replace(q, renamed=rng.random() < 0.7) for q in s.queries))


def _ending(s: Setup) -> Setup:
    """In some runs queries end when they have read what is there, beside others that go on."""
    rng = random.Random(f"available now {s.seed}")
    if rng.random() < 0.8:
        return s
    return replace(s, queries=tuple(replace(q, available_now=rng.random() < 0.6) for q in s.queries))


def _recomputed(s: Setup) -> Setup:
    """Many a producer computes other rows when it computes a batch again; a queue may discard what it does not take."""
    rng = random.Random(f"attempts {s.seed}")
    producers = tuple(replace(p, recomputes=rng.random() < 0.6) for p in s.producers)
    return replace(s, producers=producers, discards=s.ingress_s is not None and rng.random() < 0.5)


def _altered(s: Setup) -> Setup:
    """Settings are changed, by one or by two at once."""
    rng = random.Random(f"alter {s.seed}")
    if rng.random() < 0.75:
        return s
    settings = [("rebalance_delay_ms", rng.choice((0, 500, 2_000))), ("max_handoff_time_ms", rng.choice((0, 1_000)))]
    if s.max_bytes is not None:
        settings.append(("max_bytes", rng.choice((1_000, 20_000))))
    if s.retention_ms is not None:
        settings.append(("retention_ms", rng.choice((300, 2_000))))
    rng.shuffle(settings)
    at_s, cut = _moment(rng, 0, 3), rng.randint(1, len(settings))
    parts = [tuple(part) for part in (settings[:cut], settings[cut:]) if part]
    return replace(s, alterings=tuple(Altering(at_s + rng.choice((0.0, 0.0, 0.5)), part) for part in parts))


def _with_a_size(s: Setup) -> Setup:
    """In some runs also the size, or the size alone, limits how much stays."""
    rng = random.Random(f"size {s.seed}")
    if rng.random() < 0.6:
        return s
    return replace(s, max_bytes=rng.choice((1_000, 5_000, 20_000)), retention_ms=rng.choice((s.retention_ms, None)))


def _with_a_column(s: Setup) -> Setup:
    rng = random.Random(f"column {s.seed}")
    return replace(s, column_added_s=_moment(rng, 0, 3)) if rng.random() < 0.2 else s


def _with_a_deletion(s: Setup) -> Setup:
    """The messages of a key are deleted; not where the store is put back to a former state, which has them."""
    rng = random.Random(f"deletion {s.seed}")
    if rng.random() < 0.85 or s.put_back_s is not None:
        return s
    at_s = _moment(rng, 0, 3)
    blow = Blow("delete-messages", at_s, rng.randrange(16), rng.choice(_COUNTS), rng.choice(_BLOWS))
    blows = (*s.blows, blow) if rng.random() < 0.5 else s.blows
    return replace(s, deleted_key=(f"k{rng.randrange(s.keys)}", at_s), blows=blows)


def _written(s: Setup) -> Setup:
    """The applications of many a group write into a table, of some into a queue."""
    rng = random.Random(f"results {s.seed}")
    writing = {group for group in sorted({q.group for q in s.queries}) if rng.random() < 0.6}
    s = replace(s, queries=tuple(replace(q, writes=q.group in writing) for q in s.queries))
    rng = random.Random(f"relayed {s.seed}")
    relaying = {group for group in sorted({q.group for q in s.queries}) if rng.random() < 0.3}
    s = replace(s, queries=tuple(replace(q, relays=q.group in relaying) for q in s.queries))
    return replace(s, relayed_scaled_s=_moment(rng, 1, 4) if relaying and rng.random() < 0.5 else None)


def _deadly(s: Setup) -> Setup:
    """In some runs messages kill, or become too old."""
    rng = random.Random(f"deadly {s.seed}")
    if rng.random() < 0.7:
        return s
    most = rng.choice((1, 2, 3, 5)) if rng.random() < 0.8 else None
    ttl_ms = rng.choice((500, 1_500, 4_000)) if rng.random() < 0.35 else None
    s = replace(s, max_deliveries=most, poison=rng.choice((0, 3, 8, 15)), message_ttl_ms=ttl_ms)
    s = replace(s, lifetimes=random.Random(f"lifetimes {s.seed}").random() < 0.3)
    rng = random.Random(f"held {s.seed}")
    s = replace(s, holds=rng.random() < 0.6, redriven=rng.random() < 0.5)
    rng = random.Random(f"dead copies {s.seed}")
    dead_s = None if s.promoted_s is None else s.promoted_s + rng.choice((-0.5, 0.0, 0.0, 0.5, 2.0))
    copied = bool(s.replicas) and rng.random() < 0.7
    return replace(s, dead_is_copied=copied, dead_promoted_s=dead_s if copied else None)


def _interrupted(s: Setup) -> Setup:
    """In some runs whoever puts dead messages back dies in the middle, and does it again."""
    rng = random.Random(f"interrupted {s.seed}")
    if not s.redriven or rng.random() < 0.3:
        return s
    what = rng.choice(("kill before", "kill before", "kill after", *_BLOWS))
    return replace(s, blows=(*s.blows, Blow("redrive", 0.0, rng.randrange(rng.choice((4, 12))), "commits", what)))


def _paused(s: Setup) -> Setup:
    """In some runs a machine stands still for hours, beside maintenance."""
    rng = random.Random(f"paused {s.seed}")
    if rng.random() < 0.9:
        return s
    begins = jobs(s)
    names = rng.choices(list(begins), k=rng.choice((1, 1, 2)))
    pauses = (Blow(n, begins[n], rng.randrange(rng.choice((8, 30, 80))), rng.choice(_COUNTS), "pause") for n in names)
    return replace(s, blows=(*s.blows, *pauses), maintain_every_s=s.maintain_every_s or 1.0)


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
    blow = Blow("promote", at_s, rng.randrange(16), rng.choice(_COUNTS), rng.choice(_BLOWS))
    return replace(s, blows=(*s.blows, blow) if rng.random() < 0.7 else s.blows)


def _begun_beside_a_promotion(s: Setup) -> Setup:
    """A group begins when its replica takes over, and its first member stands still before it attaches, or before it joins."""
    rng = random.Random(f"begun {s.seed}")
    if not s.queries or s.promoted_s is None or rng.random() < 0.7:
        return s
    group, first_s = s.queries[-1].group, max(0.0, s.promoted_s - rng.choice((0.0, 0.5)))
    queries = tuple(replace(q, begins_s=max(q.begins_s, first_s)) if q.group == group else q for q in s.queries)
    last = queries[-1]
    queries = (*queries[:-1], replace(last, begins_s=first_s, ends_s=None))
    blow = Blow(last.instance, first_s, rng.randrange(3), "commits", rng.choice(("drop", "stall", "stall")))
    return replace(s, queries=queries, blows=(*s.blows, blow))


def jobs(s: Setup) -> dict[str, float]:
    """The names of those who do something in a run, each with the moment at which it begins."""
    found = {f"{p.query}{'ab'[twin]}": 0.0 for p in s.producers for twin in range(p.twins)}
    found |= {q.instance: q.begins_s for q in s.queries}
    found |= {f"scale{i}": scaling.at_s for i, scaling in enumerate(s.scalings)}
    found |= {f"alter{i}": altering.at_s for i, altering in enumerate(s.alterings)}
    found |= {f"replicate-{uri[6:]}": 0.0 for uri in (COPY, OTHER_COPY)[: s.replicas]}
    optional = {
        "maintain": None if s.maintain_every_s is None else 0.0,
        "add-column": s.column_added_s,
        "delete-messages": None if s.deleted_key is None else s.deleted_key[1],
        "promote": s.promoted_s,
        "promote-other": s.other_promoted_s,
        "promote-dead": s.dead_promoted_s,
        "remove": s.removed_s,
        "put-back": None if s.put_back_s is None else s.put_back_s[0],
        "ingress": None if s.ingress_s is None else s.ingress_s[0],
        "delete-group": None if s.delete_group_s is None else s.delete_group_s[1],
        "copy-stuck": s.copy_stuck_s,
        "reset": None if s.reset is None else s.reset.at_s,
        "anew": s.recreated_s,
        "redrive": 0.0 if s.redriven else None,
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


_COMMANDS = "scale", "alter", "promote", "ingress", "delete-group", "copy-stuck"
_COUNTS: tuple[Literal["operations", "commits", "turns"], ...] = ("operations", "commits", "turns")
_BLOWS: tuple[Literal["drop", "stall", "kill before", "kill after"], ...] = (
    "drop", "drop", "drop", "drop", "stall", "kill before", "kill after",
)  # fmt: skip


def _moment(rng: random.Random, first_s: float, last_s: float) -> float:
    """One of a few moments. What an actor does takes no time, so only what begins at the same moment meets."""
    return first_s + 0.5 * rng.randint(0, int((last_s - first_s) * 2))


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
