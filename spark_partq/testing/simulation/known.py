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
        Whether a run of this setup may show this kind of problem.
    """

    name: str
    what: str
    seed: int
    matches: Callable[[Setup, str], bool]


def _promoted(s: Setup) -> bool:
    return s.promoted_s is not None


def _shares_a_sink(s: Setup) -> bool:
    return len({p.sink for p in s.producers}) < len(s.producers)


FINDINGS = (
    Finding(
        "manual-acknowledgement-beside-a-resize",
        "an application that acknowledges at the end of sequences and a resize wait for each other",
        0,
        lambda s, kind: kind == "STUCK" and bool(s.scalings) and any(q.sequence for q in s.queries),
    ),
    Finding(
        "retention-beside-a-resize",
        "a resize waits for messages that retention has removed",
        0,
        lambda s, kind: kind == "STUCK" and bool(s.scalings) and s.retention_ms is not None,
    ),
    Finding(
        "promotion-beside-a-resize",
        "a resize takes the mark of a fenced partition for a seal, or a replica for a primary",
        0,
        lambda s, kind: kind in ("CUT", "STUCK", "LOST", "ORDER", "TWICE") and bool(s.scalings) and _promoted(s),
    ),
    Finding(
        "two-queries-with-one-sink-id",
        "a batch of the second query is taken for the first one's and dropped",
        0,
        lambda s, kind: kind == "LOST" and _shares_a_sink(s),
    ),
    Finding(
        "group-deleted-beside-its-members",
        "a member, or whoever tells the groups, writes to a group that is being deleted, and leaves a damaged one",
        0,
        lambda s, kind: kind == "STUCK" and s.delete_group_s is not None,
    ),
    Finding(
        "group-joins-beside-maintenance",
        "messages are removed that a group wants which joined after the groups were looked at",
        0,
        lambda s, kind: (
            kind in ("REMOVED", "SKIPPED", "UNREAD", "STUCK")
            and (s.maintain_every_s is not None or bool(s.scalings))
            and bool(s.queries)
        ),
    ),
    Finding(
        "drain-beside-a-late-commit",
        "a producer that passed the look at ingress appends after the drain, and its message is stuck",
        0,
        lambda s, kind: kind in ("UNREAD", "STUCK") and any(scaling.mode == "drain" for scaling in s.scalings),
    ),
    Finding(
        "unmarked-after-a-promotion",
        "what was delivered after the last pass is delivered again and not marked",
        0,
        lambda s, kind: kind == "UNMARKED" and _promoted(s),
    ),
)


def known(setup: Setup, problem: str) -> str:
    """The name of the finding that a problem may be; empty if it is a new one."""
    kind = kind_of(problem)
    return next((finding.name for finding in FINDINGS if finding.matches(setup, kind)), "")
