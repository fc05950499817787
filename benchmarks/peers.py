"""The same rows through a queue, Kafka, Delta and plain Parquet, in turn in one Spark session: ``python -m benchmarks.peers``.

Kafka is one broker on this machine, with one copy of each message; it does not force its log to the disk, and neither does the queue. Spark writes to
it and reads from it by its own connector: with its defaults, and tuned as its manual says for throughput.
"""

from __future__ import annotations

import itertools
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

import spark_partq as partq
from benchmarks.broker import Broker
from benchmarks.data import rows, session
from benchmarks.report import Figure, at_most, in_turn, known, median, spread
from benchmarks.report import show as show_figures
from benchmarks.stream import discard
from spark_partq.spark.broker import CONNECTOR

PARTITIONS = 16
# What Kafka's manual says of throughput: larger batches, which wait a little for each other, and are compressed.
TUNED = {
    "kafka.linger.ms": 5,
    "kafka.batch.size": 1 << 20,
    "kafka.compression.type": "lz4",
    "kafka.buffer.memory": 64 << 20,
}
# By default a broker that has nothing lets a consumer wait for half a second, which a task of a short micro-batch may meet.
TUNED_READER = {"kafka.fetch.max.wait.ms": "5"}
KAFKA, KAFKA_DEFAULTS, DELTA, PARQUET = "Kafka, tuned", "Kafka, defaults", "Delta", "Parquet"
Write = Callable[[DataFrame, int], None]


def main(
    count: Annotated[int, typer.Option("--rows", help="rows of the largest batch")] = 1_000_000,
    runs: Annotated[int, typer.Option(help="counted runs of each subject", min=5)] = 11,
    seconds: Annotated[int, typer.Option(help="of a live run of 1,000 rows a second")] = 60,
    out: Annotated[Path, typer.Option(help="where the JSON goes")] = Path("benchmarks/results/peers.json"),
) -> None:
    """Exit code 1 if a bound is not reached."""
    spark = session({"spark.jars.packages": CONNECTOR})
    with tempfile.TemporaryDirectory(prefix="partq-bench-") as place:
        folder = Path(place)
        broker = Broker(spark, folder / "kafka")
        try:
            peers = Peers(spark, folder, broker)
            figures = [*peers.writing(count, runs), *peers.reading(count, runs), *peers.live(seconds)]
        finally:
            broker.close()
            spark.stop()
    raise typer.Exit(0 if show_figures(figures, out) else 1)


class Peers:
    """A queue, a topic and a table of each name."""

    def __init__(self, spark: SparkSession, folder: Path, broker: Broker) -> None:
        self._spark, self._folder, self._broker = spark, folder, broker
        self._store = str(folder / "store")

    def _make(self, name: str, df: DataFrame) -> dict[str, Write]:
        """What writes a batch to each of them."""
        partq.create_queue(self._store, name, df.schema, key="k", partitions=PARTITIONS)
        for topic in (name, f"{name}-default"):
            self._broker.ask("create", topic, PARTITIONS)

        def kafka(topic: str, options: Mapping[str, object], batch: DataFrame, _: int) -> None:
            written = batch.selectExpr("k AS key", "concat_ws('|', id, body, at) AS value").write.format("kafka")
            for option, value in {"kafka.bootstrap.servers": self._broker.servers, "topic": topic, **options}.items():
                written = written.option(option, str(value))
            written.save()

        def delta(batch: DataFrame, _: int) -> None:
            batch.write.format("delta").mode("append").save(str(self._folder / f"delta-{name}"))

        return {
            "partq": partq.queue_sink(self._store, name, sink_id="bench"),
            KAFKA: partial(kafka, name, TUNED),
            KAFKA_DEFAULTS: partial(kafka, f"{name}-default", {}),
            DELTA: delta,
        }

    def writing(self, count: int, runs: int) -> Iterator[Figure]:
        """A batch that is there is written, so the time is that of writing."""
        wanted = {1_000: {KAFKA: 1.3, DELTA: 0.35}, 100_000: {KAFKA: 1 / 1.5}, count: {DELTA: 1.0}}
        for size, bounds in wanted.items():
            df = rows(self._spark, self._folder, size).cache()
            df.count()
            writers = self._make(f"w{size}", df)
            if size == min(wanted):  # it opens the queue for each batch, which a sink does once
                writers["partq.append"] = partial(self._append, f"w{size}")
            subjects = {name: _writing(write, df) for name, write in writers.items()}
            took = in_turn(f"write {size:,} rows", subjects, runs, warm_up=5)
            yield from _compared(f"time to write {size:,} rows", took, bounds)
            df.unpersist()

    def _append(self, queue: str, batch: DataFrame, number: int) -> None:
        partq.append(batch, self._store, queue, sink_id="append", batch_id=number)

    def reading(self, count: int, runs: int) -> Iterator[Figure]:
        """Micro-batches of 1,000 and of 100,000 rows, and all of the rows at once; each is counted, with its planning and its checkpoint."""
        large = self._spark.readStream.schema(rows(self._spark, self._folder, count).schema).format("parquet")
        for readers, size, bounds in (
            (self._batches(1_000, 10), 1_000, {KAFKA: 1.0, DELTA: 0.6}),
            (self._batches(100_000, 6), 100_000, {KAFKA: 1 / 1.5}),
            (
                {**self._written(count, 1), PARQUET: large.option("path", str(self._folder / f"rows-{count}"))},
                count,
                {PARQUET: 1 / 0.9},
            ),
        ):
            subjects = {peer: partial(self._micro_batch, reader) for peer, reader in readers.items()}
            took = in_turn(f"read {size:,} rows", subjects, runs, warm_up=3)
            yield from _compared(f"time of a micro-batch that reads {size:,} rows", took, bounds)

    def _batches(self, size: int, batches: int) -> dict[str, DataStreamReader]:
        """Readers that take one of the batches at a time."""
        limits = {"partq": "maxRowsPerTrigger", DELTA: "maxFilesPerTrigger"}
        return {
            peer: reader.option(limits.get(peer, "maxOffsetsPerTrigger"), 1 if peer == DELTA else size)
            for peer, reader in self._written(size, batches).items()
        }

    def _written(self, size: int, batches: int) -> dict[str, DataStreamReader]:
        """Readers of so many batches; each is one file of Delta's, if there are several."""
        df, name = rows(self._spark, self._folder, size), f"r{size}"
        for peer, write in self._make(name, df).items():
            if peer != KAFKA_DEFAULTS:  # it reads the same topic
                for number in range(batches):
                    write(df.coalesce(1) if batches > 1 else df, number)
        return self._readers(name)

    def _readers(self, name: str) -> dict[str, DataStreamReader]:
        kafka = {"kafka.bootstrap.servers": self._broker.servers, "subscribe": name, "startingOffsets": "earliest"}
        return {
            "partq": self._spark.readStream.format("partq").options(path=self._store, queue=name, flows=2),
            KAFKA: self._spark.readStream.format("kafka").options(**kafka, **TUNED_READER),
            KAFKA_DEFAULTS: self._spark.readStream.format("kafka").options(**kafka),
            DELTA: self._spark.readStream.format("delta").option("path", str(self._folder / f"delta-{name}")),
        }

    def _micro_batch(self, reader: DataStreamReader) -> float:
        """Read all there is; the median of the micro-batches but the first, if there are more."""
        query = self._started(reader.load(), discard, available_now=True)
        query.awaitTermination()
        took = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
        return median(took[1:] or took)

    def _started(self, df: DataFrame, act: Write, available_now: bool = False) -> StreamingQuery:
        writer = df.writeStream.foreachBatch(act).option(
            "checkpointLocation", str(self._folder / "checkpoints" / uuid.uuid4().hex)
        )
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def live(self, seconds: int) -> Iterator[Figure]:
        """1,000 rows a second: how old a row is when its micro-batch has it."""
        empty = rows(self._spark, self._folder, 1_000).limit(0)
        writers, readers = self._make("live", empty), self._readers("live")
        ages = {name: self._ages(name, writers[name], readers[name], seconds) for name in ("partq", KAFKA)}
        for share, what in ((0.5, "p50"), (0.99, "p99")):
            ours, theirs = (sorted(ages[name])[int(share * len(ages[name]))] for name in ("partq", KAFKA))
            detail = f"{ours:.2f} s and {theirs:.2f} s"
            yield at_most(f"age of a row on delivery, 1,000 rows/s, {what}", KAFKA, ours / theirs, 1.0, detail)

    def _ages(self, name: str, write: Write, reader: DataStreamReader, seconds: int) -> list[float]:
        ages: list[float] = []
        source = self._spark.readStream.format("rate").option("rowsPerSecond", 1_000).option("numPartitions", 2).load()
        made = source.selectExpr(
            "value AS id", "concat('key-', value % 1000) AS k", "repeat('x', 80) AS body", "timestamp AS at"
        )
        at = "at" if name == "partq" else "CAST(element_at(split(CAST(value AS string), '[|]'), 3) AS timestamp)"

        def seen(batch: DataFrame, _: int) -> None:
            found = batch.selectExpr(f"unix_micros({at}) / 1e6 AS at").collect()
            now_s = time.time()
            ages.extend(now_s - row["at"] for row in found)

        queries = [self._started(reader.load(), seen), self._started(made, write)]
        try:
            time.sleep(seconds / 3)  # both have begun
            ages.clear()
            time.sleep(seconds)
        finally:
            for query in reversed(queries):
                query.stop()
        return ages


def _writing(write: Write, df: DataFrame) -> Callable[[], float]:
    """Writes the rows as one batch after another, and returns its seconds."""
    numbers = itertools.count()

    def act() -> float:
        began = time.perf_counter()
        write(df, next(numbers))
        return time.perf_counter() - began

    return act


def _compared(what: str, took: dict[str, list[float]], bounds: Mapping[str, float]) -> Iterator[Figure]:
    """Our time in those of the peers."""
    ours, detail = median(took["partq"]), spread(took)
    for peer in [name for name in took if name != "partq"]:
        ratio = ours / median(took[peer])
        yield at_most(what, peer, ratio, bounds[peer], detail) if peer in bounds else known(what, peer, ratio, detail)
        detail = ""


if __name__ == "__main__":
    typer.run(main)
