"""All that the commands print goes through here, as it comes from a store in which anybody may have written.

A terminal obeys escape sequences, and rich reads square brackets as markup; in what a store says both are plain text.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_partq import render
from spark_partq.cli.fitting import fitted
from spark_partq.cli.plain import plain


def say(*lines: object, error: bool = False) -> None:
    """Print lines, each as one, at once."""
    print("\n".join(plain(str(line)) for line in lines), file=sys.stderr if error else sys.stdout, flush=True)


def say_prose(*texts: str, error: bool = False) -> None:
    """Print prose, each text on lines of its own, as wide as the screen and with no word cut."""
    width = screen().width
    say(*(line for text in texts for line in render.filled(plain(text), rest="  ", width=width)), error=error)


def show(what: RenderableType) -> None:
    """Print a table, or several parts, as wide as the screen and with no word cut."""
    console = screen()
    for part in what.renderables if isinstance(what, Group) else [what]:
        fits = fitted(part, console) if isinstance(part, Table) else part
        if isinstance(fits, list):
            say(*fits)
        else:
            console.print(fits)


def print_json(value: object) -> None:
    print(_as_json(value, indent=2))  # writes out control characters itself


def json_line(value: object) -> None:
    """Print a value as one line, at once."""
    print(_as_json(value), flush=True)


def _as_json(value: object, indent: int | None = None) -> str:
    try:
        return json.dumps(value, indent=indent, default=as_text, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=indent, default=as_text)


def _finite(value: object) -> object:
    """The same, with a text for each number that JSON does not have, as Spark's ``to_json`` writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def as_text(value: object) -> str:
    """What JSON has no form for: moments and dates by ISO 8601, bytes as hexadecimal digits, decimals as they are written."""
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def on_terminal() -> bool:
    return sys.stdout.isatty()


def screen(*, error: bool = False) -> Console:
    """Where rich prints."""
    return _Screen(stderr=error, markup=False, emoji=False, highlight=False)


class _Screen(Console):
    def render_str(self, text: str, **how: Any) -> Text:
        how |= {"markup": False, "emoji": False, "highlight": False}
        return super().render_str(plain(text, lines=True), **how)
