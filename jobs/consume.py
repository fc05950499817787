"""Read a queue as a consumer group and pass each micro-batch to a table or to your own function.

    SPARK_CONF_DIR=conf spark-submit jobs/consume.py --store s3://bucket/store --queue orders --group billing --flows 4 \
        --checkpoint s3://bucket/checkpoints/billing --handler billing.invoices:write

If you start a second job with the same group and another checkpoint, the two jobs share the queue's partitions.

A handler is ``package.module:function``, called as ``function(batch_df, batch_id)``. With ``--handler-arg`` the
function is a factory: the job calls it once, with these keyword arguments, and it returns the handler. With
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
from spark_partq.spark.source import PartqDataSource

FORMATS_WITH_PATH = {"delta", "parquet", "json", "csv", "orc", "text"}


def consume(
    store: StoreUri,
    group: Group,
    checkpoint: Checkpoint,
    queue: Annotated[str | None, typer.Option(help="Queue to read, or several, separated by commas.")] = None,
    queue_pattern: Annotated[
        str | None,
        typer.Option(
            help="Instead of --queue: a regular expression; the job reads all queues whose names match, also those created later."
        ),
    ] = None,
    assignor: Annotated[
        str | None,
        typer.Option(
            help="Assignor, which decides who gets which partitions, or several, separated by commas, best first. Default: balanced."
        ),
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Share of each of this job's flows, relative to the others'. Default: 1.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="Append to a target of this format: delta, parquet, json, console, …")
    ] = None,
    path: Annotated[str | None, typer.Option(help="Folder of the target.")] = None,
    write_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Option of the target; may be repeated.")
    ] = None,
    handler: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Instead of a target: your function(batch_df, batch_id)."),
    ] = None,
    handler_arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="The function then returns the handler: function(name=value, …); may be repeated.",
        ),
    ] = None,
    flows: Flows = 1,
    instance_id: Annotated[
        str | None,
        typer.Option(
            help="Name of the job in the group, also after restarts: a job that is back within its session timeout gets its "
            "partitions again; a job that ends gives them up only after that time. Default: a generated name, kept in the "
            "checkpoint; the job gives up its partitions when it ends."
        ),
    ] = None,
    session_timeout_ms: Annotated[
        int | None,
        typer.Option(
            min=500,
            help="After this time without a heartbeat, others take over. The same for all members of a group; default 10000.",
        ),
    ] = None,
    ack: Annotated[
        Literal["batch", "manual"] | None,
        typer.Option(
            help="What acknowledges messages: batch, the end of each micro-batch; manual, the handler. Default: batch."
        ),
    ] = None,
    max_unacked_per_flow: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of messages that a flow may have received and not acknowledged."),
    ] = None,
    starting_offsets: Annotated[
        str, typer.Option(help='Where a new group starts: earliest, latest or {"queue": {"0": 10}}.')
    ] = "earliest",
    max_rows_per_trigger: MaxMessages = None,
    max_bytes_per_trigger: Annotated[
        str | None, typer.Option(help="Maximum number of stored bytes in a micro-batch; may end with k, m or g.")
    ] = None,
    max_files_per_trigger: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of files in a micro-batch.")
    ] = None,
    read_option: ReadOptions = None,
    trigger_: Trigger = "continuous",
    storage_option: StorageOptions = None,
) -> None:
    """Read a queue as a consumer group.

    SIGTERM and SIGINT end the job after the running micro-batch, with exit code 0. After 20 seconds, or at a second signal, the
    job ends in the middle of the micro-batch, and the next start repeats it. A refused request gives one line on stderr and
    exit code 1; wrong usage gives exit code 2.
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
    PartqDataSource(options).schema()  # what it refuses is refused before Spark takes its time to start
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
