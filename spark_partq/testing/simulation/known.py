"""Problems that the simulation finds and that are still to be mended, each with a seed that shows it.

A run that goes wrong in one of these ways is counted and not shown. What is mended goes from this list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_partq.testing.simulation.setup import Setup
from spark_partq.testing.simulation.shorten import kind_of


@dataclass(frozen=True)
class Finding:
    """A known problem.

    Attributes
    ----------
    what : str
        What happens.
    seed : int
        A run in which it does.
    matches : function
        Whether a run of this setup shows it with this kind of problem and this text.
    """

    name: str
    what: str
    seed: int
    matches: Callable[[Setup, str, str], bool]


FINDINGS: tuple[Finding, ...] = ()


def known(setup: Setup, problem: str) -> str:
    """The name of the finding that a problem may be; empty if it is a new one."""
    kind = kind_of(problem)
    return next((finding.name for finding in FINDINGS if finding.matches(setup, kind, problem)), "")
