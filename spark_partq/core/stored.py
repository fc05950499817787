"""Values that were read from a store, where anybody may have written anything: each has a type and a range, or is a `ValueError`.

Who may write a store is trusted with its messages and not with the time and memory of its readers, so counts are bounded, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from spark_partq.core.names import check_name

# What reading such a value raises: a reader of a table makes the one error of a damaged table of it.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)
# What to do when a table went back to an older state while programs knew a newer one.
RESTORE_NEWEST = (
    "Stop all programs and restore the newest state. Only if it is lost, start them again: then the messages and decisions that the older state "
    "lacks are lost"
)
MOST = 2**63 - 1  # of an offset, an epoch, a number of a fact
MAX_PARTITIONS = 4096
MAX_FLOWS = 10_000  # of one member
MAX_MS = 10 * 365 * 86_400_000
MAX_WEIGHT = 1e100
MAX_TEXT = 10_000
MAX_NAME_BYTES = 255  # of a file
# Leads out of the folder, here or with another reader: hidden (also `.` and `..`), with a separator or a control character, or a URI with a
# scheme. Or half of a surrogate pair, which nobody can write again.
_NO_FILE_NAME = re.compile(r"\.|.*[/\\\x00-\x1f\x7f\ud800-\udfff]|[A-Za-z][A-Za-z0-9+.-]+:", re.DOTALL)
_MAX_JSON = 64 << 20
_MAX_NESTED = 50

E = TypeVar("E", bound=StrEnum)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


_JSON = json.JSONDecoder(parse_constant=_no_constant)  # `json.loads` makes one at each call


def body_of(text: object, what: str = "its body") -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(text, str):
        raise ValueError(f"{what} is no text")
    if len(text) > _MAX_JSON:
        raise ValueError(f"{what} has {len(text)} characters")
    try:
        value = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is no JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no JSON object")
    return value


def whole(value: object, what: str, least: int = 0, most: int = MOST) -> int:
    """A whole number in a range, both ends of it included."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{what} is {_shown(value)} and not a whole number from {least} to {most}")
    return value


def whole_or_none(value: object, what: str, least: int = 0, most: int = MOST) -> int | None:
    return None if value is None else whole(value, what, least, most)


def positive(value: object, what: str) -> float:
    """A number above 0 that is not infinite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < MAX_WEIGHT:
        raise ValueError(f"{what} is {_shown(value)} and not a number above 0")
    return value


def text(value: object, what: str, most: int = MAX_TEXT) -> str:
    """A text that can be stored again."""
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"{what} is {_shown(value)} and not a text of at most {most} characters")
    value.encode()  # half of a surrogate pair is a UnicodeEncodeError, which is a ValueError
    return value


def text_or_none(value: object, what: str) -> str | None:
    return None if value is None else text(value, what)


def texts(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{what} is {_shown(value)} and not a list")
    return tuple(text(item, what) for item in value)


def items(value: object, what: str) -> list[Any]:
    """A list, whatever is in it."""
    if not isinstance(value, list):
        raise ValueError(f"{what} is {_shown(value)} and not a list")
    return value


def flag(value: object, what: str) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{what} is {_shown(value)} and neither true nor false")
    return value


def one_of(known: type[E], value: object, what: str) -> E:
    """A text that this program knows."""
    try:
        return known(str(value))
    except ValueError:
        raise ValueError(f"{what} is {_shown(value)}, which this program does not know") from None


def name(value: object, what: str) -> str:
    """A name of a queue, a group or an instance."""
    try:
        return check_name(what, value)
    except Exception as error:
        raise ValueError(f"{what} is {_shown(value)}, which is no name") from error


def file_name(value: object, what: str) -> str:
    """The name of a file in a folder that is known: whoever may write a store must not reach files outside of that folder."""
    if not isinstance(value, str) or not is_plain(value):
        raise ValueError(f"{what} is {_shown(value)}, which is no plain name of a file")
    return value


def is_plain(name: str) -> bool:
    """Whether a name stays in its folder, here and with every other reader."""
    if not name or _NO_FILE_NAME.match(name):
        return False
    return 4 * len(name) <= MAX_NAME_BYTES or len(name.encode()) <= MAX_NAME_BYTES  # no character has more than 4


def offsets_by_partition(value: object, what: str, partitions: range) -> dict[int, int]:
    """Offsets by the numbers of partitions, which are keys of a JSON object."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is {_shown(value)} and not an object")
    return {partition_number(key, what, partitions): whole(offset, what) for key, offset in value.items()}


def partition_number(key: object, what: str, partitions: range) -> int:
    """The number of a partition, which is a key of a JSON object."""
    plain = str(key) if type(key) is int else key  # JSON makes texts of them
    number = int(plain) if isinstance(plain, str) and len(plain) < 6 and plain.removeprefix("-").isdecimal() else None
    if number is None or number not in partitions or str(number) != plain:
        raise ValueError(f"{what} has {_shown(key)}, which is no number of a partition")
    return number


def others(body: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """The fields that this program does not know, which it keeps for those that do."""
    found = {name: value for name, value in body.items() if name not in known}
    for name, value in found.items():
        if not _is_shallow(value, _MAX_NESTED):
            raise ValueError(f"{_shown(name)} is nested too deeply")
    return found


def reason(error: Exception) -> str:
    """What is wrong with what was read, of an error of these readers: of a field that is missing a `KeyError` has only the name."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _is_shallow(value: object, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(item, levels - 1) for item in inner)


def _shown(value: object) -> str:
    """The beginning of what is there. A huge number is not written out, which would take long."""
    if isinstance(value, int) and value.bit_length() > 200:
        return "a huge number"
    if isinstance(value, str):
        return repr(value[:60])
    return repr(value) if isinstance(value, (int, float, type(None))) else f"a {type(value).__name__}"
