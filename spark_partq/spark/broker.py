"""What a Kafka broker says of a topic, through the client in the JVM that Spark's Kafka connector brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pyspark
from py4j.java_gateway import JavaPackage  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark_partq.core.delivery.topics import Topic
from spark_partq.core.errors import InvalidArgumentError, StoreUnavailableError

# A job that Python starts has this package; spark-submit must be given it.
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
_CLIENT_OPTION, _ISOLATION = "kafka.", "isolation.level"
_MASK = (1 << 64) - 1


def describe_topic(spark: SparkSession, name: str, options: Mapping[str, str]) -> Topic:
    """A topic as it is now.

    Parameters
    ----------
    options : dict
        Options of the connector; those that begin with ``kafka.`` are for the client.

    Raises
    ------
    InvalidArgumentError
        If there is no such topic, or Spark does not have the connector.
    StoreUnavailableError
        If no broker answers, or the broker refuses.
    """
    jvm: Any = spark.sparkContext._jvm
    clients = jvm.org.apache.kafka.clients.admin
    if isinstance(clients.AdminClient, JavaPackage):
        raise InvalidArgumentError(
            f"this Spark application has not the Kafka connector; start it with --packages and, by commas, what spark.jars.packages of "
            f"conf/spark-defaults.conf names and {CONNECTOR}",
            package=CONNECTOR,
        )
    settings = jvm.java.util.HashMap()
    for option, value in options.items():
        if option.lower().startswith(_CLIENT_OPTION):
            settings.put(option[len(_CLIENT_OPTION) :], value)
    try:
        client = clients.AdminClient.create(settings)
        try:
            return _described(jvm, clients, client, name, settings.get(_ISOLATION) == "read_committed")
        finally:
            client.close()
    except Py4JJavaError as error:
        raise _refusal(error, name) from None


def _described(jvm: Any, clients: Any, client: Any, name: str, committed: bool) -> Topic:
    names = jvm.java.util.ArrayList()
    names.add(name)
    found = client.describeTopics(names).allTopicNames().get().get(name)
    id_ = found.topicId()
    bits = (id_.getMostSignificantBits() & _MASK) << 64 | (id_.getLeastSignificantBits() & _MASK)
    numbers = sorted(partition.partition() for partition in found.partitions())
    firsts = _offsets(jvm, client, name, numbers, clients.OffsetSpec.earliest())
    ends = _offsets(jvm, client, name, numbers, clients.OffsetSpec.latest())
    readable = {}
    if committed:
        options = clients.ListOffsetsOptions(jvm.org.apache.kafka.common.IsolationLevel.READ_COMMITTED)
        readable = _offsets(jvm, client, name, numbers, clients.OffsetSpec.latest(), options)
    return Topic(name, str(UUID(int=bits)), {n: (firsts[n], ends[n]) for n in numbers}, readable).checked()


def _offsets(jvm: Any, client: Any, name: str, numbers: list[int], spec: Any, *options: Any) -> dict[int, int]:
    wanted, places = jvm.java.util.HashMap(), {}
    for number in numbers:
        places[number] = jvm.org.apache.kafka.common.TopicPartition(name, number)
        wanted.put(places[number], spec)
    found = client.listOffsets(wanted, *options).all().get()
    return {number: int(found.get(place).offset()) for number, place in places.items()}


def _refusal(error: Py4JJavaError, name: str) -> InvalidArgumentError | StoreUnavailableError:
    cause = error.java_exception.getCause() or error.java_exception
    kind, text = str(cause.getClass().getSimpleName()), str(cause.getMessage())
    if kind == "UnknownTopicOrPartitionException":
        return InvalidArgumentError(
            f"there is no topic {name!r} at this broker; check --topic and --servers", topic=name
        )
    return StoreUnavailableError(
        f"the broker of topic {name!r} does not answer as it should ({kind}: {text}); check --servers and the kafka.… options",
        topic=name,
    )
