"""The main functions of the entry scripts in ``spark_jobs/``: read the job spec, run it, turn errors into exit codes."""

import logging
import sys
from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import SparkSession

from ticdc_replay import jobspec
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError, PermanentError, TransientError
from ticdc_replay.domain.visible import visible_lines
from ticdc_replay.jobspec import EXIT_PERMANENT, EXIT_TRANSIENT, DecodeJob, JobSpec, LoadJob, ReconcileJob, ScanJob
from ticdc_replay.spark.decode import run_decode
from ticdc_replay.spark.executors import require_executors
from ticdc_replay.spark.load import run_load
from ticdc_replay.spark.reconcile_job import run_reconcile
from ticdc_replay.spark.scan import run_scan
from ticdc_replay.spark.session import open_session, read_connections
from ticdc_replay.spark.submitter import end_with_submitter
from ticdc_replay.storage import open_store

log = logging.getLogger("ticdc_replay.spark")

Job = TypeVar("Job", DecodeJob, LoadJob, ScanJob, ReconcileJob)


def run_decode_job() -> None:
    """Run the decode job whose spec's URI is the only argument of the script; see ``_run`` for exit codes."""
    _run(DecodeJob, lambda job: f"decode {job.pipeline} {job.run_hash[:12]}", run_decode)


def run_load_job() -> None:
    """Run the load job whose spec's URI is the only argument of the script; see ``_run`` for exit codes."""
    _run(LoadJob, lambda job: f"load {job.pipeline} {job.target['name']} {job.run_hash[:12]}", run_load)


def run_scan_job() -> None:
    """Run the scan job whose spec's URI is the only argument of the script; see ``_run`` for exit codes."""
    _run(ScanJob, lambda job: f"scan {job.store} {job.scan_hash[:12]}", run_scan)


def run_reconcile_job() -> None:
    """Run the reconcile job whose spec's URI is the only argument of the script; see ``_run`` for exit codes."""
    _run(ReconcileJob, lambda job: f"reconcile {job.store} {job.reconciliation_id[:12]}", run_reconcile)


class _VisibleFormatter(logging.Formatter):
    """Shows characters that a terminal would obey: messages and tracebacks hold names of tables and objects."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))


def _run(
    kind: type[Job], name: Callable[[Job], str], driver: Callable[[SparkSession, Job, Connections], object]
) -> None:
    """Exits with 0, ``EXIT_PERMANENT`` or ``EXIT_TRANSIENT``; any other error leaves its traceback and exit code 1.

    Ends with the process that submitted it, even where that was killed.
    """
    logging.basicConfig(level=logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_VisibleFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if len(sys.argv) != 2:
        sys.exit("usage: spark-submit <script> <URI of the job spec>")
    try:
        connections = read_connections()
        end_with_submitter()
        job = _read(sys.argv[1], connections)
        if not isinstance(job, kind):
            raise ConfigError(f"{sys.argv[1]} is a {type(job).__name__}; this script runs a {kind.__name__}")
        spark = open_session(f"ticdc-replay {name(job)}")
        try:
            require_executors(spark, job)
            driver(spark, job, connections)
        finally:
            spark.stop()
    except PermanentError as error:
        log.error("%s: %s", type(error).__name__, error)
        sys.exit(EXIT_PERMANENT)
    except TransientError as error:
        log.error("%s: %s", type(error).__name__, error)
        sys.exit(EXIT_TRANSIENT)


def _read(uri: str, connections: Connections) -> JobSpec:
    folder, _, name = uri.rpartition("/")
    return jobspec.decode(open_store(folder, connections.get(connections.artifacts)).get(name))
