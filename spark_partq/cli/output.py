"""All that the commands print goes through here, as it comes from a store in which anybody may have written.

A terminal obeys escape sequences, and rich reads square brackets as markup; in what a store says both are plain text.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

# Control characters of both sets, line and paragraph separators, what changes the direction of writing, and halves of pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BUT_LINES = re.compile(_CONTROL.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def plain(text: str, *, lines: bool = False) -> str:
    """The text with every character that a terminal may obey written out; with `lines` it may have several lines."""
    return (_BUT_LINES if lines else _CONTROL).sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(*lines: object, error: bool = False) -> None:
    """Print lines, each as one, at once."""
    print("\n".join(plain(str(line)) for line in lines), file=sys.stderr if error else sys.stdout, flush=True)


def show(what: RenderableType) -> None:
    """Print a table, or several parts."""
    screen().print(what)


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))  # writes out control characters itself


def screen(*, error: bool = False) -> Console:
    """Where rich prints."""
    return _Screen(stderr=error, markup=False, emoji=False, highlight=False)


class _Screen(Console):
    def render_str(self, text: str, **how: Any) -> Text:
        how |= {"markup": False, "emoji": False, "highlight": False}
        return super().render_str(plain(text, lines=True), **how)
