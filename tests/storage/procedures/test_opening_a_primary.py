"""A primary that comes back after its replica was promoted without it: whoever opens it first is told so, and fences it (S7)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.storage.procedures import promote as promotions
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.procedures.reset_offsets import reset_offsets
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import opened, put
from tests.replicas import sync


@pytest.fixture
def superseded(store: str, tmp_path: Path) -> str:
    """Queue `q`, which nobody has told of the promotion. Group `g` has read some of it, and has left."""
    there, away = str(tmp_path / "there"), f"{store}-away"
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(5))
    member = Consumer(store, "a")
    member.ack(0, 3)
    member.leave()
    sync(store, there)
    os.rename(store, away)
    partq.promote(there, "q", force=True)
    os.rename(away, store)
    assert opened(store).state.fenced_by is None
    return store


def alter(store: str, **settings: object) -> None:
    partq.alter_queue(store, "q", **settings)


OPENING: dict[str, Callable[[str], object]] = {
    "a producer": lambda store: Producer(opened(store)).refresh(),
    "a query": lambda store: Planner(ConsumerSettings(Store(store), ("q",)), "g", "a"),
    "a query with a pattern": lambda store: Planner(ConsumerSettings(Store(store), queue_pattern="q"), "g", "a"),
    "a reset": lambda store: reset_offsets(Store(store), "g", "earliest"),
    "a reset of named queues": lambda store: reset_offsets(Store(store), "g", "earliest", ["q"], dry_run=True),
    "new settings": lambda store: alter(store, retention_ms=5),
    "new settings with another queue": lambda store: alter(store, dead_letter_queue="dead"),
    "another partition count": lambda store: partq.scale(store, "q", 2),
}


@pytest.mark.parametrize("who", OPENING)
def test_who_opens_it_is_told_so(superseded: str, who: str) -> None:
    with pytest.raises(partq.QueueFencedError, match="there"):
        OPENING[who](superseded)
    state = opened(superseded).state
    assert state.fenced_by is not None and state.resets == {}
    assert (state.settings.retention_ms, state.scaling) == (None, None)
    assert partq.list_queues(superseded) == ["q"]


def test_who_deletes_dead_messages_is_told_so(store: str, tmp_path: Path) -> None:
    """The dead-message queue has a replica that was promoted; of the queue itself nothing is deleted before that is known."""
    there, away = str(tmp_path / "there"), f"{store}-away"
    partq.create_queue(store, "q", "v bigint", key="v", partitions=1, dead_letter_queue="dead")
    put(store, 0, [7])
    partq.replicate(store, "dead", there)
    os.rename(store, away)
    partq.promote(there, "dead", force=True)
    os.rename(away, store)
    with pytest.raises(partq.QueueFencedError, match="there"):
        partq.delete_messages(store, "q", {"v": 7})
    assert opened(store).partitions[0].index.left.tolist() == [1]


def test_a_primary_that_could_not_be_fenced(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could be read, and not written, when its replica was promoted with force."""
    there = str(tmp_path / "there")
    partq.create_queue(store, "q", "v bigint", partitions=1)
    put(store, 0, range(5))
    sync(store, there)
    with monkeypatch.context() as patch:
        patch.setattr(promotions, "fence", mock.Mock(side_effect=partq.StoreUnavailableError("no answer")))
        with pytest.raises(partq.ReplicaError, match="no answer"):
            partq.promote(there, "q")
        found = partq.promote(there, "q", force=True)
    assert found.fenced is False and "no answer" in found.problem
    assert opened(store).state.fenced_by is None
    with pytest.raises(partq.QueueFencedError, match="there"):
        Producer(opened(store)).refresh()
    assert opened(store).state.fenced_by == there
