"""Messages that cannot be processed, and the dead-message queue."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_partq.core.group.events import ReleaseKeys
from spark_partq.core.stored import MOST
from spark_partq.storage.procedures import release_keys
from tests.core.group.test_dead_letters import test_a_snapshot_has_the_keys_that_are_held
from tests.storage.procedures.test_dead_letters import test_a_group_that_reads_again, test_message_that_kills
from tests.storage.procedures.test_former_owner import (
    test_what_it_puts_aside_hides_nothing_of_what_the_new_owner_does,
)
from tests.storage.procedures.test_lifetimes import (
    clock,
    test_a_clock_that_is_wrong_makes_nothing_too_old,
    test_each_message_lives_as_long_as_it_says,
    test_messages_that_retention_removed_are_in_nobodys_way,
    test_what_was_in_time_when_it_was_looked_at_can_be_late_when_it_is_next,
)
from tests.storage.procedures.test_redrives_at_once import test_a_key_that_is_held_again_beside_the_decision
from tests.storage.procedures.test_released_keys import (
    test_what_is_put_aside_while_others_are_put_back_waits_for_the_next_redrive,
)
from tests.testing.planted.bugs import bug
from tests.testing.planted.stores import in_a_store

LEFT_OUT = "storage.procedures.consume.left_out:LeftOut"
LIFETIMES = "storage.procedures.consume.lifetimes:Lifetimes"


def kills(setup):
    return setup.poison > 0


def leaves_out(setup):
    return setup.max_deliveries is not None and (setup.poison > 0 or setup.may_expire)


def a_key_is_held_again() -> None:
    with pytest.MonkeyPatch.context() as patch:
        in_a_store(test_a_key_that_is_held_again_beside_the_decision, patch)


def some_are_killed() -> None:
    in_a_store(test_message_that_kills, 2)


@bug(f"{LEFT_OUT}.attempts", kills)
def deliveries_are_not_counted(original, left_out, ranges):
    """A message that kills comes again and again, and nobody reads on."""
    return {}


@bug(f"{LEFT_OUT}.isolate", test=some_are_killed)
def a_micro_batch_is_repeated_as_a_whole(original, left_out, ranges):
    """A query that comes back gives all again that it had planned."""
    return False


@bug(f"{LEFT_OUT}.limited", test=some_are_killed)
def what_is_suspect_comes_with_the_rest(original, left_out, starts, ends):
    """Messages that do no harm are taken for dead with the one that does."""
    found = original(left_out, starts, ends)
    return {p: found[p] if found[p] > starts[p] else end for p, end in ends.items()}


@bug("storage.procedures.dead_letters:DeadLetters.send", leaves_out)
def what_is_left_out_is_not_sent(original, letters, queue, table, epoch, messages, since):
    """It is nowhere."""


@bug(
    f"{LEFT_OUT}._is_at_floor",
    test=lambda: in_a_store(test_what_it_puts_aside_hides_nothing_of_what_the_new_owner_does),
)
def what_is_sent_lies_beyond_the_position_of_the_next_owner(original, left_out, item):
    """What that one puts aside seems to be in the dead-message queue already."""
    return True


@bug(
    "storage.procedures.redrive:_redrive",
    test=lambda: in_a_store(test_what_is_put_aside_while_others_are_put_back_waits_for_the_next_redrive),
)
def what_came_after_the_look_is_put_back_as_well(original, queue, origin, ends):
    """A message that is put aside meanwhile comes back behind later ones of its key, or they behind it."""
    return original(queue, origin, dict.fromkeys(queue.state.all_partitions, MOST))


@bug(
    "core.group.state:GroupState.reading_since",
    test=lambda: in_a_store(test_a_group_that_reads_again, "reset"),
)
def what_was_dead_before_a_reset_covers_what_dies_behind_it(original, state, partition_id):
    """A message that is read again and dies for the first time seems to be in the dead-message queue."""
    return 0


@bug("storage.procedures.deliver_range:deliver_once", leaves_out)
def what_is_sent_is_not_looked_up(
    original,
    target,
    runtime,
    group,
    name,
    batch,
    write,
    since,
    count=itertools.count(),  # noqa: B008
):
    """Whoever dies before the fact, or is overtaken, sends it a second time."""
    return original(
        target,
        runtime,
        group,
        name,
        {p: replace(position, lineage=((f"again{next(count)}", MOST),)) for p, position in batch.items()},
        write,
    )


@bug("core.group.steps.dead_letters:skip", leaves_out)
def what_is_left_out_lies_in_the_way(original, decision, event):
    """The position stays before it."""


# ---- messages that are too old
def with_a_clock(test: Callable[..., None], *more: str) -> Callable[[], None]:
    """Run a test that says what time it is."""

    def run() -> None:
        with pytest.MonkeyPatch.context() as patched:
            in_a_store(test, *more, clock(patched))

    return run


@bug(f"{LEFT_OUT}.without_left_out", test=with_a_clock(test_each_message_lives_as_long_as_it_says, "discard"))
def messages_that_are_too_old_are_delivered_between_others(original, left_out, tables, starts, ends):
    """Only those at a position are left out."""
    return dict(ends)


@bug(f"{LIFETIMES}.old_end", lambda setup: setup.lifetimes and not setup.faults.jump)
def what_is_not_too_old_is_left_out_with_what_is(original, lifetimes, queue, table, start, end, now_us):
    """The message behind them is nowhere then."""
    found = original(lifetimes, queue, table, start, end, now_us)
    return min(end, found + 1) if found > start else found


@bug(
    f"{LIFETIMES}.old_end",
    test=with_a_clock(test_what_was_in_time_when_it_was_looked_at_can_be_late_when_it_is_next),
)
def what_was_in_time_once_stays_in_time(original, lifetimes, queue, table, start, end, now_us):
    """The query never leaves it out, and never delivers the messages behind it."""
    return original(lifetimes, queue, table, start, end, lifetimes.__dict__.setdefault("at_first_us", now_us))


@bug(
    "storage.procedures.consume.gone:Gone.acks",
    test=lambda: in_a_store(test_messages_that_retention_removed_are_in_nobodys_way),
)
def what_is_gone_stays_in_the_way(original, gone, queues, tables, starts, acks):
    """The messages behind the gap that are too old are never left out."""
    return []


@bug(
    "storage.procedures.consume.left_out:checked_ms",
    test=with_a_clock(test_a_clock_that_is_wrong_makes_nothing_too_old),
)
def any_clock_says_what_is_too_old(original, store, queue, max_skew_ms, *, read_ms=None):
    """A machine whose clock is ahead discards what is young."""
    return 0


# ---- keys that are held back
def holds(setup):
    return setup.holds and leaves_out(setup)


def comes_back(setup):
    return holds(setup) and setup.redriven and setup.poison > 0


@bug(f"{LEFT_OUT}.without_left_out", holds)
def held_messages_between_others_are_delivered(original, left_out, tables, starts, ends):
    """Only those at a position are left out."""
    return dict(ends)


@bug(f"{LEFT_OUT}._keys", holds)
def no_key_is_held(original, left_out, queue, table, messages):
    """What follows a dead message of its key is delivered."""
    return frozenset()


@bug(f"{LEFT_OUT}._held", holds)
def what_is_held_is_discarded(original, left_out, *place):
    """It is in no queue then."""
    return [replace(due, dead_letter_queue=None) for due in original(left_out, *place)]


@bug("storage.procedures.consume.held:HeldMessages.run", holds)
def what_was_looked_at_is_not_looked_at_again(original, held, queue, table, keys, start, end):
    """Though another key is held since."""
    place = queue.state.queue_id, table.partition
    if place in held._known:
        held._known[place] = replace(held._known[place], keys=keys)
    return original(held, queue, table, keys, start, end)


@bug("core.group.snapshot:to_json", test=test_a_snapshot_has_the_keys_that_are_held)
def a_snapshot_forgets_what_is_held(original, state):
    """Who starts from it gives the later messages of these keys."""
    return {**original(state), "held": []}


@bug("storage.procedures.redrive:release_keys", comes_back)
def keys_stay_held_when_their_messages_are_put_back(original, aside):
    """They go to the dead-message queue again and again."""


@bug("storage.procedures.release_keys:_ends", comes_back)
def keys_are_released_before_all_is_read(original, queue, holding):
    """Later messages of a key come before those that are put back."""
    return {}


@bug("storage.procedures.redrive:_finish", lambda setup: leaves_out(setup) and setup.redriven and not setup.discards)
def what_a_dead_redrive_has_made_durable_is_never_placed(original, queue, origin):
    """It counts as put back."""


@bug("storage.procedures.release_keys:_release", test=a_key_is_held_again)
def keys_are_released_by_what_was_read_before(original, queue, group):
    """A redrive that slept releases keys that the group holds since."""
    release = ReleaseKeys(queue.state.queue_id, release_keys._ends(queue, [group]))
    group.decide(lambda: [release])
