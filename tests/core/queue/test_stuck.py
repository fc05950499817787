"""What is stuck in the parent of a queue that became partitioned (S6)."""

from __future__ import annotations

import pytest

from spark_partq.core.errors import InvalidArgumentError, ScalingInProgressError
from spark_partq.core.queue import decide, stuck
from spark_partq.core.queue.facts import Phase
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.core.queue.resetting import announce_reset
from tests.core.queue.queues import follow, kinds, ready, scale, start


def test_what_is_stuck_is_copied_by_one_copy_at_a_time() -> None:
    """S6: and the parent does not come back meanwhile."""
    state = scale(ready(0), 4, at=9)
    copying = follow(state, stuck.start_copying(state, 3))
    assert copying.copying == 3
    assert stuck.start_copying(copying, 5) == ()
    with pytest.raises(ScalingInProgressError, match="run copy_stuck again"):
        decide.start_scaling(copying, 0, "live")
    assert stuck.close_parent(copying, copying, 9) == stuck.finish_copying(copying, state, 9) == ()
    copied = follow(copying, stuck.finish_copying(copying, copying, 9))
    assert (copied.stuck, copied.copying, copied.removed_ends) == (False, None, {PARENT: 9})
    assert stuck.start_copying(copied, 0) == stuck.close_parent(copied, copied, 9) == ()
    assert start(copied, 0).phase is Phase.SCALING


def test_a_copy_that_slept_ends_no_later_one() -> None:
    """S6: the first one had nothing to copy, so the second one, of messages that came since, begins at the same offset."""
    state = scale(ready(0), 4, at=9)
    first = follow(state, stuck.start_copying(state, 9))
    ended = follow(first, stuck.finish_copying(first, first, 9))
    again = scale(scale(ended, 0, at=9), 4, at=20)
    second = follow(again, stuck.start_copying(again, 9))
    assert first.copying == second.copying == 9
    assert stuck.finish_copying(second, first, 9) == ()
    assert kinds(stuck.finish_copying(second, second, 20)) == ["StuckCopied"]


def test_a_replica_that_has_copies_goes_on_copying() -> None:
    """S6, S7: from the first message that a group wants; not without a copy, nor if the copy is known, or has ended."""
    state = scale(ready(0), 4, at=9)
    (fact,) = stuck.go_on_copying(state, 3, 5)
    assert follow(state, [fact]).copying == 5
    assert stuck.go_on_copying(state, -1, 5) == ()
    copying = follow(state, stuck.start_copying(state, 5))
    assert stuck.go_on_copying(copying, 3, 5) == ()
    assert stuck.go_on_copying(follow(copying, stuck.finish_copying(copying, copying, 9)), 3, 5) == ()


def test_nobody_attaches_or_goes_back_as_the_parent_is_closed() -> None:
    """S6: what every group had acknowledged was measured before."""
    measured = scale(follow(ready(0), decide.attach_group(ready(0), "g", 0)), 4, at=9)
    for since in (decide.attach_group(measured, "h", 0), announce_reset(measured, "g", 1)):
        assert stuck.close_parent(follow(measured, since), measured, 9) == ()
    assert kinds(stuck.close_parent(measured, measured, 9)) == ["StuckCopied"]


def test_who_shared_the_parent() -> None:
    """S6: whoever attached while the queue was exclusive, or before; not who attaches when it is partitioned."""
    state = ready(4)
    for group, count in (("before", 0), ("there", 4), ("behind", None)):
        state = follow(state, decide.attach_group(state, group, 0))
        state = state if count is None else scale(state, count, at=9)
    found = [group for group in state.groups if state.shared_parent_with(group)]
    assert found == ["before", "there"]


def test_what_was_copied_is_not_copied_again() -> None:
    """S6: a second copy begins where the first one ended, whoever lags behind."""
    state = scale(ready(0), 4, at=9)
    state = follow(state, stuck.close_parent(state, state, 4))
    assert follow(state, stuck.start_copying(state, 1)).copying == 4


def test_the_parent_of_an_exclusive_queue_is_not_copied() -> None:
    """S6."""
    with pytest.raises(InvalidArgumentError, match="is exclusive"):
        stuck.start_copying(ready(0), 0)
    state = start(scale(ready(0), 4, at=9), 0)
    with pytest.raises(ScalingInProgressError, match="about to become exclusive"):
        stuck.start_copying(state, 0)
    assert stuck.start_copying(ready(4), 0) == ()
