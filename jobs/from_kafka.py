"""Move a Kafka topic into a queue: each message once, with its key, its place in the key's order, its time and its headers.

    SPARK_CONF_DIR=conf spark-submit \
        --packages io.delta:delta-spark_4.2_2.13:4.4.0,org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
        jobs/from_kafka.py --servers broker:9092 --topic orders --store s3://bucket/store --queue orders \
        --checkpoint s3://bucket/checkpoints/orders-from-kafka --trigger continuous

The queue records up to which offsets it has the topic, so a lost checkpoint loses and repeats nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

import spark_partq as partq
from spark_partq.core.delivery.topics import default_name
from spark_partq.spark.broker import CONNECTOR, describe_topic
from spark_partq.spark.checkpoint import QueryCheckpoint
from spark_partq.spark.from_topic import TopicSink, columns_for
from spark_partq.spark.jobs import (
    Checkpoint,
    KafkaOptions,
    KafkaServers,
    MaxMessages,
    Stop,
    StorageOptions,
    StoreUri,
    TargetQueue,
    Trigger,
    key_values,
    main,
    trigger,
)
from spark_partq.storage.queue.handle import queue_state
from spark_partq.storage.store import Store

# What the job says itself, and what would part a key's messages: several tasks would read one partition.
REFUSED = {
    name.lower()
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
    )
} | {
    "endingoffsets",
    "failondataloss",
    "includeheaders",
    "minpartitions",
    "maxrecordsperpartition",
    "kafka.bootstrap.servers",
}


def from_kafka(
    servers: KafkaServers,
    topic: Annotated[str, typer.Option(help="Topic to read.")],
    store: StoreUri,
    queue: TargetQueue,
    checkpoint: Checkpoint,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SQL",
            help="A column of the queue, as an expression over key, value, topic, partition, offset, timestamp, timestampType and headers; may be repeated. "
            "Default: the columns of the queue have these names; key and value may be texts.",
        ),
    ] = None,
    key_from: Annotated[
        str | None,
        typer.Option(
            metavar="value.FIELD",
            help="Field of the value (JSON) that is the queue's key. Default: the message's key.",
        ),
    ] = None,
    allow_null_keys: Annotated[
        bool,
        typer.Option(
            "--allow-null-keys", help="Spread messages without a key over the partitions. Default: refuse them."
        ),
    ] = False,
    starting_offsets: Annotated[
        Literal["earliest", "latest"],
        typer.Option(
            help="Where the first job of this topic and queue begins. The queue records that place, and each later job begins where the queue says."
        ),
    ] = "earliest",
    fail_on_data_loss: Annotated[
        bool,
        typer.Option(
            help="Whether to stop if the topic no longer has the next message: its retention has removed it, or the topic was deleted."
        ),
    ] = True,
    max_offsets_per_trigger: MaxMessages = None,
    source_option: KafkaOptions = None,
    sink_id: Annotated[
        str | None,
        typer.Option(
            help="Name under which the queue records up to which offsets it has the topic. Default: kafka.TOPIC."
        ),
    ] = None,
    trigger_: Trigger = "available-now",
    storage_option: StorageOptions = None,
) -> None:
    """Move a Kafka topic into a queue.

    SIGTERM and SIGINT end the job after the running micro-batch, with exit code 0. After 20 seconds, or at a second signal, the
    job ends in the middle of the micro-batch, and the next start repeats it. A refused request gives one line on stderr and
    exit code 1; wrong usage gives exit code 2.
    """
    storage, options = key_values(storage_option), key_values(source_option)
    if refused := sorted(name for name in options if name.lower() in REFUSED):
        raise typer.BadParameter(
            f"--source-option {refused[0]}: the job sets this itself, or would part the messages of a key"
        )
    how_often = trigger(trigger_)
    name = sink_id or default_name(topic)
    stop = Stop()
    # Whatever is wrong with the store or the queue is said before Spark takes its time to start.
    opened = Store.at(store, storage)
    state = queue_state(opened, queue)
    columns = columns_for(state.schema, state.key, select or [], key_from)
    spark = partq.session(f"partq from Kafka {topic} to {queue}", None, {"spark.jars.packages": CONNECTOR})
    options["kafka.bootstrap.servers"] = servers
    kept, described = QueryCheckpoint(spark, checkpoint), lambda: describe_topic(spark, topic, options)
    sink = TopicSink(opened, queue, name, columns, described, kept.first_offsets, allow_null_keys)
    options |= {
        "subscribe": topic,
        "startingOffsets": sink.starting_offsets(starting_offsets, fail_on_data_loss, kept.is_new()),
        "failOnDataLoss": str(fail_on_data_loss).lower(),
        "includeHeaders": "true",
    }
    if max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    source = spark.readStream.format("kafka").options(**options).load()
    writer = source.writeStream.foreachBatch(stop.gated(sink)).option("checkpointLocation", checkpoint)
    stop.run(writer.queryName(f"from-kafka-{queue}").trigger(**how_often).start())
    spark.stop()


if __name__ == "__main__":
    main(from_kafka)
