"""A sink that several queries of a program share writes one micro-batch at a time, whichever query it belongs to.

Each query calls its sink in its own thread, but a sink's handles on tables are for one thread. Otherwise one thread would refresh the state
on which another thread has decided.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Shared(Protocol):
    @property
    def _turn(self) -> AbstractContextManager[Any]:
        """A lock that is held by the thread whose turn it is."""
        ...


S = TypeVar("S", bound=_Shared)


def in_turn(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Let the method wait until no other thread is in a method of the object that is decorated like this."""

    @functools.wraps(method)
    def waiting(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._turn:
            return method(self, *args, **kwargs)

    return waiting
