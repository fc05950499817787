"""Commands about a queue's replica in another store."""

from __future__ import annotations

from typing import Annotated

import typer

import spark_partq as partq
from spark_partq.cli.common import Json, QueueName, Target, app, count
from spark_partq.cli.output import print_json, say, say_prose
from spark_partq.spark.jobs import Stop, ToOptions, key_values
from spark_partq.storage.procedures.keep_replicas import keep_replicas
from spark_partq.storage.procedures.replicate import Replicator
from spark_partq.storage.replica.complete import SyncReport


@app.command("replicate")
def replicate(
    context: typer.Context,
    queue: QueueName,
    to: Annotated[
        str,
        typer.Option("--to", metavar="STORE", help="The store where the replica is, or where the command makes it."),
    ],
    watch: Annotated[bool, typer.Option("--watch", help="Run until SIGTERM or Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.05, metavar="SECONDS", help="Pause between two passes.")] = 1.0,
    remove: Annotated[
        bool, typer.Option("--remove", help="Stop the replication to that store; the copy there stays.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="With --remove: cancel an unfinished promotion; remove the replica even if it may have taken over and is lost for good.",
        ),
    ] = False,
    to_option: ToOptions = None,
    as_json: Json = False,
) -> None:
    """Keep a replica of a queue and of its groups in another store, in case this store is lost.

    Each pass copies what is new, and you can interrupt it at any point. Scaling waits for the replica; promote makes the replica the queue.
    """
    target: Target = context.obj
    options = key_values(to_option) or None
    if watch and remove:
        raise typer.BadParameter("--watch keeps following the queue, and --remove ends that; give one of the two")
    if as_json and (watch or remove):
        raise typer.BadParameter(f"--json is for a single pass, not for {'--watch' if watch else '--remove'}")
    if force and not remove:
        raise typer.BadParameter("--force is for --remove")
    if remove:
        partq.remove_replica(
            target.store, queue, to, force=force, storage_options=target.storage_options, replica_options=options
        )
        say_prose(f"queue {queue} is followed in {to} no more")
        return
    if watch:
        _watch(Replicator(target.opened, queue, to, options), every)
        return
    found = partq.replicate(target.store, queue, to, storage_options=target.storage_options, replica_options=options)
    if as_json:
        print_json(found.to_dict())
    else:
        say_prose(f"replica of queue {queue} in {found.location}: {count(found.total_lag, 'message')} behind")


def _watch(follower: Replicator, every_s: float) -> None:
    follower.register()
    stop = Stop()
    last = -1

    def report(_: Replicator, done: SyncReport) -> None:
        nonlocal last
        if done.commits or done.total_lag != last:
            last = done.total_lag
            say(f"copied {count(done.commits, 'commit')}, {count(last, 'message')} behind")

    def complain(error: partq.PartqError) -> None:
        say(f"error: {error}", error=True)

    keep_replicas([follower], every_s, stop.wait, report, complain)


@app.command("promote")
def promote(
    context: typer.Context,
    queue: QueueName,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Promote even if the primary exists but cannot be fenced or copied, or if the replica was removed and its primary is lost; "
            "also cancel an unfinished promotion of another replica.",
        ),
    ] = False,
    primary_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE|@FILE",
            envvar="SPARK_PARTQ_PRIMARY_OPTIONS",
            help="Storage option of the primary's store, or a file of such options; may be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the replica of a queue in this store the queue that producers and consumers use.

    If the command can reach the primary, it first fences the primary and copies the rest. Consumers go on where they had acknowledged, each
    query with a new checkpoint.
    """
    target: Target = context.obj
    done = partq.promote(
        target.store,
        queue,
        force=force,
        storage_options=target.storage_options,
        primary_options=key_values(primary_option) or None,
    )
    if as_json:
        print_json(done.to_dict())
        return
    say_prose(f"queue {queue} in {target.store} is the primary now")
    if done.fenced:
        say_prose(f"{done.primary} is fenced: its producers and consumers stop with QUEUE_FENCED")
        if done.problem:
            say_prose(f"warning: {done.problem}", error=True)
    else:
        say_prose(f"warning: {done.primary} was not fenced: {done.problem}", error=True)
    for group, partition, start, end in done.floors:
        say_prose(
            f"group {group} goes on at {end} of partition {partition}: {count(end - start, 'message')} were removed"
        )
