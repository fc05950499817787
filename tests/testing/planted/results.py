"""Rows of messages in a table of the user, each once."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from spark_partq.storage.log import Conflict
from spark_partq.storage.procedures.deliver_once import Written
from tests.testing.planted.bugs import bug
from tests.testing.planted.setups import WRITING_AT_ONCE, as_is

DELIVER, POSITION = "testing.simulation.results:deliver_once", "core.delivery.positions:Position"


def writes(setup):
    return any(query.writes for query in setup.queries)


def promoted(setup):
    return writes(setup) and setup.promoted_s is not None


@bug(DELIVER, writes)
def a_position_moves_to_the_end_of_what_was_planned(original, target, runtime, group, name, batch, write):
    """What a replay leaves out, because the query has lost it, seems to be in."""
    whole = {place: position.end for place, position in batch.items()}
    return original(
        target, runtime, group, name, batch, lambda left: Written(write(left).files, {p: whole[p] for p in left})
    )


@bug("storage.procedures.deliver_once:missing", writes)
def what_the_table_has_is_written_again(original, batch, recorded):
    """Nobody looks at the positions."""
    return {place: position.start for place, position in batch.items() if position.start < position.end}


@bug("testing.simulation.results:ResultsTable.commit", change=as_is(WRITING_AT_ONCE))
def a_lost_race_is_taken_for_a_commit(original, table, files, transactions):
    """Another application was faster, and nothing of this micro-batch is written."""
    with contextlib.suppress(Conflict):
        original(table, files, transactions)


@bug(DELIVER, writes)
def positions_are_committed_after_the_rows(original, target, runtime, group, name, batch, write):
    """A consumer that dies between the two commits, or is overtaken, leaves rows that come again."""

    class Apart:
        what = target.what
        refresh, recorded, discard, are_fit = target.refresh, target.recorded, target.discard, target.are_fit

        def commit(self, files, transactions):
            target.commit(files, {})
            target.refresh()
            target.commit([], transactions)

    return original(Apart(), runtime, group, name, batch, write)


@bug(f"{POSITION}.first_missing", promoted)
def positions_of_before_a_promotion_count_nothing(original, position, recorded):
    """What was written before the replica took over, and not acknowledged there, is written again."""
    return original(replace(position, lineage=position.lineage[:1]), recorded)


@bug(f"{POSITION}.first_missing", promoted)
def positions_of_before_a_promotion_count_in_full(original, position, recorded):
    """New messages whose offsets the lost primary had given to others seem to be in."""
    whole = tuple((incarnation, position.lineage[0][1]) for incarnation, _ in position.lineage)
    return original(replace(position, lineage=whole), recorded)
