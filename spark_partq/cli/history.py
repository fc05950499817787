"""The command that shows the facts of a group."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.common import GroupName, Json, Target, app, count
from spark_partq.cli.output import json_line, on_terminal, print_json, say, screen
from spark_partq.cli.watching import go_on
from spark_partq.core.group.facts import Kind
from spark_partq.spark.jobs import Stop
from spark_partq.storage.group.handle import Group, open_group
from spark_partq.storage.rows import Row


@app.command("history")
def history(
    context: typer.Context,
    group: GroupName,
    as_json: Json = False,
    last: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the last N facts.")] = None,
    partition: Annotated[
        str | None, typer.Option(metavar="[QUEUE/]P", help="Only facts about this partition: 3, or orders/3.")
    ] = None,
    kind: Annotated[
        list[Kind] | None,
        typer.Option(metavar="KIND", help="Only facts of this kind, such as Granted; may be repeated."),
    ] = None,
    every_kind: Annotated[
        bool,
        typer.Option(
            "--all", help="Also show facts of kind Floor, of which maintain makes many; --json always has them."
        ),
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Then show new facts until Ctrl-C or SIGTERM; --json then prints one fact per line."
        ),
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.05, metavar="SECONDS", help="With --follow: pause between two looks for more.")
    ] = 1.0,
) -> None:
    """Show the facts of a consumer group in order: who joined and left, who got which partition, when and why.

    Each fact is one line, or several lines if the terminal is too narrow.
    """
    target: Target = context.obj
    wanted = _wanted(partition, kind or [], every_kind or as_json)
    stop = Stop() if follow else None  # a signal that comes while the first are read is heeded, too
    opened = open_group(target.opened, group, deleted=True)
    rows = _first(opened, wanted, last)
    shown = [row for row in rows if wanted.shows(row)]
    if as_json and not follow:
        print_json([_plain(row) for row in shown])
    else:
        _tell(shown, as_json, header=True)
    left_out = len(rows) - len(shown)
    if left_out:
        say(f"left out: {count(left_out, 'fact')} of kind {Kind.FLOOR}; --all shows them, too", error=True)
    if stop is None:
        return
    seen = opened.state.seq

    def more() -> None:
        nonlocal seen
        opened.refresh_control()
        new = [row for row in opened.recent_facts(opened.state.seq - seen) if wanted.about(row) and wanted.shows(row)]
        seen = opened.state.seq
        _tell(new, as_json)

    go_on(stop, every, more)


@dataclass(frozen=True)
class _Wanted:
    """Which facts are shown: those about a partition, of some kinds. `floors` of any kind only if they are asked for."""

    partition: str | None
    queue: str | None
    number: int | None
    kinds: tuple[Kind, ...]
    floors: bool

    def of_partition(self, row: Row) -> bool:
        return self.number is None or (row["partition"] == self.number and self.queue in (None, row["queue"]))

    def about(self, row: Row) -> bool:
        """Whether it is asked for at all."""
        return self.of_partition(row) and (not self.kinds or row["kind"] in self.kinds)

    def shows(self, row: Row) -> bool:
        """Whether it is shown, of those that are asked for."""
        return self.floors or row["kind"] != Kind.FLOOR


def _wanted(partition: str | None, kinds: list[Kind], every_kind: bool) -> _Wanted:
    queue = number = None
    if partition is not None:
        found = re.fullmatch(r"(?:(.+)/)?(-?\d+)", partition)
        if found is None:
            raise typer.BadParameter(f"--partition {partition!r} is neither a number nor QUEUE/NUMBER")
        queue, number = found[1], int(found[2])
    return _Wanted(partition, queue, number, tuple(kinds), every_kind or bool(kinds))


def _first(group: Group, wanted: _Wanted, last: int | None) -> list[Row]:
    """The facts that are asked for, from the first on that is shown if only the last ones are.

    Raises
    ------
    InvalidArgumentError
        If the group never had the partition.
    """
    if last is None or wanted.number is not None or wanted.kinds:
        rows = group.history()
        if wanted.number is not None and not any(map(wanted.of_partition, rows)):
            known = ", ".join(sorted(q.name for q in group.state.queues.values())) or "none"
            raise partq.InvalidArgumentError(
                f"group {group.name!r} never had a partition {wanted.partition}; its queues: {known}",
                group=group.name,
                partition=wanted.partition,
            )
        rows = [row for row in rows if wanted.about(row)]
        return rows if last is None else _last(rows, wanted, last)
    read = last
    while True:  # floors may lie between those that are shown
        rows = group.recent_facts(read)
        if sum(map(wanted.shows, rows)) >= last or len(rows) < read:
            return _last(rows, wanted, last)
        read *= 4


def _last(rows: list[Row], wanted: _Wanted, count_: int) -> list[Row]:
    """The facts from the first on of the last so many that are shown."""
    places = [n for n, row in enumerate(rows) if wanted.shows(row)]
    return rows[places[-count_] :] if len(places) > count_ else rows


def _tell(rows: list[Row], as_json: bool, header: bool = False) -> None:
    if as_json:
        for row in rows:
            json_line(_plain(row))
    elif rows or header:
        say(*render.facts(rows, screen().width if on_terminal() else None, header=header))


def _plain(row: Row) -> dict[str, Any]:
    return {**row, "at": row["at"].isoformat()}
