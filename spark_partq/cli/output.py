"""All that the commands print goes through here, as it comes from a store in which anybody may have written.

A terminal obeys escape sequences, and rich reads square brackets as markup; in what a store says both are plain text.
"""

from __future__ import annotations

import datetime as dt
import json
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
    print(json.dumps(value, indent=2, default=as_text))  # writes out control characters itself


def json_line(value: object) -> None:
    """Print a value as one line, at once."""
    print(json.dumps(value, default=as_text), flush=True)


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
