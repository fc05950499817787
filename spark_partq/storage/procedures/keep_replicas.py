"""Replicas are kept: pass after pass, until somebody stops it (S7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_partq.core.errors import PartqError
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.replica.complete import SyncReport


def keep_replicas(
    replicators: Sequence[Replicator],
    every_s: float,
    wait: Callable[[float], bool],
    report: Callable[[Replicator, SyncReport], None],
    complain: Callable[[PartqError], None] | None = None,
) -> None:
    """Pass after pass, until `wait` returns True.

    Parameters
    ----------
    wait : function
        Waits so many seconds; True, at once, if it is to stop.
    complain : function
        Called with an error of one of them, once as long as it stays the same; the loop goes on. Without it the error is raised.
    """
    last_reported: dict[int, str] = {}
    while True:
        for n, replicator in enumerate(replicators):
            try:
                report(replicator, replicator.sync())
                last_reported.pop(n, None)
            except PartqError as error:
                if complain is None:
                    raise
                if last_reported.get(n) != str(error):
                    complain(error)
                last_reported[n] = str(error)
        if wait(every_s):
            return
