"""The commands that start a driver: by spark-submit, over Spark Connect, and without Spark."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import (
    PROCESSES_VARIABLE,
    SPARK_CONF_VARIABLE,
    SPARK_CONNECTION_VARIABLE,
    DecodeJob,
    JobSpec,
    Series,
)
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.storage import open_store
from ticdc_replay.submit.modules import modules_of
from ticdc_replay.submit.submitter import Submission

SPARK_CONNECT = "spark_connect"
"""Type of a connection to a Spark Connect server, as Airflow's provider names it."""


def spark_submit_command(submission: Submission, master: str, options: Sequence[str] = ()) -> list[str]:
    """A driver by the spark-submit of this Python, with its *options*. Raises ConfigError where Spark is not installed."""
    binary = shutil.which("spark-submit", path=search_path(os.environ))
    if binary is None or find_spec("pyspark") is None:
        raise ConfigError("spark-submit is not installed here: pip install 'ticdc-replay[spark]'")
    properties = [f"--conf={name}={value}" for name, value in submission.properties.items()]
    return [binary, "--master", master, *options, *properties, submission.script, *submission.arguments]


def search_path(environ: Mapping[str, str]) -> str:
    """``PATH`` of *environ*, after the folder of this Python: there are its spark-submit, and the ``python3`` by which that finds
    Spark."""
    return os.pathsep.join([str(Path(sys.executable).parent), *filter(None, [environ.get("PATH")])])


def connect_command(submission: Submission) -> list[str]:
    """A driver whose tasks run at the Spark Connect server of ``connect_environment``."""
    return [sys.executable, submission.script, *submission.arguments]


def connect_environment(environ: Mapping[str, str], spark: Connection, declared: Pipeline | Store) -> dict[str, str]:
    """*environ*, which of its connections a driver finds Spark by, and what *declared* would have its session set."""
    conf = msgspec.json.encode(declared.spark.conf).decode()
    return {**environ, SPARK_CONNECTION_VARIABLE: spark.conn_id, SPARK_CONF_VARIABLE: conf}


def local_command(submission: Submission, declared: Pipeline) -> list[str]:
    """A driver whose tasks run in processes of this machine. Raises ConfigError for more messages than *declared* allows."""
    for refusal in refused_locally(declared, _messages(submission)):
        raise ConfigError(f"{submission.name}: {refusal}")
    return [sys.executable, "-m", "ticdc_replay.drivers", *submission.arguments, *modules_of(submission.job)]


def refused_locally(declared: Pipeline, messages: int) -> Iterator[str]:
    """Why *declared* does not let so many *messages* be read in processes of this machine, if it does not."""
    if declared.runner == "local" and messages > declared.local.max_messages:
        yield (
            f"{messages:,} messages are too many for runner: local, which reads at most {declared.local.max_messages:,} "
            "(local.max_messages): take shorter windows, or set runner to spark"
        )


def _messages(submission: Submission) -> int:
    """How many offsets of Kafka the job reads; of a series the longest."""
    job = submission.job
    jobs = job.jobs if isinstance(job, Series) else [job]
    return max(_messages_of(each, submission) for each in jobs)


def _messages_of(job: JobSpec, submission: Submission) -> int:
    if not isinstance(job, DecodeJob):
        return 0
    store = open_store(job.artifacts, submission.connections.get(job.artifacts_connection))
    manifest = manifests.decode(store.get(job.manifest))
    if manifest.shared is not None:
        manifest = manifests.decode(store.get(manifest.shared.manifest))
    return sum(part.length for part in manifest.ranges())


def local_environment(environ: Mapping[str, str], declared: Pipeline) -> dict[str, str]:
    """*environ*, and how many processes *declared* allows."""
    processes = declared.local.processes
    return {**environ, **({} if processes is None else {PROCESSES_VARIABLE: str(processes)})}
