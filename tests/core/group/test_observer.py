"""R4, R5, H4: timers of one observer, on its own clock and on nobody else's word."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_partq.core.group.acks import AckRow
from spark_partq.core.group.events import AssignmentDue, DeadlinePassed, Event, HolddownOver, Leave
from spark_partq.core.group.facts import Status
from spark_partq.core.group.observer import MAX_STEP_MS, Observer
from tests.core.group.groups import Decided, at


def watch(group: Decided, observer: Observer, ms: int, start: int = 0, step: int = 100) -> Iterator[tuple[int, Event]]:
    """What comes due while it is asked every `step` milliseconds."""
    for now in range(start, start + ms + 1, step):
        for event in observer.due(group.state, group.acks, now):
            yield now, event


def pair(delay_ms: int = 0, handoff_ms: int = 1_000) -> Decided:
    group = Decided(2, delay_ms, handoff_ms)
    group.join("a", session_timeout_ms=3_000)
    group.join("b", session_timeout_ms=3_000)
    return group


def test_a_silent_member_expires() -> None:
    """R4: when its heartbeat has not moved for its session timeout while this observer was watching."""
    group = pair(handoff_ms=60_000)
    observer = Observer(group.state.members["a"].incarnation)
    silent = group.state.members["b"].incarnation
    assert next(watch(group, observer, 5_000)) == (3_000, Leave("b", silent, expired=True))


def test_a_beat_starts_the_time_again() -> None:
    """R4: any change of the counter."""
    group = pair(handoff_ms=60_000)
    a, b = (group.state.members[name].incarnation for name in "ab")
    observer = Observer(a)
    assert list(watch(group, observer, 2_900)) == []
    group.acks.add(AckRow(b, 1))
    assert list(watch(group, observer, 2_900, 3_000)) == []
    assert next(watch(group, observer, 1_000, 6_000))[1] == Leave("b", b, expired=True)


def test_a_new_incarnation_has_its_whole_time() -> None:
    """K6: what the old process let pass does not count against the new one."""
    group = pair(handoff_ms=60_000)
    observer = Observer(group.state.members["a"].incarnation)
    assert list(watch(group, observer, 2_900)) == []
    group.join("b", session_timeout_ms=3_000)
    assert list(watch(group, observer, 2_900, 3_000)) == []


@pytest.mark.parametrize("jump", [10**9, -(10**6)])
def test_a_clock_that_jumps(jump: int) -> None:
    """Neither a jump, nor an observer that stood still, makes anybody silent; a step back counts as none."""
    group = pair(handoff_ms=60_000)
    observer = Observer(group.state.members["a"].incarnation)
    assert list(watch(group, observer, 500)) == []
    assert observer.due(group.state, group.acks, 500 + jump) == []
    assert MAX_STEP_MS < 3_000
    events = list(watch(group, observer, 3_000, 600 + jump))
    assert [type(event) for _, event in events][:1] == [Leave]


def test_a_holddown_is_over_after_its_delay() -> None:
    """R5: counted from where this observer saw it begin, and proposed until it is decided."""
    group = pair(delay_ms=1_000)
    observer = Observer()
    due = list(watch(group, observer, 1_200))
    assert due == [(now, HolddownOver(group.state.status_seq)) for now in (1_000, 1_100, 1_200)]
    group.over()
    assert not [e for e in observer.due(group.state, group.acks, 1_300) if isinstance(e, HolddownOver)]


def test_a_holddown_that_begins_later_has_its_whole_delay() -> None:
    """R5: what the observer watched before does not count, and a clock that stands still adds nothing."""
    group = pair(delay_ms=1_000)
    group.over()
    group.release()
    observer = Observer()
    assert list(watch(group, observer, 1_000)) == []
    group.leave("b")
    assert group.state.status is Status.HOLDDOWN
    assert all(observer.due(group.state, group.acks, 1_000) == [] for _ in range(1_100))
    assert next(watch(group, observer, 1_000, 1_100))[0] == 2_000


def test_changes_do_not_restart_the_holddown() -> None:
    """R5: only a new one has a new time."""
    group = pair(delay_ms=1_000)
    observer = Observer()
    assert list(watch(group, observer, 600)) == []
    group.join("c", session_timeout_ms=3_000)
    assert next(watch(group, observer, 600, 700))[0] == 1_000


def test_the_deadline_of_a_handoff() -> None:
    """H4: max_handoff_time after this observer saw it begin."""
    group = pair()
    observer = Observer()
    handoff = group.state.partitions[at(1)].handoff
    assert next(watch(group, observer, 1_500)) == (1_000, DeadlinePassed(at(1), handoff))
    group.deadline(1)
    assert list(watch(group, observer, 500, 1_500)) == []


def test_a_handoff_that_starts_again_has_its_whole_time() -> None:
    """It is another one."""
    group = pair()
    observer = Observer()
    assert list(watch(group, observer, 900)) == []
    group.leave("b")
    group.join("c", session_timeout_ms=3_000)
    assert next(watch(group, observer, 1_500, 1_000))[0] == 2_000


def test_a_due_assignment_hides_nothing() -> None:
    """R4: while an assignor fails, whoever is silent still expires."""
    group = pair(handoff_ms=60_000)
    b = group.state.members["b"].incarnation
    group.deadline(1)
    group.fails = True
    group.leave("a")
    assert group.state.assignment_due
    due = list(watch(group, Observer(), 3_000))
    assert due[0] == (0, AssignmentDue())
    assert due[-2:] == [(3_000, Leave("b", b, expired=True)), (3_000, AssignmentDue())]
