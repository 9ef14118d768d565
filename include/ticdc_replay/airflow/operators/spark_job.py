"""The task that runs a job: one operator, whatever the step."""

import os
import shlex
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseOperator, conf
from airflow.sdk.exceptions import AirflowSkipException

from ticdc_replay.airflow.application_trigger import ApplicationTrigger
from ticdc_replay.airflow.connections import resolve
from ticdc_replay.airflow.operators.base import EmitsLineage, open_replay, open_store, standstill_shown
from ticdc_replay.airflow.operators.step import SparkStep
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError, TransientError
from ticdc_replay.domain.handover import HandedOverError
from ticdc_replay.jobspec import WrittenJob, read
from ticdc_replay.submit.cluster import Application, Cluster, ClusterDriver, prepare, settle_application
from ticdc_replay.submit.clusters import cluster_of, master_of
from ticdc_replay.submit.commands import (
    SPARK_CONNECT,
    connect_command,
    connect_environment,
    local_command,
    local_environment,
    spark_submit_command,
)
from ticdc_replay.submit.driver_process import DriverProcess
from ticdc_replay.submit.outcome import JobFile
from ticdc_replay.submit.submitter import Submission, Submitter

if TYPE_CHECKING:
    from ticdc_replay.stages.context import ReplayContext
    from ticdc_replay.store_stages.context import StoreContext

_GRACE_S = 3.0
"""Airflow kills a task that has not ended 5 s after it was asked to; the job must be gone before that."""


class _GoesOnError(HandedOverError):
    """The application runs, and needs no worker to wait for it."""

    def __init__(self, application: Application) -> None:
        super().__init__(application.holder)
        self.application = application


class SparkJobOperator(EmitsLineage, BaseOperator):
    """Runs the job of *step*, of the pipeline in *pipeline_file* or of the store in *store_file*; see ``base``.

    The driver runs here: by spark-submit in client mode or over Spark Connect, as the type of the Spark connection says, or
    without Spark. It gets its connections from a private file, whose path reaches it through the environment: no secret in a
    command line, a Spark property, a log or a template. In cluster mode the driver is an application of the cluster: the task
    defers while it runs, and a later attempt takes one that runs for its own. A job that is done already starts no driver. Raises
    PermanentError or TransientError with the driver's own message.
    """

    ui_color = "#fdf0d5"

    def __init__(
        self,
        *,
        step: SparkStep[Any],
        pipeline_file: str | None = None,
        store_file: str | None = None,
        pipelines: str | None = None,
        **kwargs: Any,
    ) -> None:
        if step.one_at_a_time:
            kwargs.setdefault("max_active_tis_per_dag", 1)
        super().__init__(**kwargs)
        self.step = step
        self.pipeline_file = pipeline_file
        self.store_file = store_file
        self.pipelines = pipelines
        self._submitter: Submitter | None = None

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        if reason := self.step.skip(context):
            raise AirflowSkipException(reason)
        from ticdc_replay.drivers.done import done_before  # with pyarrow, which no DAG file needs

        try:
            with self._opened() as engine:
                with standstill_shown():
                    spark = _spark_of(engine.declared)
                    job = self.step.find(engine, context)
                    spec = read(engine.artifacts, job.uri)
                with self.step.held(engine, job, spec):
                    with standstill_shown():
                        counts = done_before(job.uri, engine.connections)
                    if counts is None:
                        counts = self._run(engine, job, spark, context)
                    return self._finished(engine, job, counts, context)
        except _GoesOnError as error:
            application = error.application
        self._wait_elsewhere(job, application)
        raise AssertionError("defer does not return")

    def _wait_elsewhere(self, job: WrittenJob, application: Application) -> None:
        self.log.info("%s", application.described)
        files = {"pipeline_file": self.pipeline_file, "store_file": self.store_file, "pipelines": self.pipelines}
        written = msgspec.to_builtins(job)
        self.defer(
            trigger=ApplicationTrigger(
                {name: file for name, file in files.items() if file is not None}, written, application._asdict()
            ),
            method_name="resume",
            kwargs={"job": written},
        )

    def resume(self, context: Mapping[str, Any], event: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
        """Go on with the *job* whose application has ended, as *event* of ``ApplicationTrigger`` says. Raises TransientError
        where that could not wait for it: the next attempt finds it."""
        if "error" in event:
            raise TransientError(f"{self.task_id}: {event['error']}")
        written, application = msgspec.convert(job, WrittenJob), Application(**event)
        with self._opened() as engine:
            with standstill_shown():
                file = JobFile(written.uri, engine.connections)
                spark = _spark_of(engine.declared)
                cluster = None if spark is None else cluster_of(spark)
                if cluster is None:
                    raise ConfigError(
                        f"the Spark connection was of cluster mode when application {application.id} began"
                    )
                spec = read(engine.artifacts, written.uri)
            with self.step.held(engine, written, spec, application.holder):
                with standstill_shown():
                    counts = settle_application(file, cluster, self.task_id, application).counts
                return self._finished(engine, written, counts, context)

    def _finished(
        self,
        engine: "ReplayContext | StoreContext",
        job: WrittenJob,
        counts: dict[str, int],
        context: Mapping[str, Any],
    ) -> dict[str, Any]:
        self.log.info("%s: %s", self.task_id, counts)
        with standstill_shown():
            finished = self.step.finish(engine, job)
        self.lineage = finished.lineage
        for asset in self.outlets:
            context["outlet_events"][asset].extra = finished.event
        return finished.summary

    def _run(
        self,
        engine: "ReplayContext | StoreContext",
        job: WrittenJob,
        spark: Connection | None,
        context: Mapping[str, Any],
    ) -> dict[str, int]:
        """What *job* did, in a driver of its own; *spark* as ``_spark_of`` says."""
        declared = engine.declared
        cluster = None if spark is None else cluster_of(spark)
        if cluster is not None:
            assert spark is not None
            return self._run_in(cluster, engine, job, spark, context)
        with standstill_shown():
            environ: Mapping[str, str] = os.environ
            if spark is None:
                assert isinstance(declared, Pipeline)
                submission = Submission(job.uri, engine.connections, declared, self.task_id)
                command, environ = local_command(submission, declared), local_environment(environ, declared)
                self.log.info("Local cmd: %s", shlex.join(command))
            elif spark.conn_type == SPARK_CONNECT:
                submission = Submission(job.uri, engine.connections, declared, self.task_id, spark)
                command, environ = connect_command(submission), connect_environment(environ, spark, declared)
                self.log.info("Spark-Connect cmd: %s", shlex.join(command))
            else:
                submission = Submission(job.uri, engine.connections, declared, self.task_id)
                submission.properties = _with_openlineage(submission.properties, context)
                command = self._spark_submit(submission, declared, spark)
        with DriverProcess(submission, command, environ, _GRACE_S) as self._submitter:
            self._submitter.start()
            return self._submitter.wait(lambda line: self.log.info("%s", line.text)).counts

    def _run_in(
        self,
        cluster: Cluster,
        engine: "ReplayContext | StoreContext",
        job: WrittenJob,
        spark: Connection,
        context: Mapping[str, Any],
    ) -> dict[str, int]:
        """What *job* did as an application of *cluster*. Raises _GoesOnError while it runs."""
        with standstill_shown():
            declared = engine.declared
            submission = Submission(job.uri, engine.connections, declared, self.task_id)
            prepare(submission, cluster, declared)
            submission.properties = _with_openlineage(submission.properties, context)
            command = self._spark_submit(submission, declared, spark)
            driver = ClusterDriver(submission, cluster, command, os.environ, declared)
        with driver as self._submitter:
            driver.start()
            application = driver.look()
            if application.has_ended:
                return driver.settled().counts
            driver.release()
            raise _GoesOnError(application)

    def _spark_submit(self, submission: Submission, declared: Pipeline | Store, spark: Connection) -> list[str]:
        master = master_of(spark)
        if master.startswith(
            "k8s"
        ):  # the hook refuses it without Airflow's provider for Kubernetes, which nothing else needs
            options = ["--deploy-mode", str(spark.extra.get("deploy-mode") or "client")]
            if namespace := spark.extra.get("namespace"):
                options.append(f"--conf=spark.kubernetes.namespace={namespace}")
            options += ["--name", f"{declared.name} {self.task_id}"]
            self.log.info("spark-submit --master %s %s %s", master, shlex.join(options), submission.script)
            return spark_submit_command(submission, master, options)
        hook = SparkSubmitHook(
            conf=submission.properties,
            conn_id=declared.connections.spark,
            name=f"{declared.name} {self.task_id}",
            application_args=submission.arguments,
        )
        # The hook has no public name for the command line alone, and its own way to run it returns no exit code. It logs the
        # command with secrets masked.
        command: list[str] = hook._build_spark_submit_command(submission.script)
        return command

    def on_kill(self) -> None:
        if self._submitter is not None:
            self._submitter.cancel()

    def _opened(self) -> AbstractContextManager["ReplayContext | StoreContext"]:
        if self.pipeline_file is not None:
            return open_replay(self.pipeline_file)
        assert self.store_file is not None
        assert self.pipelines is not None
        return open_store(self.store_file, self.pipelines)


def _with_openlineage(properties: dict[str, str], context: Mapping[str, Any]) -> dict[str, str]:
    """*properties*, with what Airflow's configuration has Spark's own OpenLineage listener be given."""
    from airflow.providers.openlineage.utils import spark

    if conf.getboolean("openlineage", "spark_inject_parent_job_info", fallback=False):
        properties = spark.inject_parent_job_information_into_spark_properties(properties, context)
    if conf.getboolean("openlineage", "spark_inject_transport_info", fallback=False):
        properties = spark.inject_transport_information_into_spark_properties(properties, context)
    return properties


def _spark_of(declared: Pipeline | Store) -> Connection | None:
    """The connection by which jobs of *declared* reach Spark, None where they run without."""
    if isinstance(declared, Pipeline) and declared.runner == "local":
        return None
    conn_id = declared.connections.spark
    return resolve([conn_id], declared)[conn_id]
