"""The commands that start a driver on this machine, beside spark-submit: over Spark Connect, and without Spark."""

import logging
import sys
from collections.abc import Iterator, Mapping

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import PROCESSES_VARIABLE, SPARK_CONNECTION_VARIABLE, DecodeJob, LoadJob, MaintainJob
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.storage import open_store
from ticdc_replay.submit.modules import modules_of
from ticdc_replay.submit.submitter import Submission

log = logging.getLogger(__name__)

SPARK_CONNECT = "spark_connect"
"""Type of a connection to a Spark Connect server, as Airflow's provider names it."""


def connect_command(submission: Submission, declared: Pipeline | Store) -> list[str]:
    """A driver whose tasks run at the Spark Connect server of ``connect_environment``.

    Raises ConfigError for lake tables: settings of their session would be in the server's event log, secrets included.
    """
    if isinstance(submission.job, LoadJob | MaintainJob) and read_section(submission.job.target).spark_properties:
        raise ConfigError(
            f"{submission.name}: lake tables are not written over Spark Connect, whose event log would have the secrets of the "
            f"catalog: give target {submission.job.target['name']} a pipeline whose connections.spark has type spark"
        )
    if declared.spark.conf:
        log.warning("%s: spark.conf is not sent over Spark Connect: set it at the server", declared.name)
    return [sys.executable, submission.script, *submission.arguments]


def connect_environment(environ: Mapping[str, str], spark: Connection) -> dict[str, str]:
    """*environ*, and which of its connections a driver finds Spark by."""
    return {**environ, SPARK_CONNECTION_VARIABLE: spark.conn_id}


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
    """How many offsets of Kafka the job reads."""
    job = submission.job
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
