"""A query as a consumer, without Spark: where it begins, how much it takes, and what its application is told."""

from __future__ import annotations

import datetime as dt
import json
import threading
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.errors import (
    CheckpointMismatchError,
    DataLossError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
)
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures import maintain as maintaining
from spark_partq.storage.procedures.consume.application import DriverEventHandler, Message
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.procedures.maintain import maintain
from spark_partq.storage.store import Store
from tests.groups import Consumer
from tests.helpers import eventually, group_state, opened, position, put
from tests.planners import Query

T = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
T_MS = int(T.timestamp() * 1000)


def made(store: str, partitions: int = 2, **settings: Any) -> str:
    """Queue `q` with two files of 10 messages in each partition, an hour apart."""
    partq.create_queue(store, "q", "v bigint", partitions=partitions, rebalance_delay_ms=0, **settings)
    for number in range(partitions):
        for hour in range(2):
            put(store, number, range(10), at=T + dt.timedelta(hours=hour))
    return store


# ---- where it begins
@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({}, {0: (0, 20), 1: (0, 20)}),
        ({"starting_offsets": "latest"}, {}),
        ({"starting_offsets": '{"q": {"0": 7, "1": -1}}'}, {0: (7, 20)}),
        ({"starting_offsets": '{"q": {"1": 12}}'}, {0: (0, 20), 1: (12, 20)}),  # of the other from the earliest on
        ({"starting_timestamp_ms": T_MS + 1}, {0: (10, 20), 1: (10, 20)}),
        ({"starting_timestamp_ms": T_MS}, {0: (0, 20), 1: (0, 20)}),
        ({"starting_timestamp_ms": T_MS + 3_600_001, "starting_timestamp_strategy": "latest"}, {}),
    ],
    ids=str,
)
def test_where_a_group_begins(store: str, settings: dict[str, Any], begins: dict[int, tuple[int, int]]) -> None:
    query = Query(made(store), "a", **settings)
    assert query.next() == begins
    query.leave()


def test_a_beginning_that_is_not_there(store: str) -> None:
    """It is refused before the group has anything; with failOnDataLoss=false it is the nearest one."""
    made(store, 1)
    Consumer(store, "b", group="other").ack(0, 10)
    maintain(opened(store))
    early = '{"q": {"0": 9}}'
    for settings, error, told in (
        ({"starting_offsets": early}, OffsetOutOfRangeError, "startingOffsets"),
        ({"starting_timestamp_ms": T_MS + 3_600_001}, OffsetOutOfRangeError, "startingTimestamp"),
        ({"starting_offsets": "first"}, InvalidArgumentError, "startingOffsets"),
    ):
        with pytest.raises(error, match=told):
            Query(store, "a", **settings)
    assert opened(store).state.groups.keys() == {"other"}
    for settings in ({"starting_offsets": early, "fail_on_data_loss": False}, {"starting_timestamp_ms": T_MS}):
        query = Query(store, "a", **settings)
        assert query.next() == {0: (10, 20)}
        query.leave()
        partq.delete_group(store, "g")


def test_messages_that_were_removed_before_they_were_read(store: str) -> None:
    made(store, 1)
    query = Query(store, "a")
    assert query.next(Limits(max_rows=3)) == {0: (0, 3)}
    partq.alter_queue(store, "q", retention_ms=0)
    put(store, 0, range(5))
    maintain(opened(store))
    first = opened(store).table(0)
    first.refresh()
    gone = first.first_offset
    assert gone > 3
    with pytest.raises(
        DataLossError, match=f"messages 3 to {gone - 1} of partition 0 of queue 'q' were removed"
    ) as lost:
        query.next()
    assert lost.value.params == {"queue": "q", "partition": "0", "group": "g"}
    query.leave()
    tolerant = Query(store, "a", fail_on_data_loss=False)
    tolerant.done = query.done
    assert tolerant.next() == ({0: (gone, 25)} if gone < 25 else {})
    tolerant.leave()


def test_a_partition_that_was_put_back(store: str) -> None:
    """Its offsets would name other messages: nobody goes on."""
    made(store, 1)
    Consumer(store, "b").ack(0, 15, delivered=21)
    Consumer(store, "b").leave()
    query = Query(store, "a")
    assert query.next() == {0: (15, 20)}  # what was delivered beyond the end does not come
    query.leave()
    Consumer(store, "b").ack(0, 21)
    Consumer(store, "b").leave()
    behind = Query(store, "a")
    with pytest.raises(
        DataLossError, match=r"partition 0 of queue 'q' ends at offset 20, but group 'g' has .* up to 20:"
    ):
        behind.next()
    behind.leave()


def test_a_checkpoint_of_something_else(store: str) -> None:
    made(store, 1)
    partq.create_queue(store, "r", "v bigint", partitions=1)
    query = Query(store, "a")
    query.next()
    check = query.planner.check_checkpoint
    check(query.done)
    ids = query.done.queue_ids
    for planned, told in (
        (StreamOffset("h", "a", {}, {}), "belongs to group 'h', this query to 'g'"),
        (StreamOffset("g", "a", {"r": opened(store, "r").state.queue_id}, {}, {"r": "i"}), "belongs to queue 'r', this query reads q"),
        (StreamOffset("g", "a", {"q": "before"}, {}, {"q": "before"}), "belongs to an earlier queue 'q' that was deleted since"),
        (StreamOffset("g", "a", ids, {}, {"q": "primary"}), r"same group 'g' \(option group\); it goes on"),
    ):  # fmt: skip
        with pytest.raises(CheckpointMismatchError, match=told):
            Query(store, "a").planner.check_checkpoint(planned)
    check(StreamOffset("g", "a", {**ids, "gone": "id"}, {}, {**query.done.incarnations, "gone": "id"}))
    query.leave()


# ---- how much it takes
@pytest.mark.parametrize("max_unacked", [None, 1000])
def test_who_waits_longest_comes_first(store: str, max_unacked: int | None) -> None:
    """Of two that wait equally long the one with the lower number."""
    made(store, 3)
    query = Query(store, "a", max_unacked_per_flow=max_unacked)
    turns = [query.next(Limits(max_rows=2)) for _ in range(6)]
    assert [set(turn) for turn in turns] == [{0, 1}, {0, 2}] * 3
    assert all(end - start == 1 for turn in turns for start, end in turn.values())
    query.leave()


def test_a_flow_has_no_more_unacknowledged_than_it_may(store: str) -> None:
    """H5: of all of its partitions together, each flow for itself; what is acknowledged makes room."""
    made(store, 4)
    query = Query(store, "a", flows=2, manual_acknowledgement=True, max_unacked_per_flow=6, instance_id="a")
    first = query.next()
    owners = {number: own.flow for (_, number), own in group_state(store).partitions.items()}

    def taken(turn: dict[int, tuple[int, int]]) -> dict[str | None, int]:
        return {f: sum(e - s for n, (s, e) in turn.items() if owners[n] == f) for f in ("a/0", "a/1")}

    assert taken(first) == {"a/0": 6, "a/1": 6}
    assert query.next() == {}
    number, (start, end) = next((n, r) for n, r in first.items() if owners[n] == "a/0")
    membership = query.planner.membership
    partition_id = opened(store).state.queue_id, number
    epoch = membership.group.state.partitions[partition_id].epoch
    with membership.lock:
        membership.commit_plan([(partition_id, epoch, end - 1)], {})
    assert taken(query.next()) == {"a/0": end - 1 - start, "a/1": 0}
    query.leave()


def test_what_is_acknowledged_by_hand_has_no_limit_but_its_own(store: str) -> None:
    made(store, 1)
    other = Consumer(store, "b")
    other.ack(0, 15)
    other.leave()
    query = Query(store, "a", manual_acknowledgement=True, max_unacked_per_flow=100, instance_id="a")
    assert query.next() == {0: (15, 20)} and query.next() == {}
    query.leave()


def test_a_query_that_ends_takes_what_was_there(store: str) -> None:
    made(store, 1)
    query = Query(store, "a")
    query.planner.stop_at_current_ends()
    put(store, 0, range(5))
    assert query.next() == {0: (0, 20)} and query.next() == {}
    assert query.planner.latest().ranges["q", 0].end == 25
    query.leave()
    assert position(store, "g", 0) == 20


def test_a_query_that_ends_waits_for_what_a_dead_member_had(store: str) -> None:
    """The member was killed; when its session has expired, the query has its partition and reads it."""
    made(store, 1)
    Consumer(store, "b", session_timeout_ms=300)
    query = Query(store, "a", session_timeout_ms=300)
    query.planner.stop_at_current_ends()
    assert query.next() == {0: (0, 20)} and query.next() == {}
    query.leave()


def test_a_heartbeat_before_it_is_done_says_nothing_of_who_lives_now(store: str) -> None:
    made(store)
    other = Consumer(store, "b", session_timeout_ms=300)
    query = Query(store, "a", session_timeout_ms=300)
    query.planner.stop_at_current_ends()
    assert query.next(Limits(max_rows=5)) != {}
    other.beat()  # and is killed
    while query.next(Limits(max_rows=5)):
        pass
    assert [position(store, "g", number) for number in range(2)] == [20, 20]
    query.leave()


def test_a_query_that_ends_leaves_to_living_members_what_is_theirs(store: str) -> None:
    """One heartbeat since it joined is enough, and none if that member has read everything."""
    made(store, 1)
    other = Query(store, "b", session_timeout_ms=60_000)
    assert other.next() == {0: (0, 20)}
    query = Query(store, "a", session_timeout_ms=60_000)
    query.planner.stop_at_current_ends()
    view, begun = Group(Store(store), "g"), threading.Event()

    def beat() -> None:
        view.refresh()
        begun.set()
        other.planner.membership.beat(view)

    threading.Timer(0.3, beat).start()
    assert query.next() == {} and begun.is_set()
    assert other.next() == {} and position(store, "g", 0) == 20
    for found in (query, other):
        found.leave()
    third, other = Query(store, "c", session_timeout_ms=60_000), Query(store, "d", session_timeout_ms=60_000)
    other.next()
    third.planner.stop_at_current_ends()
    assert third.next() == {}
    for found in (third, other):
        found.leave()


def test_queries_that_end_remove_the_partitions_that_they_have_drained(store: str) -> None:
    """S2: though none of them runs for so long that its coordinator looks for them."""
    made(store)
    partq.scale(store, "q", 1)
    for _ in range(2):
        query = Query(store, "a")
        query.planner.stop_at_current_ends()
        while query.next():
            pass
        query.leave()
    assert not opened(store).state.removing


def test_tasks_are_of_flows_and_know_what_came_before(store: str) -> None:
    """H4: of a range that was delivered in part the first part is marked."""
    made(store)
    other = Consumer(store, "b")
    other.ack(0, 0, delivered=7)
    other.leave()
    query = Query(store, "a", flows=2)
    query.next()
    tasks = query.planner.tasks(query.started, query.done)
    owners = {number: own.flow for (_, number), own in group_state(store).partitions.items()}
    assert [query.planner.flow_name(flow) for flow in range(2)] == ["a/0", "a/1"]
    for flow, pieces in enumerate(tasks):
        assert {owners[piece.slice.partition] for piece in pieces} == {f"a/{flow}"}
    pieces = {
        (p.slice.partition, p.slice.base_offset + p.slice.first_row, p.slice.base_offset + p.slice.last_row, p.redelivered)
        for task in tasks for p in task
    }  # fmt: skip
    assert pieces == {(0, 0, 7, True), (0, 7, 10, False), (0, 10, 20, False), (1, 0, 10, False), (1, 10, 20, False)}
    assert query.planner.tasks(query.done, query.done) == []
    query.leave()


# ---- what its application is told
class Told:
    """An application that remembers all that it is told."""

    connected = True

    def __init__(self) -> None:
        self.registration: Message = {}
        self.requests: list[tuple[Message, float | None]] = []
        self.handler: DriverEventHandler | None = None

    def connect(self, registration: Message, handler: DriverEventHandler) -> Told:
        self.registration, self.handler = registration, handler
        return self

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        self.requests.append((json.loads(json.dumps(message)), timeout_s))
        return {"application": "app-1", "executors": ["x", "y"]} if message == {"joins": True} else {}


def test_what_an_application_is_told(store: str) -> None:
    """Who it is, before it joins; what it owns; what each micro-batch holds; and when it has left."""
    made(store)
    told = Told()
    planner = Planner(ConsumerSettings(Store(store), ("q",), flows=3), "g", "a", told.connect)
    assert told.requests == [] and told.registration == {}
    done = StreamOffset("g", "a", {}, {})
    done = planner.next(done, Limits()) or done
    assert told.registration == {"group": "g", "instance": "a", "store": store}
    member = group_state(store).members["a"]
    assert (member.application, member.executors) == ("app-1", ("x", "y"))
    owned = {own.flow: ["q", n] for (_, n), own in group_state(store).partitions.items()}
    flows = {f"a/{n}": [owned[f"a/{n}"]] if f"a/{n}" in owned else [] for n in range(3)}
    queue_id = opened(store).state.queue_id
    batch = {
        "owned": {flow: places for flow, places in flows.items() if places},
        "changes": {flow: {"gained": places, "lost": []} for flow, places in flows.items()},
        "epochs": [["q", n, queue_id, n, own.epoch] for (_, n), own in sorted(group_state(store).partitions.items())],
        "incarnation": planner.membership.incarnation,
    }
    joins, assigned, begins = (message for message, _ in told.requests)
    assert joins == {"joins": True}
    assert assigned == {
        "group": "g",
        "assigned": [["q", 0], ["q", 1]],
        "active": {f: bool(p) for f, p in flows.items()},
    }
    found = begins["batch"]
    assert begins["group"] == "g" and {**found, "owned": {f: p for f, p in found["owned"].items() if p}} == batch
    put(store, 0, range(3))
    done = planner.next(done, Limits()) or done
    assert [message["batch"]["changes"] for message, _ in told.requests[3:]] == [
        {flow: {"gained": [], "lost": []} for flow in flows}
    ]
    put(store, 1, range(3))
    done = planner.next(done, Limits()) or done
    assert len(told.requests) == 4  # nothing is new
    assert told.handler is not None
    told.handler.batch_finished(done)
    planner.leave()
    assert told.requests[4:] == [({"group": "g", "revoked": [["q", 0], ["q", 1]]}, told.requests[-1][1])]
    assert told.requests[-1][1] is not None and position(store, "g", 0) == 23 and not group_state(store).members
    planner.leave()
    assert len(told.requests) == 5


def test_what_an_application_is_told_of_another_consumer(store: str) -> None:
    """A partition that goes is revoked, and the next micro-batch says which flow has lost it."""
    made(store)
    told = Told()
    planner = Planner(ConsumerSettings(Store(store), ("q",)), "g", "a", told.connect)
    done = StreamOffset("g", "a", {}, {})
    done = planner.next(done, Limits()) or done
    Consumer(store, "b").end_holddown()
    put(store, 0, range(3))
    put(store, 1, range(3))
    told.requests.clear()
    while "a/0" not in (told.requests[-1][0].get("batch", {}).get("changes", {}) if told.requests else {}):
        done = planner.next(done, Limits()) or done
    owners = {n: own.flow for (_, n), own in group_state(store).partitions.items()}
    (kept,), (gone,) = ([n for n, flow in owners.items() if (flow == "a/0") is mine] for mine in (True, False))
    assert [message for message, _ in told.requests if "revoked" in message] == [
        {"group": "g", "revoked": [["q", gone]]}
    ]
    assert told.requests[-1][0]["batch"]["changes"] == {"a/0": {"gained": [], "lost": [["q", gone]]}}
    assert told.requests[-1][0]["batch"]["owned"] == {"a/0": [["q", kept]]}
    planner.leave()


def test_partitions_that_go_and_hold_nothing_are_removed(store: str) -> None:
    """S2, Q8: retention has removed what the group never read; a query that runs ends the change, though no message comes any more."""
    made(store, retention_ms=60_000)  # its messages are older
    Consumer(store, "b").leave()
    assert partq.scale(store, "q", 1).status == "ScalingDown"
    with mock.patch.object(maintaining, "remove_drained"):  # the query does it
        partq.maintain(store)
    query = Query(store, "a", fail_on_data_loss=False)
    assert query.next() == {}
    eventually(lambda: partq.describe_queue(store, "q").status == "Ready", "the end of the change")
    query.leave()
