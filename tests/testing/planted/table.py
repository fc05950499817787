"""All planted bugs, by name."""

from __future__ import annotations

from tests.testing.planted import (
    altering,
    by_hand,
    columns,
    dead,
    deletions,
    delivery,
    logs,
    maintenance,
    manifests,
    ownership,
    pauses,
    producers,
    protocols,
    recreated,
    relays,
    replicas,
    resets,
    resizes,
    results,
    segments,
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
    columns,
    deletions,
    maintenance,
    pauses,
    segments,
    replicas,
    recreated,
    results,
    altering,
    resets,
    relays,
    dead,
)

__all__ = ["BUGS", "SUBJECTS"]
