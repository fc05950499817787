"""Arguments of public functions, checked before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.core.ids import QueuePartition
from spark_partq.core.stored import MOST


def names(argument: str, value: object) -> tuple[str, ...]:
    """A text, or several; None is none.

    Raises
    ------
    InvalidArgumentError
    """
    if isinstance(value, str):
        return (value,)
    if value is None:
        return ()
    try:
        found = list(value) if isinstance(value, Iterable) else [value]
    except TypeError:  # a column of Spark has the method, and cannot be iterated
        found = [value]
    texts = tuple(name for name in found if isinstance(name, str))
    _check(argument, value, len(texts) == len(found), "is neither a name nor a list of names")
    return texts


def count_or_none(argument: str, value: object) -> None:
    """Refuse what is neither None nor a whole number from 0 to 2^63 - 1 (`InvalidArgumentError`)."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST
    _check(argument, value, value is None or is_count, "is no whole number from 0 to 2^63 - 1")


def seconds_or_none(argument: str, value: object) -> None:
    """Refuse what is neither None nor a number of at least 0 (`InvalidArgumentError`)."""
    is_time = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
    _check(argument, value, value is None or is_time, "is no number of seconds of at least 0")


def whole_numbers_by_partition(argument: str, value: object) -> dict[QueuePartition, int]:
    """Whole numbers by partition, such as ``{("orders", 3): 120}``. Those of NumPy are whole numbers, too.

    Raises
    ------
    InvalidArgumentError
    """
    given = dict(value) if isinstance(value, Mapping) else {}
    is_right = isinstance(value, Mapping) and all(_is_partition(p) and _is_whole(n) for p, n in given.items())
    _check(argument, value, is_right, "does not map partitions to whole numbers, as {('orders', 3): 120} does")
    return {(queue, int(number)): int(n) for (queue, number), n in given.items()}


def _is_partition(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and _is_whole(value[1])


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def truth(argument: str, value: object) -> None:
    """Refuse what is neither True nor False (`InvalidArgumentError`): a text that says no is true in Python."""
    _check(argument, value, isinstance(value, bool), "is neither True nor False")


def _check(argument: str, value: object, is_right: bool, what_is_wrong: str) -> None:
    if not is_right:
        raise InvalidArgumentError(f"{argument}={value!r} {what_is_wrong}", argument=argument)
