"""The one thread that reads the store: it does the jobs of all browsers, one after the other."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from spark_partq.storage.runtime import Runtime

T = TypeVar("T")


class Reader:
    """A thread that does the jobs that it is given, in order. It ends with the process at the latest."""

    def __init__(self, runtime: Runtime) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        runtime.start_thread("partq-console", self._work)

    async def do(self, job: Callable[[], T]) -> T:
        """Wait for the job's turn, and return its result."""
        return await asyncio.wrap_future(self.begin(job))

    def begin(self, job: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        self._jobs.put(lambda: run_into(done, job))
        return done

    def stop(self) -> None:
        """Let the thread end after the jobs that it was given so far."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


async def beside(runtime: Runtime, job: Callable[[], T]) -> T:
    """The result of a job that may take long. It runs in a thread of its own, and the process does not wait for this thread when it ends."""
    done: Future[T] = Future()
    runtime.start_thread("partq-console-action", lambda: run_into(done, job))
    return await asyncio.wrap_future(done)


def run_into(done: Future[Any], job: Callable[[], Any]) -> None:
    if not done.set_running_or_notify_cancel():
        return  # the browser that asked has gone
    try:
        done.set_result(job())
    except BaseException as error:
        done.set_exception(error)
