"""Messages that cannot be processed, and the dead-message queue."""

from __future__ import annotations

import itertools
from dataclasses import replace

from spark_partq.core.stored import MOST
from tests.storage.procedures.test_dead_letters import test_message_that_kills
from tests.testing.planted.bugs import bug
from tests.testing.planted.stores import in_a_store

LEFT_OUT = "storage.procedures.consume.left_out:LeftOut"


def kills(setup):
    return setup.poison > 0


def leaves_out(setup):
    return setup.max_deliveries is not None and (setup.poison > 0 or setup.message_ttl_ms is not None)


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
def what_is_left_out_is_not_sent(original, letters, queue, table, epoch, messages):
    """It is nowhere."""


@bug("storage.procedures.dead_letters:deliver_once", leaves_out)
def what_is_sent_is_not_looked_up(original, target, runtime, group, name, batch, write, count=itertools.count()):  # noqa: B008
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
