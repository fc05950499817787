"""What ``--watch`` and ``--follow`` share: a look again and again, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TypeVar

import spark_partq as partq
from spark_partq.cli.output import json_line, on_terminal, print_json, say, say_prose, screen
from spark_partq.spark.jobs import Stop

T = TypeVar("T")


def show_or_watch(
    look: Callable[[], T],
    tell: Callable[[T], None],
    plain: Callable[[T], object],
    *,
    as_json: bool,
    every_s: float | None,
    complaints: Callable[[T], list[str]] = lambda _: [],
) -> T:
    """Look once and tell it; with `every_s` go on until the process is told to stop. Returns what the first look saw.

    On a terminal each look takes the place of the one before. Elsewhere each is a block below the last one, with its date. As JSON each is a line.

    Parameters
    ----------
    tell : function
        Prints what was seen, for people.
    plain : function
        The same as plain JSON-able values.
    complaints : function
        Lines for the standard error stream.

    Raises
    ------
    PartqError
        Of the first look. What a later one raises is told, and the next one is tried.
    """
    stop = None if every_s is None else Stop()  # a signal that comes during the first look is heeded, too

    def told(found: T) -> T:
        if not as_json and every_s is not None:
            _begin_block(every_s)
        if lines := complaints(found):
            say_prose(*lines, error=True)
        if not as_json:
            tell(found)
        elif every_s is None:
            print_json(plain(found))
        else:
            json_line(plain(found))
        return found

    first = told(look())
    if stop is not None and every_s is not None:
        go_on(stop, every_s, lambda: told(look()))
    return first


def _begin_block(every_s: float) -> None:
    if on_terminal():
        screen().clear()
    say(f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S} UTC, every {every_s:g} s")


def go_on(stop: Stop, every_s: float, step: Callable[[], object]) -> None:
    """Do it every so many seconds until the process is told to stop. An error is told, once as long as it stays the same."""
    last_told = ""
    while not stop.wait(every_s):
        try:
            step()
            last_told = ""
        except partq.PartqError as error:
            if str(error) != last_told:
                say(f"error: {error}", error=True)
            last_told = str(error)
