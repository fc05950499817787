"""Decisions about the deletion of single messages. They are made like those of `core.queue.decide`."""

from __future__ import annotations

from spark_partq.core import format
from spark_partq.core.queue.alter import require_features
from spark_partq.core.queue.decide import Facts
from spark_partq.core.queue.facts import Kind, QueueFact
from spark_partq.core.queue.state import QueueState

# Deletions come for as long as a queue lives, and a control table has room for 200,000 facts: the other half is for all that the queue depends on.
MOST_FACTS_BEFORE_A_NOTE = 100_000


def allow_deletion(state: QueueState) -> Facts:
    """Keep programs away that would take a file without some of its messages for a damaged file."""
    if not state.usable or state.fenced_by is not None:
        return ()
    return require_features(state, format.DELETED_MESSAGES)


def note_deletion(state: QueueState, messages: int) -> Facts:
    """Record how many messages were deleted, while the control table has room for it. Whose messages they were is not recorded."""
    if not state.usable or state.fenced_by is not None or format.DELETED_MESSAGES not in state.format.features:
        return ()
    if not messages or state.revision >= MOST_FACTS_BEFORE_A_NOTE:
        return ()
    return [QueueFact(Kind.MESSAGES_DELETED, {"messages": messages})]
