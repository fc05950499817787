"""Stream any source of Spark into a queue, exactly once.

    spark-submit jobs/produce.py --store s3://bucket/store --queue orders --format kafka \
        --source-option kafka.bootstrap.servers=broker:9092 --source-option subscribe=orders \
        --select "cast(key as string) as order_id" --select "cast(value as string) as body" \
        --order-by offset --checkpoint s3://bucket/checkpoints/produce-orders --trigger continuous
"""

from __future__ import annotations

from typing import Annotated

import typer
from pyspark.sql.types import StructType

import spark_partq as partq
from spark_partq.spark.jobs import Checkpoint, Stop, StorageOptions, StoreUri, Trigger, key_values, main, trigger
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.store import Store

FILE_FORMATS = {"parquet", "json", "csv", "orc", "text", "avro", "xml"}


def produce(
    store: StoreUri,
    queue: Annotated[str, typer.Option(help="Queue to write into.")],
    checkpoint: Checkpoint,
    format: Annotated[str, typer.Option(help="Format of the source: parquet, json, csv, kafka, delta, …")] = "parquet",
    path: Annotated[str | None, typer.Option(help="Folder or table to read; not every format has one.")] = None,
    schema: Annotated[
        str | None, typer.Option(help="The source's columns as DDL. Default for files: the columns of the queue.")
    ] = None,
    source_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Option of the source; repeatable.")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SQL", help="A column of the queue, as an expression; repeatable. Default: all as they are."
        ),
    ] = None,
    max_files_per_trigger: Annotated[
        int | None, typer.Option(min=1, help="Most new files in one micro-batch (file formats and delta).")
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of the queue, by commas, that give the order of messages inside a micro-batch. Default: as read, "
            "which over several files is not the order of their names.",
        ),
    ] = None,
    sink_id: Annotated[
        str | None,
        typer.Option(help="Name under which replayed micro-batches are recognized. Default: the streaming query's id."),
    ] = None,
    trigger_: Trigger = "available-now",
    storage_option: StorageOptions = None,
) -> None:
    """Stream a source into a queue.

    SIGTERM and SIGINT end it after the running micro-batch, with exit code 0. A refused request is one line on stderr
    and exit code 1; wrong usage is exit code 2.
    """
    storage = key_values(storage_option)
    options = key_values(source_option)
    if max_files_per_trigger is not None:
        options["maxFilesPerTrigger"] = str(max_files_per_trigger)
    how_often = trigger(trigger_)
    stop = Stop()
    # Whatever is wrong with the store or the queue is said before Spark takes its time to start.
    columns = None if order_by is None else [name.strip() for name in order_by.split(",")]
    sink = partq.queue_sink(store, queue, order_by=columns, sink_id=sink_id, storage_options=storage)
    spark = partq.session(f"partq produce {queue}")
    reader = spark.readStream.format(format).options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    elif format in FILE_FORMATS:
        reader = reader.schema(StructType.fromJson(queue_state(Store.at(store, storage), queue).schema))
    source = reader.load(path)
    if select:
        source = source.selectExpr(*select)
    writer = source.writeStream.foreachBatch(stop.gated(sink)).option("checkpointLocation", checkpoint)
    stop.run(writer.queryName(f"produce-{queue}").trigger(**how_often).start())
    spark.stop()


if __name__ == "__main__":
    main(produce)
