"""Stream files, a table or another source of Spark into a queue, exactly once.

    SPARK_CONF_DIR=conf spark-submit jobs/produce.py --store s3://bucket/store --queue orders --format json \
        --path s3a://bucket/landing --order-by order_id --checkpoint s3a://bucket/checkpoints/produce-orders --trigger continuous

The job prints on stderr how many messages each micro-batch has added. For a Kafka topic use jobs/from_kafka.py.
"""

from __future__ import annotations

from typing import Annotated

import typer
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

import spark_partq as partq
from spark_partq.spark.jobs import (
    Checkpoint,
    Stop,
    StorageOptions,
    StoreUri,
    TargetQueue,
    Trigger,
    key_values,
    main,
    tell,
    trigger,
)
from spark_partq.spark.malformed import Malformed, malformed_told, read_mode
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.store import Store

FILE_FORMATS = {"parquet", "json", "csv", "orc", "text", "avro", "xml"}


def produce(
    store: StoreUri,
    queue: TargetQueue,
    checkpoint: Checkpoint,
    format: Annotated[str, typer.Option(help="Format of the source: parquet, json, csv, xml, delta, …")] = "parquet",
    path: Annotated[str | None, typer.Option(help="Folder or table to read; some formats have none.")] = None,
    schema: Annotated[
        str | None, typer.Option(help="The source's columns as DDL. Default for files: the columns of the queue.")
    ] = None,
    source_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Option of the source; may be repeated.")
    ] = None,
    malformed: Annotated[
        Malformed | None,
        typer.Option(
            help="What to do with a csv, json or xml row that does not fit the columns. fail: stop, and write nothing of the micro-batch. drop: leave it "
            "out. null: write null for each value that cannot be read. Default: fail, or what --source-option mode=… says."
        ),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SQL",
            help="A column of the queue, as an expression; may be repeated. Default: all columns of the source.",
        ),
    ] = None,
    max_files_per_trigger: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of new files in a micro-batch (file formats and delta).")
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of the queue, separated by commas, that order the messages inside a micro-batch. Default: as Spark "
            "reads them; Spark does not read several files in the order of their names.",
        ),
    ] = None,
    sink_id: Annotated[
        str | None,
        typer.Option(
            help="Name by which the queue recognizes replayed micro-batches. Default: the streaming query's id."
        ),
    ] = None,
    trigger_: Trigger = "available-now",
    storage_option: StorageOptions = None,
) -> None:
    """Stream a source into a queue, and print on stderr how many messages each micro-batch has added.

    SIGTERM and SIGINT end the job after the running micro-batch, with exit code 0. After 20 seconds, or at a second signal, the
    job ends in the middle of the micro-batch, and the next start repeats it. A refused request gives one line on stderr and
    exit code 1; wrong usage gives exit code 2.
    """
    storage = key_values(storage_option)
    options = key_values(source_option)
    options |= read_mode(format, malformed, options)
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
    total = 0

    def write(batch: DataFrame, batch_id: int) -> None:
        nonlocal total
        with malformed_told():
            sink(batch, batch_id)
        total += sink.added
        tell(f"micro-batch {batch_id}: {messages(sink.added) + ' committed' if sink.added else 'nothing new'}")

    writer = source.writeStream.foreachBatch(stop.gated(write)).option("checkpointLocation", checkpoint)
    stop.run(writer.queryName(f"produce-{queue}").trigger(**how_often).start())
    tell(f"{messages(total)} written to queue {queue}")
    spark.stop()


def messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


if __name__ == "__main__":
    main(produce)
