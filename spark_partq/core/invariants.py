"""What the invariants of queues, groups and replicas share."""

from __future__ import annotations


class InvariantError(AssertionError):
    """A promise about a queue, a group or a replica is broken."""


def must_hold(condition: bool, otherwise: str) -> None:
    """
    Raises
    ------
    InvariantError
        With the text `otherwise`, unless the condition holds.
    """
    if not condition:
        raise InvariantError(otherwise)
