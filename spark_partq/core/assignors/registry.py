"""What an assignor is to the rest of the package, and the built-in ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from spark_partq.core.assignors.heterogeneous import assign_heterogeneous
from spark_partq.core.assignors.homogeneous import assign_homogeneous
from spark_partq.core.assignors.model import Owners, Problem
from spark_partq.core.assignors.proportional import assign_proportionally
from spark_partq.core.assignors.ranges import ranges
from spark_partq.core.assignors.roundrobin import roundrobin
from spark_partq.core.assignors.weighted import weighted


class Assignor(Protocol):
    """How partitions are assigned.

    Attributes
    ----------
    name : str
    cooperative : bool
        Whether what stays is consumed on while other partitions move (K5), or all is given up first (K4).
    weights : bool
        Whether `Member.weight` counts.
    loads : bool
        Whether the partitions' loads count.
    in_given_order : bool
        Whether ties go by the order in which the members are given; else static ones by instance id, then dynamic ones by id.
    """

    @property
    def name(self) -> str: ...
    @property
    def cooperative(self) -> bool: ...
    @property
    def weights(self) -> bool: ...
    @property
    def loads(self) -> bool: ...
    @property
    def in_given_order(self) -> bool: ...

    def owners(self, problem: Problem) -> Owners:
        """int32[partitions]: index of the member that shall own each one."""


@dataclass(frozen=True)
class _BuiltIn:
    name: str
    cooperative: bool
    compute: Callable[[Problem], Owners]
    weights: bool = False
    loads: bool = False
    in_given_order: bool = False

    def owners(self, problem: Problem) -> Owners:
        return self.compute(problem)


def _sticky(problem: Problem) -> Owners:
    if problem.subscriptions is None:
        return assign_homogeneous(problem.current, len(problem.members))
    return assign_heterogeneous(problem)


def _balanced(problem: Problem) -> Owners:
    if problem.subscriptions is None and problem.weights is not None:
        return assign_proportionally(problem.current, problem.weights)
    return _sticky(problem)


BUILTIN: Mapping[str, Assignor] = MappingProxyType(
    {
        assignor.name: assignor
        for assignor in (
            _BuiltIn("balanced", True, _balanced, weights=True, in_given_order=True),
            _BuiltIn("range", False, ranges),
            _BuiltIn("roundrobin", False, roundrobin),
            _BuiltIn("sticky", False, _sticky),
            _BuiltIn("cooperative-sticky", True, _sticky),
            _BuiltIn("weighted", True, weighted, weights=True, loads=True),
        )
    }
)
