"""What the doctor finds."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

FAULT, WARNING = "fault", "warning"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong in a store.

    Attributes
    ----------
    severity : str
        ``fault``: a promise is broken. ``warning``: a promise may be broken, or something was interrupted.
    about : str
        The table that the finding is about.
    what : str
        What is wrong.
    remedy : str
        What to do next.
    """

    severity: str
    about: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.about}: {self.what}; {self.remedy}"


@dataclass
class Diagnosis:
    """What `doctor` has checked and found.

    Attributes
    ----------
    store : str
        The location of the store.
    queues : int
        How many queues were checked.
    partitions : int
        How many partitions were checked.
    messages : int
        How many messages were checked.
    groups : int
        How many groups were checked.
    facts : int
        How many facts were checked.
    findings : list of Finding
        What is wrong in the store; empty if nothing is.
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
