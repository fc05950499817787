"""When keys that are held back are released, and what is put back then."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.procedures import redrive as redriving
from spark_partq.storage.procedures.consume.left_out import LeftOut
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.replicas import there_fixture  # noqa: F401
from tests.storage.procedures.test_held_keys import Message, Producing, Query, dead, make, put_back


def died_of(store: str, deadly: int, *messages: Message) -> tuple[Producing, Query]:
    """A producer that has written these messages, and a query that has put one of them aside and read the rest."""
    make(store, partitions=1)
    producing, query = Producing(store), Query(store, {deadly})
    producing.put(*messages)
    query.run()
    return producing, query


def test_what_is_put_aside_while_others_are_put_back_waits_for_the_next_redrive(store: str) -> None:
    """Nobody has looked whether groups have read all behind it: here it is the first message of its key that fails."""
    producing, query = died_of(store, 1, ("b", 0))
    found = opened(store)
    found.table(0).refresh()  # as one that an application rejects, it holds no key
    DeadLetters(found.store, "dead", "g2").send(found, found.table(0), 1, DeadMessages(0, 1, "bad", 1))
    producing.put(("a", 1), ("a", 2))
    release, leave_out = redriving.release_keys, LeftOut.leave_out

    def put_aside(*arguments: Any) -> None:
        leave_out(*arguments)
        raise InterruptedError

    def meanwhile(aside: Any) -> bool:
        released = release(aside)
        with mock.patch.object(LeftOut, "leave_out", put_aside), pytest.raises(InterruptedError):
            query.run()
        return released

    with mock.patch.object(redriving, "release_keys", meanwhile):
        assert partq.redrive(store, "q") == {"q": 1}
    query.deadly.clear()
    query.run()
    assert dead(store) == [("a", 1, "dead"), ("a", 2, "held")]
    assert put_back(store) == {"q": 2}
    query.run()
    assert query.of("a") == [1, 2] and dead(store) == []


def test_keys_whose_messages_are_gone_are_released(store: str) -> None:
    """Their dead messages were deleted, so nothing is left to put back."""
    producing, query = died_of(store, 1, ("a", 1), ("b", 2))
    partq.delete_messages(store, "q", {"k": "a"})
    assert dead(store) == [] and open_group(Store(store), "g").state.held
    with pytest.raises(
        partq.KeysHeldError, match=r"that are put back\. (Stop the producers, .*\. )?Run `.*ingress disable q"
    ):
        partq.redrive(store, "q")
    assert put_back(store) == {}
    producing.put(("a", 3))
    query.run()
    assert query.of("a") == [3] and dead(store) == []


def test_what_is_put_aside_before_the_keys_are_released_is_put_back_with_the_rest(store: str) -> None:
    """The group reads its last message between the look and the release; then nothing holds the key any more."""
    producing, query = died_of(store, 1, ("a", 1))
    partq.set_ingress(store, "q", True)
    producing.put(("a", 2))
    partq.set_ingress(store, "q", False)
    release = redriving.release_keys

    def later(aside: Any) -> bool:
        query.run()
        return release(aside)

    with mock.patch.object(redriving, "release_keys", later):
        assert partq.redrive(store, "q") == {"q": 2}
    partq.set_ingress(store, "q", True)
    producing.put(("a", 3))
    query.deadly.clear()
    query.run()
    assert query.of("a") == [1, 2, 3] and dead(store) == []


def test_a_replica_is_left_alone(store: str, there: str) -> None:
    """S7: whatever is left in its dead-message queue. A fact there would be none of its primary's."""
    died_of(store, 1, ("a", 1), ("b", 2))
    for name in ("q", "dead"):
        partq.replicate(store, name, there)
    with pytest.raises(partq.ReplicaError, match="is a replica"):
        partq.redrive(there, "q")
    assert partq.replicate(store, "q", there).problem == ""
