"""Checkpoints in the background, so that no micro-batch waits for one.

One thread per process takes them in turn. It dies with the process, at any point: a checkpoint appears as a whole, and what is not
done is found due again by whoever commits next.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger("spark_partq")


class Upkeep:
    """Jobs of one process, each known by a name under which it waits at most once."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # a forked process has none of its parent's threads

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, Callable[[], object]] = {}
        self._jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._idle = threading.Condition(self._lock)

    def request(self, name: str, job: Callable[[], object]) -> None:
        """Do the job soon; errors are logged."""
        with self._lock:
            if name in self._waiting:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="partq-upkeep", daemon=True)
                try:
                    thread.start()
                except (
                    RuntimeError
                ) as error:  # no more threads, or the process ends: the commit went through all the same
                    _log.warning("upkeep of %s: %s", name, error)
                    return
                self._thread = thread
            self._waiting[name] = job
            self._jobs.put(name)

    def wait(self) -> None:
        """Return when nothing is left to do."""
        with self._idle:
            self._idle.wait_for(lambda: not self._waiting)

    def _run(self) -> None:
        while True:
            name = self._jobs.get()
            try:
                self._waiting[name]()
            except Exception as error:  # of any kind: the next one who finds it due tries again
                _log.warning("upkeep of %s: %s", name, error)
            finally:
                with self._idle:
                    del self._waiting[name]
                    self._idle.notify_all()


UPKEEP = Upkeep()
