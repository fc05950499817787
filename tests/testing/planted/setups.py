"""In which runs a bug can show, and runs that are not drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from spark_partq.testing.simulation.setup import Blow, Faults, ProducerSetup, QuerySetup, Scaling, Setup


# ---- of those that are drawn
def resized(s: Setup) -> bool:
    return bool(s.scalings)


def resized_and_read(s: Setup) -> bool:
    return bool(s.scalings and s.queries) and s.partitions != 0


def read(s: Setup) -> bool:
    return bool(s.queries)


def shared(s: Setup) -> bool:
    """A group of several members."""
    return max((sum(q.group == g.group for q in s.queries) for g in s.queries), default=0) > 1


def waits(s: Setup) -> bool:
    return shared(s) and s.rebalance_delay_ms > 0


def moves(s: Setup) -> bool:
    """Partitions are handed off in time."""
    return shared(s) and s.max_handoff_time_ms > 0 and s.partitions > 1


def restarts(s: Setup) -> bool:
    return read(s) and s.faults.kill > 0


def renamed(s: Setup) -> bool:
    return any(q.renamed for q in s.queries)


def manual(s: Setup) -> bool:
    return any(q.sequence for q in s.queries)


def drained(s: Setup) -> bool:
    return any(scaling.mode == "drain" for scaling in s.scalings)


def promoted(s: Setup) -> bool:
    return s.promoted_s is not None and not s.scalings


def stuck(s: Setup) -> bool:
    return s.partitions == 0 and bool(s.scalings)


def twins(s: Setup) -> bool:
    return any(p.twins > 1 for p in s.producers)


def both(*conditions: Callable[[Setup], bool]) -> Callable[[Setup], bool]:
    return lambda s: all(condition(s) for condition in conditions)


# ---- made of those
def without_answers(s: Setup) -> Setup:
    """Every twentieth answer of a store is lost."""
    return replace(s, faults=Faults(unknown=0.05))


def listing(*assignors: tuple[str, ...]) -> Callable[[Setup], Setup]:
    """Each member lists one of these."""

    def change(s: Setup) -> Setup:
        queries = [replace(q, assignors=assignors[n % len(assignors)]) for n, q in enumerate(s.queries)]
        return replace(s, queries=tuple(queries))

    return change


@dataclass(frozen=True)
class AsIs:
    """A run that was made for bugs: no known finding can show in it."""

    setup: Setup

    def __call__(self, drawn: Setup) -> Setup:
        return replace(self.setup, seed=drawn.seed, drops=drawn.drops)


def as_is(setup: Setup) -> AsIs:
    """This one, whatever is drawn, but for the seed and the steps at which priorities drop."""
    return AsIs(setup)


BUSY = tuple(ProducerSetup(f"s{i}", f"query-{i}", 5, pause_s=0.5) for i in range(2))
KILLS = Faults(kill=0.01)

# A count that goes down and up again, with batches before and after, and consumers that lag behind.
DOWN_AND_UP = Setup(
    0,
    partitions=3,
    producers=BUSY,
    queries=(
        QuerySetup("g", "g-0", 1, work_s=0.5, max_rows=6),
        QuerySetup("g", "g-1", 1, begins_s=1.0, work_s=0.8, max_rows=6),
    ),
    scalings=(Scaling(0.5, 1), Scaling(2.0, 3)),
)
# Counts that follow each other before anybody has read what the first map placed.
OFTEN = replace(
    DOWN_AND_UP,
    producers=tuple(replace(p, pause_s=0.2) for p in BUSY),
    scalings=(Scaling(0.4, 2), Scaling(0.7, 4), Scaling(1.0, 3), Scaling(1.3, 5)),
    faults=Faults(slow=0.1),
)
READ_OFTEN = replace(OFTEN, faults=Faults(slow=0.3), scalings=tuple(Scaling(0.3 * n, 1 + n % 3) for n in range(1, 9)))
# Everything is read and acknowledged before the count changes.
LATE = replace(DOWN_AND_UP, scalings=(Scaling(5.0, 1),), chaos_s=6.0)
TWO_GROUPS = replace(DOWN_AND_UP, queries=(*DOWN_AND_UP.queries, QuerySetup("h", "h-0", 1, work_s=0.8, max_rows=2)))
# Many producers at every seal.
SEALED_OFTEN = replace(
    OFTEN,
    keys=3,
    queries=(),
    producers=tuple(ProducerSetup(f"s{i}", f"query-{i}", 9, pause_s=0.0) for i in range(4)),
    faults=Faults(slow=0.3),
    scalings=tuple(Scaling(0.1 + 0.2 * n, 1 + n % 3) for n in range(8)),
)
DRAINED = replace(DOWN_AND_UP, scalings=(Scaling(1.0, 2, "drain"),))
# A sink with a batch of many rows, of which two processes run, and maps that change under it.
TWINS = replace(
    DOWN_AND_UP, producers=(ProducerSetup("s", "query", 5, twins=2, pause_s=0.0),), faults=KILLS, queries=()
)
TWINS_AND_READ = replace(
    TWINS,
    producers=(replace(TWINS.producers[0], twins=1),),
    queries=(QuerySetup("g", "g-0"),),
    faults=Faults(kill=0.03),
)
# A queue that becomes partitioned, with what is left in its parent.
LEFT_IN_THE_PARENT = replace(
    DOWN_AND_UP,
    partitions=0,
    scalings=(Scaling(0.5, 2),),
    copy_stuck_s=1.0,
    queries=(QuerySetup("g", "g-0", begins_s=3.0),),
)
LEFT_TO_TWO_GROUPS = replace(
    LEFT_IN_THE_PARENT,
    scalings=(Scaling(1.5, 2),),
    copy_stuck_s=2.0,
    queries=(QuerySetup("g", "g-0"), QuerySetup("h", "h-0", work_s=0.8, max_rows=2)),
)
# Two queries with one sink id.
ONE_SINK = Setup(
    0, producers=(ProducerSetup("s", "query", 5), ProducerSetup("s", "another", 5)), faults=Faults(slow=0.2)
)
# Batches that are computed again with other rows: by twins, in a queue that is scaled, by two processes of which one is slow.
RECOMPUTED = replace(
    TWINS, producers=(replace(TWINS.producers[0], recomputes=True),), faults=Faults(kill=0.02, slow=0.2)
)
SLOW_TWINS = replace(
    RECOMPUTED,
    partitions=4,
    scalings=(),
    producers=(ProducerSetup("s", "query", 8, twins=2, pause_s=0.0, recomputes=True),),
    faults=Faults(slow=0.2, stall=0.02, stall_s=0.3),
)
# What comes while ingress is disabled is discarded, by a producer that dies now and then.
DISCARDED = Setup(
    0,
    producers=(ProducerSetup("s", "query", 8, pause_s=0.2, recomputes=True),),
    ingress_s=(0.2, 0.8),
    discards=True,
    faults=Faults(kill=0.05),
)
# Consumers that come and go while there is always something to read.
ROLLING = Setup(
    0,
    partitions=4,
    keys=5,
    producers=tuple(replace(p, batches=8, pause_s=0.5) for p in BUSY),
    queries=(
        QuerySetup("g", "g-0", 1, work_s=1.5),
        QuerySetup("g", "g-1", 1, begins_s=1.0, ends_s=3.0, work_s=0.5),
        QuerySetup("g", "g-2", 2, begins_s=2.0, work_s=1.0),
        QuerySetup("g", "g-3", 1, begins_s=3.5, ends_s=4.5),
    ),
    max_handoff_time_ms=3_000,
    chaos_s=6.0,
)
# The same, with handoffs that end before a micro-batch does.
HASTY = replace(ROLLING, max_handoff_time_ms=500)
ROLLING_WITH_KILLS = replace(ROLLING, faults=Faults(kill=0.003, slow=0.1))
HASTY_WITH_KILLS = replace(HASTY, faults=ROLLING_WITH_KILLS.faults)
BY_HAND = replace(ROLLING, queries=tuple(replace(q, sequence=2) for q in ROLLING.queries))
MAINTAINED = replace(ROLLING, maintain_every_s=0.5)
PROMOTED = replace(ROLLING, replicas=1, promoted_s=2.0, queries=ROLLING.queries[:1])
# Producers that append all the time while a replica takes over.
MOVED = replace(
    SEALED_OFTEN,
    scalings=(),
    replicas=1,
    promoted_s=1.0,
    producers=tuple(replace(p, pause_s=0.1, batches=15) for p in SEALED_OFTEN.producers),
    chaos_s=4.0,
)
# Producers stand still half-way while a pass goes on, until the primary is lost: they finish their batches with the rows that they had there.
MOVED_HALF_WAY = replace(
    MOVED,
    partitions=4,
    keys=5,
    producers=tuple(ProducerSetup(f"s{i}", f"query-{i}", 25, pause_s=0.0, recomputes=True) for i in range(3)),
    promoted_s=2.0,
    primary_lost=True,
    blows=tuple(Blow(f"query-{i}a", 1.7 + 0.1 * i, 2, "commits", "stall") for i in range(3)),
    faults=Faults(slow=0.5),
    chaos_s=8.0,
)
# A change of the count stands still before it seals, until a replica has taken over.
MOVED_BESIDE_A_RESIZE = replace(
    MOVED,
    producers=MOVED.producers[:1],
    scalings=(Scaling(1.0, 5),),
    promoted_s=1.2,
    blows=(Blow("scale0", 1.0, 13, "commits", "stall"),),
    faults=Faults(),
)
# A pass stands still after it has read the control table while the count changes, and the change when it has opened its map; then the
# primary is lost, and nobody asks for the change again.
LOST_BESIDE_A_RESIZE = Setup(
    0,
    producers=(ProducerSetup("s", "query", 5),),
    queries=(QuerySetup("g", "g-0"),),
    scalings=(Scaling(1.0, 3, repeated=False),),
    replicas=1,
    promoted_s=1.5,
    primary_lost=True,
    blows=(Blow("replicate-copy", 1.0, 54), Blow("scale0", 1.0, 11, "commits", "stall")),
    chaos_s=4.0,
)
# Counts that change while sequences are open, whose ends lie above the cuts; two applications that acknowledge by hand.
OPEN_SEQUENCES = replace(
    DOWN_AND_UP,
    keys=3,
    queries=tuple(replace(q, sequence=3, work_s=0.3) for q in DOWN_AND_UP.queries),
    scalings=(Scaling(1.0, 2), Scaling(2.0, 4)),
    max_barrier_wait_ms=4_000,
    chaos_s=5.0,
)
# The same with partitions that change their owners.
OPEN_SEQUENCES_MOVED = replace(
    OPEN_SEQUENCES,
    partitions=4,
    queries=(
        QuerySetup("g", "g-0", 1, sequence=3, work_s=0.3),
        QuerySetup("g", "g-1", 1, begins_s=0.5, ends_s=1.5, sequence=3),
        QuerySetup("g", "g-2", 1, begins_s=2.0, sequence=3, work_s=0.5),
    ),
    faults=Faults(kill=0.003, slow=0.1),
)
# Sequences that are open for seconds, and a second application that takes over some of what the first was given.
LONG_SEQUENCES = Setup(
    0,
    partitions=4,
    keys=5,
    producers=tuple(ProducerSetup(f"s{i}", f"query-{i}", 10, pause_s=0.3) for i in range(2)),
    queries=(QuerySetup("g", "g-0", 1, sequence=12), QuerySetup("g", "g-1", 1, begins_s=1.2, sequence=12)),
    scalings=(Scaling(0.6, 6),),
    max_barrier_wait_ms=10_000,
    chaos_s=5.0,
)
# Two replicas of a lost primary are promoted at once; one of them falls behind somewhere.
BOTH_PROMOTED = Setup(
    0, producers=(ProducerSetup("s", "query", 3),), replicas=2, promoted_s=1.5, other_promoted_s=1.5, primary_lost=True,
    faults=Faults(slow=0.3),
)  # fmt: skip
# A replica is removed while it is promoted.
REMOVED_BESIDE = replace(BOTH_PROMOTED, replicas=1, other_promoted_s=None, primary_lost=False, removed_s=1.5)
# The promotion sleeps after it has said that it fences the primary.
FENCED_LATE = replace(
    REMOVED_BESIDE,
    producers=tuple(replace(p, batches=12) for p in BUSY),
    blows=(Blow("promote", 1.5, 1, "commits", "stall"),),
    faults=Faults(),
)
# A primary is put back while its replica is kept.
PUT_BACK = replace(
    BOTH_PROMOTED, replicas=1, promoted_s=None, other_promoted_s=None, primary_lost=False, put_back_s=(1.0, 2.5),
    producers=tuple(replace(p, batches=12) for p in BUSY),
)  # fmt: skip
# A group begins when the replica takes over: its only member has attached, and stands still before it joins; or before it attaches.
BEGUN_BESIDE_A_PROMOTION = Setup(
    0,
    producers=(ProducerSetup("s", "query", 3, pause_s=0.0),),
    queries=(QuerySetup("g", "g-0", begins_s=1.0),),
    replicas=1,
    promoted_s=1.0,
    blows=(Blow("g-0", 1.0, 1, "commits", "stall"),),
    chaos_s=6.0,
)
ATTACHED_BESIDE_A_PROMOTION = replace(
    BEGUN_BESIDE_A_PROMOTION, blows=(Blow("g-0", 1.0, 0, "commits", "stall"),), faults=Faults(stall_s=0.6)
)
# Applications of one group that write into one table at once, each slow now and then.
WRITING_AT_ONCE = Setup(
    0,
    partitions=4,
    producers=(ProducerSetup("s", "query", 6, pause_s=0.5),),
    queries=tuple(QuerySetup("g", f"g-{i}", writes=True) for i in range(3)),
    drops=(300, 400, 500, 600, 700, 800),
    faults=Faults(slow=0.3),
    chaos_s=5.0,
)
