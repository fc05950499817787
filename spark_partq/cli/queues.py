"""Commands about queues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.common import Json, QueueName, Target, app
from spark_partq.cli.output import print_json, say, show
from spark_partq.cli.settings import read_settings, with_settings
from spark_partq.storage.inspect.group_overview import overview
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.store import Store


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
    partitions: Annotated[int, typer.Option(metavar="N", help="Partition count; 0 is an exclusive queue.")] = 8,
    key_hash: Annotated[
        str | None,
        typer.Option(
            metavar="xxhash64|murmur2",
            help="The hash that places a key, for good. With murmur2 it lies where Kafka's default partitioner puts it. Default: xxhash64.",
        ),
    ] = None,
    settings_file: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help="TOML file like conf/queue.example.toml.")
    ] = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="It may be there already, if it is the same: then nothing changes.")
    ] = False,
    settings: dict[str, str],
) -> None:
    """Create a queue, and the store if it is new."""
    target: Target = context.obj
    columns = None if key is None else [name.strip() for name in key.split(",")]
    there = exist_ok and _exists(target, queue)
    made = partq.create_queue(
        target.store,
        queue,
        schema,
        columns,
        partitions,
        exist_ok=exist_ok,
        storage_options=target.storage_options,
        **read_settings(settings_file, settings) | ({} if key_hash is None else {"key_hash": key_hash}),
    )
    done = "there already is" if there else "created"
    say(f"{done} queue {made.name}, {render.partition_count(made.configured_partitions)}")


def _exists(target: Target, queue: str) -> bool:
    try:
        return queue in partq.list_queues(target.store, storage_options=target.storage_options)
    except partq.NotAStoreError:
        return False


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
    say(f"deleted queue {queue}")


@app.command("list")
def list_(context: typer.Context, as_json: Json = False) -> None:
    """List the queues and the consumer groups of the store."""
    target: Target = context.obj
    storage = target.storage_options
    queues: list[dict[str, Any]] = []
    warned: set[str] = set()

    def warn(error: partq.PartqError) -> None:
        if str(error) not in warned:  # a queue tells of its groups, too
            warned.add(str(error))
            say(f"warning: {error}", error=True)

    for name in partq.list_queues(target.store, storage_options=storage):
        try:
            found = partq.describe_queue(target.store, name, storage_options=storage)
        except (partq.QueueNotReadyError, partq.QueueNotFoundError) as error:
            queues.append({"name": name, "status": error.params.get("status", "Deleting")})
        except partq.PartqError as error:
            queues.append({"name": name, "status": error.error_class})
            warn(error)
        else:
            queues.append(
                {
                    "name": name,
                    "status": found.status,
                    "partitions": found.operating_partitions,
                    "configured_partitions": found.configured_partitions,
                    "ingress": found.ingress,
                    "depth": found.depth,
                    "groups": list(found.groups),
                }
            )
    groups = partq.list_groups(target.store, storage_options=storage)
    found_groups = [_group(target.opened, name, warn) for name in groups]
    if as_json:
        states = {row["name"]: row["state"] for row in found_groups}
        print_json({"queues": queues, "groups": groups, "group_states": states})
        return
    table = render.table("queue", "status", partitions="right", ingress="left", depth="right", groups="left")
    for row in queues:
        if "partitions" not in row:
            table.add_row(row["name"], row["status"])
            continue
        counts = render.counts(row["partitions"], row["configured_partitions"])
        ingress = render.ingress(row["ingress"])
        table.add_row(
            row["name"], row["status"], counts, ingress, render.number(row["depth"]), ", ".join(row["groups"])
        )
    show(table)
    if found_groups:
        table = render.table("group", "state", members="right", expired="right")
        for row in found_groups:
            table.add_row(
                row["name"], row["state"], render.number(row.get("members")), render.number(row.get("expired"))
            )
        show(table)
    idle = [name for name in groups if not any(name in row.get("groups", []) for row in queues)]
    if idle:
        say(f"groups that have read none of these queues: {', '.join(idle)}")


def _group(store: Store, name: str, warn: Callable[[partq.PartqError], None]) -> dict[str, Any]:
    """What `list` tells of a group; of one that cannot be read, the class of the error."""
    try:
        found = overview(store, name)
    except partq.PartqError as error:
        warn(error)
        return {"name": name, "state": error.error_class}
    return {"name": name, "state": found.state.value, "members": found.members, "expired": found.expired}


@app.command("describe-queue")
def describe_queue(context: typer.Context, queue: QueueName, as_json: Json = False) -> None:
    """Show what a queue is and what its partitions hold."""
    target: Target = context.obj
    found = partq.describe_queue(target.store, queue, storage_options=target.storage_options)
    if as_json:
        print_json(found.to_dict())
        return
    show(render.queue(found))
