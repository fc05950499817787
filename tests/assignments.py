"""What the tests of assignors share: reading assignments and judging them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hypothesis import strategies as st

from spark_partq.core.assignors import Member
from spark_partq.core.ids import QueuePartition

QUEUES = ("a", "b", "c", "d", "e")


def owners(assignment: Mapping[str, Sequence[QueuePartition]]) -> dict[QueuePartition, str]:
    """Partition to member; an error if one has two."""
    found = [(partition, member) for member, mine in assignment.items() for partition in mine]
    assert len(dict(found)) == len(found), "a partition has two owners"
    return dict(found)


def loads(owner: Mapping[QueuePartition, str], members: Iterable[Member]) -> dict[str, int]:
    counts = Counter(owner.values())
    return {member.id: counts[member.id] for member in members}


def subscribed_partitions(members: Iterable[Member], counts: Mapping[str, int]) -> set[QueuePartition]:
    """Every partition that somebody subscribes to."""
    subscribed = {queue for member in members for queue in member.queues}
    return {(queue, number) for queue, count in counts.items() if queue in subscribed for number in range(count)}


def assert_valid(owner: Mapping[QueuePartition, str], members: Sequence[Member], counts: Mapping[str, int]) -> None:
    """Each wanted partition has one owner, who subscribes to its queue."""
    assert set(owner) == subscribed_partitions(members, counts)
    queues = {member.id: set(member.queues) for member in members}
    for (queue, _), member in owner.items():
        assert queue in queues[member]


def improving_moves(
    owner: Mapping[QueuePartition, str], members: Sequence[Member]
) -> Iterator[tuple[QueuePartition, str]]:
    """Moves of a partition to a member that has at least two fewer than its owner."""
    count = loads(owner, members)
    for (queue, number), mine in owner.items():
        for member in members:
            if queue in member.queues and count[member.id] + 2 <= count[mine]:
                yield (queue, number), member.id


def step_by_step(current: Mapping[QueuePartition, str | None], flows: Sequence[str]) -> dict[QueuePartition, str]:
    """R6, steps 2 to 6 as they are written: one partition after the other."""
    owned: dict[str, list[QueuePartition]] = {flow: [] for flow in flows}
    for partition, flow in current.items():
        if flow in owned:
            owned[flow].append(partition)
    for partition, flow in current.items():
        if flow not in owned and flows:
            min(owned.values(), key=len).append(partition)
    while flows and len(max(owned.values(), key=len)) - len(min(owned.values(), key=len)) > 1:
        min(owned.values(), key=len).append(max(owned.values(), key=len).pop())
    return {partition: flow for flow, mine in owned.items() for partition in mine}


def unevenness(sizes: Iterable[int]) -> int:
    return sum(size * size for size in sizes)


def pair_score(sizes: Iterable[int]) -> int:
    """Sum of the differences of all pairs."""
    ordered = sorted(sizes)
    return sum(b - a for i, a in enumerate(ordered) for b in ordered[i + 1 :])


def kept(owner: Mapping[QueuePartition, str], current: Mapping[QueuePartition, str | None]) -> int:
    return sum(owner.get(partition) == member for partition, member in current.items() if member is not None)


COUNTS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 6), max_size=4)
WEIGHTS = st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0])


@st.composite
def groups(draw: st.DrawFn, equal: bool | None = None, most: int = 6) -> tuple[list[Member], dict[str, int]]:
    """Members and partition counts."""
    counts = draw(COUNTS)
    names = draw(
        st.lists(st.sampled_from([f"{i}/{k}" for i in "abcd" for k in (0, 1, 10)]), unique=True, max_size=most)
    )
    same = draw(st.booleans()) if equal is None else equal
    all_queues = draw(st.lists(st.sampled_from(QUEUES), unique=True))
    members = []
    for name in names:
        queues = all_queues if same else draw(st.lists(st.sampled_from(QUEUES), unique=True))
        members.append(Member(name, tuple(queues), draw(st.sampled_from([None, None, f"s{name}"]))))
    return members, counts


@st.composite
def currents(draw: st.DrawFn, members: Sequence[Member], counts: Mapping[str, int]) -> dict[QueuePartition, str | None]:
    """Who has what: a member, one that is gone, nobody; also of partitions that are no more."""
    has = st.sampled_from([None, "gone", *(member.id for member in members)])
    lopsided = st.just(members[0].id) if members else st.none()
    partitions = [(queue, number) for queue, count in counts.items() for number in range(count + 1)]
    one = draw(st.sampled_from([has, st.one_of(has, lopsided, lopsided)]))
    return {partition: draw(one) for partition in partitions}


def claiming(
    members: Sequence[Member], current: Mapping[QueuePartition, str | None], generation: int = 1
) -> list[Member]:
    """The members, each with what it has as its claim."""
    return [
        Member(
            m.id,
            m.queues,
            m.instance_id,
            [partition for partition, member in current.items() if member == m.id],
            generation,
            m.weight,
        )
        for m in members
    ]
