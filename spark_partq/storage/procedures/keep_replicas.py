"""Keeping replicas up to date: pass after pass, until the loop is stopped (S7)."""

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
    """Run pass after pass, until `wait` returns True.

    Parameters
    ----------
    wait : function
        Waits this many seconds. Returns True, at once, if the loop shall stop.
    complain : function
        Called with an error of a replicator, once for as long as the error stays the same; the loop goes on. Without it the
        error is raised.
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
