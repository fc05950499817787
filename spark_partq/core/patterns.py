"""Patterns of queue names: regular expressions whose match takes time in proportion to pattern and name, whatever they are.

One member's pattern is matched by every process of its group, so one that takes for ever (``(a|aa)+b`` does, with Python's `re`) would
stop them all. The matcher here follows all ways at once instead of trying one after the other (Thompson 1968). It knows what such
a matcher can: characters, ``.``, ``[a-z]``, ``\\d``, ``\\w``, groups, ``|``, ``*``, ``+``, ``?``, ``{2,5}``, ``^`` and ``$``.
Back-references, lookarounds and flags are refused. What it knows it takes as `re.fullmatch` does.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

MAX_LENGTH = 500
_MAX_DEPTH = 50
_MAX_STATES = 2_000  # what counted repetitions come to, written out

_DIGITS, _WORD = frozenset(string.digits), frozenset(string.ascii_letters + string.digits + "_")
_ANY = frozenset(map(chr, range(128))) - {"\n"}  # names are ASCII
_CLASSES = {"d": _DIGITS, "w": _WORD, "D": _ANY - _DIGITS, "W": _ANY - _WORD}
_START, _END = "^", "$"

Label = frozenset[str] | str | None  # the characters that lead on, or an anchor, or nothing is needed


def check_pattern(pattern: str) -> None:
    """Refuse what is no pattern.

    Raises
    ------
    ValueError
        The text says what is wrong.
    """
    _compiled(pattern)


@lru_cache(10_000)
def matches(pattern: str, name: str) -> bool:
    """Whether the whole name matches."""
    return _compiled(pattern).matches(name)


@dataclass
class _Automaton:
    """States by number; from each some edges lead on. `last` accepts."""

    edges: list[list[tuple[Label, int]]] = field(default_factory=list)
    first: int = 0
    last: int = 0

    def state(self) -> int:
        if len(self.edges) == _MAX_STATES:
            raise ValueError("it repeats too much")
        self.edges.append([])
        return len(self.edges) - 1

    def matches(self, name: str) -> bool:
        now = self._reached([self.first], at_start=True, at_end=not name)
        for i, char in enumerate(name, 1):
            after = [
                to for state in now for label, to in self.edges[state] if type(label) is frozenset and char in label
            ]
            now = self._reached(after, at_start=False, at_end=i == len(name))
        return self.last in now

    def _reached(self, states: Iterable[int], at_start: bool, at_end: bool) -> set[int]:
        """These states, and all to which no character leads."""
        found, left = set(states), list(states)
        while left:
            for label, to in self.edges[left.pop()]:
                free = label is None or (label == _START and at_start) or (label == _END and at_end)
                if free and to not in found:
                    found.add(to)
                    left.append(to)
        return found


@lru_cache(1_000)
def _compiled(pattern: str) -> _Automaton:
    return _Parser(pattern).parse()


class _Parser:
    """Reads a pattern from left to right. Each part adds its states between two that it returns."""

    def __init__(self, pattern: str) -> None:
        self._text, self._at, self._depth, self._made = pattern, 0, 0, _Automaton()

    def parse(self) -> _Automaton:
        if len(self._text) > MAX_LENGTH:
            raise ValueError(f"it is longer than {MAX_LENGTH} characters")
        self._made.first, self._made.last = self._choice()
        if self._peek():
            raise ValueError(f"unbalanced ) at position {self._at}")
        return self._made

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise ValueError("it ends too early")
        self._at += 1
        return char

    def _takes(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _edge(self, from_: int, label: Label, to: int) -> None:
        self._made.edges[from_].append((label, to))

    def _between(self, label: Label) -> tuple[int, int]:
        first, last = self._made.state(), self._made.state()
        self._edge(first, label, last)
        return first, last

    def _choice(self) -> tuple[int, int]:
        first, last = self._made.state(), self._made.state()
        while True:
            begin, end = self._sequence()
            self._edge(first, None, begin)
            self._edge(end, None, last)
            if not self._takes("|"):
                return first, last

    def _sequence(self) -> tuple[int, int]:
        first = last = self._made.state()
        while self._peek() not in ("", "|", ")"):
            begin, end = self._repeated()
            self._edge(last, None, begin)
            last = end
        return first, last

    def _repeated(self) -> tuple[int, int]:
        began = self._at
        first, last = self._one()
        if self._peek() not in ("*", "+", "?", "{"):
            return first, last
        after_one, least, most = self._at, *self._count()
        if self._text[began] in "^$":
            raise ValueError(f"nothing to repeat at position {after_one}")
        self._takes("?")  # the shortest or the longest: a whole name matches or not
        if self._peek() in ("*", "+", "?", "{"):
            raise ValueError(f"multiple repeat at position {self._at}")
        return self._copies(began, least, most)

    def _count(self) -> tuple[int, int | None]:
        char = self._next()
        if char != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        inside, closed, rest = self._text[self._at :].partition("}")
        least, comma, most = inside.partition(",")
        numbers = [number for number in (least, most) if number]
        if not closed or not numbers or not all(n.isascii() and n.isdigit() and len(n) < 5 for n in numbers):
            raise ValueError(f"no repetition at position {self._at}; write \\{{ for the character")
        self._at = len(self._text) - len(rest)
        low = int(least or 0)
        high = int(most) if most else None if comma else low
        if high is not None and high < low:
            raise ValueError(f"a repetition from {low} to {high}")
        return low, high

    def _copies(self, began: int, least: int, most: int | None) -> tuple[int, int]:
        """So many of the part that begins there, one after the other; the text is read once for each."""
        ended = self._at
        first = last = self._made.state()
        for _ in range(least):
            begin, end = self._again(began)
            self._edge(last, None, begin)
            last = end
        left = self._made.state()
        self._edge(last, None, left)
        if most is None:
            begin, end = self._again(began)
            self._edge(last, None, begin)
            self._edge(end, None, last)
        for _ in range(least, most or 0):
            begin, end = self._again(began)
            self._edge(last, None, begin)
            self._edge(end, None, left)
            last = end
        self._at = ended
        return first, left

    def _again(self, began: int) -> tuple[int, int]:
        self._at = began
        return self._one()

    def _one(self) -> tuple[int, int]:
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._between(self._set())
            case ".":
                return self._between(_ANY)
            case "^" | "$":
                return self._between(char)
            case "\\":
                return self._between(self._escaped())
            case "*" | "+" | "?" | "{":
                raise ValueError(f"nothing to repeat at position {self._at - 1}")
        return self._between(frozenset(char))

    def _group(self) -> tuple[int, int]:
        if self._takes("?") and not self._takes(":"):
            raise ValueError("groups (?…) are not supported but for (?:…)")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("its groups are nested too deeply")
        found = self._choice()
        self._depth -= 1
        if not self._takes(")"):
            raise ValueError("a ( is not closed")
        return found

    def _escaped(self) -> frozenset[str]:
        char = self._next()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _WORD or not char.isascii():
            raise ValueError(f"\\{char} is not supported")
        return frozenset(char)

    def _set(self) -> frozenset[str]:
        negated, found, began = self._takes("^"), set[str](), True
        while began or self._peek() != "]":
            began = False
            low = self._in_set()
            ahead = self._text[self._at : self._at + 2]
            if ahead[:1] == "-" and ahead[1:] not in ("]", ""):
                self._next()
                high = self._in_set()
                if len(low) != 1 or len(high) != 1 or min(low) > min(high):
                    raise ValueError(f"a bad range in the set that ends before position {self._at}")
                found.update(char for char in _ANY if min(low) <= char <= min(high))
            else:
                found |= low
        self._next()
        return _ANY - found if negated else frozenset(found)

    def _in_set(self) -> frozenset[str]:
        char = self._next()
        return self._escaped() if char == "\\" else frozenset(char)
