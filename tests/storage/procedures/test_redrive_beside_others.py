"""Dead messages are put back, or the dead-message queue is scaled, while something else happens to the queue from which they came."""

from __future__ import annotations

import pytest

import spark_partq as partq
from spark_partq.storage.procedures import redrive
from spark_partq.storage.procedures.dead_letters import DeadLetters, DeadMessages
from spark_partq.storage.procedures.scale import start, step
from spark_partq.storage.store import Store
from tests.helpers import opened
from tests.replicas import there_fixture  # noqa: F401
from tests.storage.procedures.test_clocks import wrong_by
from tests.storage.procedures.test_held_keys import Producing, Query, dead, make


def held(store: str, partitions: int, deadly: int = 1) -> tuple[Producing, Query]:
    """Message 1 of key `a` is dead."""
    make(store, partitions)
    producing, query = Producing(store), Query(store, {deadly})
    producing.put(("a", 1), ("b", 0))
    query.run()
    assert dead(store)
    query.deadly = set()
    return producing, query


def test_a_drain_enables_ingress_by_itself(store: str) -> None:
    """S4, order with `hold`: ingress that only a drain has disabled may be enabled in the midst of a redrive."""
    producing, query = held(store, partitions=2)
    start(opened(store, "q"), 3, "drain")
    with pytest.raises(partq.KeysHeldError, match=r"Wait for the change of the partition count.* ingress disable q"):
        partq.redrive(store, "q")
    while step(opened(store, "q")) is not None:
        query.run()
    assert query.of("a") == [] and opened(store, "q").state.ingress
    partq.set_ingress(store, "q", False)
    start(opened(store, "q"), 4, "drain")  # which leaves it disabled
    assert partq.redrive(store, "q") == {"q": 1}
    while step(opened(store, "q")) is not None:
        query.run()
    partq.set_ingress(store, "q", True)
    producing.put(("a", 2))
    query.run()
    assert query.of("a") == [1, 2]


def test_a_refusal_leaves_the_keys_held(store: str) -> None:
    """Order with `hold`: what is refused before anything is put back changes nothing, so later messages of the key are held as before."""
    producing, query = held(store, partitions=1)
    make(store, 1, queue="skips", dead_letter_order="skip", max_deliveries=None)
    producing_there = Producing(store, "skips")
    producing_there.put(("a", 1))
    queue = opened(store, "skips")
    queue.table(0).refresh()
    DeadLetters(Store(store), "dead", "g").send(queue, queue.table(0), 1, DeadMessages(0, 1, "rejected", 1))
    partq.set_ingress(store, "q", False)
    with wrong_by(86_400), pytest.raises(partq.ClockSkewError, match="nothing is put back"):
        partq.redrive(store, "q")
    partq.set_ingress(store, "skips", False)
    with pytest.raises(partq.IngressDisabledError, match="'skips'"):
        partq.redrive(store, "dead")
    partq.set_ingress(store, "q", True)
    producing.put(("a", 2))
    query.run()
    assert query.of("a") == []
    partq.set_ingress(store, "q", False)
    assert partq.redrive(store, "q") == {"q": 2}
    query.run()
    assert query.of("a") == [1, 2]


def test_another_queue_of_the_dead_message_queue_was_taken_over(store: str, there: str) -> None:
    """Its replica was promoted: that stops no other queue."""
    _, query = held(store, partitions=1)
    make(store, 1, queue="taken")
    Producing(store, "taken").put(("a", 1))
    queue = opened(store, "taken")
    queue.table(0).refresh()
    DeadLetters(Store(store), "dead", "g").send(queue, queue.table(0), 1, DeadMessages(0, 1, "rejected", 1))
    partq.replicate(store, "taken", there)
    partq.promote(there, "taken")
    partq.set_ingress(store, "q", False)
    with pytest.raises(partq.QueueFencedError):
        partq.redrive(store, "dead")
    assert partq.redrive(store, "q") == {"q": 1}
    query.run()
    assert query.of("a") == [1]


def test_later_messages_of_the_key_are_stuck(store: str) -> None:
    """S6, order with `hold`: a queue became partitioned before its group had read the parent; a copy would come before what is put back."""
    producing, query = held(store, partitions=0)
    producing.put(("a", 2))
    partq.scale(store, "q", 2)
    query.run()
    partq.set_ingress(store, "q", False)
    with pytest.raises(partq.KeysHeldError, match=r"stuck in the parent of the queue\. Run `spark-partq copy-stuck q`"):
        partq.redrive(store, "q")
    assert partq.copy_stuck(store, "q") == 1
    query.run()  # message 2 is held now
    assert partq.redrive(store, "q") == {"q": 2}
    query.run()
    assert query.of("a") == [1, 2]


@pytest.mark.parametrize("reject_to_sender", ["off", "on", "including_when_shutdown"])
def test_a_redrive_discards_nothing(store: str, reject_to_sender: str) -> None:
    """S3: a queue that takes nothing, and may discard what producers send, also while it is drained."""
    make(store, dead_letter_order="skip", reject_to_sender=reject_to_sender)
    producing, query = Producing(store), Query(store, {1})
    producing.put(("a", 1), ("b", 0))
    query.run()
    start(opened(store, "q"), 3, "drain")
    with pytest.raises(partq.IngressDisabledError, match="Start the query, or run the command, again"):
        partq.redrive(store, "q")
    assert len(dead(store)) == 1 and partq.describe_queue(store, "q").discarded == 0
    while step(opened(store, "q")) is not None:
        query.run()
    assert partq.redrive(store, "q") == {"q": 1}
    query.deadly = set()
    query.run()
    assert query.of("a") == [1]


def test_ingress_is_disabled_in_the_midst(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3: after the files were written. What was not put back is put back later, once."""
    make(store, dead_letter_order="skip", reject_to_sender="off")
    producing, query = Producing(store), Query(store, {1})
    producing.put(("a", 1), ("b", 0))
    query.run()
    write = redrive.write_rows

    def disable(*args: object) -> object:
        files = write(*args)  # type: ignore[arg-type]
        partq.set_ingress(store, "q", False)
        return files

    monkeypatch.setattr(redrive, "write_rows", disable)
    with pytest.raises(partq.IngressDisabledError):
        partq.redrive(store, "q")
    monkeypatch.undo()
    assert len(dead(store)) == 1
    partq.set_ingress(store, "q", True)
    assert partq.redrive(store, "q") == {"q": 1} and partq.redrive(store, "q") == {}


def test_a_dead_message_queue_is_not_drained(store: str) -> None:
    """S4: no group's acknowledgement removes its messages, so the drain would take none for ever, and queries would stop."""
    held(store, partitions=2)
    with pytest.raises(partq.InvalidArgumentError, match=r"queue 'dead' holds dead messages.* Use mode live"):
        partq.scale(store, "dead", 5, "drain", timeout_s=1.0)
    assert opened(store, "dead").state.ingress
    partq.scale(store, "dead", 5)
    assert opened(store, "dead").state.partition_count == 5 and len(dead(store)) == 1
