"""What a store says as plain text, as anybody may have written it: a terminal obeys escape sequences."""

from __future__ import annotations

import re

# Control characters of both sets, line and paragraph separators, what changes the direction of writing, and halves of pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BUT_LINES = re.compile(_CONTROL.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def plain(text: str, *, lines: bool = False) -> str:
    """The text with every character that a terminal may obey written out; with `lines` it may have several lines."""
    return (_BUT_LINES if lines else _CONTROL).sub(lambda found: found[0].encode("unicode_escape").decode(), text)
