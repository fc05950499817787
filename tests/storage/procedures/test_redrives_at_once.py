"""A redrive stands still in the middle, and another one puts the messages back meanwhile: the keys that are held since stay held (D2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.storage.group.handle import Group, open_group
from spark_partq.storage.procedures import release_keys
from spark_partq.storage.store import Store
from tests.storage.procedures.test_held_keys import Producing, Query, dead, make, put_back


def one_dead(store: str) -> tuple[Producing, Query]:
    """A message of key `a` has failed too often, all is read, and ingress is disabled for a redrive."""
    make(store, 1)
    producing, query = Producing(store), Query(store, {1})
    producing.put(("a", 1), ("b", 0))
    query.run()
    partq.set_ingress(store, "q", False)
    return producing, query


def put_back_meanwhile(store: str, query: Query, produce: Callable[[], None] = lambda: None) -> None:
    """Another redrive ends, producers may write, and the message fails again."""
    assert partq.redrive(store, "q") == {"q": 1}
    partq.set_ingress(store, "q", True)
    produce()
    query.run()


def test_a_key_that_is_held_again(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first redrive has found that all is read. Then another one ends, producers write again, and the message fails again."""
    producing, query = one_dead(store)

    def meanwhile() -> None:
        put_back_meanwhile(store, query, lambda: producing.put(("a", 2)))

    monkeypatch.setattr(release_keys, "_check_read", once_behind(release_keys._check_read, meanwhile))
    with pytest.raises(partq.KeysHeldError, match="producers may write later messages"):
        partq.redrive(store, "q")
    monkeypatch.undo()
    query.deadly = set()
    producing.put(("a", 3))
    query.run()
    assert dead(store) == [("a", 1, "dead"), ("a", 2, "held"), ("a", 3, "held")]
    assert put_back(store) == {"q": 3}
    query.run()
    assert query.of("a") == [1, 2, 3]


def test_a_key_that_is_held_again_beside_the_decision(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, when the redrive has read the group and is about to commit: the group's later facts make it decide once more."""
    _, query = one_dead(store)
    ends, calls = release_keys._ends, 0

    def paused(*arguments: Any) -> dict[int, int]:
        nonlocal calls
        calls, found = calls + 1, ends(*arguments)
        if calls == 2:  # the first call is before anything is decided
            put_back_meanwhile(store, query)
        return found

    monkeypatch.setattr(release_keys, "_ends", paused)
    with pytest.raises(partq.KeysHeldError, match="producers may write later messages"):
        partq.redrive(store, "q")
    assert open_group(Store(store), "g").state.held


def once_behind(called: Callable[..., None], act: Callable[[], None]) -> Callable[..., None]:
    done: list[Group] = []

    def both(queue: Any, group: Group, ends: Any) -> None:
        called(queue, group, ends)
        if not done:
            done.append(group)
            act()

    return both
