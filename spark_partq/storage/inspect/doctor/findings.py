"""What the doctor finds."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

FAULT, WARNING = "fault", "warning"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes
    ----------
    severity : str
        ``fault``: a promise is broken. ``warning``: it may be, or something was interrupted.
    about : str
        The table that it is about.
    what, remedy : str
        What is wrong, and what to do next.
    """

    severity: str
    about: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.about}: {self.what}; {self.remedy}"


@dataclass
class Diagnosis:
    """What `diagnose` has checked and found.

    Attributes
    ----------
    store : str
        Where it is.
    queues, partitions, messages, groups, facts : int
        How many were checked.
    findings : list of Finding
        What is wrong.
    """

    store: str
    queues: int = 0
    partitions: int = 0
    messages: int = 0
    groups: int = 0
    facts: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def faults(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == FAULT]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON-able values."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return {**plain, "healthy": not self.faults}
