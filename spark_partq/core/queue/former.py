"""Incarnations of a queue before a promotion (S7)."""

from __future__ import annotations

from typing import NamedTuple


class Former(NamedTuple):
    """An incarnation that a promotion ended.

    Attributes
    ----------
    incarnation : str
        UUID.
    ends : dict
        For each partition, the offset below which the next incarnation has the same messages.
    """

    incarnation: str
    ends: dict[int, int]
