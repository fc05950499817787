"""A small micro-batch in an object store: ``python -m benchmarks.object_store``.

The server is on this machine, and no network lies before it. moto is one process of Python, so the numbers of requests tell more than the times;
``--server versitygw`` answers many requests at once.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

import spark_partq as partq
from benchmarks.data import rows, session
from benchmarks.report import Figure, at_most, in_turn, known, median, show, spread
from benchmarks.s3 import Server, gateway, object_store
from benchmarks.sink import timed

PARTITIONS, ROWS = 16, 1_000
# Requests, by docs/object-store.md. A read is planned, takes a file of each partition, and is acknowledged.
WRITE, READ = 9 + 5 * PARTITIONS, 14 + 4 * PARTITIONS
WARM_UP = 5


class ServerName(StrEnum):
    """Which one holds the bucket."""

    MOTO = "moto"
    VERSITYGW = "versitygw"


SERVERS = {ServerName.MOTO: object_store, ServerName.VERSITYGW: gateway}


def main(
    server: Annotated[ServerName, typer.Option(help="which one holds the bucket")] = ServerName.MOTO,
    runs: Annotated[int, typer.Option(help="counted micro-batches of each subject", min=5)] = 21,
    out: Annotated[Path, typer.Option(help="where the JSON goes")] = Path("benchmarks/results/object-store.json"),
) -> None:
    """Exit code 1 if a bound is not reached."""
    with tempfile.TemporaryDirectory(prefix="partq-bench-") as place, SERVERS[server](Path(place)) as at:
        os.environ |= {name.upper(): value for name, value in at.options.items()}
        spark = session()
        try:
            figures = [*_figures(spark, Path(place), at, runs)]
        finally:
            spark.stop()
    raise typer.Exit(0 if show(figures, out) else 1)


def _figures(spark: SparkSession, folder: Path, server: Server, runs: int) -> Iterator[Figure]:
    """Each micro-batch is written, and read by a query that runs; the same on a disk, and an append of the rows by delta-rs, take turns with it."""
    df = rows(spark, folder, ROWS).cache()
    table = df.toArrow()
    bucket = _Queue(spark, f"{server.bucket}/store", folder / "bucket", df)
    disk = _Queue(spark, str(folder / "store"), folder / "disk", df)
    asked: dict[str, list[int]] = {"write": [], "read": [], "delta-rs": []}

    def counted(what: str, act: Callable[[], float]) -> Callable[[], float]:
        def measured() -> float:
            before = server.requests()
            seconds = act()
            asked[what].append(server.requests() - before)
            return seconds

        return measured

    def append() -> float:
        return timed(lambda: write_deltalake(f"{server.bucket}/table", table, mode="append"))

    subjects = {
        "write": counted("write", bucket.write),
        "read": counted("read", bucket.read),
        "write on a disk": disk.write,
        "read on a disk": disk.read,
        "delta-rs": counted("delta-rs", append),
    }
    took = in_turn("a micro-batch of 1,000 rows", subjects, runs, WARM_UP)
    bucket.query.stop()
    disk.query.stop()
    requests = {what: median(counts[WARM_UP:]) for what, counts in asked.items()}
    detail = f"{requests['delta-rs']:g} requests of delta-rs, which writes one file"
    yield known(
        "time to write 1,000 rows over 16 partitions",
        "delta-rs append",
        _ratio(took, "write", "delta-rs"),
        spread(took),
    )
    for what, least in (("write", WRITE), ("read", READ)):
        yield known(f"time to {what} 1,000 rows", "on a disk", _ratio(took, what, f"{what} on a disk"))
        # Checkpoints and the deletion of old entries come on top, and what looks for news meanwhile.
        yield at_most(f"requests to {what} 1,000 rows, median", "-", requests[what], 1.5 * least, detail)
        detail = ""


def _ratio(took: dict[str, list[float]], ours: str, theirs: str) -> float:
    return median(took[ours]) / median(took[theirs])


class _Queue:
    """A queue, what writes a micro-batch into it, and a query that waits for one."""

    def __init__(self, spark: SparkSession, uri: str, folder: Path, df: DataFrame) -> None:
        partq.create_queue(uri, "q", df.schema, key="k", partitions=PARTITIONS)
        self._df, self._sink, self._batch = df, partq.queue_sink(uri, "q", sink_id="bench"), 0
        reader = spark.readStream.format("partq").options(path=uri, queue="q", group="g", flows=2)
        writer = reader.load().writeStream.foreachBatch(_discard).option("checkpointLocation", str(folder))
        self.query = writer.start()
        self.query.processAllAvailable()

    def write(self) -> float:
        self._batch += 1
        return timed(lambda: self._sink(self._df, self._batch))

    def read(self) -> float:
        """Until the query has finished what was written."""
        return timed(self.query.processAllAvailable)


def _discard(batch: DataFrame, _: int) -> None:
    batch.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    typer.run(main)
