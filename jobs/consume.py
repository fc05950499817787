"""Read a queue as a consumer group and hand each micro-batch to a table or to your own function.

    SPARK_CONF_DIR=conf spark-submit jobs/consume.py --store s3://bucket/store --queue orders --group billing --flows 4 \
        --checkpoint s3://bucket/checkpoints/billing --handler billing.invoices:write

Start it again elsewhere with the same group and another checkpoint, and the two share the queue's partitions.

A handler is ``package.module:function``, called as ``function(batch_df, batch_id)``. With ``--handler-arg`` the
function is a factory: it is called once, with these keyword arguments, and what it returns is the handler. With
``--ack manual`` the handler calls ``spark_partq.acknowledge``.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Literal, cast

import typer

import spark_partq as partq
from spark_partq.spark.jobs import (
    BatchFunction,
    Checkpoint,
    Flows,
    Group,
    MaxMessages,
    ReadOptions,
    Stop,
    StorageOptions,
    StoreUri,
    Trigger,
    key_values,
    main,
    trigger,
)
from spark_partq.spark.options import Options

FORMATS_WITH_PATH = {"delta", "parquet", "json", "csv", "orc", "text"}


def consume(
    store: StoreUri,
    group: Group,
    checkpoint: Checkpoint,
    queue: Annotated[str | None, typer.Option(help="Queue to read, or several by commas.")] = None,
    queue_pattern: Annotated[
        str | None,
        typer.Option(help="Instead: a regular expression; all queues whose names match, also those created later."),
    ] = None,
    assignor: Annotated[
        str | None,
        typer.Option(help="Who gets which partitions: one or more by commas, best first. Default: balanced."),
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Share of each of this job's flows, relative to the others'. Default: 1.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="Append to a target of this format: delta, parquet, json, console, …")
    ] = None,
    path: Annotated[str | None, typer.Option(help="Folder of the target.")] = None,
    write_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Option of the target; repeatable.")
    ] = None,
    handler: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="Instead of a target: function(batch_df, batch_id).")
    ] = None,
    handler_arg: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="The function makes the handler: function(name=value, …); repeatable."),
    ] = None,
    flows: Flows = 1,
    instance_id: Annotated[
        str | None,
        typer.Option(
            help="Name in the group, kept through restarts: a job that is back within its session timeout gets its partitions "
            "again; one that ends gives them up after that time only. Default: made up, kept in the checkpoint, and given up "
            "when it ends."
        ),
    ] = None,
    session_timeout_ms: Annotated[
        int | None,
        typer.Option(
            min=500,
            help="After so long without a sign of life others take over. The same for all of a group; default 10000.",
        ),
    ] = None,
    ack: Annotated[
        Literal["batch", "manual"] | None,
        typer.Option(
            help="Who says that messages are finished: batch, the end of each micro-batch; manual, the handler. Default: batch."
        ),
    ] = None,
    max_unacked_per_flow: Annotated[
        int | None, typer.Option(min=1, help="Most messages that a flow is given before it has acknowledged some.")
    ] = None,
    starting_offsets: Annotated[
        str, typer.Option(help='Where a new group starts: earliest, latest or {"queue": {"0": 10}}.')
    ] = "earliest",
    max_rows_per_trigger: MaxMessages = None,
    max_bytes_per_trigger: Annotated[
        str | None, typer.Option(help="Most stored bytes in a micro-batch; k, m, g are understood.")
    ] = None,
    max_files_per_trigger: Annotated[int | None, typer.Option(min=1, help="Most files in a micro-batch.")] = None,
    read_option: ReadOptions = None,
    trigger_: Trigger = "continuous",
    storage_option: StorageOptions = None,
) -> None:
    """Read a queue as a consumer group.

    SIGTERM and SIGINT end it after the running micro-batch, with exit code 0. A refused request is one line on stderr
    and exit code 1; wrong usage is exit code 2.
    """
    if (queue is None) == (queue_pattern is None):
        raise typer.BadParameter("give --queue or --queue-pattern, and not both")
    if (format is None) == (handler is None):
        raise typer.BadParameter("give a target, --format, or a --handler, and not both")
    if format in FORMATS_WITH_PATH and path is None:
        raise typer.BadParameter(f"--format {format} needs --path")
    if ack == "manual" and handler is None:
        raise typer.BadParameter("--ack manual needs a --handler: with a target nobody would acknowledge")
    options = key_values(read_option)
    given = {
        "path": store,
        "queue": queue,
        "queuePattern": queue_pattern,
        "assignor": assignor,
        "weight": weight,
        "group": group,
        "flows": flows,
        "instanceId": instance_id,
        "sessionTimeoutMs": session_timeout_ms,
        "ack": ack,
        "maxUnackedPerFlow": max_unacked_per_flow,
        "startingOffsets": starting_offsets,
        "maxRowsPerTrigger": max_rows_per_trigger,
        "maxBytesPerTrigger": max_bytes_per_trigger,
        "maxFilesPerTrigger": max_files_per_trigger,
    }
    options |= {name: str(value) for name, value in given.items() if value is not None}
    storage = key_values(storage_option)
    options |= {f"storageOptions.{name}": value for name, value in storage.items()}
    how_often = trigger(trigger_)
    function = None if handler is None else load_handler(handler, key_values(handler_arg))
    stop = Stop()
    for name in Options.parse(options).consumer.subscribed_queues():  # refused before Spark takes its time to start
        partq.describe_queue(store, name, storage_options=storage)
    spark = partq.session(f"partq consume {queue or queue_pattern} as {group}")
    messages = spark.readStream.format("partq").options(**options).load()
    writer = (
        messages.writeStream.queryName(f"consume-{group}").trigger(**how_often).option("checkpointLocation", checkpoint)
    )
    if function is not None:
        query = writer.foreachBatch(stop.gated(function)).start()
    else:
        writer = writer.format(cast(str, format)).outputMode("append").options(**key_values(write_option))
        query = writer.start() if path is None else writer.start(path)
    stop.run(query)
    spark.stop()  # waits for the planner, which leaves the group


def load_handler(name: str, arguments: dict[str, str]) -> BatchFunction:
    """The function ``package.module:function``, or what it returns when it is given arguments."""
    module, colon, attribute = name.partition(":")
    if not module or not colon or not attribute:
        raise typer.BadParameter(f"--handler {name!r} is not of the form package.module:function")
    sys.path.insert(0, os.getcwd())  # as `python -m` would; further code comes by --py-files
    try:
        function = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise typer.BadParameter(f"--handler {name!r}: {error}; is it installed, or passed by --py-files?") from None
    except AttributeError:
        raise typer.BadParameter(f"--handler {name!r}: module {module} has no {attribute}") from None
    if not callable(function):
        raise typer.BadParameter(f"--handler {name!r} is not a function")
    made = function(**arguments) if arguments else function
    if not callable(made):
        raise typer.BadParameter(
            f"--handler {name!r} with --handler-arg returned {made!r}, not a function(batch_df, batch_id)"
        )
    return cast(BatchFunction, made)


if __name__ == "__main__":
    main(consume)
