"""The Spark of a test process. It has the jars of lake tables, because a process has one Spark for all its tests."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, signal

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.support.examples import NIGHTLY
from tests.support.spark_versions import lake_jars
from tests.support.waiting import PATIENCE_S

EXTENSIONS = (
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "io.delta.sql.DeltaSparkSessionExtension",
)
LAKE = {
    "spark.sql.extensions": ",".join(EXTENSIONS),
    # Of Iceberg, every other catalog can be added to a running session.
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Delta reads the state of a table by this many tasks; with its 50, a merge of two rows takes twice as long.
    "spark.databricks.delta.snapshotPartitions": "2",
}
UNCOMPILED = {
    # For a few rows, compiling a plan takes longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""The settings of all tests but nightly ones, which run as users' jobs do."""
LOCAL = {
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def lake_session(folder: Path) -> SparkSession:
    """A local Spark with two cores, where a failed task is tried twice, and which has its warehouse in *folder*.

    It reads and writes Delta tables by path, and by name in ``spark_catalog``. Iceberg needs a catalog, which is set at run time.
    JAVA_HOME and SPARK_SUBMIT_OPTS are the caller's. A process has one Spark: stop it by ``stop`` before another is made.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Python workers import the library and the tests' helpers from where this process does.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    settings = {"spark.jars": ",".join(map(str, lake_jars())), "spark.sql.warehouse.dir": folder.as_uri()}
    builder = SparkSession.builder.master("local[2,2]").appName("tests")
    with _uninterrupted():
        return builder.config(map=LOCAL | LAKE | ({} if NIGHTLY else UNCOMPILED) | settings).getOrCreate()


def stop(session: SparkSession) -> None:
    """Stop *session*, its context and their JVM."""
    session.stop()
    # PySpark keeps its JVM to the end of the process, where the log that is told of it is closed already.
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(PATIENCE_S)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C takes effect at the end of this.

    A JVM whose Python went away stops, but not one whose Python gave up while they were about to meet: it waits for ever.
    """
    asked: list[int] = []
    before = signal(SIGINT, lambda number, _: asked.append(number))
    try:
        yield
    finally:
        signal(SIGINT, before)
    if asked:
        raise KeyboardInterrupt
