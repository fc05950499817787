"""A Spark session with Delta and the `partq` source."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from spark_partq.spark.driver import Driver

# Dependencies of Delta that Spark itself has, in newer versions. They are 70 of the 90 MB that every start would copy and
# every executor would fetch.
_IN_SPARK = (
    "com.github.luben:zstd-jni",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.parquet:parquet-column",
    "org.apache.parquet:parquet-hadoop",
    "org.apache.parquet:parquet-jackson",
    "org.xerial.snappy:snappy-java",
)
SESSION_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Options that a plan does not show: those of Spark's own default, and storage options.
    "spark.sql.redaction.options.regex": r"(?i)url|storageoptions\.",
    "spark.jars.excludes": ",".join(_IN_SPARK),
}

_PACKAGES = "spark.jars.packages"


def session(app: str, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session that reads and writes Delta tables and queues.

    Parameters
    ----------
    app : str
        The application's name.
    master : str, optional
        Spark master; None keeps that of ``spark-submit``, or ``local[*]``.
    conf : dict, optional
        Further settings. They replace this function's own, except that ``spark.jars.packages`` are added to Delta's.
    """
    # The workers' Python must have the packages that the driver's has; python3 of the PATH may not.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    settings = {**SESSION_CONF, **(conf or {})}
    packages = settings.pop(_PACKAGES, "")
    builder = configure_spark_with_delta_pip(builder, [name for name in packages.split(",") if name])
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Register ``format("partq")`` with a session, and start its `Driver`, which calls listeners and reports finished micro-batches.

    A session whose Python has this package installed finds the format without `register`. Then its queries work without the
    driver.
    """
    from spark_partq.spark.source import PartqDataSource

    address = None
    if not is_remote():  # with Spark Connect the driver is another process; groups work without it
        driver = Driver.of_process()
        driver.serve(spark)
        address = driver.address
    spark.dataSource.register(PartqDataSource.of(address))


def driver_of(spark: SparkSession) -> Driver:
    """The driver's side of the queries of a session, which is registered if it was not."""
    driver = Driver.of_process()
    if not driver.serves(spark):
        register(spark)
    return driver
