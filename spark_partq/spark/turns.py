"""A sink that several queries of a program share: it does one micro-batch at a time, whichever query's that is.

Each query calls its sink in a thread of its own, and a sink's handles on tables are for one thread: what one thread has decided on would be
moved on by the other.
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
        """A lock, held by the thread whose turn it is."""
        ...


S = TypeVar("S", bound=_Shared)


def in_turn(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Let the method wait until no other thread is in one of the object's methods that do so."""

    @functools.wraps(method)
    def waiting(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._turn:
            return method(self, *args, **kwargs)

    return waiting
