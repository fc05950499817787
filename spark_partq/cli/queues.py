"""Commands about queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.common import EVERY_S, Every, Json, QueueName, Target, Watch, app, confirm
from spark_partq.cli.output import print_json, say_prose, show
from spark_partq.cli.settings import read_settings, with_settings
from spark_partq.cli.watching import show_or_watch
from spark_partq.core.queue.state import QueueState
from spark_partq.storage.inspect.group_overview import overview
from spark_partq.storage.procedures.delete import state_to_delete
from spark_partq.storage.store import Store


@app.command("create-queue")
@with_settings
def create_queue(
    *,
    context: typer.Context,
    queue: QueueName,
    schema: Annotated[str, typer.Option(metavar="DDL", help='Columns of a message: "order_id string, amount double".')],
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="Columns of the partition key, separated by commas. Default: none."),
    ] = None,
    partitions: Annotated[int, typer.Option(metavar="N", help="Partition count; 0 is an exclusive queue.")] = 8,
    key_hash: Annotated[
        str | None,
        typer.Option(
            metavar="xxhash64|murmur2",
            help="Hash that places the keys; it never changes. With murmur2 a key lies where Kafka's default partitioner puts it. Default: xxhash64.",
        ),
    ] = None,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", help="TOML file with settings, like conf/queue.example.toml."),
    ] = None,
    exist_ok: Annotated[
        bool,
        typer.Option(
            "--exist-ok",
            help="Change nothing if the queue already exists with the same schema, key, partition count and settings.",
        ),
    ] = False,
    as_json: Json = False,
    settings: dict[str, str],
) -> None:
    """Create a queue, and the store if it does not exist."""
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
    if as_json:
        print_json({"created": not there, "queue": made.to_dict()})
        return
    done = "there already is" if there else "created"
    say_prose(f"{done} queue {made.name}, {render.partition_count(made.configured_partitions)}")
    if not there:
        say_prose(
            f"next: write to it with partq.queue_sink, read it with format('partq'), look at it with spark-partq tail {made.name}"
        )


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
    as_json: Json = False,
) -> None:
    """Delete a queue with all of its messages."""
    target: Target = context.obj
    state = state_to_delete(target.opened, queue)  # refused before anything is asked
    if not yes:
        confirm(
            f"Delete queue {queue} and all of its messages?",
            f"queue {queue!r} was not deleted: not confirmed (--yes does not ask)",
            queue=queue,
        )
    partq.delete_queue(target.store, queue, storage_options=target.storage_options)
    if as_json:
        print_json({"queue": queue, "deleted": True})
        return
    say_prose(f"deleted queue {queue}", *(() if state is None else _left_by(state)))


def _left_by(state: QueueState) -> Iterator[str]:
    """What a queue that was deleted leaves, and how that goes, too."""
    if state.groups:
        yield f"what its groups had read of it stays with them ({', '.join(sorted(state.groups))}): spark-partq delete-group forgets a group"
    if state.settings.dead_letter_queue:
        dead = state.settings.dead_letter_queue
        yield f"its dead messages stay in queue {dead}: spark-partq delete-queue {dead}"
    if state.replicas:
        yield f"its replicas stay: {', '.join(state.replicas)}"


@app.command("list")
def list_(context: typer.Context, as_json: Json = False, watch: Watch = False, every: Every = EVERY_S) -> None:
    """List the queues and the consumer groups of the store."""
    target: Target = context.obj
    show_or_watch(
        lambda: _listing(target),
        _show_listing,
        _Listing.to_dict,
        as_json=as_json,
        every_s=every if watch else None,
        complaints=lambda found: found.warnings,
    )


@dataclass(frozen=True)
class _Listing:
    """What `list` tells; `warnings` say what could not be read."""

    queues: list[dict[str, Any]]
    groups: list[str]
    group_rows: list[dict[str, Any]]
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        states = {row["name"]: row["state"] for row in self.group_rows}
        return {"queues": self.queues, "groups": self.groups, "group_states": states}


def _listing(target: Target) -> _Listing:
    storage = target.storage_options
    queues: list[dict[str, Any]] = []
    warned: dict[str, None] = {}

    def warn(error: partq.PartqError) -> None:
        warned[str(error)] = None  # once: a queue tells of its groups, too

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
                    "role": found.role,
                    "partitions": found.operating_partitions,
                    "configured_partitions": found.configured_partitions,
                    "ingress": found.ingress,
                    "depth": found.depth,
                    "groups": list(found.groups),
                    "waiting": found.waiting,
                }
            )
    groups = partq.list_groups(target.store, storage_options=storage)
    found_groups = [_group(target.opened, name, warn) for name in groups]
    return _Listing(queues, groups, found_groups, [f"warning: {text}" for text in warned])


_USUAL = "primary"  # the role that nobody needs to be told


def _show_listing(found: _Listing) -> None:
    queues, groups, found_groups = found.queues, found.groups, found.group_rows
    roles = ["role"] if any(row.get("role", _USUAL) != _USUAL for row in queues) else []
    table = render.table("queue", "status", *roles, partitions="right", ingress="left", depth="right", groups="left")
    for row in queues:
        if "partitions" not in row:
            table.add_row(row["name"], row["status"])
            continue
        counts = render.counts(row["partitions"], row["configured_partitions"])
        cells = [counts, render.ingress(row["ingress"]), render.number(row["depth"]), ", ".join(row["groups"])]
        table.add_row(row["name"], row["status"], *(row[name] for name in roles), *cells)
    show(table)
    waits = Counter[str]()
    for row in queues:
        waits.update(row.get("waiting", {}))
    if found_groups:
        table = render.table(
            "group", "state", members="right", expired="right", **({"waiting": "right"} if waits else {})
        )
        for row in found_groups:
            cells = [render.number(row.get(name)) for name in ("members", "expired")]
            table.add_row(row["name"], row["state"], *cells, *([render.number(waits[row["name"]])] if waits else []))
        show(table)
    if waits:
        say_prose(
            "waiting: partitions whose next messages wait until the group has acknowledged older ones, because of a resize; "
            "spark-partq describe-group says for which"
        )
    idle = [name for name in groups if not any(name in row.get("groups", []) for row in queues)]
    if idle and all("groups" in row for row in queues):  # else a group may have read one of which that is not known
        say_prose(f"groups that have read none of these queues: {', '.join(idle)}")


def _group(store: Store, name: str, warn: Callable[[partq.PartqError], None]) -> dict[str, Any]:
    """What `list` tells of a group; of one that cannot be read, the class of the error."""
    try:
        found = overview(store, name)
    except partq.PartqError as error:
        warn(error)
        return {"name": name, "state": error.error_class}
    return {"name": name, "state": found.state.value, "members": found.members, "expired": found.expired}


@app.command("describe-queue")
def describe_queue(
    context: typer.Context, queue: QueueName, as_json: Json = False, watch: Watch = False, every: Every = EVERY_S
) -> None:
    """Show what a queue is and what its partitions hold."""
    target: Target = context.obj
    show_or_watch(
        lambda: partq.describe_queue(target.store, queue, storage_options=target.storage_options),
        lambda found: show(render.queue(found)),
        partq.QueueDescription.to_dict,
        as_json=as_json,
        every_s=every if watch else None,
    )
