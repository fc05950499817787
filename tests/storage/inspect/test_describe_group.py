"""A group as people ask for it (K8, R7)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import spark_partq as partq
from spark_partq.storage.group.handle import Group, open_group
from spark_partq.storage.store import Store
from tests.groups import Lasting
from tests.helpers import put


@pytest.fixture
def queue(store: str) -> str:
    """A store with queue `q` of 4 partitions with 10 messages each."""
    partq.create_queue(store, "q", "v long", partitions=4)
    for p in range(4):
        put(store, p, range(10))
    return store


def test_members_flows_and_partitions(queue: str) -> None:
    """K8: the assignor in use, and what each client has of which queue."""
    partq.create_queue(queue, "r", "v long", partitions=1)
    a = Lasting(queue, "a", 2, queues=("q", "r"))
    a.ack(0, 3, delivered=7)
    found = partq.describe_group(queue, "g")
    assert (found.group, found.status, found.assignor, found.unassigned) == ("g", "Ready", "balanced", 0)
    (member,) = found.members
    assert (member.instance, member.host, member.session_timeout_ms) == ("a", "host-a", 600_000)
    assert member.queues == ("q", "r") and member.incarnation == a.incarnation
    held = {flow.flow: flow.partitions for flow in member.flows}
    assert set(held) == {"a/0", "a/1"} and all(flow.active for flow in member.flows)
    assert sorted(p for parts in held.values() for p in parts.get("q", ())) == [0, 1, 2, 3]
    assert [(p.queue, p.partition) for p in found.partitions] == [("q", 0), ("q", 1), ("q", 2), ("q", 3), ("r", 0)]
    first = found.partitions[0]
    assert (first.position, first.delivered, first.end, first.lag, first.epoch) == (3, 7, 10, 7, 1)
    assert first.flow in held and first.handoff_to is None
    assert found.lag == 37
    assert found.warnings == ()


def test_it_is_plain_json(queue: str) -> None:
    Lasting(queue, "a")
    found = partq.describe_group(queue, "g").to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["members"][0]["flows"][0]["partitions"] == {"q": [0, 1, 2, 3]}


def test_members_as_they_described_themselves(queue: str) -> None:
    """K7, K8: assignors, subscription, weight, application; the assignor and the protocol of the last assignment."""
    partq.create_queue(queue, "r", "v long", partitions=1)
    told = {"weight": 2.0, "static": True, "application": "app-1", "executors": ("1@h1", "2@h2")}
    a = Lasting(queue, "a", queues=("q", "r"), assignors=("sticky", "range"), pattern=".*", **told)
    Lasting(queue, "b", queues=("r",), assignors=("range", "sticky"))
    found = partq.describe_group(queue, "g")
    first, second = found.members
    assert (first.assignors, first.queues, first.pattern) == (("sticky", "range"), (), ".*")
    assert (first.weight, first.static, first.application, first.executors) == (2.0, True, "app-1", ("1@h1", "2@h2"))
    assert (second.queues, second.pattern, second.static, second.application) == (("r",), None, False, "")
    assert first.partitions == {"q": (0, 1, 2, 3), "r": (0,)} and second.partitions == {}
    assert (found.assignor, found.protocol) == ("sticky", "eager")
    a.end_holddown()
    revoking = partq.describe_group(queue, "g")
    assert all(p.draining and p.handoff_to is None for p in revoking.partitions)
    a.release()
    assert partq.describe_group(queue, "g").members[1].partitions == {"r": (0,)}


def test_a_queue_that_nobody_reads_any_more(queue: str) -> None:
    """K3: the group keeps its position, and nobody is missing there."""
    partq.create_queue(queue, "r", "v long", partitions=1)
    a = Lasting(queue, "a", queues=("q", "r"))
    a.ack(0, 0, delivered=0, queue="r")
    Lasting(queue, "a", queues=("q",)).end_holddown()
    found = partq.describe_group(queue, "g")
    assert found.unassigned == 0
    assert [(p.queue, p.flow) for p in found.partitions if p.flow is None] == [("r", None)]


def test_a_forced_revocation_is_warned_of(queue: str) -> None:
    """H4, K4: as any handoff whose time ran out."""
    a = Lasting(queue, "a", assignors=("range",))
    a.ack(3, 2, delivered=6)
    Lasting(queue, "b", assignors=("range",))
    a.end_holddown()
    a.release(0, 1, 2)
    a.force()
    found = partq.describe_group(queue, "g")
    assert found.status == "Ready"
    assert "1 of the last 4 handoffs" in found.warnings[0] and "4 messages" in found.warnings[0]


def test_standby(queue: str) -> None:
    """R3, H6: a flow without a partition is a standby."""
    Lasting(queue, "a", 4)
    Lasting(queue, "b")
    found = partq.describe_group(queue, "g")
    assert [flow.active for member in found.members for flow in member.flows] == [True] * 4 + [False]
    assert found.members[1].flows[0].partitions == {}


def test_statuses_and_handoffs(queue: str) -> None:
    """R7: the status, since when and why; what is being handed to whom, and what nobody has."""
    a = Lasting(queue, "a")
    b = Lasting(queue, "b")
    found = partq.describe_group(queue, "g")
    assert found.status == "Holddown" and "b joined" in found.trigger and found.since
    a.end_holddown()
    found = partq.describe_group(queue, "g")
    assert found.status == "Rebalancing"
    moving = [p for p in found.partitions if p.handoff_to]
    assert len(moving) == 2 and all((p.flow, p.handoff_to) == ("a/0", "b/0") for p in moving)
    a.release()
    assert partq.describe_group(queue, "g").status == "Ready"
    b.expire()
    found = partq.describe_group(queue, "g")
    assert (found.status, found.unassigned) == ("Holddown", 2)
    assert "expired" in found.trigger
    assert found.lag == 40


def test_a_forced_handoff_is_warned_of(queue: str) -> None:
    """H4: time that ran out is named with the setting to change; a short one is not, nor a restart."""
    a = Lasting(queue, "a")
    a.ack(3, 2, delivered=6)
    Lasting(queue, "b")
    a.end_holddown()
    a.release(2)
    assert partq.describe_group(queue, "g").warnings == ()
    a.force()
    (warning,) = partq.describe_group(queue, "g").warnings
    for word in ("1 of the last 2 handoffs", "queue q", "3000 ms", "4 messages", "max_handoff_time_ms"):
        assert word in warning


def test_a_restart_in_a_handoff_is_not_warned_of(queue: str) -> None:
    """K6: a giver that is started again has nothing left to drain."""
    a = Lasting(queue, "a")
    Lasting(queue, "b")
    a.end_holddown()
    Lasting(queue, "a")
    found = partq.describe_group(queue, "g")
    assert found.status == "Ready" and found.warnings == ()


def test_a_handoff_that_shall_take_no_time_is_not_warned_of(store: str) -> None:
    """H4: with max_handoff_time_ms=0 that is what was asked for."""
    partq.create_queue(store, "q", "v long", partitions=2, rebalance_delay_ms=0, max_handoff_time_ms=0)
    Lasting(store, "a")
    Lasting(store, "b")
    found = partq.describe_group(store, "g")
    assert found.status == "Ready" and found.warnings == ()


def test_a_group_without_members_is_warned_of(queue: str) -> None:
    a = Lasting(queue, "a")
    a.ack(0, 4)
    a.leave()
    found = partq.describe_group(queue, "g")
    assert found.members == () and (found.assignor, found.protocol) == (None, None) and found.unassigned == 4
    assert found.partitions[0].position == 4
    assert "no query is in the group" in found.warnings[0]


def test_messages_removed_unread_are_warned_of(store: str) -> None:
    """Q8: what retention took before the group read it is no lag, and is said."""
    partq.create_queue(store, "q", "v long", partitions=1, retention_ms=1)
    put(store, 0, range(5))
    Lasting(store, "a")
    partq.maintain(store)
    put(store, 0, range(2))
    found = partq.describe_group(store, "g")
    assert found.lag == 2
    assert "messages 0 to 4 of partition 0 of queue q were removed" in found.warnings[0]


def test_a_queue_that_is_gone_or_created_again(queue: str) -> None:
    """K3: positions belong to the queue that was; another one of its name has no lag here."""
    Lasting(queue, "a")
    partq.delete_queue(queue, "q")
    for _ in range(2):
        found = partq.describe_group(queue, "g")
        assert {(p.end, p.lag) for p in found.partitions} == {(None, None)} and found.lag == 0
        assert any("queue q was deleted" in warning for warning in found.warnings)
        if "q" not in partq.list_queues(queue):
            partq.create_queue(queue, "q", "v long", partitions=4)


def test_unknown_group(queue: str) -> None:
    Lasting(queue, "a", group="there")
    with pytest.raises(partq.GroupNotFoundError, match="its groups: there"):
        partq.describe_group(queue, "g")
    with pytest.raises(partq.NotAStoreError):
        partq.describe_group(f"{queue}/nowhere", "g")


def test_recent_facts(queue: str) -> None:
    """R7: the last facts are found whatever was merged into larger files since."""
    a = Lasting(queue, "a")
    for _ in range(70):
        a.start_again()
    whole = Group(Store.at(queue), "g").history()
    assert list(Path(queue, "groups/g/control").glob("*-history-*"))
    for count in (0, 1, 5, 100, len(whole), len(whole) + 9):
        assert open_group(Store.at(queue), "g").recent_facts(count) == whole[len(whole) - min(count, len(whole)) :]
    assert partq.describe_group(queue, "g").status == "Ready"
