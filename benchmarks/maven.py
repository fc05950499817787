"""JARs that Spark fetches by name, as it does for Delta."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession


def jars(spark: SparkSession, coordinates: str, transitive: bool = True) -> list[str]:
    """The files of an artifact, and of what it needs.

    Parameters
    ----------
    coordinates : str
        ``group:artifact:version``.
    transitive : bool
        Whether those of what it needs, too.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    found = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(
        jvm.java.net.URI(f"ivy://{coordinates}?transitive={str(transitive).lower()}")
    )
    return [found.apply(i) for i in range(found.size())]


def scala(spark: SparkSession) -> list[str]:
    """Scala's own library, which Spark never fetches, as it has it."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    where = jvm.java.lang.Class.forName("scala.Option").getProtectionDomain().getCodeSource().getLocation().toURI()
    return [str(Path(jvm.java.io.File(where).getPath()))]


def java() -> str:
    return os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
