"""Arguments of public functions, checked before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.stored import MOST


def names(argument: str, value: object) -> tuple[str, ...]:
    """A text, or several; None is none.

    Raises
    ------
    InvalidArgumentError
    """
    if isinstance(value, str):
        return (value,)
    found = list(value) if isinstance(value, Iterable) else [value]
    if value is None or not found:
        return ()
    texts = tuple(name for name in found if isinstance(name, str))
    if len(texts) < len(found):
        raise InvalidArgumentError(f"{argument}={value!r} is neither a name nor a list of names", argument=argument)
    return texts


def count_or_none(argument: str, value: object) -> None:
    """
    Raises
    ------
    InvalidArgumentError
        If it is neither None nor a whole number from 0 to 2^63 - 1.
    """
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST
    if value is not None and not is_count:
        raise InvalidArgumentError(f"{argument}={value!r} is no whole number from 0 to 2^63 - 1", argument=argument)


def seconds_or_none(argument: str, value: object) -> None:
    """
    Raises
    ------
    InvalidArgumentError
        If it is neither None nor a number of at least 0.
    """
    is_time = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
    if value is not None and not is_time:
        raise InvalidArgumentError(f"{argument}={value!r} is no number of seconds of at least 0", argument=argument)


def truth(argument: str, value: object) -> None:
    """
    Raises
    ------
    InvalidArgumentError
        If it is neither True nor False: a text that says no is true in Python.
    """
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{argument}={value!r} is neither True nor False", argument=argument)
