"""Ids of the sinks whose batches a queue has (Q5)."""

from __future__ import annotations

from spark_partq.core.names import is_name

# The sink that copies the messages that are stuck in the parent (S6). No sink of a user can have this name.
STUCK_SINK = "_stuck"

# Prefixes of sinks that keep positions of a group with their batches. A sink of a user never has such an id.
_OF_GROUP, _NAMED, _DEAD, _REJECTED, _REDRIVEN = "_group.", "_sink.", "_dead.", "_rejected.", "_redriven."

_PREFIXES = _OF_GROUP, _NAMED, _DEAD, _REJECTED, _REDRIVEN
# How many batches such a sink may write before the next promotion.
_BETWEEN_PROMOTIONS = 10**12


def dead_letters_sink(group: str) -> str:
    """The sink in a dead-message queue that writes messages that a group's planners leave out."""
    return _DEAD + group


def rejected_sink(group: str) -> str:
    """The sink in a dead-message queue that writes messages that a group's applications reject."""
    return _REJECTED + group


def redriven_sink(dead_letter_queue: str) -> str:
    """The sink in a queue that writes messages that come back from a dead-message queue."""
    return _REDRIVEN + dead_letter_queue


def redriven_from(sink_id: str) -> str | None:
    """The dead-message queue from which this sink puts messages back; None if it is another sink."""
    return sink_id.removeprefix(_REDRIVEN) if sink_id.startswith(_REDRIVEN) else None


def positions_sink(group: str, sink_id: str | None) -> str:
    """The sink whose batches hold the results of a group's messages.

    Parameters
    ----------
    sink_id : str, optional
        Tells apart several sinks of one group.
    """
    return _OF_GROUP + group if sink_id is None else _NAMED + sink_id


def next_batch(last: int, promotions: int) -> int:
    """The number of the next batch of a sink that keeps positions. `last`: the number of its last batch, -1 if there is none.

    A promoted queue begins above all numbers that its primary can have used. So a manifest of the primary, which a replicator's pass
    puts late, belongs to an earlier batch.
    """
    return max(last + 1, promotions * _BETWEEN_PROMOTIONS)


def restated_batch(promotions: int) -> int:
    """The number of the batch with which a promotion states the positions of such a sink: above all of its primary, below those that follow."""
    return next_batch(-1, promotions) - 1


def keeps_positions(sink_id: str) -> bool:
    """Whether the sink's last batch says which messages are in. Such a sink is never forgotten."""
    return any(sink_id.startswith(prefix) and is_name(sink_id[len(prefix) :]) for prefix in _PREFIXES)


def is_sink_id(text: str) -> bool:
    return is_name(text) or text == STUCK_SINK or keeps_positions(text)
