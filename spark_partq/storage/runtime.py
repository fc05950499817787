"""What procedures ask of the machine on which they run, apart from files: time, threads, new names and chance.

Every procedure finds it in its store (`Store.runtime`). So a simulation can run the same procedures by a clock, and in an order, of
its own (`spark_partq.testing`).
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Protocol, TypeVar

from spark_partq.storage.files import Files, open_files
from spark_partq.storage.upkeep import UPKEEP

A = TypeVar("A")
B = TypeVar("B")

# A clock that goes on while the machine sleeps, where there is one.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lock(Protocol):
    """Held by one thread at a time, which may take it several times."""

    def acquire(self, blocking: bool = True) -> bool: ...

    def release(self) -> None: ...

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Event(Protocol):
    """A flag on which threads wait."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most so many seconds; whether it is."""
        ...


class Runtime(Protocol):
    """One process's clocks, threads, names and chance. All methods may be called by any thread."""

    def open_files(self, uri: str, storage_options: Mapping[str, str]) -> Files:
        """The files of the store there."""
        ...

    def time_ns(self) -> int:
        """Nanoseconds since 1970 by this machine's clock, which may be wrong and may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds by a clock that does not go back."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def new_uuid(self) -> uuid.UUID:
        """A name that nothing else has."""
        ...

    def random(self) -> float:
        """Any number in [0, 1)."""
        ...

    def lock(self) -> Lock: ...

    def event(self) -> Event: ...

    def start_thread(self, name: str, run: Callable[[], object]) -> None:
        """Run it beside this thread. It ends with the process at the latest."""
        ...

    def map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """`function` of each item, of several at once; results in order, and the first error."""
        ...

    def request_upkeep(self, name: str, job: Callable[[], object]) -> None:
        """Do the job some time soon, once if it is requested again before that; errors are logged."""
        ...


class SystemRuntime:
    """This process as it is."""

    def open_files(self, uri: str, storage_options: Mapping[str, str]) -> Files:
        return open_files(uri, storage_options)

    def time_ns(self) -> int:
        return time.time_ns()

    def monotonic_s(self) -> float:
        return time.clock_gettime(_CLOCK)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def new_uuid(self) -> uuid.UUID:
        return uuid.uuid4()

    def random(self) -> float:
        return random.random()

    def lock(self) -> Lock:
        return threading.RLock()

    def event(self) -> Event:
        return threading.Event()

    def start_thread(self, name: str, run: Callable[[], object]) -> None:
        threading.Thread(target=run, name=name, daemon=True).start()

    def map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        with ThreadPoolExecutor(min(32, len(items))) as pool:
            return list(pool.map(function, items))

    def request_upkeep(self, name: str, job: Callable[[], object]) -> None:
        UPKEEP.request(name, job)


SYSTEM = SystemRuntime()


def derived_id(name: str) -> str:
    """The same UUID for the same name, everywhere."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))
