"""What the benchmarks of Spark jobs share: sessions, connections and job specs."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.pinning import manifest_name
from demo.embedded_stack import java
from ticdc_replay import __version__
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.config.pipeline import LimitsSection
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.jobspec import DecodeJob, Limits
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.spark.session import open_session
from ticdc_replay.submit.properties import ROWS_IN_PYTHON

CORES = 2
DECODERS = {
    "native": {"spark.executorEnv.TICDC_REPLAY_NATIVE": "on"},
    "python": {"spark.executorEnv.TICDC_REPLAY_NATIVE": "off"},
}
"""Spark properties that choose a decoder, whatever this process's environment says."""


def native_is_there() -> bool:
    """Whether the native decoder is installed."""
    return importlib.util.find_spec("ticdc_replay_native") is not None


def prepare_environment() -> None:
    """What Spark and Kafka need in the environment of this process."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(java.find_home())


@contextmanager
def session(name: str, conf: dict[str, str] | None = None, *, light: bool = True) -> Iterator[SparkSession]:
    """A session on ``local[2]`` in a JVM of its own, with *conf* on top; *light* where it is that of a decode or a load."""
    builder = SparkSession.builder.master(f"local[{CORES}]")
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for key, value in (quiet | (ROWS_IN_PYTHON if light else {}) | (conf or {})).items():
        builder = builder.config(key, value)
    builder.getOrCreate().sparkContext.setLogLevel("ERROR")
    try:
        with open_session(name) as spark:
            yield spark
    finally:
        # PySpark keeps its JVM, with the options that it has, for the next session.
        gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
        assert gateway is not None, "a session was there"
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)


def kafka_connection(bootstrap: str) -> Connection:
    """The broker as a connection."""
    return Connection("kafka", "kafka", extra={"bootstrap.servers": bootstrap})


def connections(bootstrap: str, *others: Connection) -> Connections:
    """The broker and *others* by name."""
    return Connections({each.conn_id: each for each in (kafka_connection(bootstrap), *others)})


def decode_job(
    manifest: Manifest,
    changefeed: Changefeed,
    artifacts: str,
    run: str,
    *,
    claim_check_connection: str | None = None,
) -> DecodeJob:
    """The job that decodes *manifest*; another *run* makes another changelog of the same."""
    return DecodeJob(
        library_version=f"{__version__}-{run}",
        pipeline="bench",
        artifacts=artifacts,
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=claim_check_connection,
        manifest=manifest_name(manifest),
        input_hash=manifest.input_hash,
        changefeed=changefeed,
        tables=("*.*",),
        limits=Limits(**LimitsSection().model_dump()),
    )
