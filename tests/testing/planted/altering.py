"""Settings that are changed while a queue is used."""

from __future__ import annotations

from spark_partq.testing.simulation.setup import Setup
from tests.core.queue import test_alter as altering
from tests.storage.procedures import test_alter as altered
from tests.testing.planted.bugs import bug
from tests.testing.planted.stores import in_a_store


def altered_by_two(s: Setup) -> bool:
    return len(s.alterings) > 1


def altered_and_read(s: Setup) -> bool:
    return bool(s.alterings and s.queries)


def durable_and_read(s: Setup) -> bool:
    return bool(s.durable and s.queries)


@bug("storage.procedures.alter:alter_queue", altered_by_two)
def all_settings_are_written(original, queue, settings, reset=()):
    """Of two who change settings at once one takes back what the other has changed."""
    return original(queue, {**queue.state.settings.model_dump(), **settings}, reset)


@bug("core.group.facts:QueueInGroup.replaces", altered_and_read)
def a_group_learns_of_partitions_only(original, now, known):
    """A group goes by the settings that its queue had when it joined."""
    return known.revision < now.revision and known.partition_numbers != now.partition_numbers


@bug("core.group.steps.queue_changes:force_writes", durable_and_read)
def a_group_does_not_say_that_it_forces(original, decision, queues):
    """A program that forces nothing to the disk may join a group that reads a queue with `durability=disk`."""


@bug("core.queue.alter:alter_settings", bool)
def a_change_is_lost(original, state, wanted, store_ms):
    """Only the first change of a queue's settings is made."""
    return original(state, wanted, store_ms) if state.settings == altering.ready().settings else ()


@bug(
    "core.queue.state:QueueState.grace_ms",
    test=altering.test_a_lowered_grace_counts_once_nobody_writes_under_the_former_one,
)
def a_lowered_grace_counts_at_once(original, state, store_ms):
    """Files of a batch that was begun under the former grace are deleted before they are committed."""
    return state.settings.vacuum_grace_ms


@bug(
    "storage.procedures.produce:Producer._grace_ms",
    test=lambda: in_a_store(altered.test_a_producer_heeds_a_grace_that_is_lowered_while_it_writes),
)
def a_producer_keeps_the_grace_that_it_began_with(original, producer, began):
    """Its files are old by the new grace before they are durable."""
    return began.settings.vacuum_grace_ms
