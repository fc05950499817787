"""The command that changes what a queue was created with."""

from __future__ import annotations

from typing import Annotated

import typer

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.common import Json, QueueName, Target, app
from spark_partq.cli.output import print_json, say
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
        typer.Option("--reset", metavar="NAME", help="Setting that gets its default. May be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Change settings of a queue while it is in use.

    Producers, consumers and maintenance heed them once they have read them, which is before their next batch. What is so already
    stays so. Durations are milliseconds, or have a unit: 250ms, 5s, 10m, 12h, 7d.
    """
    target: Target = context.obj
    if not set_ and not reset:
        raise typer.BadParameter("nothing to change: give --set NAME=VALUE or --reset NAME")
    settings = parse_settings(set_ or [])
    before = partq.describe_queue(target.store, queue, storage_options=target.storage_options)
    found = partq.alter_queue(
        target.store, queue, reset=reset or [], storage_options=target.storage_options, **settings
    )
    if as_json:
        print_json(found.to_dict())
        return
    changed = [name for name, value in found.settings.items() if before.settings[name] != value]
    for name in changed:
        say(
            f"{name} of queue {queue} is {render.setting(found.settings[name])}, was {render.setting(before.settings[name])}"
        )
    if not changed:
        say(f"nothing to change: queue {queue} has these settings")
