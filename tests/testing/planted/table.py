"""All planted bugs, by name."""

from __future__ import annotations

from tests.testing.planted import (
    delivery,
    logs,
    maintenance,
    ownership,
    producers,
    protocols,
    replicas,
    resizes,
)
from tests.testing.planted.bugs import BUGS

SUBJECTS = (ownership, delivery, protocols, logs, producers, resizes, maintenance, replicas)

__all__ = ["BUGS", "SUBJECTS"]
