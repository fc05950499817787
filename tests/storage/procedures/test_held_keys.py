"""With ``dead_letter_order='hold'`` what follows a dead message of its key waits in the dead-message queue, and comes back in order."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.group import held_keys
from spark_partq.core.queue.records import BatchRecord
from spark_partq.storage.arrow import arrow_schema
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.procedures.consume import held, planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.consume.subscription import Subscription
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.procedures.place import write_rows
from spark_partq.storage.procedures.produce import Producer
from spark_partq.storage.queue.messages import read_slice
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.storage.procedures.test_dead_letters import _NOTHING

Message = tuple[str | None, int]


def make(store: str, partitions: int = 2, queue: str = "q", **settings: Any) -> None:
    settings = {"max_deliveries": 2, "dead_letter_queue": "dead", "dead_letter_order": "hold", **settings}
    partq.create_queue(
        store, queue, "k string, v bigint", key="k", partitions=partitions, rebalance_delay_ms=0, **settings
    )


class Producing:
    """Appends messages as a sink does, each call a batch."""

    def __init__(self, store: str, queue: str = "q") -> None:
        self._store, self._queue, self._batch = store, queue, 0

    def put(self, *messages: Message) -> None:
        queue = opened(self._store, self._queue)
        keys, values = zip(*messages, strict=True)
        rows = pa.RecordBatch.from_arrays([pa.array(keys, pa.string()), pa.array(values, pa.int64())], ["k", "v"])
        rows = rows.cast(arrow_schema(queue.state.schema))
        Producer(queue).write(
            BatchRecord("s", self._batch), lambda: write_rows(queue, [(0, rows)]), lambda: rows.num_rows
        )
        self._batch += 1


class Query:
    """A query whose process dies of some messages; its checkpoint stays."""

    def __init__(self, store: str, deadly: set[int], instance: str = "a") -> None:
        self._settings, self._instance = ConsumerSettings(Store(store), ("q",)), instance
        self._schema = arrow_schema(opened(store).state.schema)
        self.deadly, self.offsets, self.committed = deadly, [_NOTHING], 0
        self.done: list[Message] = []

    def run(self) -> None:
        """Start it again until there is nothing to do."""
        for _ in range(40):
            if self._run():
                return
        raise AssertionError("it does not come to its end")

    def _run(self) -> bool:
        found = planner.Planner(self._settings, "g", self._instance)
        found.stop_at_current_ends()
        if self.committed < len(self.offsets) - 1 and not self._batch(found):
            return False
        while (end := found.next(self.offsets[-1], Limits())) is not None:
            self.offsets.append(end)
            if not self._batch(found):
                return False
        found.leave()
        return True

    def _batch(self, found: planner.Planner) -> bool:
        start, end = self.offsets[-2:]
        given = [
            (row["k"], row["v"])
            for pieces in found.tasks(start, end)
            for piece in pieces
            for _, rows in read_slice(self._settings.store, piece.slice, self._schema)
            for row in rows.to_pylist()
        ]
        if self.deadly & {value for _, value in given}:
            return False
        self.done += given
        self.committed = len(self.offsets) - 1
        return True

    def of(self, key: str | None) -> list[int]:
        return [value for k, value in self.done if k == key]


def dead(store: str, redriven: bool = False) -> list[tuple[str | None, int, str]]:
    return [
        (m.payload["k"], m.payload["v"], m.origin["dead_reason"])
        for m in partq.dead_letters(store, "q")
        if m.redriven == redriven
    ]


def put_back(store: str, name: str = "q") -> dict[str, int]:
    partq.set_ingress(store, "q", False)
    found = partq.redrive(store, name)
    partq.set_ingress(store, "q", True)
    return found


MANY: list[Message] = [(f"k{n % 5}", n) for n in range(60)]


def test_what_follows_a_dead_message_of_its_key_comes_back_in_order(store: str) -> None:
    """Also what comes in later batches; the other keys go on, and so do messages without a key."""
    make(store)
    producing = Producing(store)
    producing.put(*MANY, (None, 100), (None, 101))
    query = Query(store, {7})
    query.run()
    producing.put(("k2", 200), ("k3", 201), (None, 202))
    query.run()
    assert query.of("k2") == [2]
    expected = [*range(7, 60, 5), 200]
    assert [v for k, v, _ in dead(store)] == expected
    assert [reason for _, _, reason in dead(store)] == ["dead"] + ["held"] * (len(expected) - 1)
    for key in ("k0", "k1", "k3", "k4"):
        of = [v for k, v in MANY if k == key] + ([201] if key == "k3" else [])
        assert query.of(key) == of
    assert sorted(query.of(None)) == [100, 101, 202]
    assert put_back(store) == {"q": len(expected)}
    producing.put(("k2", 300))
    query.deadly.clear()
    query.run()
    assert query.of("k2") == [2, *expected, 300] and dead(store) == []
    kinds = [row["kind"] for row in open_group(Store(store), "g").history()]
    assert kinds.count("KeysReleased") == 1


def test_a_message_that_fails_again_holds_the_rest_of_its_key_again(store: str) -> None:
    make(store, partitions=1)
    producing = Producing(store)
    producing.put(("a", 1), ("a", 2), ("b", 3), ("a", 4))
    query = Query(store, {2})
    query.run()
    put_back(store)
    producing.put(("a", 5))
    query.run()
    assert query.of("a") == [1] and query.of("b") == [3]
    assert [v for _, v, _ in dead(store)] == [2, 4, 5]
    query.deadly.clear()
    put_back(store)
    query.run()
    assert query.of("a") == [1, 2, 4, 5]


def test_another_owner_holds_the_same_keys(store: str) -> None:
    """Also after the partition count has changed, when the key may be in another partition."""
    make(store, partitions=1)
    producing = Producing(store)
    producing.put(("a", 1), ("b", 2))
    Query(store, {1}).run()
    partq.scale(store, "q", 3)
    producing.put(("a", 3), ("b", 4), ("c", 5))
    other = Query(store, set(), "other")
    other.run()
    assert sorted(other.done) == [("b", 4), ("c", 5)]
    assert dead(store) == [("a", 1, "dead"), ("a", 3, "held")]


def test_keys_that_expire_are_held_too(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, partitions=1, message_ttl_ms=60_000, expired_messages="dead_letter")
    producing = Producing(store)
    producing.put(("a", 1), ("b", 2))
    query, late = Query(store, set()), Store.now_ms
    monkeypatch.setattr(Store, "now_ms", lambda self: late(self) + 61_000)
    query.run()
    monkeypatch.setattr(Store, "now_ms", late)
    producing.put(("c", 3), ("a", 4))
    query.run()
    assert query.done == [("c", 3)]
    assert [(v, reason) for _, v, reason in dead(store)] == [(1, "expired"), (2, "expired"), (4, "held")]


def test_what_is_held_is_not_discarded_as_too_old(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a person, and comes back as it is; what is too old of other keys is discarded."""
    make(store, partitions=1, message_ttl_ms=60_000)
    producing = Producing(store)
    producing.put(("a", 1))
    query, late = Query(store, {1}), Store.now_ms
    query.run()
    producing.put(("b", 2), ("a", 3), ("b", 4))
    monkeypatch.setattr(Store, "now_ms", lambda self: late(self) + 61_000)
    query.run()
    assert query.done == [] and [v for _, v, _ in dead(store)] == [1, 3]
    bodies = [json.loads(r["body"]) for r in open_group(Store(store), "g").history() if r["kind"] == "Skipped"]
    assert [body["why"] for body in bodies] == ["dead", "expired", "held", "expired"]


@pytest.mark.parametrize(("before", "after"), [(2, 3), (4, 2), (3, 1)])
def test_the_order_of_a_key_in_a_dead_message_queue_that_was_resized(store: str, before: int, after: int) -> None:
    """Its later messages lie in another partition there, which may have a lower number."""
    make(store)
    partq.scale(store, "dead", before)
    producing = Producing(store)
    producing.put(*MANY)
    query = Query(store, set(range(5)))
    query.run()
    partq.scale(store, "dead", after)
    producing.put(*((key, value + 60) for key, value in MANY))
    query.run()
    assert len(dead(store)) == 120
    query.deadly.clear()
    assert put_back(store) == {"q": 120}
    query.run()
    for key in {key for key, _ in MANY}:
        assert query.of(key) == [v for k, v in MANY if k == key] + [v + 60 for k, v in MANY if k == key]


def test_put_back_is_refused_while_anything_may_come_before(store: str) -> None:
    make(store)
    producing = Producing(store)
    producing.put(("a", 1), ("a", 2))
    query = Query(store, {1})
    query.run()
    before = dead(store)
    with pytest.raises(partq.KeysHeldError, match="ingress disable q"):
        partq.redrive(store, "q")
    producing.put(("a", 3))
    partq.set_ingress(store, "q", False)
    with pytest.raises(partq.KeysHeldError, match="'g' has not read all messages"):
        partq.redrive(store, "q")
    assert dead(store) == before
    query.run()
    assert partq.redrive(store, "q") == {"q": 3}
    assert partq.redrive(store, "q") == {}


def test_put_back_waits_for_a_group_that_is_about_to_hold_a_key(store: str) -> None:
    """Its query has put the message aside, and died before the group knew of it."""
    make(store, partitions=1, max_deliveries=3)
    Producing(store).put(("a", 1), ("a", 2))
    query = Query(store, {1})
    assert not query._run()
    queue = opened(store)
    DeadLetters(queue.store, "dead", "g").send(queue, queue.table(0), 1, DeadMessages(0, 1, "dead", 3))
    with pytest.raises(partq.KeysHeldError, match="ingress disable q"):
        partq.redrive(store, "q")
    partq.set_ingress(store, "q", False)
    with pytest.raises(partq.KeysHeldError, match="'g' has not read all messages"):
        partq.redrive(store, "q")
    query.run()
    assert put_back(store) == {"q": 2}
    query.deadly.clear()
    query.run()
    assert query.of("a") == [1, 2]


def test_redrive_that_is_killed_goes_on(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the release and the first message that is put back nothing is lost, and the order stays."""
    make(store, partitions=1)
    producing = Producing(store)
    producing.put(("a", 1), ("a", 2))
    query = Query(store, {1})
    query.run()
    partq.set_ingress(store, "q", False)
    with monkeypatch.context() as patch:
        patch.setattr("spark_partq.storage.procedures.redrive._redrive", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            partq.redrive(store, "q")
    query.deadly.clear()
    query.run()
    assert put_back(store) == {"q": 2}
    producing.put(("a", 3))
    query.run()
    assert query.of("a") == [1, 2, 3]


def test_skip_goes_on_with_held_keys(store: str) -> None:
    make(store, partitions=1)
    producing = Producing(store)
    producing.put(("a", 1), ("a", 2))
    query = Query(store, {1})
    query.run()
    partq.alter_queue(store, "q", dead_letter_order="skip")
    producing.put(("a", 3))
    query.run()
    assert query.of("a") == [3]
    assert partq.redrive(store, "q") == {"q": 2}
    partq.alter_queue(store, "q", dead_letter_order="hold")
    query.deadly.clear()
    query.run()
    assert query.of("a") == [3, 1, 2]


def test_positions_that_are_set_begin_the_order_anew(store: str) -> None:
    make(store, partitions=1)
    producing = Producing(store)
    producing.put(("a", 1), ("a", 2))
    query = Query(store, {1})
    query.run()
    partq.reset_offsets(store, "g", "earliest")
    query.deadly.clear()
    query.run()
    assert query.of("a") == [1, 2]


def test_no_more_keys_are_held_than_a_group_can_remember(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query stops, with nothing left out, and goes on when that is allowed."""
    make(store, partitions=1)
    Producing(store).put(("a", 1), ("b", 2), ("c", 3), ("d", 4))
    monkeypatch.setattr(held_keys, "MOST", 2)
    query = Query(store, {1, 2, 3})
    with pytest.raises(partq.KeysHeldError, match="dead_letter_order='skip'"):
        query.run()
    assert [v for _, v, _ in dead(store)] == [1, 2] and query.done == []
    partq.alter_queue(store, "q", dead_letter_order="skip")
    query.run()
    assert query.done == [("d", 4)]


def test_so_many_messages_are_looked_at_before_a_plan(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST_ROWS", 7)
    make(store, partitions=1)
    producing = Producing(store)
    producing.put(("k2", -1))
    query = Query(store, {-1})
    query.run()
    producing.put(*MANY)
    producing.put(*((k, v + 60) for k, v in MANY))
    read, hashes = [], held.hashes

    def watched(queue: Any, table: Any, start: int, end: int) -> Any:
        for found in hashes(queue, table, start, end):
            read.append(found[0])
            yield found

    monkeypatch.setattr(held, "hashes", watched)
    query.run()
    assert [v for _, v in query.done] == [v for v in range(120) if v % 5 != 2]
    assert [v for _, v, _ in dead(store)] == [-1, *range(2, 120, 5)]
    assert len(read) < 4 * 120  # no message again and again


def test_what_cannot_be_is_refused(store: str) -> None:
    with pytest.raises(partq.InvalidArgumentError, match="needs a dead_letter_queue"):
        partq.create_queue(store, "q", "k string", key="k", dead_letter_order="hold", max_deliveries=2)
    with pytest.raises(partq.InvalidArgumentError, match="needs max_deliveries"):
        partq.create_queue(store, "q", "k string", key="k", dead_letter_order="hold", dead_letter_queue="dead")
    with pytest.raises(partq.InvalidArgumentError, match="'q' has no key"):
        partq.create_queue(store, "q", "k string", dead_letter_order="hold", dead_letter_queue="dead", max_deliveries=2)
    with pytest.raises(partq.InvalidArgumentError, match="dead_letter_order"):
        partq.create_queue(store, "q", "k string", key="k", dead_letter_order="wait")
    partq.create_queue(store, "q", "k string", max_deliveries=2, dead_letter_queue="dead")
    with pytest.raises(partq.InvalidArgumentError, match="'q' has no key"):
        partq.alter_queue(store, "q", dead_letter_order="hold")
    assert partq.describe_queue(store, "q").settings["dead_letter_order"] == "skip"


def test_what_is_put_back_while_a_query_plans_is_delivered(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query has read which keys are held, and looks for messages after they were released and put back."""
    make(store, partitions=1)
    producing = Producing(store)
    producing.put(("a", 1), ("a", 2))
    query, refresh = Query(store, {1}), Subscription.refresh
    query.run()
    query.deadly.clear()

    def late(subscription: Subscription) -> None:
        monkeypatch.setattr(Subscription, "refresh", refresh)
        assert put_back(store) == {"q": 2}
        refresh(subscription)

    found = planner.Planner(query._settings, "g", "a")
    monkeypatch.setattr(Subscription, "refresh", late)
    end = found.next(query.offsets[-1], Limits())
    assert end is not None
    query.offsets.append(end)
    assert query._batch(found) and query.of("a") == [1, 2] and dead(store) == []
