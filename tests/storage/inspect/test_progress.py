"""Whether a group gets on, as a probe asks: by a clock of the test's own, which goes on while the check waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.core.queue import replicas
from spark_partq.storage.inspect.progress import Progress, check_progress
from spark_partq.storage.procedures.primary import fence
from spark_partq.storage.procedures.scale import start, step
from spark_partq.storage.runtime import SystemRuntime
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import opened, put
from tests.replicas import there_fixture  # noqa: F401
from tests.scaled import Reader, Sink, make, messages


class Clock(SystemRuntime):
    """Sleeping takes no time; `then` is called with the seconds that have passed."""

    def __init__(self, then: Callable[[float], object]) -> None:
        self.now_s, self.then = 1_000.0, then

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.then(self.now_s - 1_000.0)


@pytest.fixture
def consumer(store: str) -> Consumer:
    """It reads queue `q` of 2 partitions with 5 messages each."""
    partq.create_queue(store, "q", "v long", partitions=2, rebalance_delay_ms=0)
    for number in range(2):
        put(store, number, range(5))
    return Consumer(store, "a", session_timeout_ms=10_000)


def checked(store: str, within_s: float, then: Callable[[float], object] = lambda _: None) -> Progress:
    return check_progress(Store(store, runtime=Clock(then)), "g", within_s)


def test_a_group_that_gets_on(store: str, consumer: Consumer) -> None:
    """As soon as anything is acknowledged, in whatever partition."""
    found = checked(store, 60, lambda s: consumer.ack(1, 3) if s == 4 else consumer.beat())
    assert (found.healthy, found.state, found.lag, found.acknowledged, found.waited_s) == (True, "Ready", 10, 3, 4.0)
    assert found.why == "it has acknowledged 3 messages within 4.0 s"


def test_a_group_that_stands_still(store: str, consumer: Consumer) -> None:
    """Its member is alive: messages are there, and none is acknowledged in time; new ones are no progress."""
    consumer.ack(0, 4)

    def then(seconds: float) -> None:
        consumer.beat()
        if seconds == 10:
            put(store, 0, [1])

    found = checked(store, 30, then)
    assert (found.healthy, found.acknowledged, found.waited_s) == (False, 0, 30.0)
    assert found.why.startswith("6 messages are left, and none was acknowledged within 30 s. spark-partq explain")


def test_what_was_delivered_is_no_progress(store: str, consumer: Consumer) -> None:
    found = checked(store, 5, lambda s: consumer.ack(0, 0, delivered=4))
    assert not found.healthy


def test_a_group_with_nothing_to_read(store: str, consumer: Consumer) -> None:
    """It is at once, whoever is in it."""
    for number in range(2):
        consumer.ack(number, 5)
    consumer.leave()
    found = checked(store, 60)
    assert (found.healthy, found.state, found.waited_s) == (True, "Empty", 0.0)


def test_a_queue_that_nobody_reads_any_more(store: str, consumer: Consumer) -> None:
    """K3: the group keeps its position there, and what comes there keeps nobody from being well."""
    partq.create_queue(store, "r", "v long", partitions=1)
    reader = Consumer(store, "b", group="h", queues=("q", "r"))
    put(store, 0, range(5), queue="r")
    for number in range(2):
        reader.ack(number, 5)
    Consumer(store, "b", group="h", queues=("q",)).beat()
    found = check_progress(Store(store, runtime=Clock(lambda _: None)), "h", 5)
    assert (found.healthy, found.lag, found.why) == (True, 0, "it has nothing to read")
    described = partq.describe_group(store, "h")
    assert described.lag == 0 and [p.lag for p in described.partitions if not p.subscribed] == [5]


def test_nobody_is_there(store: str, consumer: Consumer) -> None:
    consumer.leave()
    found = checked(store, 60)
    assert (found.healthy, found.state, found.waited_s) == (False, "Empty", 0.0)
    assert "no query is in the group" in found.why


def test_nobody_is_there_as_a_replica_took_over(store: str, consumer: Consumer) -> None:
    """A query that somebody starts here would be refused."""
    consumer.leave()
    opened(store).control.decide(lambda state: replicas.add_replica(state, "/there"))
    fence(Store(store), opened(store).state, "/there", "its-id")
    assert checked(store, 60).why.endswith("queue q was taken over by its replica in /there. Use that store")


def test_nobody_is_alive(store: str, consumer: Consumer) -> None:
    """R4: it has watched for the session timeout, as those who decide do, and no longer."""
    found = checked(store, 60)
    assert (found.healthy, found.state, found.waited_s) == (False, "Expired", 10.0)
    assert "no member was heard of" in found.why


def test_who_comes_back_gets_on(store: str, consumer: Consumer) -> None:
    """K6: a query that is started again while the check watches has its whole time."""

    def then(seconds: float) -> None:
        if seconds == 8:
            consumer.start_again()
        if seconds == 14:
            consumer.ack(0, 1)

    assert checked(store, 60, then).healthy


def test_a_group_that_is_deleted_meanwhile(store: str, consumer: Consumer) -> None:
    def then(seconds: float) -> None:
        if seconds == 2:
            consumer.leave()
            partq.delete_group(store, "g")

    found = checked(store, 60, then)
    assert (found.healthy, found.state) == (False, "Dead")
    assert checked(store, 60).why == "it was deleted"


def test_what_there_is_not(store: str, consumer: Consumer) -> None:
    with pytest.raises(partq.GroupNotFoundError):
        check_progress(Store(store), "nobody", 1)


@pytest.mark.parametrize("how", ["its queue is deleted", "it is removed"])
def test_what_there_was_to_read_goes_away(store: str, consumer: Consumer, how: str) -> None:
    """Nothing is left that the group could acknowledge."""

    def then(seconds: float) -> None:
        consumer.beat()
        if seconds == 2 and how == "it is removed":
            partq.alter_queue(store, "q", max_bytes=1)
            partq.maintain(store, "q")
        elif seconds == 2:
            partq.delete_queue(store, "q")

    found = checked(store, 20, then)
    assert (found.healthy, found.acknowledged, found.waited_s) == (True, 0, 20.0)
    assert found.why.startswith("messages that it had to read were removed")


def test_a_partition_that_was_drained_between_two_looks(store: str) -> None:
    """S2: all that the group had to read lay in it."""
    make(store, 2)
    reader = Reader(store, "a")
    Sink(store).write(0, messages(0, 20))
    reader.queue.refresh()
    reader.ack(0, reader.queue.table(0).next_offset)
    start(reader.queue, 1, "live")

    def then(seconds: float) -> None:
        reader.beat()
        if seconds == 2:
            reader.all()
            while step(opened(store)) is not None:
                reader.release()
                reader.turn()

    assert checked(store, 20, then).healthy


def test_a_copy_of_a_group(store: str, consumer: Consumer, there: str) -> None:
    """S7: a replica gets the heartbeats with its passes, so no member of it has expired."""
    partq.replicate(store, "q", there)

    def then(seconds: float) -> None:
        consumer.beat()
        if seconds == 30:
            consumer.ack(0, 2)
            partq.replicate(store, "q", there)

    found = checked(there, 60, then)
    assert (found.healthy, found.waited_s) == (True, 30.0)


def test_one_of_two_queues_cannot_be_read(store: str, consumer: Consumer) -> None:
    """The others are checked and described; that nothing is left in them does not say that the group has nothing to read."""
    partq.create_queue(store, "r", "v long", partitions=1)
    reader = Consumer(store, "b", group="h", queues=("q", "r"))
    (Path(store) / "queues/r/control/_delta_log/00000000000000000001.json").write_bytes(b"{")

    def then(seconds: float) -> None:
        if seconds == 2:
            reader.ack(0, 3)

    assert check_progress(Store(store, runtime=Clock(then)), "h", 20).healthy
    described = partq.describe_group(store, "h")
    assert described.lag == 7 and any("queue r cannot be read" in warning for warning in described.warnings)
    for number in range(2):
        reader.ack(number, 5)
    with pytest.raises(partq.CorruptTableError):
        check_progress(Store(store, runtime=Clock(lambda _: None)), "h", 20)
