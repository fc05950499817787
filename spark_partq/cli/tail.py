"""The command that shows the newest messages of a queue."""

from __future__ import annotations

import datetime as dt
import json
from typing import Annotated, Any

import typer

from spark_partq.cli.common import QueueName, Target, app, named_values
from spark_partq.cli.output import as_text, json_line, say, screen
from spark_partq.cli.plain import plain
from spark_partq.cli.watching import go_on
from spark_partq.core.queue.partition_map import PARENT
from spark_partq.spark.jobs import Stop
from spark_partq.storage.inspect.tail import Message, Tail
from spark_partq.storage.queue.handle import open_queue


@app.command("tail")
def tail(
    context: typer.Context,
    queue: QueueName,
    count: Annotated[int, typer.Option("-n", min=0, metavar="N", help="The newest N messages of the queue.")] = 10,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Only messages with this value in a column of the key. Repeat it for each column.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Then show new messages until Ctrl-C or SIGTERM.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.05, metavar="SECONDS", help="With --follow: pause between two looks for more.")
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show the newest messages of a queue, partition by partition, in order within each.

    The command needs no consumer group, and acknowledges nothing. A line has the partition and the offset, when the message was enqueued (UTC),
    and its columns, as far as they fit.
    """
    target: Target = context.obj
    wanted = column_values(key or [])
    reader = Tail(open_queue(target.opened, queue), wanted)
    stop = Stop() if follow else None  # a signal that comes while the first are read is heeded, too
    found = reader.last(count)
    for message in found:
        _print(message, as_json)
    if not found and count and not as_json:
        say(f"queue {queue} has no message{' of this key' * bool(wanted)}", error=True)

    def more() -> None:
        for message in reader.more():
            _print(message, as_json)

    if stop is not None:
        go_on(stop, every, more)


def column_values(texts: list[str]) -> dict[str, str]:
    """Columns and their values, from arguments of the form ``COLUMN=VALUE``.

    Raises
    ------
    typer.BadParameter
        If an argument is of another form, or a column is given twice: a message has one value in a column.
    """
    return named_values("--key", texts, "COLUMN=VALUE", if_twice=": run the command for one key at a time")


def _print(message: Message, as_json: bool) -> None:
    at = dt.datetime.fromtimestamp(message.enqueued_us / 1e6, dt.UTC)
    if as_json:
        about = {"partition": message.partition, "offset": message.offset, "enqueued_at": at.isoformat()}
        json_line({**about, "message": message.values})
        return
    place = "parent" if message.partition == PARENT else str(message.partition)
    told = " ".join(f"{name}={_text(value)}" for name, value in message.values.items())
    line = plain(f"{place}@{message.offset} {at:%Y-%m-%d %H:%M:%S} {told}")
    width = screen().width
    say(line if len(line) <= width else f"{line[: width - 1]}…")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=as_text, ensure_ascii=False)
