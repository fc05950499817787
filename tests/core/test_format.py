"""Versions and features of the store's format: who may read and write a table."""

from __future__ import annotations

import json
from typing import Any

import pytest

import spark_partq as partq
from spark_partq.core import format
from spark_partq.core.format import Format, check_readable, check_writable
from spark_partq.core.group import snapshot
from spark_partq.core.group.acks import Acks
from spark_partq.core.group.decide import decide as decide_group
from spark_partq.core.group.events import Delete, Join
from spark_partq.core.group.facts import GroupFact, Member, QueueInGroup
from spark_partq.core.group.state import GroupState
from spark_partq.core.queue import decide
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.state import QueueState, after, replay
from spark_partq.core.replica import decide as decide_replica
from spark_partq.core.replica import state as replica_state
from spark_partq.core.replica.facts import ReplicaFact
from tests.versions import NEWER, OLDER, needs, running

SCHEMA: Any = {"type": "struct", "fields": [{"name": "v", "type": "long", "nullable": True, "metadata": {}}]}


def of(body: dict[str, Any]) -> Format:
    return format.parse(body)


def test_the_release_is_that_of_the_package() -> None:
    assert f"spark_partq {partq.__version__}" == format.RELEASE


def test_a_new_table_is_for_older_programs_too() -> None:
    with running(NEWER):
        new = format.of_new_tables()
    assert new.made_by == NEWER.RELEASE and of(new.body()) == new
    with running(OLDER):
        check_writable(new, "it")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (needs(2), "reader version 2, and this program (spark_partq 0.2.0) has 1"),
        (needs(1, 1, "a", "tides"), "the feature 'a', and this program (spark_partq 0.2.0) has no features"),
    ],
)
def test_what_only_a_newer_program_may_read(body: dict[str, Any], says: str) -> None:
    with running(OLDER):
        for check in (check_readable, check_writable):
            with pytest.raises(partq.NewerStoreError) as found:
                check(of(body), "table t")
            assert found.value.error_class == "NEWER_STORE"
            assert str(found.value).startswith(
                f"[NEWER_STORE] table t needs {says}: upgrade it to {NEWER.RELEASE} or newer."
            )
            assert found.value.params["upgrade"] == NEWER.RELEASE


def test_what_only_a_newer_program_may_write() -> None:
    with running(OLDER):
        check_readable(of(needs(1, 2)), "it")
        with pytest.raises(partq.NewerStoreError, match=r"writer version 2, and this program .* has 1"):
            check_writable(of(needs(1, 2)), "it")
    with running(NEWER):
        check_writable(of(needs(2, 2, "tides")), "it")
        with pytest.raises(partq.NewerStoreError, match=r"the feature 'ebb', and this program .* has tides"):
            check_readable(of(needs(1, 1, "ebb", "tides")), "it")


@pytest.mark.parametrize("field", ["min_reader", "min_writer", "features", "made_by"])
@pytest.mark.parametrize("value", [None, 0, -1, [1], {}, 10**30, True])
def test_what_is_no_format(field: str, value: Any) -> None:
    with pytest.raises(ValueError):
        of({**needs(), field: value})
    with pytest.raises(KeyError):
        of({name: known for name, known in needs().items() if name != field})


def test_it_only_rises() -> None:
    before = of(needs(1, 2, "tides"))
    assert before.raised(needs(2, 2, "tides", "ebb")) == of(needs(2, 2, "tides", "ebb"))
    for body in (needs(1, 1, "tides"), needs(1, 2)):
        with pytest.raises(ValueError, match="never"):
            before.raised(body)


# ---- in the facts
def queue_state() -> QueueState:
    created = decide.create("u", SCHEMA, [], 2, QueueSettings())
    state = replay("q", [*created, QueueFact("PartitionsCreated", {"partitions": 2})])
    assert state is not None
    return state


def joined() -> GroupState:
    state = GroupState()
    member = Member("a", "a1", 1, 1000, ("balanced",), ("q",))
    for fact in decide_group(state, Acks(), [Join(member, {"u": QueueInGroup("q", 1, 0, 0)}, {("u", 0): 0})]):
        state.replay(fact)
    return state


def test_every_table_says_it() -> None:
    (created,) = decide.create("u", SCHEMA, [], 2, QueueSettings())
    (follows,) = decide_replica.follow(None, "r", "/p", "/l", "u")
    first = decide_group(GroupState(), Acks(), [Delete()])[0]
    assert first.kind == "GroupCreated"
    for body in (created.body, follows.body, json.loads(first.body or "")):
        assert of(body) == format.of_new_tables()


def test_a_fact_raises_it() -> None:
    raised = of(needs(2, 2, "tides"))
    assert after(queue_state(), QueueFact("FormatRaised", needs(2, 2, "tides"))).format == raised
    replica = replica_state.replay(
        "q", [*decide_replica.follow(None, "r", "/p", "/l", "u"), ReplicaFact("FormatRaised", needs(2, 2, "tides"))]
    )
    assert replica is not None and replica.format == raised
    group = joined()
    group.replay(GroupFact("FormatRaised", body=json.dumps(needs(2, 2, "tides"))))
    assert group.format == raised
    assert snapshot.from_json(json.loads(json.dumps(snapshot.to_json(group)))) == group


def test_a_group_keeps_it_when_it_is_deleted() -> None:
    group = GroupState()
    for fact in decide_group(group, Acks(), [Delete()]):
        group.replay(fact)
    group.replay(GroupFact("FormatRaised", body=json.dumps(needs(1, 2))))
    assert not group.exists and group.format == of(needs(1, 2))
    again = decide_group(group, Acks(), [Join(Member("a", "a1", 1, 1000, ("balanced",), ("q",)), {}, {})])
    assert again[0].kind == "MemberJoined"
    for fact in again:
        group.replay(fact)
    assert group.exists and group.format == of(needs(1, 2))


@pytest.mark.parametrize("kind", ["MemberLeft", "GroupDeleted", "FormatRaised"])
def test_a_group_begins_with_its_format(kind: str) -> None:
    with pytest.raises(partq.CorruptTableError, match="begins with GroupCreated"):
        GroupState().replay(GroupFact(kind, instance="a", body=json.dumps(needs())))
    with pytest.raises(partq.CorruptTableError, match="begins with GroupCreated"):
        joined().replay(GroupFact("GroupCreated", body=json.dumps(needs())))


# ---- what a newer program says besides
def test_unknown_fields_of_a_queue_are_ignored() -> None:
    (created,) = decide.create("u", SCHEMA, [], 2, QueueSettings())
    body = {**created.body, "new": [1], "settings": {**created.body["settings"], "new_ms": 5}}
    facts = [QueueFact("QueueCreated", body), QueueFact("PartitionsCreated", {"partitions": 2, "new": {}})]
    assert replay("q", facts) == queue_state()


def test_unknown_fields_of_a_group_are_kept() -> None:
    """Else a snapshot that an older program writes would take them from the newer ones."""
    group = joined()
    body = {"session_timeout_ms": 1, "assignors": ["balanced"], "queues": ["q"], "rack": {"row": 7}}
    group.replay(GroupFact("MemberJoined", instance="b", incarnation="b1", flows=1, body=json.dumps(body)))
    known = {"partitions": 1, "rebalance_delay_ms": 0, "max_handoff_time_ms": 0, "tide": "low"}
    group.replay(GroupFact("QueueAdded", queue="q", queue_id="u", body=json.dumps(known)))
    stored = json.loads(json.dumps(snapshot.to_json(group)))
    assert stored["members"]["b"]["rack"] == {"row": 7} and stored["queues"]["u"]["tide"] == "low"
    again = snapshot.from_json({**stored, "new": 1})
    assert again == group and snapshot.to_json(again) == snapshot.to_json(group)
    assert again.members["b"].more == {"rack": {"row": 7}} and "rack" not in again.members["b"].body()


def test_a_queue_is_not_added_again_for_what_is_unknown() -> None:
    """Two releases would do so in turn for ever."""
    assert QueueInGroup("q", 1, 0, 0, more={"tide": "low"}) == QueueInGroup("q", 1, 0, 0)


def test_unknown_fields_are_not_nested_without_end() -> None:
    deep: Any = 0
    for _ in range(60):
        deep = [deep]
    body = {"session_timeout_ms": 1, "assignors": ["balanced"], "queues": ["q"], "rack": deep}
    with pytest.raises(partq.CorruptTableError, match="'rack' is nested too deeply"):
        joined().replay(GroupFact("MemberJoined", instance="b", incarnation="b1", flows=1, body=json.dumps(body)))


def test_unknown_kinds_are_refused() -> None:
    """Who adds one raises the version of readers."""
    with pytest.raises(ValueError):
        after(queue_state(), QueueFact("TideTurned", {}))
    with pytest.raises(partq.CorruptTableError):
        joined().replay(GroupFact("TideTurned"))
