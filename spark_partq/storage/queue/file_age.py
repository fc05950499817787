"""Whether maintenance may delete files before they are committed, as it deletes what nothing has named for the queue's grace (Q8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from spark_partq.storage.log import DeltaLog
from spark_partq.storage.runtime import Runtime


class FilesTooOld(Exception):
    """Maintenance may delete the files before they are committed, or has deleted them."""


@dataclass(frozen=True)
class FileAge:
    """When files were begun.

    Attributes
    ----------
    began_s : float
        By `Runtime.monotonic_s`; the queue's settings were read after that, or not long before.
    grace_ms : int
        For so long maintenance keeps files that nothing names.
    halts : int
        How often the writer had seen by then that its clock had stood still.
    are_named : bool
        A manifest names the files, so they have no deadline, unless it was put too late.
    """

    began_s: float
    grace_ms: int
    halts: int = 0
    are_named: bool = False

    def of_named(self) -> FileAge:
        """The same of files that a manifest names from now on."""
        return replace(self, are_named=True)

    def is_over(self, runtime: Runtime) -> bool:
        """Whether half of the grace has passed, by this process's own clock."""
        return not self.are_named and runtime.monotonic_s() - self.began_s > self.grace_ms / 2000

    def check(self, log: DeltaLog, names: Iterable[str]) -> None:
        """Refuse to commit files that are too old on the log's state as of its last refresh.

        This process's clock may have stood still with the whole machine, as that of a virtual machine does while its host pauses it. But whoever
        deletes files commits that before, and this commit comes after that one. So if there was such a commit since, the store's times decide.

        Raises
        ------
        FilesTooOld
        """
        if self.is_over(log.store.runtime):
            raise FilesTooOld
        if log.vacuumed_s <= self.began_s:
            return
        newest = log.log.of_version(log.version)
        for name in names:
            file = log.files.info(f"{log.folder}/{name}")
            if newest is None or file is None or newest.named_ns - file.modified_ns > self.grace_ms * 500_000:
                raise FilesTooOld
