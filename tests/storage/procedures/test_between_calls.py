"""What a member does between the calls of its planner, by a clock of the test (H5, W2)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

import spark_partq as partq
from spark_partq.core.delivery.admission import Limits
from spark_partq.core.delivery.offsets import StreamOffset
from spark_partq.core.errors import AssignorError
from spark_partq.core.group.events import LoadsMeasured
from spark_partq.core.group.facts import PartitionState
from spark_partq.core.group.state import GroupState
from spark_partq.core.group.steps import rebalancing
from spark_partq.storage.group.handle import Group
from spark_partq.storage.procedures.consume import between_calls
from spark_partq.storage.procedures.consume.application import DriverEventHandler, Message
from spark_partq.storage.procedures.consume.between_calls import Coordinator, Heartbeats
from spark_partq.storage.procedures.consume.membership import Membership
from spark_partq.storage.procedures.consume.planner import Planner
from spark_partq.storage.procedures.consume.settings import ConsumerSettings
from spark_partq.storage.runtime import SYSTEM
from spark_partq.storage.store import Store
from tests.clocks import monotonic_clock
from tests.groups import Consumer
from tests.helpers import eventually, group_state, put
from tests.planners import Query


@pytest.fixture
def planners(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Planner]]:
    """They leave after the test, and have no threads of their own."""
    monkeypatch.setattr(Planner, "_start_threads", lambda _: None)
    found: list[Planner] = []
    yield found
    for planner in found:
        planner.leave()


def all_beats(store: str) -> dict[str, int]:
    """By incarnation."""
    group = Group(Store.at(store), "g")
    group.refresh()
    return dict(group.acks.beats)


def pass_a_third(store: str, now_s: list[float], beating: int) -> None:
    """A third of a session of 750 ms goes by, and so many members send a heartbeat."""
    before = all_beats(store)
    now_s[0] += 0.25
    eventually(lambda: sum(b > before.get(i, 0) for i, b in all_beats(store).items()) >= beating, "heartbeats", 20)


def beats(store: str) -> int:
    return max(all_beats(store).values(), default=0)


def test_who_is_not_asked_for_long_is_silent(store: str, planners: list[Planner]) -> None:
    """W2: heartbeats come a third of the session apart, and end `maxPollIntervalMs` after Spark has last called the planner."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    settings = ConsumerSettings(Store(store), ("q",), session_timeout_ms=9_000, max_poll_interval_ms=60_000)
    began_ms = 10_000_000
    with monotonic_clock(began_ms):
        planner = Planner(settings, "g", "a")
        planners.append(planner)
        planner.next(StreamOffset("g", "a", {}, {}), Limits())
        heartbeats = Heartbeats(planner.membership, settings.max_poll_interval_ms)
    counts = {}
    for after_ms in (2_999, 3_000, 5_999, 6_000, 59_999, 60_000, 90_000):
        with monotonic_clock(began_ms + after_ms):
            heartbeats.step()
        counts[after_ms] = beats(store)
    assert counts == {2_999: 0, 3_000: 1, 5_999: 1, 6_000: 2, 59_999: 3, 60_000: 3, 90_000: 3}
    with monotonic_clock(began_ms + 90_000):
        planner.next(StreamOffset("g", "a", {}, {}), Limits())
    with monotonic_clock(began_ms + 93_000):
        heartbeats.step()
    assert beats(store) == 4


def test_a_member_beats_while_its_planner_is_not_called(store: str) -> None:
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    planner = Planner(ConsumerSettings(Store(store), ("q",), session_timeout_ms=600), "g", "a")
    try:
        planner.next(StreamOffset("g", "a", {}, {}), Limits())
        before = beats(store)
        eventually(lambda: beats(store) >= before + 3, "heartbeats")
        assert {"partq-heartbeats", "partq-coordinator"} <= {thread.name for thread in threading.enumerate()}
    finally:
        planner.leave()


def test_a_heartbeat_that_fails_is_not_the_last(
    store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one comes all the same, and the log says which group's heartbeat failed."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    planner = Planner(ConsumerSettings(Store(store), ("q",), session_timeout_ms=600), "g", "a")
    beat, failed = Membership.beat, threading.Event()

    def fail(*_: object) -> None:
        monkeypatch.setattr(Membership, "beat", beat)
        failed.set()
        raise OSError("the disk is full")

    try:
        planner.next(StreamOffset("g", "a", {}, {}), Limits())
        monkeypatch.setattr(Membership, "beat", fail)
        assert failed.wait(60)
        before = beats(store)
        eventually(lambda: beats(store) >= before + 2, "heartbeats")
        assert "group g: OSError: the disk is full" in caplog.messages
    finally:
        planner.leave()


class SlowListener:
    """An application whose callback returns from this kind of news when it is let go."""

    connected = True

    def __init__(self, news: str) -> None:
        self.news = news
        self.entered, self.leave = threading.Event(), threading.Event()

    def connect(self, registration: Message, handler: DriverEventHandler) -> SlowListener:
        return self

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        if message.get(self.news):
            self.entered.set()
            assert self.leave.wait(120)
        return {}


def test_a_member_beats_while_a_listener_takes_longer_than_its_session(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W2, R4, H6: the planner waits for it with its lock held, for three sessions; another member that watches takes nobody out.

    It takes out who does not beat any more.
    """
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    now_s = [10_000.0]
    monkeypatch.setattr(SYSTEM, "monotonic_s", lambda: now_s[0])
    settings, listener = ConsumerSettings(Store(store), ("q",), session_timeout_ms=750), SlowListener("assigned")
    slow, other = Planner(settings, "g", "slow", listener.connect), Planner(settings, "g", "other")
    watching = Coordinator(other.membership)

    def after_a_third(beating: int) -> set[str]:
        """The members, a third of a session later, when so many have sent a heartbeat since."""
        pass_a_third(store, now_s, beating)
        watching.step()
        return set(group_state(store).members)

    planning = threading.Thread(target=slow.next, args=(StreamOffset("g", "slow", {}, {}), Limits()))
    planning.start()
    try:
        assert listener.entered.wait(60)
        other.next(StreamOffset("g", "other", {}, {}), Limits())
        for _ in range(9):
            assert after_a_third(beating=2) == {"slow", "other"}
            assert not slow.membership.lock.acquire(blocking=False)
    finally:
        listener.leave.set()
        planning.join()
        slow.membership.stopping.set()
    assert [after_a_third(beating=1) for _ in range(4)][-1] == {"other"}
    other.leave()


def test_a_partition_is_handed_over_when_a_slow_listener_has_returned(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W2, H6: until then, for three sessions, its old owner stays a member and owns it, although no planner call comes."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=0)
    now_s = [10_000.0]
    monkeypatch.setattr(SYSTEM, "monotonic_s", lambda: now_s[0])
    settings, listener = ConsumerSettings(Store(store), ("q",), session_timeout_ms=750), SlowListener("revoked")
    slow, other = Planner(settings, "g", "slow", listener.connect), Planner(settings, "g", "other")
    slow.next(StreamOffset("g", "slow", {}, {}), Limits())
    other.next(StreamOffset("g", "other", {}, {}), Limits())

    def owners() -> list[str]:
        return sorted(str(own.flow) for own in group_state(store).partitions.values())

    try:
        eventually(listener.entered.is_set, "the news that a partition was revoked", 60)
        for _ in range(9):
            pass_a_third(store, now_s, beating=2)
            assert set(group_state(store).members) == {"slow", "other"} and owners() == ["slow/0", "slow/0"]
    finally:
        listener.leave.set()
    eventually(lambda: owners() == ["other/0", "slow/0"], "the handoff", 20)
    for planner in (slow, other):
        planner.leave()


def test_an_assignor_that_fails_stops_who_owns_nothing(store: str, planners: list[Planner]) -> None:
    """Others go on with what they own (a decision between planner calls has failed)."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    start = StreamOffset("g", "a", {}, {})
    for name in "ab":
        planner = Planner(ConsumerSettings(Store(store), ("q",), instance_id=name), "g", name)
        planners.append(planner)
        planner.next(start, Limits())
        planner.membership.failure = AssignorError("it fails")
    owner, standby = planners
    put(store, 0, range(3))
    assert owner.next(start, Limits()) is not None
    with pytest.raises(AssignorError, match="it fails"):
        standby.next(start, Limits())


def test_an_assignor_that_goes_on_failing_is_logged_once(
    store: str, planners: list[Planner], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """K1: each error once, however often the group decides again."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    planner = Planner(ConsumerSettings(Store(store), ("q",)), "g", "a")
    planners.append(planner)
    planner.next(StreamOffset("g", "a", {}, {}), Limits())
    coordinator = Coordinator(planner.membership)
    monkeypatch.setattr(coordinator, "_due", lambda: [LoadsMeasured()])
    monkeypatch.setattr(GroupState, "assignment_due", True)
    errors = [AssignorError(text) for text in ("it fails", "it fails", "it fails otherwise")]
    with mock.patch.object(Membership, "decide", side_effect=errors), caplog.at_level(logging.WARNING, "spark_partq"):
        for _ in errors:
            coordinator.step()
    assert [text.rpartition("it ")[2] for text in caplog.messages] == ["fails", "fails otherwise"]


def test_loads_that_cannot_be_evened_out_stop_nobody(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """K1, K5: the group is Ready, and nothing has to be assigned."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    monkeypatch.setattr(between_calls, "_LOADS_EVERY_S", -1.0)
    planner = Planner(ConsumerSettings(Store(store), ("q",), assignors=("weighted",)), "g", "a")
    planner.stop_at_current_ends()
    with mock.patch.object(Planner, "_start_threads"):
        planner.next(StreamOffset("g", "a", {}, {}), Limits())
    with mock.patch.object(rebalancing, "loads_measured", side_effect=AssignorError("it fails")) as measured:
        Coordinator(planner.membership).step()
    measured.assert_called_once()
    assert planner._is_at_end()
    planner.leave()


def test_what_drains_counts_as_unacknowledged(store: str, planners: list[Planner]) -> None:
    """H5: a flow that still has to acknowledge messages of a partition that it gives up is given so many fewer of the others."""
    partq.create_queue(store, "q", "v bigint", partitions=4, rebalance_delay_ms=0, max_handoff_time_ms=60_000)
    for number in range(4):
        put(store, number, range(10))
    settings = ConsumerSettings(Store(store), ("q",), manual_acknowledgement=True, max_unacked_per_flow=8)
    planner = Planner(settings, "g", "a")
    planners.append(planner)
    done = planner.next(StreamOffset("g", "a", {}, {}), Limits())
    assert done is not None
    assert {n: (r.start, r.end) for (_, n), r in done.ranges.items()} == dict.fromkeys(range(4), (0, 2))
    Consumer(store, "b")
    group = Group(Store.at(store), "g")
    group.refresh()
    states = {number: own.state for (_, number), own in group.state.partitions.items()}
    kept = [number for number, state in states.items() if state is PartitionState.OWNED]
    assert len(kept) == 2 and list(states.values()).count(PartitionState.DRAINING) == 2
    epochs = {("q", number): done.ranges["q", number].epoch for number in kept}
    assert partq.acknowledge(store, "g", dict.fromkeys(epochs, 2), epochs=epochs) == []
    end = planner.next(done, Limits())
    assert end is not None
    given = {n: r.end - r.start for (_, n), r in end.ranges.items() if r.end > r.start}
    assert given == dict.fromkeys(kept, 2)  # and not 4 each, as 4 messages of the others are still out


def test_only_the_first_member_of_a_group_at_rest_proposes_loads(
    store: str, planners: list[Planner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """K1: every ten seconds; other decisions do not bring them with them."""
    partq.create_queue(store, "q", "v bigint", partitions=2, rebalance_delay_ms=12_000)
    began_ms = 10_000_000
    with monotonic_clock(began_ms):
        for name in "ab":
            settings = ConsumerSettings(
                Store(store), ("q",), instance_id=name, assignors=("weighted",), session_timeout_ms=600_000
            )
            planners.append(Planner(settings, "g", name))
            planners[-1].next(StreamOffset("g", name, {}, {}), Limits())
        coordinators = [Coordinator(planner.membership) for planner in planners]
    proposed: list[tuple[int, str, str]] = []
    decide = Membership.decide

    def noted(member: Membership, events: Any, view: Group | None = None) -> None:
        proposed.extend((second, member.me.instance, type(event).__name__) for event in events())
        decide(member, events, view)

    monkeypatch.setattr(Membership, "decide", noted)
    for second in range(1, 26):
        with monotonic_clock(began_ms + 1_000 * second):
            for coordinator in coordinators:
                coordinator.step()
    assert proposed == [
        (13, "a", "HolddownOver"),
        (13, "a", "Drained"),
        (14, "a", "LoadsMeasured"),
        (24, "a", "LoadsMeasured"),
    ]


def test_drained_partitions_are_removed_once_a_second(
    store: str, planners: list[Planner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at each step, as that reads the tables of all groups; only of queues that this group has drained."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    removed, remove, began_ms = list[int](), between_calls.remove_drained, 10_000_000
    with monotonic_clock(began_ms):
        planners.append(Planner(ConsumerSettings(Store(store), ("q",), session_timeout_ms=600_000), "g", "a"))
        planners[0].next(StreamOffset("g", "a", {}, {}), Limits())
        coordinator = Coordinator(planners[0].membership)
    for after_ms in range(250, 4_001, 250):
        planners[0].membership.drained_queues = ["q"] if after_ms >= 1_500 else []
        monkeypatch.setattr(
            between_calls, "remove_drained", lambda queue, ms=after_ms: (removed.append(ms), remove(queue))[1]
        )
        with monotonic_clock(began_ms + after_ms):
            coordinator.step()
    assert removed == [1_500, 2_500, 3_500]


def test_a_micro_batch_of_one_message_is_waited_for(store: str) -> None:
    """H1: a member that leaves waits for the last micro-batch, until it hears that it has finished."""
    partq.create_queue(store, "q", "v bigint", partitions=1, rebalance_delay_ms=0)
    put(store, 0, [7])
    query = Query(store, "a")
    member = query.planner.membership
    assert query.next() == {0: (0, 1)} and member._in_flight()
    member.batch_finished(query.done)
    assert not member._in_flight()
    query.leave()
