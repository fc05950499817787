"""Ids of sinks: whose batches a queue has (Q5)."""

from __future__ import annotations

from spark_partq.core.names import is_name

# What copies that which is stuck in the parent (S6): a name that no sink of a user can have.
STUCK_SINK = "_stuck"

# Of a sink that keeps positions of a group with its batches. So a sink of a user never has its id.
_OF_GROUP, _NAMED, _DEAD, _REJECTED, _REDRIVEN = "_group.", "_sink.", "_dead.", "_rejected.", "_redriven."

_PREFIXES = _OF_GROUP, _NAMED, _DEAD, _REJECTED, _REDRIVEN
# So many batches such a sink may write before the next promotion.
_BETWEEN_PROMOTIONS = 10**12


def dead_letters_sink(group: str) -> str:
    """The sink of a dead-message queue, of what the planners of a group leave out."""
    return _DEAD + group


def rejected_sink(group: str) -> str:
    """The sink of a dead-message queue, of what the applications of a group reject."""
    return _REJECTED + group


def redriven_sink(dead_letter_queue: str) -> str:
    """The sink of a queue, of what comes back from a dead-message queue."""
    return _REDRIVEN + dead_letter_queue


def redriven_from(sink_id: str) -> str | None:
    """The dead-message queue from which what this sink writes comes back; None if it is another sink."""
    return sink_id.removeprefix(_REDRIVEN) if sink_id.startswith(_REDRIVEN) else None


def positions_sink(group: str, sink_id: str | None) -> str:
    """The sink whose batches hold what became of a group's messages.

    Parameters
    ----------
    sink_id : str, optional
        Tells several of one group apart.
    """
    return _OF_GROUP + group if sink_id is None else _NAMED + sink_id


def next_batch(last: int, promotions: int) -> int:
    """The number of the batch that follows the last one of a sink that keeps positions; -1 if there is none.

    A queue that was promoted begins above all that its primary can have written. So a manifest of the primary's, which a pass puts late,
    is of an earlier batch.
    """
    return max(last + 1, promotions * _BETWEEN_PROMOTIONS)


def keeps_positions(sink_id: str) -> bool:
    """Whether its last batch says which messages are in; that is never forgotten."""
    return any(sink_id.startswith(prefix) and is_name(sink_id[len(prefix) :]) for prefix in _PREFIXES)


def is_sink_id(text: str) -> bool:
    return is_name(text) or text == STUCK_SINK or keeps_positions(text)
