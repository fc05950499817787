"""Water filling: partitions are poured onto members, each to where load / weight is then the lowest."""

from __future__ import annotations

import numpy as np

from spark_partq.core.assignors.model import Floats, Ints

HALVINGS = 64


def fill(loads: Ints, weights: Floats | None, how_many: int) -> Ints:
    """How many of `how_many` partitions each member gets; of equal ones the first get more.

    Parameters
    ----------
    loads : int64[members]
        How many each has already.
    weights : float64[members], optional
        None if they are all equal.
    how_many : int

    Examples
    --------
    >>> fill(np.array([3, 0, 1]), None, 4).tolist()
    [0, 3, 1]
    >>> fill(np.array([0, 0, 1]), np.array([2.0, 1.0, 1.0]), 3).tolist()
    [2, 1, 0]
    """
    if weights is None:
        more = np.maximum(_water_level(loads, how_many) - loads, 0)
        height = (loads + more).astype(np.float64)
    else:
        more = _fill_weighted(loads, weights, how_many)
        height = (loads + more + 0.5) / weights
    more[np.argsort(height, kind="stable")[: how_many - int(more.sum())]] += 1
    return more


def _water_level(loads: Ints, how_many: int) -> int:
    """The highest level to which everybody below can be raised."""
    ordered = np.sort(loads)
    sums = np.cumsum(ordered)
    to_here = ordered * np.arange(1, ordered.size + 1) - sums  # how many it takes to raise those before to this one
    raised = int(np.searchsorted(to_here, how_many, side="right"))
    return int(how_many + sums[raised - 1]) // raised


def _fill_weighted(loads: Ints, weights: Floats, how_many: int) -> Ints:
    """As `fill` with weights, up to a rest of some partitions: a member's n-th partition is at the height (n - 1/2) / weight."""
    low, high = 0.0, float(((loads + how_many + 1) / weights).max())
    for _ in range(HALVINGS):
        level = (low + high) / 2
        low, high = (level, high) if int(_capacity(level, loads, weights).sum()) <= how_many else (low, level)
    return _capacity(low, loads, weights)


def _capacity(level: float, loads: Ints, weights: Floats) -> Ints:
    """How many partitions each member can take below `level`."""
    capacity: Ints = np.maximum(np.floor(level * weights + 0.5).astype(np.int64) - loads, 0)
    return capacity
