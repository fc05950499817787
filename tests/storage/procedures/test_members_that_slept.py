"""A query stands still so long that its session is over, and its group goes on without it, is deleted, or begins again (K2, Q8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core.group.events import Leave
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.subscription import Subscription
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import group_state, put
from tests.planners import Query


@pytest.fixture(autouse=True)
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stops a process stops all of its threads."""
    monkeypatch.setattr(Planner, "_start_threads", lambda _: None)


def create(store: str, *queues: str) -> None:
    for name in queues:
        partq.create_queue(store, name, "v bigint", partitions=1, rebalance_delay_ms=0)
        put(store, 0, range(5), queue=name)


def end_session(store: str, instance: str) -> None:
    """Another process finds that the session is over."""
    group = Group(Store.at(store), "g")
    group.refresh()
    group.decide(lambda: [Leave(instance, group.state.members[instance].incarnation, expired=True)], "rebalancer")


def once_before(monkeypatch: pytest.MonkeyPatch, name: str, meanwhile: Callable[[], object]) -> None:
    """Call `meanwhile` once, right before this method of a subscription is called."""
    before, left = getattr(Subscription, name), [meanwhile]

    def slept(*args: Any) -> Any:
        while left:
            left.pop()()
        return before(*args)

    monkeypatch.setattr(Subscription, name, slept)


def attached(store: str) -> dict[str, dict[str, int]]:
    return {name: dict(queue_state(Store.at(store), name).groups) for name in ("p", "q", "r")}


def about_to_find_r(store: str, monkeypatch: pytest.MonkeyPatch) -> Query:
    """A query that reads `p` and `q` by a pattern, which the new queue `r` matches, too."""
    create(store, "p", "q")
    query = Query(store, "a", queues=(), queue_pattern="[pqr]")
    assert query.next()
    create(store, "r")
    monkeypatch.setattr(Subscription, "check_is_due", lambda _: True)
    return query


@pytest.mark.parametrize("where", ["listed", "queue_changes", "_readable"])
@pytest.mark.parametrize("again", [False, True])
def test_a_query_with_a_pattern_attaches_no_deleted_group(
    store: str, monkeypatch: pytest.MonkeyPatch, where: str, again: bool
) -> None:
    """Q8: it is about to add a queue to its group. No queue may wait for a group that is not there, nor for one whose members do not read it."""
    query = about_to_find_r(store, monkeypatch)

    def meanwhile() -> None:
        end_session(store, "a")
        partq.delete_group(store, "g")
        if again:
            Consumer(store, "b", queues=("q",))

    once_before(monkeypatch, where, meanwhile)
    with pytest.raises(partq.GroupNotFoundError):
        query.next()
    assert attached(store) == {"p": {}, "q": {"g": 1} if again else {}, "r": {}}
    if again:
        assert [queue.name for queue in group_state(store).queues.values()] == ["q"]


def test_a_query_whose_session_is_over_attaches_its_group_to_nothing(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q8: the other members do not read what matches its pattern. It reads the new queue once it has joined again."""
    query = about_to_find_r(store, monkeypatch)

    def meanwhile() -> None:
        end_session(store, "a")
        Consumer(store, "b", queues=("q",))

    once_before(monkeypatch, "listed", meanwhile)
    query.next()
    assert attached(store) == {"p": {"g": 0}, "q": {"g": 0}, "r": {}}
    query.next()
    assert attached(store)["r"] == {"g": 0} and set(group_state(store).members) == {"a", "b"}


def test_a_query_that_joins_again_does_not_make_its_group_again(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q8: the group was deleted after the query had found that its session is over. Who starts a query begins at `startingOffsets`."""
    create(store, "q")
    query = Query(store, "a", starting_offsets="latest")
    query.next()
    put(store, 0, range(2))
    assert query.next() == {0: (5, 7)} and query.next() == {}
    end_session(store, "a")
    once_before(monkeypatch, "reopen", lambda: partq.delete_group(store, "g"))
    with pytest.raises(partq.GroupNotFoundError, match="was deleted while this program used it"):
        query.next()
    assert not group_state(store).exists and not queue_state(Store.at(store), "q").groups


def test_a_query_that_joins_again_fences_no_newer_process(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """K6: the newer process of the instance has joined since the older one found that its session is over."""
    create(store, "q")
    old = Query(store, "a", instance_id="a")
    assert old.next() == {0: (0, 5)}
    end_session(store, "a")
    new: list[Query] = []

    def start() -> None:
        new.append(Query(store, "a", instance_id="a"))
        assert new[0].next() == {0: (0, 5)}

    once_before(monkeypatch, "reopen", start)
    for _ in range(2):
        with pytest.raises(partq.FencedError, match="was started again"):
            old.next()
    put(store, 0, range(3))
    assert new[0].next() == {0: (5, 8)}
