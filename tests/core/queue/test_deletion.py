"""Decisions about the deletion of single messages."""

from __future__ import annotations

from dataclasses import replace

from spark_partq.core.queue import decide, deletion
from tests.core.queue.queues import follow, ready


def test_notes_leave_room_in_the_control_table() -> None:
    """However often messages are deleted, the queue can still be deleted, and takes what it depends on."""
    state = ready(2)
    state = follow(state, list(deletion.allow_deletion(state)))
    at_the_limit = replace(state, revision=deletion.MOST_FACTS_BEFORE_A_NOTE - 1)
    assert len(deletion.note_deletion(at_the_limit, 3)) == 1
    full = follow(at_the_limit, list(deletion.note_deletion(at_the_limit, 3)))
    assert not deletion.note_deletion(full, 3)
    assert decide.delete(full)
