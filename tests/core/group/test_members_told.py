"""What a group knows of its members' queries, for people: a fresh checkpoint, state by key."""

from __future__ import annotations

import json

import pytest

from spark_partq.core.errors import CorruptTableError
from spark_partq.core.group import snapshot
from spark_partq.core.group.events import Stateful
from spark_partq.core.group.facts import GroupFact, Kind
from tests.core.group.groups import Decided


def test_a_fresh_checkpoint_matters_when_somebody_has_read_before() -> None:
    group = Decided(2)
    group.join("a", anew=True)
    group.join("b", anew=True)
    group.join("c")
    assert {name: m.anew for name, m in group.state.members.items()} == {"a": False, "b": True, "c": False}
    assert snapshot.from_json(json.loads(json.dumps(snapshot.to_json(group.state)))) == group.state


def test_state_by_key_is_told_once_of_each_process() -> None:
    group = Decided(2)
    group.join("a")
    first = Stateful("a", group.state.members["a"].incarnation)
    assert [fact.kind for fact in group.do(first)] == [Kind.MEMBER_STATEFUL] and group.state.members["a"].stateful
    assert snapshot.from_json(json.loads(json.dumps(snapshot.to_json(group.state)))) == group.state
    assert group.do(first) == []
    group.join("a")
    assert not group.state.members["a"].stateful, "another process, of which nothing is known yet"
    assert group.do(first) == [] and group.do(Stateful("b", "b1")) == []


def test_the_fact_names_a_member() -> None:
    group = Decided(2)
    group.join("a")
    for instance, incarnation in (("a", "another"), ("b", "b1"), (None, None)):
        with pytest.raises(CorruptTableError):
            group.state.copy().replay(GroupFact(Kind.MEMBER_STATEFUL, instance=instance, incarnation=incarnation))
