"""Settings of a queue that are changed: what the fact says, and what is in force after it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.invariants import InvariantError
from spark_partq.core.queue import alter, decide, replicas
from spark_partq.core.queue.facts import QueueFact
from spark_partq.core.queue.invariants import check
from spark_partq.core.queue.settings import QueueSettings
from spark_partq.core.queue.state import after
from tests.core.queue.queues import create, follow, ready

HOUR = 3_600_000


def test_a_fact_has_what_changes() -> None:
    state = ready()
    facts = alter.alter_settings(state, {"retention_ms": 5, "rebalance_delay_ms": 5_000}, 0)
    assert facts == [QueueFact("QueueAltered", {"settings": {"retention_ms": 5}})]
    altered = follow(state, facts)
    assert altered.settings == replace_settings(state.settings, retention_ms=5)
    assert alter.alter_settings(altered, {"retention_ms": 5}, 0) == ()
    assert follow(altered, alter.alter_settings(altered, {"retention_ms": None}, 0)).settings == state.settings


def replace_settings(settings: QueueSettings, **changed: object) -> QueueSettings:
    return QueueSettings(**{**settings.model_dump(), **changed})


def test_two_changes_both_apply() -> None:
    """Each is decided on the newest state and says only what it changes."""
    state = follow(ready(), alter.alter_settings(ready(), {"retention_ms": 5}, 0))
    state = follow(state, alter.alter_settings(state, {"max_handoff_time_ms": 7}, 0))
    assert (state.settings.retention_ms, state.settings.max_handoff_time_ms) == (5, 7)


def test_nothing_is_decided_where_it_would_be_lost() -> None:
    """The queue has no tables yet, is deleted, or its replica takes over and would not hear of it."""
    fenced = follow(ready(), replicas.add_replica(ready(), "r"))
    fenced = follow(fenced, replicas.fence(fenced, "r"))
    deleted = follow(ready(), decide.delete(ready()))
    for state in (create(2), fenced, deleted):
        assert alter.alter_settings(state, {"retention_ms": 5}, 0) == ()


def test_a_lowered_grace_counts_once_nobody_writes_under_the_former_one() -> None:
    state = ready()
    lowered = follow(state, alter.alter_settings(state, {"vacuum_grace_ms": 2 * HOUR}, 1_000))
    assert lowered.settings.vacuum_grace_ms == 2 * HOUR
    assert lowered.grace_ms(1_000 + 24 * HOUR - 1) == 24 * HOUR
    assert lowered.grace_ms(1_000 + 24 * HOUR) == 2 * HOUR
    again = follow(lowered, alter.alter_settings(lowered, {"vacuum_grace_ms": HOUR}, 2_000))
    assert [again.grace_ms(at) // HOUR for at in (2_000, 25 * HOUR)] == [24, 1]


def test_a_raised_grace_counts_at_once() -> None:
    state = follow(ready(), alter.alter_settings(ready(), {"vacuum_grace_ms": 48 * HOUR}, 1_000))
    assert state.grace_ms(0) == 48 * HOUR
    assert state.former_graces == ()


@pytest.mark.parametrize(
    "body",
    [
        {"settings": {"vacuum_grace_ms": HOUR}},
        {"settings": {"retention_ms": 5}, "grace_until_ms": 5},
        {"settings": {"retention_ms": -5}},
        {"settings": []},
        {},
    ],
    ids=str,
)
def test_a_fact_that_cannot_be(body: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        after(ready(), QueueFact("QueueAltered", body))


def test_a_setting_of_a_newer_program_is_ignored() -> None:
    state = follow(ready(), [QueueFact("QueueAltered", {"settings": {"colour": "red", "retention_ms": 5}})])
    assert state.settings.retention_ms == 5


def test_settings_change_by_this_fact_alone() -> None:
    state = ready()
    facts = alter.alter_settings(state, {"retention_ms": 5}, 0)
    altered = follow(state, facts)
    with pytest.raises(InvariantError):
        check(state, replace(altered, settings=state.settings), facts)
    with pytest.raises(InvariantError, match="nothing is altered"):
        check(altered, replace(altered, revision=altered.revision + 1), facts)


@pytest.mark.parametrize(
    ("settings", "reset", "named"),
    [
        ({"retention": 1, "max_handoff_time_ms": -1}, ["colour"], ["retention", "max_handoff_time_ms", "colour"]),
        ({"retention_ms": 1}, ["retention_ms"], ["retention_ms", "both given and reset"]),
    ],
)
def test_wrong_changes(settings: dict[str, object], reset: list[str], named: list[str]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        QueueSettings.changes(settings, reset)
    assert all(name in str(caught.value) for name in named)


def test_what_is_reset_gets_its_default() -> None:
    assert QueueSettings.changes({"retention_ms": 9}, ["rebalance_delay_ms"]) == {
        "retention_ms": 9,
        "rebalance_delay_ms": 5_000,
    }
