"""How a seed changes an input that is whole: a plain value, a text, rows of a table, the bytes of a file."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 3, 2**31 - 1, 2**63 - 1, 2**63, -(2**63), 10**30, 0.5, 1e308, float("nan"), float("inf"), "", "0", "a", "a/0",
    "../x", "a\0b", "\x1b[2J", "\ud800", "(a|aa)+b", "[" * 50_000, "x" * 20_000, [], [[]], {}, {"a": 1}, [1, 2, 3], {"0": -1}, {"0": 2**70},
]  # fmt: skip
_NAMES = ["new", "first", "0", "-1", "4096"]
_CHARACTERS = "*+?(){}[]|\\/.%\0é0"
# What a column of each type of Spark can hold; null comes besides.
_OF_TYPE: dict[str, list[Any]] = {
    "string": [s for s in STRANGE if isinstance(s, str) and s.isascii()],
    "long": [0, 1, -1, 2, 3, 5, 2**31, 2**63 - 1, -(2**63)],
    "integer": [0, 1, -1, 2, 3, 5, 4095, 4096, 2**31 - 1, -(2**31)],
    "boolean": [True, False],
}


def changed(valid: Any, chance: random.Random) -> Any:
    """The value with one to three places replaced, removed, doubled or added."""
    value = copy.deepcopy(valid)
    for _ in range(chance.randint(1, 3)):
        place = value
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(place[key], (dict, list)) and chance.random() < 0.8:
                place = place[key]
                continue
            _change(place, key, chance)
            break
    return value


def _change(place: Any, key: Any, chance: random.Random) -> None:
    how = chance.random()
    if how < 0.15:
        del place[key]
    elif how < 0.3 and isinstance(place, list):
        place.insert(key, copy.deepcopy(place[key]))
    elif how < 0.3:
        place[chance.choice(_NAMES)] = strange(chance)
    elif how < 0.5 and isinstance(place[key], str):
        place[key] = with_character(place[key], chance)
    else:
        place[key] = strange(chance)


def strange(chance: random.Random) -> Any:
    """A copy, which may be changed further."""
    return copy.deepcopy(chance.choice(STRANGE))


def with_character(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(_CHARACTERS) + text[at:]


def rows_changed(columns: Sequence[tuple[str, str]]) -> Callable[[list[dict[str, Any]], random.Random], Any]:
    """Changes rows of a table whose columns have these names and types: a file of it can hold nothing else.

    The value of a column ``body`` is plain here, and any JSON there.
    """
    typed = [(name, type_) for name, type_ in columns if type_ in _OF_TYPE]

    def change(valid: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
        rows = copy.deepcopy(valid)
        for _ in range(chance.randint(1, 3)):
            if not rows:
                break
            at, how = chance.randrange(len(rows)), chance.random()
            body = rows[at].get("body")
            if how < 0.1:
                del rows[at]
            elif how < 0.2:
                rows.insert(at, copy.deepcopy(rows[at]))
            elif how < 0.3:
                other = chance.randrange(len(rows))
                rows[at], rows[other] = rows[other], rows[at]
            elif how < 0.65 and isinstance(body, dict):
                rows[at]["body"] = changed(body, chance) if chance.random() < 0.9 else strange(chance)
            else:
                name, type_ = chance.choice(typed)
                is_kept = chance.random() < 0.3 and isinstance(rows[at].get(name), str)
                value = with_character(rows[at][name], chance) if is_kept else chance.choice([None, *_OF_TYPE[type_]])
                rows[at][name] = value
        return rows

    return change


def damaged(valid: bytes, chance: random.Random) -> bytes:
    """The bytes with one to four places replaced, removed or added, or cut short."""
    data = bytearray(valid)
    if chance.random() < 0.1:
        del data[chance.randrange(len(data)) :]
    for _ in range(chance.randint(1, 4)):
        # The end of a Parquet file says what is in it.
        end = len(data)
        at = chance.randrange(max(0, end - 400), end + 1) if chance.random() < 0.5 else chance.randrange(end + 1)
        new = chance.choice([b"\n", b"0", b"null", b"{", b'"', b",", b"%", chance.randbytes(chance.randint(1, 4))])
        how = chance.random()
        if how < 0.6:
            data[at : at + len(new)] = new
        elif how < 0.8:
            data[at:at] = new
        else:
            del data[at : at + len(new)]
    return bytes(data)
