"""A batch between its files and its commits."""

from __future__ import annotations

from dataclasses import dataclass

from spark_partq.core.queue.manifest import Manifest


@dataclass(frozen=True)
class Prepared:
    """A batch that is to be placed.

    Attributes
    ----------
    deadline_s : float
        When they are too old, by `Runtime.monotonic_s`; what a manifest names is never.
    is_own : bool
        This process has just written them, so they are there.
    began_s : float
        When that was begun, if they have a deadline.
    """

    manifest: Manifest
    deadline_s: float
    is_own: bool = True
    began_s: float = 0.0
