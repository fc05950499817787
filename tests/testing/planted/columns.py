"""Columns that a queue gets while it is used."""

from __future__ import annotations

from spark_partq.testing.simulation.notes import COLUMN
from spark_partq.testing.simulation.setup import Setup
from tests.storage.procedures import test_added_columns as added
from tests.testing.planted.bugs import bug
from tests.testing.planted.stores import in_a_store


def with_a_column(s: Setup) -> bool:
    return s.column_added_s is not None


def put_aside(s: Setup) -> bool:
    return with_a_column(s) and s.redriven


def without_the_column(rows):
    return rows.select([name for name in rows.schema.names if name != COLUMN])


@bug("storage.procedures.redrive:in_schema", put_aside)
def what_is_put_back_lacks_the_column(original, rows, schema):
    """A dead message comes back without what it had in the new column."""
    return original(without_the_column(rows), schema)


@bug("storage.procedures.dead_letters:in_schema", put_aside)
def what_is_put_aside_lacks_the_column(original, rows, schema):
    """A dead message is kept without what it had in the new column."""
    return original(without_the_column(rows), schema)


@bug("core.queue.alter:new_columns", with_a_column)
def a_column_is_added_again(original, state, wanted):
    """Who repeats the command, as he got no answer, adds a second column of the name."""
    return list(wanted["fields"])


@bug("storage.queue.slices:slices", with_a_column)
def a_reader_does_not_know_which_columns_came_later(original, queue, *place):
    """A file from before is taken for damaged."""
    return original(type("Old", (), {"name": queue.name, "added": (), "queue_id": queue.queue_id}), *place)


@bug(
    "storage.procedures.maintain:follow_queue",
    test=lambda: in_a_store(added.test_a_call_that_dies_is_finished_by_maintenance),
)
def nobody_finishes_what_died(original, queue, tables, as_of_ms):
    """Other readers of the tables never see a column."""


@bug("storage.procedures.alter:add_columns", test=lambda: in_a_store(added.test_dead_messages_keep_them))
def a_dead_message_queue_gets_no_column(original, queue, columns):
    """What is to go there is refused."""
    return queue.state if queue.name == "dead" else original(queue, columns)
