"""What every JVM gets that the tests start, also in other processes: it lives too briefly to repay what a long life would.

`python -m tests.jvm` makes two things that start sessions and queries sooner. Without them the tests do the same, and take longer.

- The archive of classes: a JVM that finds it need not read, parse and verify them once more, which is a third of what a short session costs.
- A home of Spark without `python/lib/pyspark.zip`. Each process that plans a query would import PySpark from that file, and Python compiles the
  modules of a zip file each time. It compiles those of the installed package once; they are the same.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pyspark

from tests.helpers import ROOT

ARCHIVE = ROOT / ".venv" / "classes.jsa"
HOME = ROOT / ".venv" / "spark"

# Code that is not optimised takes more stack.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"

# Nothing that a small machine spends its time on. Whoever starts a session may set something else.
SMALL = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.default.parallelism": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def environment(archive: str = f"-XX:SharedArchiveFile={ARCHIVE}") -> dict[str, str]:
    """Variables for this process and those that it starts. A JVM that cannot use the archive does without, and says nothing."""
    given = " ".join(f"-D{name}={value}" for name, value in SMALL.items())
    home = {"SPARK_HOME": str(HOME)} if HOME.is_dir() else {}
    folder = f"-Djava.io.tmpdir={tempfile.gettempdir()}"
    return home | {
        "SPARK_SUBMIT_OPTS": f"{QUICK} -Xlog:disable {folder} {archive} {given}",
        "SPARK_LAUNCHER_OPTS": QUICK,
    }


def make_home() -> None:
    installed, made = Path(pyspark.__file__).parent, HOME.with_name("spark.new")
    for folder in (made, HOME):
        shutil.rmtree(folder, ignore_errors=True)
    made.mkdir()
    for name in ("bin", "jars"):
        (made / name).symlink_to(installed / name)
    made.rename(HOME)  # other tests may start JVMs meanwhile


def make_archive() -> None:
    """Of the classes that a session loads which writes and reads a queue and a Delta table."""
    made = ARCHIVE.with_name("classes.new")
    made.unlink(missing_ok=True)
    os.environ |= environment(f"-XX:ArchiveClassesAtExit={made}")
    import spark_partq as partq

    with tempfile.TemporaryDirectory() as folder:
        store, table = f"{folder}/store", f"{folder}/table"
        spark = partq.session("classes", "local[2]", {"spark.sql.warehouse.dir": f"{folder}/warehouse"})
        partq.create_queue(store, "q", "v long", key="v", partitions=2)
        partq.append(spark.range(10).withColumnRenamed("id", "v"), store, "q")
        found = spark.readStream.format("partq").option("path", store).option("queue", "q").load()
        results = found.writeStream.trigger(availableNow=True).option("checkpointLocation", f"{folder}/checkpoint")
        results.foreachBatch(partq.delta_sink(table)).start().awaitTermination()
        print(f"{spark.read.format('delta').load(table).count()} messages")
        jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
        jvm.stdin.close()  # it writes the archive when it ends
        jvm.wait()
    made.rename(ARCHIVE)


if __name__ == "__main__":
    make_home()
    make_archive()
