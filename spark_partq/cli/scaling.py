"""Commands that change how many partitions a queue has, and whether it takes messages."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.common import Json, QueueName, Target, app, count, interruptible
from spark_partq.cli.output import print_json, say_prose, screen
from spark_partq.cli.settings import duration_ms
from spark_partq.spark.jobs import ScalingMode, ToOptions, key_values

_REPORT_EVERY_S = 30.0


# A count of -1 is refused as a count, not as an unknown option.
@app.command("scale", context_settings={"ignore_unknown_options": True})
def scale(
    context: typer.Context,
    queue: QueueName,
    partitions: Annotated[int, typer.Argument(metavar="N", help="1 to 4096, or 0 for an exclusive queue.")],
    mode: ScalingMode = "live",
    confirm_lost: Annotated[
        int | None,
        typer.Option(min=0, metavar="M", help="With --mode delete: how many messages may be lost. Default: ask."),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="30s|10m", help="Longest time to wait; to go on, run the command again. Default: none."),
    ] = None,
    to_option: ToOptions = None,
    as_json: Json = False,
) -> None:
    """Change the partition count of a queue while it is in use, and wait until the change has ended.

    Ctrl-C ends the waiting and breaks nothing: to go on, run the command again. On stderr the command prints what it waits for. A queue that
    already has that count stays as it is.
    """
    if confirm_lost is not None and mode != "delete":
        raise typer.BadParameter(f"--confirm-lost is for --mode delete; {mode} loses nothing")
    target: Target = context.obj
    replica_options = key_values(to_option) or None
    timeout_s = None if timeout is None else duration_ms(timeout) / 1000
    before = partq.describe_queue(target.store, queue, storage_options=target.storage_options)

    def run(confirmed: int | None) -> partq.QueueDescription:
        with _reporting(
            f"scaling {queue} to {render.partition_count(partitions)}" if partitions else f"making {queue} exclusive"
        ) as report:
            return partq.scale(
                target.store,
                queue,
                partitions,
                mode,
                confirm_lost=confirmed,
                timeout_s=timeout_s,
                report=report,
                storage_options=target.storage_options,
                replica_options=replica_options,
            )

    unchanged = False
    ask = confirm_lost is None and sys.stdin.isatty()
    with interruptible(f"scaling queue {queue}"):
        while True:
            try:
                found = run(confirm_lost)
                break
            except partq.InvalidArgumentError as error:
                if error.params.get("has") == str(partitions):  # a schedule may ask again for what was done before
                    found = partq.describe_queue(target.store, queue, storage_options=target.storage_options)
                    unchanged = True
                    break
                if not ask or "lost" not in error.params:
                    raise
                confirm_lost = int(error.params["lost"])  # again, if more comes in before it is done
                if not typer.confirm(
                    f"{count(confirm_lost, 'message')} of queue {queue} will be lost. Go on?", err=True
                ):
                    raise
    if as_json:
        print_json(found.to_dict())
    else:
        say_prose(*_unchanged(found) if unchanged else _outcome(before, found))


def _unchanged(found: partq.QueueDescription) -> Iterator[str]:
    count_ = found.configured_partitions
    yield f"queue {found.name} already {f'has {render.partition_count(count_)}' if count_ else 'is exclusive'}"


def _outcome(before: partq.QueueDescription, found: partq.QueueDescription) -> Iterator[str]:
    has = (
        f"has {render.partition_count(found.configured_partitions)}" if found.configured_partitions else "is exclusive"
    )
    yield f"queue {found.name} {has}"
    if found.lost > before.lost:
        yield f"{count(found.lost - before.lost, 'message')} lost"
    if found.status == "ScalingDown":
        left = sum(p.depth for p in found.partitions if p.partition >= found.configured_partitions)
        if found.settings["min_retention_ms"]:
            yield (
                f"{count(left, 'message')} left to read in partitions to be removed: maintain removes these once every group has read them and "
                "min_retention_ms is over"
            )
        else:
            yield f"{count(left, 'message')} left in partitions to be removed: they go once every group has read them, or, in a dead-message queue, by retention_ms or max_bytes"
    if found.stuck:
        yield f"{count(found.stuck, 'message')} stuck in the parent: spark-partq copy-stuck {found.name}"


@contextmanager
def _reporting(what: str) -> Iterator[Callable[[partq.ScaleProgress], None]]:
    """A function that tells on stderr what is waited for: on one line of a terminal, else when that changes, and now and then."""
    console = screen(error=True)
    if console.is_terminal:
        with console.status(what) as status:
            yield lambda progress: status.update(f"{what}: {_line(progress)}")
        return
    said: tuple[str, float] = ("", 0.0)

    def report(progress: partq.ScaleProgress) -> None:
        nonlocal said
        if progress.what != said[0] or time.monotonic() > said[1] + _REPORT_EVERY_S:
            said = (progress.what, time.monotonic())
            say_prose(f"{what}: {_line(progress)}", error=True)

    yield report


def _line(progress: partq.ScaleProgress) -> str:
    hint = "; nobody reads it: start its consumers, or delete groups that are gone" if progress.alone else ""
    return f"waiting for {progress.what} ({progress.left:,} left){hint}"


@app.command("ingress")
def ingress(
    context: typer.Context,
    action: Annotated[Literal["enable", "disable"], typer.Argument(metavar="enable|disable", help="What to do.")],
    queue: QueueName,
    as_json: Json = False,
) -> None:
    """Let a queue take messages, or stop that; its consumers go on.

    While ingress is disabled, the queue's setting reject_to_sender says what producers get.
    """
    target: Target = context.obj
    found = partq.set_ingress(target.store, queue, action == "enable", storage_options=target.storage_options)
    if as_json:
        print_json(found.to_dict())
        return
    say_prose(f"ingress of queue {queue} is {render.ingress(found.ingress)}")


@app.command("copy-stuck")
def copy_stuck(context: typer.Context, queue: QueueName, as_json: Json = False) -> None:
    """Move messages that are stuck in the parent of a queue that became partitioned into its partitions.

    describe-queue shows how many. After an interruption, run the command again to go on; it moves each message once.
    """
    target: Target = context.obj
    with interruptible(f"copying what is stuck in queue {queue}"):
        copied = partq.copy_stuck(target.store, queue, storage_options=target.storage_options)
    if as_json:
        print_json({"queue": queue, "copied": copied})
        return
    say_prose(f"copied {count(copied, 'message')} of queue {queue} from its parent")
