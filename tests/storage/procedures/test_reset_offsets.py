"""Setting the positions of a group (H4, Q8)."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.errors import GroupActiveError, InvalidArgumentError, OffsetOutOfRangeError, QueueNotFoundError
from spark_partq.core.group.facts import Kind
from spark_partq.core.queue.resetting import announce_reset
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures import reset_offsets as procedure
from spark_partq.storage.procedures.maintain import maintain
from spark_partq.storage.procedures.promote import promote
from spark_partq.storage.procedures.replicate import replicate
from spark_partq.storage.procedures.reset_offsets import reset_offsets
from spark_partq.storage.queue.control import user_and_host
from spark_partq.storage.replica.table_copy import TableCopy
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import opened, position, put
from tests.replicas import Crash, there_fixture  # noqa: F401
from tests.scaled import half_deleted
from tests.storage.procedures.test_gate import Query
from tests.storage.procedures.test_promote import take_away

T = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def made(store: str, partitions: int = 2, **settings: Any) -> None:
    """Queue `q` with two files of 10 messages in each partition; group `g` has read 15 of partition 0 and was given 18, and has left."""
    partq.create_queue(store, "q", "v long", partitions=partitions, rebalance_delay_ms=0, **settings)
    for number in range(partitions):
        for hour in range(2):
            put(store, number, range(10), at=T + dt.timedelta(hours=hour))
    a = Consumer(store, "a")
    a.ack(0, 15, 18)
    a.leave()


def positions(store: str) -> list[int | None]:
    return [position(store, "g", number) for number in range(2)]


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ("earliest", [0, 0]),
        ("latest", [20, 20]),
        ("time:2026-11-01T00:30:00Z", [10, 10]),
        ("time:2026-10-31", [0, 0]),
        ("time:2026-11-02", [20, 20]),  # as in Kafka: the end of a partition that has no message of then
        ("by:PT0S", [20, 20]),
        ("by:P9999D", [0, 0]),
        ("by:-P1D", [20, 20]),
        ({"q": {1: 7}}, [15, 7]),
        ('{"q": {"0": -2, "1": -1}}', [0, 20]),
    ],
)
def test_where_it_goes(store: str, to: Any, after: list[int]) -> None:
    made(store)
    tried = reset_offsets(Store(store), "g", to, dry_run=True)
    assert positions(store) == [15, 0] and opened(store).state.resets == {}
    assert reset_offsets(Store(store), "g", to) == tried
    assert positions(store) == after
    assert {r.partition: r.new for r in tried} == {
        n: p for n, p in enumerate(after) if [15, 0][n] != p or len(tried) == 2
    }
    first = {r.partition: r for r in tried}.get(0)
    if first is not None:
        assert (first.old, first.again, first.skipped) == (15, max(0, 18 - after[0]), max(0, after[0] - 15))
        assert first.to_dict()["new"] == after[0]


def test_a_query_with_its_old_checkpoint_is_given_all_again(store: str) -> None:
    """It goes on at the new position; each message that came before is marked."""
    made(store, partitions=1)
    a = Query(store, "a", manual_acknowledgement=False)
    assert a.turn() == {0: (15, 20)}
    assert a.turn() == {}
    a.planner.leave()
    member = Group(Store(store), "g")
    member.refresh()
    Consumer(store, "a").leave()  # its session is over
    reset_offsets(Store(store), "g", {"q": {0: 5}})
    b = Query(store, "a", a.done, manual_acknowledgement=False)
    end = b.planner.next(b.done, procedure_limits())
    assert end is not None and (end.ranges["q", 0].start, end.ranges["q", 0].end) == (5, 20)
    pieces = [piece for task in b.planner.tasks(b.done, end) for piece in task]
    assert pieces and all(piece.redelivered for piece in pieces)
    b.planner.leave()


def procedure_limits() -> Any:
    from spark_partq.core.delivery.admission import Limits

    return Limits()


def test_one_queue_of_several(store: str) -> None:
    made(store)
    partq.create_queue(store, "r", "v long", partitions=1)
    put(store, 0, range(5), queue="r")
    b = Consumer(store, "b", queues=("q", "r"))
    b.ack(0, 4, queue="r")
    b.leave()
    assert [r.queue for r in reset_offsets(Store(store), "g", "earliest", ["r"])] == ["r"]
    assert (positions(store), position(store, "g", 0, "r")) == ([15, 0], 0)
    partq.delete_queue(store, "r")
    assert {r.queue for r in reset_offsets(Store(store), "g", "earliest")} == {"q"}
    with pytest.raises(QueueNotFoundError):
        reset_offsets(Store(store), "g", "earliest", ["r"])


def test_queues_that_a_group_does_not_read(store: str) -> None:
    """Nothing is changed, and the ones that it reads are named."""
    made(store)
    partq.create_queue(store, "r", "v long", partitions=1)
    for queues, told in (
        ("q", "queues='q': give a list of names"),
        ([], r"queues=\[\]: give a list of names"),
        (["q", "r"], "group 'g' does not read queue 'r'; it reads q$"),
    ):
        with pytest.raises(InvalidArgumentError, match=told):
            reset_offsets(Store(store), "g", "earliest", queues)
    partq.delete_queue(store, "q")
    assert reset_offsets(Store(store), "g", "earliest") == []
    partq.create_queue(store, "q", "v long", partitions=1)
    assert reset_offsets(Store(store), "g", "earliest") == []
    with pytest.raises(QueueNotFoundError, match="queue 'q' was deleted and created again since group 'g' read it"):
        reset_offsets(Store(store), "g", "earliest", ["q"])
    partq.maintain(store, "q")
    Group(Store(store), "empty").decide(lambda: [], "somebody")
    assert opened(store).state.resets == {}


def test_a_group_that_reads_no_queue_any_more() -> None:
    with pytest.raises(InvalidArgumentError, match=r"does not read queue 'q'; it reads no queue$"):
        procedure._queues(mock.Mock(**{"state.queues": {}}), ["q"])


def test_what_is_told_of_two_queues(store: str) -> None:
    """By the queues' names and partitions; the history says who did it, and what was asked for."""
    made(store)
    partq.create_queue(store, "a", "v long", partitions=1)
    put(store, 0, range(5), queue="a")
    b = Consumer(store, "b", queues=("q", "a"))
    with pytest.raises(InvalidArgumentError, match=r"does not read queue 's'; it reads a, q$"):
        reset_offsets(Store(store), "g", "earliest", ["s"])
    b.ack(0, 4, queue="a")
    b.leave()
    found = reset_offsets(Store(store), "g", "latest", ["q", "a", "q"])
    assert [(r.queue, r.partition, r.old, r.new, r.again, r.skipped) for r in found] == [
        ("a", 0, 4, 5, 0, 1), ("q", 0, 15, 20, 0, 5), ("q", 1, 0, 20, 0, 20),
    ]  # fmt: skip
    rows = Group(Store(store), "g").history()
    assert {(row["cause"], row["by"]) for row in rows if row["kind"] == Kind.POSITION_RESET} == {
        ("reset to latest", user_and_host())
    }
    assert (opened(store).state.resets, opened(store, "a").state.resets) == ({"g": 1}, {"g": 1})


@pytest.mark.parametrize("removed", ["replica", "partitions", "control"])
def test_a_queue_of_the_group_that_is_being_deleted(store: str, removed: str) -> None:
    """The group's other queues are set; only who names that queue is told."""
    for queue in ("q", "r"):
        partq.create_queue(store, queue, "v bigint", partitions=1, rebalance_delay_ms=0)
    consumer = Consumer(store, "a", queues=("q", "r"))
    put(store, 0, range(5))
    consumer.ack(0, 5)
    consumer.leave()
    half_deleted(store, "r", removed)
    with pytest.raises(partq.PartqError, match="queue 'r'"):
        partq.reset_offsets(store, "g", "earliest", queues=["r"])
    assert [(found.queue, found.new) for found in partq.reset_offsets(store, "g", "earliest")] == [("q", 0)]


def test_maintenance_makes_void_what_was_only_announced(store: str) -> None:
    """The history says that it was maintenance."""
    made(store)
    opened(store).control.decide(lambda state: announce_reset(state, "g", 1))
    maintain(opened(store))
    (row,) = (row for row in Group(Store(store), "g").history() if row["kind"] == Kind.OFFSETS_RESET)
    assert (row["by"], row["cause"]) == ("maintenance", "a reset that had not been made yet is void")
    assert positions(store) == [15, 0]


def test_others_come_between_again_and_again(store: str) -> None:
    """It gives up after so many tries, and nothing is set."""
    made(store)
    with (
        mock.patch.object(procedure, "_is_known", return_value=False) as known,
        mock.patch.object(procedure, "_TRIES", 3),
        pytest.raises(partq.CommitFailedError, match="the positions of group 'g' were not set: 3 times"),
    ):
        reset_offsets(Store(store), "g", "earliest")
    assert known.call_count == 3 and positions(store) == [15, 0]
    assert reset_offsets(Store(store), "g", "earliest") and positions(store) == [0, 0]


@pytest.mark.parametrize("dry_run", [True, False])
def test_who_consumes_is_not_set_back(store: str, dry_run: bool) -> None:
    """A member that beats; one that is silent is waited for, until its session is over."""
    made(store)
    b = Consumer(store, "b", session_timeout_ms=600)
    ticks = iter(range(3))

    def beat(seconds: float) -> None:
        if next(ticks, None) is not None:
            b.beat()

    opened_store = Store(store)
    with (
        mock.patch.object(opened_store.runtime, "sleep", beat),
        pytest.raises(GroupActiveError, match="b consume in it"),
    ):
        reset_offsets(opened_store, "g", "earliest", dry_run=dry_run)
    assert positions(store) == [15, 0]
    assert len(reset_offsets(Store(store), "g", "earliest", dry_run=dry_run)) == 2
    assert positions(store) == ([15, 0] if dry_run else [0, 0])


def test_what_is_gone_is_out_of_range(store: str) -> None:
    """Maintenance has removed the first file of partition 0; the end of the group's floors is its first message."""
    made(store)
    maintain(opened(store))
    for offset, why in ((9, "messages below 10 were removed"), (21, "it ends at 20")):
        with pytest.raises(OffsetOutOfRangeError, match=why):
            reset_offsets(Store(store), "g", {"q": {0: offset}})
    assert positions(store) == [15, 0] and opened(store).state.resets == {}
    reset_offsets(Store(store), "g", "earliest")
    assert positions(store) == [10, 0]


def test_a_step_forward_releases_messages(store: str) -> None:
    made(store)
    reset_offsets(Store(store), "g", "latest")
    assert maintain(opened(store)).removed_messages == 40


def test_a_reset_is_announced_to_the_queue(store: str) -> None:
    """Each time, before it is made."""
    made(store)
    for number in (1, 2):
        reset_offsets(Store(store), "g", "earliest")
        group = Group(Store(store), "g")
        group.refresh()
        assert opened(store).state.resets == {"g": number} and group.state.resets == number


def test_what_is_removed_is_measured_after_the_reset(store: str) -> None:
    """Maintenance that comes between the announcement and the reset makes that void, and it is planned anew behind what is removed."""
    made(store)
    decide, done = Group.decide, []

    def maintained_first(group: Group, *arguments: Any) -> Any:
        if not done:
            done.append(True)
            assert opened(store).state.resets == {"g": 1}
            assert maintain(opened(store)).removed_messages == 10
        return decide(group, *arguments)

    with mock.patch.object(procedure.Group, "decide", maintained_first):
        found = reset_offsets(Store(store), "g", "earliest")
    assert [r.new for r in found] == positions(store) == [10, 0]
    kinds = [row["kind"] for row in Group(Store(store), "g").history()]
    assert kinds.count(Kind.OFFSETS_RESET) == 2 and kinds.count(Kind.POSITION_RESET) == 2


def test_maintenance_that_was_first_begins_again(store: str) -> None:
    """It has measured before the reset, and commits after it: nothing is removed that the group wants again."""
    made(store)
    queue = opened(store)
    record, done = type(queue.control).record_removal, []

    def reset_between(control: Any, measure: Any) -> Any:
        def measured(state: Any) -> Any:
            ends = measure(state)
            if not done:
                done.append(True)
                assert [r.new for r in reset_offsets(Store(store), "g", "earliest")] == [0, 0]
            return ends

        return record(control, measured)

    with mock.patch.object(type(queue.control), "record_removal", reset_between):
        assert maintain(queue).removed_messages == 0
    assert positions(store) == [0, 0]


def test_one_that_cannot_be_made_any_more_leaves_nothing_behind(store: str) -> None:
    """A query joins between the announcement and the reset."""
    made(store)
    decide, done = Group.decide, []

    def joined_first(group: Group, *arguments: Any) -> Any:
        if not done:
            done.append(True)
            Consumer(store, "late")
        return decide(group, *arguments)

    with mock.patch.object(procedure.Group, "decide", joined_first), pytest.raises(GroupActiveError, match="late"):
        reset_offsets(Store(store), "g", "earliest")
    group = Group(Store(store), "g")
    group.refresh()
    assert group.state.resets == opened(store).state.resets["g"] and positions(store) == [15, 0]


def left(store: str) -> None:
    """A queue of ten messages, of which group `g` has finished eight, and nobody consumes."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, range(10))
    consumer = Consumer(store, "a")
    consumer.ack(0, 8)
    consumer.leave()


@pytest.mark.parametrize("moment", ["_planned", "_is_known"])
def test_a_replica_takes_over_meanwhile(store: str, there: str, moment: str) -> None:
    """S7: who sets positions is told that they are used elsewhere, or they are set there, too."""
    left(store)
    replicate(Store(store), "q", there)
    real = getattr(procedure, moment)
    calls = itertools.count()

    def promoted(*arguments: Any) -> Any:
        found = real(*arguments)
        if next(calls) == (1 if moment == "_planned" else 0):  # planned once to be shown, and once to be committed
            assert promote(Store(there), "q").fenced
        return found

    with mock.patch.object(procedure, moment, promoted), pytest.raises(partq.QueueFencedError):
        reset_offsets(Store(store), "g", "earliest")
    assert position(there, "g", 0) == 8
    assert [r.new for r in reset_offsets(Store(there), "g", "earliest")] == [0] and position(there, "g", 0) == 0


def test_a_replica_that_has_resets_of_the_queue_and_not_of_the_group(store: str, there: str) -> None:
    """S7: a pass died between them, and the primary is lost."""
    left(store)
    replicate(Store(store), "q", there)
    for to in (2, 3):
        reset_offsets(Store(store), "g", {"q": {0: to}})
    apply = TableCopy.apply

    def dies(copy: TableCopy, steps: Any) -> int:
        if copy.folder.startswith("groups/"):
            raise Crash
        return apply(copy, steps)

    with mock.patch.object(TableCopy, "apply", dies), pytest.raises(Crash):
        replicate(Store(store), "q", there)
    take_away(store)
    promote(Store(there), "q")
    assert [r.new for r in reset_offsets(Store(there), "g", "earliest")] == [0] and position(there, "g", 0) == 0
