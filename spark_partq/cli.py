"""The command ``spark-partq``.

Exit codes: 0 done, 1 the request was refused (one line on stderr), 2 wrong usage.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import spark_partq as partq
from spark_partq import render
from spark_partq.core.group import GroupFact
from spark_partq.core.settings import QueueSettings
from spark_partq.spark.jobs import Stop, key_values
from spark_partq.storage import rebalancer
from spark_partq.storage.doctor import diagnose
from spark_partq.storage.facts import recent
from spark_partq.storage.groups import open_group
from spark_partq.storage.queues import queue_state
from spark_partq.storage.rebalancer import Rebalancer
from spark_partq.storage.store import Store

app = typer.Typer(
    name="spark-partq",
    help="Partitioned message queues for Spark on Delta tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the consumer group.")]

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Target:
    """The store that a command is about."""

    path: str | None
    storage_options: dict[str, str]

    @property
    def store(self) -> str:
        if not self.path:
            raise typer.BadParameter("name the store: --store PATH before the command, or SPARK_PARTQ_STORE")
        return self.path

    @property
    def opened(self) -> Store:
        return Store.at(self.store, self.storage_options)


@app.callback()
def common(
    context: typer.Context,
    store: Annotated[
        str | None, typer.Option(envvar="SPARK_PARTQ_STORE", help="Folder or object-store URI of the store.")
    ] = None,
    storage_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Storage option for delta-rs; repeatable.")
    ] = None,
) -> None:
    context.obj = Target(store, key_values(storage_option))


# ---- settings of a queue as options


def duration_ms(value: object) -> int:
    """Milliseconds from a number of them or a text such as ``250ms``, ``5s``, ``10m``, ``12h``, ``7d``.

    Raises
    ------
    InvalidArgumentError
        If it is neither.

    Examples
    --------
    >>> duration_ms("7d"), duration_ms("1500"), duration_ms(0)
    (604800000, 1500, 0)
    """
    found = re.fullmatch(r"(\d+) *(ms|s|m|h|d)?", str(value).strip()) if isinstance(value, (int, str)) else None
    if found is None or isinstance(value, bool):
        raise partq.InvalidArgumentError(
            f"{value!r} is no duration; give milliseconds, or a number with ms, s, m, h or d", value=value
        )
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` an option for each field of `QueueSettings`; it gets them as ``settings``, those that were given."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in QueueSettings.model_fields}
        command(**arguments, settings={name: value for name, value in given.items() if value is not None})

    parameters = dict(inspect.signature(command, eval_str=True).parameters)
    del parameters["settings"]
    for name, field in QueueSettings.model_fields.items():
        option = "--" + name.replace("_", "-")
        shape = "MS|5s|7d" if name.endswith("_ms") else "VALUE"
        default = "none" if field.default is None else field.default
        told = typer.Option(
            option,
            metavar=shape,
            help=f"{field.description} (default: {default})",
            rich_help_panel="Settings of the queue",
        )
        annotation = Annotated[str | None, told]
        parameters[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    return run


def read_settings(file: Path | None, given: dict[str, str]) -> dict[str, Any]:
    """Settings of a TOML file, and over them those that were given as options; durations as milliseconds."""
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise partq.InvalidArgumentError(f"--settings {file}: {error}", file=file) from None
    values |= given
    return {name: duration_ms(v) if name.endswith("_ms") else v for name, v in values.items()}


# ---- commands


@app.command("create-queue")
@with_settings
def create_queue(
    *,
    context: typer.Context,
    queue: QueueName,
    schema: Annotated[str, typer.Option(metavar="DDL", help='The payload: "order_id string, amount double".')],
    key: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Columns of the partition key, by commas. Default: none.")
    ] = None,
    partitions: Annotated[int, typer.Option(metavar="N", help="Partition count.")] = 8,
    settings_file: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help="TOML file like conf/queue.example.toml.")
    ] = None,
    settings: dict[str, str],
) -> None:
    """Create a queue, and the store if it is new."""
    target: Target = context.obj
    columns = None if key is None else [name.strip() for name in key.split(",")]
    made = partq.create_queue(
        target.store,
        queue,
        schema,
        columns,
        partitions,
        storage_options=target.storage_options,
        **read_settings(settings_file, settings),
    )
    print(f"created queue {made.name} with {made.operating_partitions} partitions")


@app.command("delete-queue")
def delete_queue(
    context: typer.Context,
    queue: QueueName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a queue with all of its messages."""
    target: Target = context.obj
    queue_state(target.opened, queue)  # refused before anything is asked
    if not yes and not typer.confirm(f"Delete queue {queue} and all of its messages?", err=True):
        raise partq.InvalidArgumentError(
            f"queue {queue!r} was not deleted: not confirmed (--yes does not ask)", queue=queue
        )
    partq.delete_queue(target.store, queue, storage_options=target.storage_options)
    print(f"deleted queue {queue}")


@app.command("list")
def list_(context: typer.Context, as_json: Json = False) -> None:
    """List the queues and the consumer groups of the store."""
    target: Target = context.obj
    storage = target.storage_options
    queues: list[dict[str, Any]] = []
    for name in partq.list_queues(target.store, storage_options=storage):
        try:
            found = partq.describe_queue(target.store, name, storage_options=storage)
        except (partq.QueueNotReadyError, partq.QueueNotFoundError) as error:
            queues.append({"name": name, "status": error.params.get("status", "Deleting")})
        else:
            queues.append(
                {
                    "name": name,
                    "status": found.status,
                    "partitions": found.operating_partitions,
                    "depth": found.depth,
                    "groups": list(found.groups),
                }
            )
    groups = partq.list_groups(target.store, storage_options=storage)
    if as_json:
        _print_json({"queues": queues, "groups": groups})
        return
    table = render.table("queue", "status", partitions="right", depth="right", groups="left")
    for row in queues:
        members = ", ".join(row.get("groups", []))
        table.add_row(
            row["name"], row["status"], render.number(row.get("partitions")), render.number(row.get("depth")), members
        )
    Console().print(table)
    idle = [name for name in groups if not any(name in row.get("groups", []) for row in queues)]
    if idle:
        print(f"groups that have read none of these queues: {', '.join(idle)}")


@app.command("describe-queue")
def describe_queue(context: typer.Context, queue: QueueName, as_json: Json = False) -> None:
    """Show what a queue is and what its partitions hold."""
    target: Target = context.obj
    found = partq.describe_queue(target.store, queue, storage_options=target.storage_options)
    if as_json:
        _print_json(found.to_dict())
        return
    about = Table.grid(padding=(0, 2))
    about.add_column()
    about.add_column(overflow="fold")
    about.add_row("queue", found.name)
    about.add_row("status", f"{found.status}, {found.operating_partitions} of {found.configured_partitions} partitions")
    about.add_row("key", ", ".join(found.key) or "none")
    about.add_row("columns", found.schema)
    about.add_row("groups", ", ".join(found.groups) or "none")
    for name, value in found.settings.items():
        about.add_row(name, "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value))
    table = render.table(partition="right", first="right", next="right", depth="right", files="right", size="right")
    for p in found.partitions:
        numbers = (p.partition, p.first_offset, p.next_offset, p.depth, p.files)
        table.add_row(*map(render.number, numbers), _size(p.size_bytes))
    table.add_section()
    files, size = sum(p.files for p in found.partitions), sum(p.size_bytes for p in found.partitions)
    table.add_row("all", "", "", render.number(found.depth), render.number(files), _size(size))
    console = Console()
    console.print(about, highlight=False)
    console.print(table)


@app.command("delete-group")
def delete_group(context: typer.Context, group: GroupName) -> None:
    """Forget a consumer group and its positions, so that messages no longer wait for it."""
    target: Target = context.obj
    partq.delete_group(target.store, group, storage_options=target.storage_options)
    print(f"deleted group {group}")


@app.command("describe-group")
def describe_group(context: typer.Context, group: GroupName, as_json: Json = False) -> None:
    """Show a consumer group: its status, who has which partitions, and how far behind it is."""
    target: Target = context.obj
    found = partq.describe_group(target.store, group, storage_options=target.storage_options)
    if as_json:
        _print_json(found.to_dict())
        return
    Console().print(render.group(found), highlight=False)
    for warning in found.warnings:
        print(f"warning: {warning}")


@app.command("history")
def history(
    context: typer.Context,
    group: GroupName,
    as_json: Json = False,
    last: Annotated[int | None, typer.Option(min=1, metavar="N", help="The last N facts only.")] = None,
    partition: Annotated[
        str | None, typer.Option(metavar="[QUEUE/]P", help="Facts about this partition only: 3, or orders/3.")
    ] = None,
) -> None:
    """Show the facts of a consumer group in order: who came and went, who got what, when and why."""
    target: Target = context.obj
    queue, number = _queue_and_partition(partition)
    opened = open_group(target.opened, group)
    rows = opened.history() if last is None or partition is not None else recent(target.opened, group, last)
    if partition is not None:
        rows = [row for row in rows if row["partition"] == number and queue in (None, row["queue"])]
        if not rows:
            known = ", ".join(sorted(q.name for q in opened.state.queues.values())) or "none"
            raise partq.InvalidArgumentError(
                f"group {group!r} never had a partition {partition}; its queues: {known}",
                group=group,
                partition=partition,
            )
    rows = rows[-last:] if last is not None else rows
    if as_json:
        _print_json([{**row, "at": row["at"].isoformat()} for row in rows])
        return
    print("\n".join(render.facts(rows)))


def _queue_and_partition(text: str | None) -> tuple[str | None, int | None]:
    if text is None:
        return None, None
    found = re.fullmatch(r"(?:(.+)/)?(\d+)", text)
    if found is None:
        raise typer.BadParameter(f"--partition {text!r} is neither a number nor QUEUE/NUMBER")
    return found[1], int(found[2])


@app.command("rebalance")
def rebalance(
    context: typer.Context,
    group: Annotated[str | None, typer.Option(metavar="GROUP", help="One group. Default: all.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until SIGTERM or Ctrl-C, also with groups that are made later.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.05, max=rebalancer.MAX_EVERY_S, metavar="SECONDS", help="How often to look.")
    ] = 1.0,
) -> None:
    """Decide what is due in consumer groups, as their queries do themselves.

    It is needed only where no query of a group is alive to decide: members that died are then taken out, and handoffs and
    holddowns are ended. Without --watch it ends as soon as each group is Ready and each member has shown a heartbeat or was
    taken out, which takes a session timeout if one has died. Each decision is printed as a line.
    """
    target: Target = context.obj
    watcher = Rebalancer(target.opened, group)
    stop = Stop()

    def report(name: str, facts: list[GroupFact]) -> None:
        for fact in facts:
            print(render.fact_line(name, fact), flush=True)

    def complain(error: partq.PartqError) -> None:
        print(f"error: {error}", file=sys.stderr, flush=True)

    rebalancer.run(watcher, every, stop.wait, report, complain if watch else None)
    if not watch:
        for one in watcher.groups:
            print(f"{one.name}: {one.state.status}, {_count(len(one.state.members), 'member')}")


@app.command("doctor")
def doctor(
    context: typer.Context,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="One group only. Default: the whole store.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the store from the beginning: histories of groups, acknowledgements, the offsets of every partition.

    Changes nothing, and may run while the store is in use. Exit code 1 if a fault was found.
    """
    target: Target = context.obj
    found = diagnose(target.opened, group)
    if as_json:
        _print_json(found.to_dict())
    else:
        for finding in found.findings:
            print(finding)
        print(
            f"checked {_count(found.queues, 'queue')} ({_count(found.partitions, 'partition')}, "
            f"{_count(found.messages, 'message')}) and {_count(found.groups, 'group')} ({_count(found.facts, 'fact')}): "
            f"{_count(len(found.faults), 'fault')}, {_count(len(found.findings) - len(found.faults), 'warning')}"
        )
    if found.faults:
        raise typer.Exit(1)


@app.command("maintain")
def maintain(
    context: typer.Context,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="One queue. Default: all.")] = None,
    as_json: Json = False,
) -> None:
    """Remove what every group has acknowledged or what is too old, and delete unused files."""
    target: Target = context.obj
    reports = partq.maintain(target.store, queue, storage_options=target.storage_options)
    if as_json:
        _print_json([report.to_dict() for report in reports])
        return
    table = render.table("queue", **{"messages removed": "right", "files deleted": "right", "waiting for": "left"})
    for report in reports:
        waiting = ", ".join(report.waiting_for)
        table.add_row(
            report.queue, render.number(report.removed_messages), render.number(report.vacuumed_files), waiting
        )
    Console().print(table)


@app.command("demo")
def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Where the demo keeps its files.")] = Path(".demo"),
) -> None:
    """Send a year of flights through a queue and check what comes out; ends by itself after some minutes."""
    from spark_partq.demo.run import run

    raise typer.Exit(run(folder, Console()))


# ---- output


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def main() -> None:
    """Entry point of the command."""
    try:
        app()
    except partq.PartqError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # `spark-partq list | head -1`
        sys.stderr.close()
        sys.exit(0)
