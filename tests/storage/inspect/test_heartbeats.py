"""When a group last heard of its members, and what follows for those who look at it (R4, R7)."""

from __future__ import annotations

import datetime as dt

import pytest

import spark_partq as partq
from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.explain import WaitKind
from spark_partq.storage.group.ack_table import COMPACT_AFTER
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.inspect import heartbeats
from spark_partq.storage.inspect.describe_group import MemberDescription
from spark_partq.storage.inspect.group_overview import overview
from spark_partq.storage.procedures.replicate import replicate
from spark_partq.storage.store import Store
from tests.clocks import wall_clock
from tests.groups import Consumer
from tests.helpers import put
from tests.storage.procedures.test_held_keys import MANY, Producing, Query, make

START = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


def later(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


@pytest.fixture
def queue(store: str) -> str:
    """Queue `q` of 2 partitions with 5 messages each."""
    partq.create_queue(store, "q", "v long", partitions=2, rebalance_delay_ms=0)
    for number in range(2):
        put(store, number, range(5))
    return store


def joined(store: str, *instances: str) -> list[Consumer]:
    """They join at the start, with sessions of 10 s."""
    with wall_clock(START):
        return [Consumer(store, name, session_timeout_ms=10_000) for name in instances]


def at(store: str, seconds: float) -> partq.GroupDescription:
    with wall_clock(later(seconds)):
        return partq.describe_group(store, "g")


def age(member: MemberDescription) -> tuple[float | None, bool]:
    return member.heartbeat_age_s, member.expired


def test_the_age_of_a_heartbeat(queue: str) -> None:
    """A heartbeat and an acknowledgement are one, and so is joining, which has no age."""
    (a,) = joined(queue, "a")
    assert age(at(queue, 9.9).members[0]) == (None, False)
    assert age(at(queue, 10).members[0]) == (None, True)
    with wall_clock(later(12)):
        a.beat()
    assert age(at(queue, 13.5).members[0]) == (1.5, False)
    with wall_clock(later(20)):
        a.ack(0, 2)
    assert age(at(queue, 29.999).members[0]) == (9.999, False)
    assert age(at(queue, 30).members[0]) == (10.0, True)
    assert age(at(queue, 19).members[0]) == (0.0, False)  # this machine's clock is behind


def test_only_who_beats_is_alive(queue: str) -> None:
    """What another process acknowledges for a member is no sign of its life."""
    (a,) = joined(queue, "a")
    with wall_clock(START):
        a.beat()
    with wall_clock(later(60)):
        a.group.acknowledge([AckRow(a.incarnation, 0, *a.partition_id(0), 1, 3, 3)])
    assert age(at(queue, 60).members[0]) == (60.0, True)


def test_the_age_survives_a_compaction(queue: str) -> None:
    """Others who beat rewrite the heartbeats of one who is silent, and do not make them younger."""
    a, b = joined(queue, "a", "b")
    with wall_clock(START):
        a.beat()
    for n in range(COMPACT_AFTER + 2):
        with wall_clock(later(n)):
            b.beat()
    seen = {m.instance: age(m) for m in at(queue, COMPACT_AFTER + 2).members}
    assert len(a.group._acks._table.files) < COMPACT_AFTER and seen == {"a": (18.0, True), "b": (1.0, False)}


def test_who_joined_long_ago_and_never_beat(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the fact is beyond those that are read, it has been silent since the first of them at least."""
    _, b = joined(queue, "a", "b")
    with wall_clock(later(20)):
        b.start_again()
    group = open_group(Store(queue), "g")
    monkeypatch.setattr(heartbeats, "RECENT_FACTS", 1)
    with wall_clock(later(31)):
        found = heartbeats.heartbeats(group)
    assert found["a"].silent_s == 11.0 and found["a"].expired and found["a"].age_s is None


# ---- what a group looks like
def test_a_group_is_expired_when_all_its_sessions_are(queue: str) -> None:
    """Its control table goes on to say Ready, as nobody is there who decides."""
    a, b = joined(queue, "a", "b")
    a.release()
    with wall_clock(later(5)):
        b.beat()
    half = at(queue, 12)
    assert (half.state, half.status) == ("Ready", "Ready")
    assert [m.expired for m in half.members] == [True, False]
    (warning,) = half.warnings
    assert warning == "the session of query a (silent for 12 s) has expired: the other queries of the group take it out"
    gone = at(queue, 40)
    assert (gone.state, gone.status) == ("Expired", "Ready")
    (warning,) = gone.warnings
    for words in (
        "b (silent for 35 s), a (silent for 40 s) have expired",
        "its messages are not read",
        "spark-partq rebalance --group g",
    ):
        assert words in warning


def test_empty_and_dead(queue: str) -> None:
    """Kafka's words: without members, and deleted. The history of a deleted group stays."""
    (a,) = joined(queue, "a")
    a.leave()
    assert at(queue, 1).state == "Empty"
    with wall_clock(later(7)):
        partq.delete_group(queue, "g")
    found = at(queue, 60)
    assert (found.state, found.members, found.partitions, found.lag) == ("Dead", (), (), 0)
    assert found.since == later(7).isoformat() and found.trigger.startswith("the group was deleted by ")
    assert "spark-partq history g" in found.warnings[0]
    with pytest.raises(partq.GroupNotFoundError):
        partq.explain(queue, "q", 0, "g")
    Consumer(queue, "a")
    assert partq.describe_group(queue, "g").state == "Ready"


def test_a_copy_of_a_group_is_not_expired(queue: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """S7: its heartbeats come when the replicator copies them, and it is the primary that hears of its members."""
    (a,) = joined(queue, "a")
    a.beat()
    there = str(tmp_path_factory.mktemp("there") / "store")
    replicate(Store(queue), "q", there)
    with wall_clock(dt.datetime.now(dt.UTC) + dt.timedelta(days=1)):
        assert partq.describe_group(queue, "g").state == "Expired"
        assert partq.describe_group(there, "g").state == "Ready"


def test_overview(queue: str) -> None:
    """It is what the description says."""
    a, _ = joined(queue, "a", "b")
    with wall_clock(later(9)):
        a.beat()
    store = Store(queue)
    for seconds, expected in ((1, ("Rebalancing", 2, 0)), (12, ("Rebalancing", 2, 1)), (60, ("Expired", 2, 2))):
        with wall_clock(later(seconds)):
            found = overview(store, "g")
        assert (found.state, found.members, found.expired) == expected
        assert at(queue, seconds).state == expected[0]


# ---- what a partition waits for
def test_an_owner_that_has_died_is_what_a_partition_waits_for(queue: str) -> None:
    a, b = joined(queue, "a", "b")
    a.release()
    kinds = {}
    for seconds in (5, 40):
        with wall_clock(later(seconds)):
            kinds[seconds] = {wait.kind: wait.text for wait in partq.explain(queue, "q", 0, "g").waits}
    assert kinds[5].keys() == {WaitKind.MICRO_BATCH} and kinds[40].keys() == {WaitKind.SESSION}
    assert "owner a has expired, which has been silent for 40 s" in kinds[40][WaitKind.SESSION]
    assert "spark-partq rebalance --group g" in kinds[40][WaitKind.SESSION]
    with wall_clock(later(39)):
        b.beat()
    with wall_clock(later(40)):
        (wait,) = partq.explain(queue, "q", 0, "g").waits
    assert wait.text.endswith("Another query of the group takes it out.")


def test_held_keys(store: str) -> None:
    """How many a group holds back per queue, and in which partition that keeps messages from being delivered."""
    make(store)
    Producing(store).put(*MANY)
    Query(store, {7}).run()
    found = partq.describe_group(store, "g")
    assert found.held_keys == {"q": 1}
    waits = [{w.kind: w.text for w in partq.explain(store, "q", number, "g").waits} for number in range(2)]
    (text,) = (told[WaitKind.HELD_KEYS] for told in waits if WaitKind.HELD_KEYS in told)
    assert "Messages of 1 key are not delivered" in text and "spark-partq dead-letter redrive dead" in text
