"""Why a partition is where it is, and what it waits for (U3): one world for each kind of waiting."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

import spark_partq as partq
from spark_partq.core.errors import GroupNotFoundError, InvalidArgumentError
from spark_partq.core.group.explain import Explanation, WaitKind
from spark_partq.core.queue import replicas
from spark_partq.storage.procedures.primary import fence
from spark_partq.storage.procedures.reset_offsets import reset_offsets
from spark_partq.storage.procedures.scale import start, step
from spark_partq.storage.store import Store
from tests.cli.queues import fill, queue_of
from tests.clocks import wall_clock
from tests.groups import Consumer, Lasting
from tests.helpers import opened
from tests.scaled import hash_of, target
from tests.storage.procedures import test_held_keys


def two(store: str, **of_a: str) -> tuple[Consumer, Consumer]:
    """Queue `q` of 2 partitions with 5 messages each. Consumer a has both; b has joined, and after the holddown partition 1 is moved to it."""
    queue_of(store, 2, each=5, rebalance_delay_ms=60_000, max_handoff_time_ms=60_000)
    a = Lasting(store, "a", **of_a)
    return a, Lasting(store, "b")


def fenced(store: str) -> str:
    queue_of(store, 1)
    Lasting(store, "a").leave()
    opened(store).control.decide(lambda state: replicas.add_replica(state, "/there"))
    fence(Store(store), opened(store).state, "/there", "its-id")
    return "The queue was taken over by its replica in /there"


def no_members(store: str) -> str:
    queue_of(store, 1)
    Lasting(store, "a").leave()
    return "No query is in the group."


def no_reader(store: str) -> str:
    queue_of(store, 1)
    partq.create_queue(store, "r", "v long", partitions=1)
    Lasting(store, "b", queues=("r", "q"))
    Lasting(store, "b", queues=("r",)).end_holddown()
    return "No query of the group reads queue q."


def holddown(store: str) -> str:
    _, b = two(store)
    b.end_holddown()
    Lasting(store, "a").release()
    b.leave()
    return "The group waits 60,000 ms before it assigns partitions without an owner, because b left. This ends in"


def assignment(store: str) -> str:
    queue_of(store, 2, each=5, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    a = Lasting(store, "a", assignors=("range",))
    a.ack(0, 0, delivered=5)
    Lasting(store, "b", assignors=("range",))
    a.release(1)
    return "The group computes the new owner when all partitions are given up. It waits for q/0, which a/0 owns."


def handoff(store: str) -> str:
    a, b = two(store)
    a.ack(1, 2, delivered=4)
    b.end_holddown()
    return "a/0 gives the partition up for b/0. It must acknowledge up to offset 4, and has acknowledged up to 2. This ends in"


def listener(store: str) -> str:
    a, b = two(store, application="application_7")
    a.ack(1, 4)
    b.end_holddown()
    return (
        "a/0 gives the partition up for b/0, and has acknowledged all messages that it was given. It releases the partition when query a (on host-a, "
        "application_7) notices this and the listeners there have returned (on_partitions_revoked). This ends in"
    )


def scaled(store: str) -> None:
    """From 2 partitions to 4, of which partition 3 has a message of the new map."""
    queue_of(store, 2, each=5, rebalance_delay_ms=0)
    a = Lasting(store, "a")
    a.ack(1, 2)
    queue = opened(store)
    start(queue, 4, "live")
    step(queue)
    fill(store, 3, 1)


def barrier(store: str) -> str:
    scaled(store)
    return "They wait for partition 1 of q up to offset 5 (owner a/0, acknowledged up to 2)."


def scaling(store: str) -> str:
    queue_of(store, 2)
    Lasting(store, "a")
    start(opened(store), 4, "drain")
    return (
        "The queue is being scaled to 4 partitions (mode drain): it takes no messages until every group has read all."
    )


def acknowledgement(store: str) -> str:
    queue_of(store, 2, each=5)
    Lasting(store, "a").ack(1, 2, delivered=4)
    return "a/0 was given messages up to offset 4, and has acknowledged up to 2."


def micro_batch(store: str) -> str:
    queue_of(store, 2, each=5)
    Lasting(store, "a").ack(1, 2)
    return "3 messages are there for the next micro-batch of a/0."


def messages(store: str) -> str:
    queue_of(store, 2, each=5)
    Lasting(store, "a").ack(1, 5)
    return "There are no new messages: the group has read all up to offset 5."


def session(store: str) -> str:
    queue_of(store, 2, each=5)
    with wall_clock(dt.datetime(2026, 5, 1, tzinfo=dt.UTC)):
        Lasting(store, "a")
    return "The session of its owner a has expired, which has been silent for"


def held_keys(store: str) -> str:
    test_held_keys.make(store, partitions=1)
    test_held_keys.Producing(store).put(*test_held_keys.MANY)
    test_held_keys.Query(store, {7, 8}).run()
    return "Messages of 2 keys are not delivered: an earlier message of each key is dead"


def told_of_held_keys(store: str) -> dict[int, str]:
    """What is said of held keys, by partition."""
    return {
        number: wait.text
        for number in opened(store).state.partition_numbers
        for wait in partq.explain(store, "q", number, "g").waits
        if wait.kind == WaitKind.HELD_KEYS
    }


@pytest.mark.parametrize("key_hash", ["xxhash64", "murmur2"])
def test_where_the_messages_of_held_keys_are(store: str, key_hash: str) -> None:
    """A group knows a held key by its xxhash64, which says nothing of a place by another hash."""
    test_held_keys.make(store, 5, key_hash=key_hash)
    test_held_keys.Producing(store).put(*test_held_keys.MANY)
    test_held_keys.Query(store, {3}).run()
    told = told_of_held_keys(store)
    if key_hash == "xxhash64":
        assert list(told) == [target(hash_of("k3"), 5)]
    else:
        assert list(told) == list(range(5))
        assert all(
            text.startswith("Messages of 1 key of queue q are not delivered (of which partition is not known,")
            for text in told.values()
        )


def test_with_skip_no_key_is_held(store: str) -> None:
    """The keys are in the group's facts still, and their messages are delivered."""
    held_keys(store)
    assert list(told_of_held_keys(store)) == [0] and partq.describe_group(store, "g").held_keys == {"q": 2}
    partq.alter_queue(store, "q", dead_letter_order="skip")
    assert told_of_held_keys(store) == {} and partq.describe_group(store, "g").held_keys == {}
    partq.alter_queue(store, "q", dead_letter_order="hold")
    assert list(told_of_held_keys(store)) == [0] and partq.describe_group(store, "g").held_keys == {"q": 2}


def test_messages_that_were_removed_do_not_wait(store: str) -> None:
    """Q8: they are not there for the next micro-batch, and the query ends with an error."""
    queue_of(store, 1, each=5, retention_ms=0)
    Lasting(store, "a")
    partq.maintain(store)
    lost = "Messages 0 to 4 were removed before the group had read them: the query ends with DATA_LOSS, or goes on behind them with failOnDataLoss=false."
    assert [wait.text for wait in partq.explain(store, "q", 0, "g").waits] == [lost]
    fill(store, 0, 3)
    there = "3 messages are there for the next micro-batch of a/0."
    assert [wait.text for wait in partq.explain(store, "q", 0, "g").waits] == [f"{lost} {there}"]


KINDS: list[tuple[WaitKind, Callable[[str], str]]] = [
    (WaitKind.FENCE, fenced),
    (WaitKind.SESSION, session),
    (WaitKind.NO_MEMBERS, no_members),
    (WaitKind.NO_READER, no_reader),
    (WaitKind.HOLDDOWN, holddown),
    (WaitKind.ASSIGNMENT, assignment),
    (WaitKind.HANDOFF, handoff),
    (WaitKind.LISTENER, listener),
    (WaitKind.BARRIER, barrier),
    (WaitKind.SCALING, scaling),
    (WaitKind.ACKNOWLEDGEMENT, acknowledgement),
    (WaitKind.MICRO_BATCH, micro_batch),
    (WaitKind.MESSAGES, messages),
    (WaitKind.HELD_KEYS, held_keys),
]


def last(store: str) -> Explanation:
    """Of the last partition of the queue."""
    return partq.explain(store, "q", opened(store).state.partition_numbers[-1], "g")


@pytest.mark.parametrize(("kind", "world"), KINDS, ids=[kind for kind, _ in KINDS])
def test_what_it_waits_for(store: str, kind: WaitKind, world: Callable[[str], str]) -> None:
    expected = world(store)
    found = {wait.kind: wait for wait in last(store).waits}
    assert kind in found and expected in found[kind].text, found
    timed = kind in (WaitKind.HOLDDOWN, WaitKind.HANDOFF, WaitKind.LISTENER)
    left_s = found[kind].seconds_left
    assert (left_s is not None and 0 < left_s <= 60) if timed else left_s is None
    assert kind is not WaitKind.FENCE or "Start one" not in str(found)


def test_a_barrier_names_its_partitions(store: str) -> None:
    scaled(store)
    (wait,) = (wait for wait in last(store).waits if wait.kind == WaitKind.BARRIER)
    assert wait.partitions == {1: 5}


def test_a_barrier_names_who_has_died(store: str) -> None:
    """S5: what it waits for does not come by itself then."""
    scaled(store)
    with wall_clock(dt.datetime.now(dt.UTC) + dt.timedelta(days=1)):
        (wait,) = (wait for wait in last(store).waits if wait.kind == WaitKind.BARRIER)
    assert "partition 1 of q up to offset 5 (owner a/0, whose session has expired, acknowledged up to 2)" in wait.text


def test_what_a_former_owner_was_given_is_not_waited_for(store: str) -> None:
    """H1: the owner acknowledges what it was given itself."""
    queue_of(store, 2, each=50, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    a = Lasting(store, "a")
    for number in range(2):
        a.ack(number, 10, delivered=50)
    a.expire()
    b = Lasting(store, "b")
    assert [wait.text for wait in last(store).waits] == ["40 messages are there for the next micro-batch of b/0."]
    for number in range(2):
        b.ack(number, 20, delivered=20)
    Lasting(store, "c")
    moving = [partq.explain(store, "q", number, "g") for number in range(2)]
    (wait,) = (wait for one in moving for wait in one.waits if one.state == "Draining")
    assert wait.kind == WaitKind.LISTENER and "has acknowledged all messages that it was given" in wait.text


def test_how_long_is_left(store: str) -> None:
    """From the fact on with which the wait began."""
    at = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    with wall_clock(at):
        _, b = two(store)
        b.end_holddown()
        Lasting(store, "a").release()
    with wall_clock(at + dt.timedelta(seconds=30)):
        b.leave()
    with wall_clock(at + dt.timedelta(seconds=40)):
        (wait,) = (wait for wait in last(store).waits if wait.kind == WaitKind.HOLDDOWN)
    assert wait.seconds_left == pytest.approx(50, abs=5)
    assert f"This ends in {wait.seconds_left:.1f} s at the latest." in wait.text


def test_what_is_over_time_is_told(store: str) -> None:
    """Somebody has to look for it to end."""
    holddown(store)
    with wall_clock(dt.datetime.now(dt.UTC) + dt.timedelta(minutes=2)):
        (wait,) = (wait for wait in last(store).waits if wait.kind == WaitKind.HOLDDOWN)
    assert wait.text.endswith(
        " because b left. The time for this is over: a query of the group ends it, or spark-partq rebalance."
    )
    assert wait.seconds_left == 0


def test_an_assignment_that_waits_for_many_names_three(store: str) -> None:
    queue_of(store, 6, each=5, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    a = Lasting(store, "a", assignors=("range",))
    for number in range(5):
        a.ack(number, 0, delivered=5)
    Lasting(store, "b", assignors=("range",))
    a.release(5)
    (wait,) = (wait for wait in last(store).waits if wait.kind == WaitKind.ASSIGNMENT)
    assert wait.text.endswith("q/0, which a/0 owns; q/1, which a/0 owns; q/2, which a/0 owns, and 2 more.")


def test_how_it_came_to_its_owner(store: str) -> None:
    """The oldest fact first: who had it, and why it moved."""
    a, b = two(store)
    b.end_holddown()
    a.release()
    b.expire()
    a.end_holddown()
    steps = last(store).steps
    assert [(step.kind, step.owner) for step in steps] == [
        ("PartitionAdded", None),
        ("Granted", "a/0"),
        ("HandoffStarted", "a/0"),
        ("Released", None),
        ("Granted", "b/0"),
        ("Unassigned", None),
        ("Granted", "a/0"),
    ]
    assert steps[2].text == "a/0 gives it up for b/0" and "b joined with 1 flow" in steps[2].cause
    assert steps[5].cause == "the session of b expired" and steps[5].by == "somebody"
    assert [step.fact for step in steps] == sorted(step.fact for step in steps)


def test_a_reset_is_a_step(store: str) -> None:
    queue_of(store, 1, each=5)
    a = Lasting(store, "a")
    a.ack(0, 3)
    a.leave()
    reset_offsets(Store(store), "g", "earliest")
    step_ = last(store).steps[-1]
    assert (step_.text, step_.cause) == ("it is set to offset 0", "reset to earliest")


def test_a_queue_that_is_gone(store: str) -> None:
    """What its group knows is told; where it ends nobody knows."""
    queue_of(store, 1, each=5)
    Lasting(store, "a")
    partq.delete_queue(store, "q")
    found = partq.explain(store, "q", 0, "g")
    assert (found.owner, found.end, found.waits) == ("a/0", None, ())


def test_what_there_is_not(store: str) -> None:
    queue_of(store, 2)
    Lasting(store, "a")
    with pytest.raises(InvalidArgumentError, match="group 'g' does not read queue 'r'; it reads q"):
        partq.explain(store, "r", 0, "g")
    with pytest.raises(InvalidArgumentError, match="has no partition 7 of queue 'q'; it has 0 to 1"):
        partq.explain(store, "q", 7, "g")
    with pytest.raises(GroupNotFoundError):
        partq.explain(store, "q", 0, "nobody")
