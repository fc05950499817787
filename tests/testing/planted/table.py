"""All planted bugs, by name."""

from __future__ import annotations

from tests.testing.planted import (
    altering,
    anew,
    by_hand,
    dead,
    delivery,
    logs,
    maintenance,
    manifests,
    ownership,
    producers,
    protocols,
    relays,
    replicas,
    resets,
    resizes,
    results,
)
from tests.testing.planted.bugs import BUGS

SUBJECTS = (
    ownership,
    delivery,
    protocols,
    logs,
    producers,
    manifests,
    resizes,
    by_hand,
    maintenance,
    replicas,
    anew,
    results,
    altering,
    resets,
    relays,
    dead,
)

__all__ = ["BUGS", "SUBJECTS"]
