"""The task that runs a Spark job: one operator, whatever the step."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseOperator, conf
from airflow.sdk.exceptions import AirflowSkipException

from ticdc_replay.airflow.connections import resolve
from ticdc_replay.airflow.operators.base import EmitsLineage, open_replay, open_store, standstill_shown
from ticdc_replay.airflow.operators.step import SparkStep
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.submit.spark_submit import SparkSubmit
from ticdc_replay.submit.submitter import Submission, Submitter

if TYPE_CHECKING:
    from ticdc_replay.stages.context import ReplayContext
    from ticdc_replay.store_stages.context import StoreContext

_GRACE_S = 3.0
"""Airflow kills a task that has not ended 5 s after it was asked to; the job must be gone before that."""


class SparkJobOperator(EmitsLineage, BaseOperator):
    """Runs the job of *step*, of the pipeline in *pipeline_file* or of the store in *store_file*; see ``base``.

    The driver runs here (client mode), as the Spark connection sets. It gets its connections from a private file, whose path
    reaches it through the environment: no secret in a command line, a Spark property, a log or a template. Raises PermanentError
    or TransientError with the driver's own message.
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
        with self._opened() as engine:
            with standstill_shown():
                _refuse_cluster_mode(engine.declared)
                job = self.step.find(engine, context)
                submission = Submission(job.uri, engine.connections, engine.declared, self.task_id)
            submission.properties = _with_openlineage(submission.properties, context)
            hook = SparkSubmitHook(
                conf=submission.properties,
                conn_id=engine.declared.connections.spark,
                name=f"{engine.declared.name} {self.task_id}",
                application_args=submission.arguments,
            )
            # The hook has no public name for the command line alone, and its own way to run it returns no exit code.
            command = hook._build_spark_submit_command(submission.script)
            with self.step.held(engine, job, submission.job):
                with SparkSubmit(submission, command, os.environ, _GRACE_S) as self._submitter:
                    self._submitter.start()
                    outcome = self._submitter.wait(lambda line: self.log.info("%s", line.text))
                self.log.info("%s: %s", self.task_id, outcome.counts)
                with standstill_shown():
                    finished = self.step.finish(engine, job)
        self.lineage = finished.lineage
        for asset in self.outlets:
            context["outlet_events"][asset].extra = finished.event
        return finished.summary

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


def _refuse_cluster_mode(declared: Pipeline | Store) -> None:
    conn_id = declared.connections.spark
    extra = resolve([conn_id], declared)[conn_id].extra
    if extra.get("deploy-mode") == "cluster":
        raise ConfigError(
            f"connection {conn_id!r}: deploy-mode cluster is not supported: the driver would run on another machine, "
            "where the private file with its connections does not exist; set deploy-mode to client"
        )
