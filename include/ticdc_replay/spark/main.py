"""The main function of the entry scripts in ``spark/jobs``: a driver whose tasks run in Spark."""

import logging
import os
import signal
import sys
from collections.abc import Iterable

import msgspec
from pyspark.sql import SparkSession

from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.drivers import main as driver
from ticdc_replay.drivers.main import Counts, run_job
from ticdc_replay.jobspec import (
    SPARK_CONF_VARIABLE,
    SPARK_CONNECTION_VARIABLE,
    JobSpec,
    ReconcileJob,
    TargetJob,
    first_of,
    kind_of,
    title_of,
)
from ticdc_replay.reconcile.judge.classified import ClassifiedFile
from ticdc_replay.spark.executors import require_executors
from ticdc_replay.spark.reconcile_job import run_reconcile
from ticdc_replay.spark.session import open_session
from ticdc_replay.spark.settings import require_settings, set_up, set_where_allowed
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.submit.properties import UNCOMPILED, has_rows_in_python
from ticdc_replay.submit.signals import ended_by


def main(kind: str) -> None:
    """Run the job of *kind* that the arguments of this process name; see ``drivers.main.main``."""
    logging.getLogger("py4j").setLevel(logging.WARNING)

    def run(job: JobSpec, connections: Connections) -> Counts:
        if kind_of(job) != kind:
            raise ConfigError(f"{sys.argv[1]} is the spec of a {kind_of(job)} job; this script runs {kind} jobs")
        server = connections.get(os.environ.get(SPARK_CONNECTION_VARIABLE))
        if server is not None:  # no task needs it
            others = {conn_id: each for conn_id, each in connections.by_id.items() if each is not server}
            connections = Connections(others, connections.artifacts)
        with open_session(f"ticdc-replay {title_of(job)}", _secrets(job, connections), server) as spark:
            if server is not None:
                _set_up(spark, job)
            runner = SparkRunner(spark)
            require_executors(runner, spark, job)
            if isinstance(job, ReconcileJob):
                found = run_reconcile(spark, job, connections, parallelism=runner.parallelism)
                return {"objects": _rows(found.objects), "references": _rows(found.references)}
            return run_job(runner, job, connections)

    # A driver of Spark Connect lets nothing run at the server when it ends, so it ends in order.
    with ended_by(*([signal.SIGTERM] if os.environ.get(SPARK_CONNECTION_VARIABLE) else [])):
        driver.main(run, sys.argv[1:])


def _set_up(spark: SparkSession, job: JobSpec) -> None:
    """Give the session at a Spark Connect server what spark-submit gives an application. Raises ConfigError where the server
    lacks what the target of *job* needs of it."""
    conf = msgspec.json.decode(os.environ.get(SPARK_CONF_VARIABLE, "{}"), type=dict[str, str])
    set_up(spark, conf)
    first = first_of(job)
    target = read_section(first.target) if isinstance(first, TargetJob) else None
    require_settings(spark, {} if target is None else target.spark_properties)
    if has_rows_in_python(kind_of(job), target):
        set_where_allowed(spark, {name: value for name, value in UNCOMPILED.items() if name not in conf})


def _secrets(job: JobSpec, connections: Connections) -> Iterable[str]:
    """The settings of the job's session whose values are secret."""
    first = first_of(job)
    if not isinstance(first, TargetJob):
        return ()
    target = read_section(first.target)
    return target.secret_settings(connections.get(target.connection_id))


def _rows(files: Iterable[ClassifiedFile]) -> int:
    return sum(file.rows for file in files)
