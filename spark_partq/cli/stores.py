"""Commands about a whole store, and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.common import Json, Target, app, count
from spark_partq.cli.output import print_json, say_prose, show
from spark_partq.storage.inspect.doctor import diagnose


@app.command("doctor")
def doctor(
    context: typer.Context,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Only this group. Default: the whole store.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the store from the beginning: histories of groups, acknowledgements, the offsets of every partition.

    Whatever the command cannot read is a fault, and it still checks the rest. Handoffs, holddowns and rebalances that nobody ends are warnings.
    The command changes nothing, and may run while the store is in use. The exit code is 1 if it found a fault.

    It checks that the files of messages exist, and how large they are, but not what is in them, nor whether this process or a consumer may
    read them. It finds overdue steps by this machine's clock. It does not compare this clock with the store's, because it writes nothing.
    """
    target: Target = context.obj
    found = diagnose(target.opened, group)
    if as_json:
        print_json(found.to_dict())
    else:
        for finding in found.findings:
            say_prose(str(finding))
        say_prose(
            f"checked {count(found.queues, 'queue')} ({count(found.partitions, 'partition')}, "
            f"{count(found.messages, 'message')}) and {count(found.groups, 'group')} ({count(found.facts, 'fact')}): "
            f"{count(len(found.faults), 'fault')}, {count(len(found.findings) - len(found.faults), 'warning')}"
        )
    if found.faults:
        raise typer.Exit(1)


@app.command("maintain")
def maintain(
    context: typer.Context,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="One queue. Default: all.")] = None,
    as_json: Json = False,
) -> None:
    """Remove messages that every group has acknowledged or that are too old, delete unused files, and merge small files."""
    target: Target = context.obj
    reports = partq.maintain(target.store, queue, storage_options=target.storage_options)
    if as_json:
        print_json([report.to_dict() for report in reports])
        return
    counts = ("messages removed", "files deleted", "files merged")
    table = render.table("queue", **dict.fromkeys(counts, "right"), **{"waiting for": "left"})
    for report in reports:
        waiting = ", ".join(report.waiting_for)
        table.add_row(
            report.queue,
            *map(render.number, (report.removed_messages, report.vacuumed_files, report.merged_files)),
            waiting,
        )
    show(table)


@app.command("demo")
def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Where the demo keeps its files.")] = Path(".demo"),
) -> None:
    """Send a year of flights through a queue and check the results; it ends by itself after some minutes."""
    from spark_partq.demo.run import run

    raise typer.Exit(run(folder, Console()))
