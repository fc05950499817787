"""Commands about messages that cannot be processed."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import typer

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.common import App, Json, QueueName, Target, app, count
from spark_partq.cli.output import print_json, say, say_prose, show

commands = App(help="Show messages that cannot be processed, and put them back.", no_args_is_help=True)
app.add_typer(commands, name="dead-letter")

_SHOWN = 100


@commands.command("list")
def list_(
    context: typer.Context,
    queue: QueueName,
    every: Annotated[
        bool, typer.Option("--all", help="Show all messages, without a limit, also those that were put back.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the messages of a dead-message queue; QUEUE is that queue, or a queue that uses it."""
    target: Target = context.obj
    found = partq.dead_letters(target.store, queue, storage_options=target.storage_options)
    wanted = (message for message in found if every or not message.redriven)
    if as_json:
        print_json([message.to_dict() for message in wanted])
        return
    shown = list(wanted if every else itertools.islice(wanted, _SHOWN + 1))
    table = render.table("from", "offset", reason="left", group="left", delivered="right", message="left")
    for message in shown if every else shown[:_SHOWN]:
        origin = message.origin
        table.add_row(
            f"{origin['origin_queue']}/{origin['origin_partition']}",
            render.number(origin["origin_offset"]),
            origin["dead_reason"],
            origin["origin_group"],
            "" if origin["delivery_count"] is None else f"{origin['delivery_count']}x",
            _short(message.payload),
        )
    if not shown:
        say("no dead messages that were not put back" if not every else "no dead messages")
        return
    show(table)
    if len(shown) > _SHOWN and not every:
        say(f"and more than these {_SHOWN}; --all shows them all")


@commands.command("redrive")
def redrive(context: typer.Context, queue: QueueName, as_json: Json = False) -> None:
    """Put dead messages back into the queues from which they came, behind the messages that are there now."""
    target: Target = context.obj
    put_back = partq.redrive(target.store, queue, storage_options=target.storage_options)
    if as_json:
        print_json(put_back)
        return
    for name, messages in put_back.items():
        say_prose(f"put {count(messages, 'message')} back into queue {name}")
    if not put_back:
        say("no dead messages that were not put back")


def _short(payload: dict[str, Any]) -> str:
    text = " ".join(f"{name}={value}" for name, value in payload.items())
    return text if len(text) <= 40 else f"{text[:39]}…"
