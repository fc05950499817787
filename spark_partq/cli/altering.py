"""The command that changes what a queue was created with."""

from __future__ import annotations

from typing import Annotated

import typer

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.common import Json, QueueName, Target, app
from spark_partq.cli.output import print_json, say_prose
from spark_partq.cli.settings import parse_settings, settings_in_help


@app.command("alter-queue", epilog=settings_in_help())
def alter_queue(
    context: typer.Context,
    queue: QueueName,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Setting to change: retention_ms=7d. May be repeated."),
    ] = None,
    reset: Annotated[
        list[str] | None,
        typer.Option("--reset", metavar="NAME", help="Setting to set back to its default. May be repeated."),
    ] = None,
    add_column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME TYPE'",
            help="Column to add: 'note string'. Existing messages have null in it; a consumer reads it after its next start. May be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Change settings of a queue while it is in use, or add columns to it.

    Producers, consumers and maintenance read the new settings before their next batch. A setting that already has the wanted value
    stays as it is. Durations are milliseconds, or have a unit: 250ms, 5s, 10m, 12h, 7d.
    """
    target: Target = context.obj
    if not set_ and not reset and not add_column:
        raise typer.BadParameter("nothing to change: give --set NAME=VALUE, --reset NAME or --add-column 'NAME TYPE'")
    if add_column and (set_ or reset):
        raise typer.BadParameter("--add-column goes alone: change settings with another command")
    settings = parse_settings(set_ or [])
    before = partq.describe_queue(target.store, queue, storage_options=target.storage_options)
    if add_column:
        found = partq.add_column(target.store, queue, ", ".join(add_column), storage_options=target.storage_options)
    else:
        found = partq.alter_queue(
            target.store, queue, reset=reset or [], storage_options=target.storage_options, **settings
        )
    if as_json:
        print_json(found.to_dict())
        return
    changed = [name for name, value in found.settings.items() if before.settings[name] != value]
    for name in changed:
        say_prose(
            f"{name} of queue {queue} is {render.setting(found.settings[name])}, was {render.setting(before.settings[name])}"
        )
    if found.schema != before.schema:
        say_prose(f"queue {queue} has the columns {found.schema}")
        say_prose("consumers read those that are new once they are started again")
    elif changed:
        say_prose("producers and consumers heed that before their next batch, and need no restart")
    else:
        say_prose(f"nothing to change: queue {queue} has these {'columns' if add_column else 'settings'}")
