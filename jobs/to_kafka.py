"""Move queues into a Kafka topic, as a consumer group: each message at least once, in the order of its key.

    SPARK_CONF_DIR=conf spark-submit \
        --packages io.delta:delta-spark_4.2_2.13:4.4.0,org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
        jobs/to_kafka.py --store s3://bucket/store --queue orders --group to-kafka --servers broker:9092 --topic orders \
        --checkpoint s3://bucket/checkpoints/orders-to-kafka

Each message has the header partq-id, by which a reader of the topic recognizes a repeated message.
"""

from __future__ import annotations

from typing import Annotated

import typer

import spark_partq as partq
from spark_partq.spark.broker import CONNECTOR, describe_topic
from spark_partq.spark.jobs import (
    Checkpoint,
    Flows,
    Group,
    KafkaOptions,
    KafkaServers,
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
from spark_partq.spark.to_topic import TopicWriter


def to_kafka(
    store: StoreUri,
    queue: Annotated[str, typer.Option(help="Queue to read, or several, separated by commas.")],
    group: Group,
    servers: KafkaServers,
    topic: Annotated[str, typer.Option(help="Topic to write into; it must exist.")],
    checkpoint: Checkpoint,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SQL",
            help="Part of a message, as an expression with the name key, value, headers or partition; may be repeated. Default: the queue's "
            "columns of these names.",
        ),
    ] = None,
    flows: Flows = 1,
    max_rows_per_trigger: MaxMessages = None,
    read_option: ReadOptions = None,
    write_option: KafkaOptions = None,
    trigger_: Trigger = "continuous",
    storage_option: StorageOptions = None,
) -> None:
    """Move queues into a Kafka topic.

    SIGTERM and SIGINT end the job after the running micro-batch, with exit code 0. After 20 seconds, or at a second signal, the
    job ends in the middle of the micro-batch, and the next start repeats it. A refused request gives one line on stderr and
    exit code 1; wrong usage gives exit code 2.
    """
    storage = key_values(storage_option)
    options = key_values(read_option) | {"path": store, "queue": queue, "group": group, "flows": str(flows)}
    if max_rows_per_trigger is not None:
        options["maxRowsPerTrigger"] = str(max_rows_per_trigger)
    options |= {f"storageOptions.{name}": value for name, value in storage.items()}
    kafka = key_values(write_option) | {"kafka.bootstrap.servers": servers}
    how_often = trigger(trigger_)
    stop = Stop()
    PartqDataSource(options).schema()  # what it refuses is refused before Spark takes its time to start
    spark = partq.session(f"partq {queue} to Kafka {topic}", None, {"spark.jars.packages": CONNECTOR})
    describe_topic(spark, topic, kafka)
    messages = spark.readStream.format("partq").options(**options).load()
    writer = messages.writeStream.foreachBatch(stop.gated(TopicWriter(topic, kafka, select or [])))
    writer = writer.queryName(f"to-kafka-{group}").option("checkpointLocation", checkpoint)
    stop.run(writer.trigger(**how_often).start())
    spark.stop()


if __name__ == "__main__":
    main(to_kafka)
