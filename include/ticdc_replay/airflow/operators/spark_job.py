"""Runs one of the scripts in ``spark_jobs/`` on a job spec."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowException
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowSkipException

from ticdc_replay.airflow.connections import connections_for_driver, resolve
from ticdc_replay.airflow.form import run_options
from ticdc_replay.airflow.naming import CHECK, DECODE, SELECT, SNAPSHOT, load_task_id, window_load_task_id
from ticdc_replay.airflow.operators.base import EmitsLineage, open_replay
from ticdc_replay.airflow.quarantine_form import quarantine_options
from ticdc_replay.airflow.settings import spark_jobs_folder
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.domain.errors import ConfigError, PermanentError, TransientError
from ticdc_replay.jobspec import EXIT_PERMANENT, EXIT_TRANSIENT
from ticdc_replay.stages.spark_environment import driver_environment
from ticdc_replay.stages.spark_properties import job_properties

if TYPE_CHECKING:
    from ticdc_replay.stages.context import ReplayContext

# SparkSubmitHook tells the exit code, and the end of the driver's output, in its error's text only.
_EXIT_CODE = re.compile(r"Error code is: (\d+)\.")
_DRIVER_ERROR = re.compile(r"ERROR ticdc_replay\.spark: (.*?)(?=\n\d\d\d?\d?[-/]\d\d[-/]|\Z)", re.DOTALL)


class SparkJobOperator(EmitsLineage, SparkSubmitOperator):
    """Submits *script* with one argument, *job*: the URI of a job spec.

    The driver runs here (client mode) and gets its connections from a private file, whose path reaches it through the
    environment: no secret in a command line, a Spark property, a log or a template. Raises PermanentError or TransientError
    with the driver's own message, by its exit code.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "job")
    ui_color = "#fdf0d5"

    def __init__(self, *, declared: Pipeline | Store, script: str, job: str, **kwargs: Any) -> None:
        super().__init__(
            conn_id=declared.connections.spark,
            name=f"{declared.name} {kwargs['task_id']}",
            conf=job_properties(declared, script.removesuffix(".py")),
            application_args=[job],
            **kwargs,
        )
        self.script = script
        self.job = job

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        self._skip_unless_wanted(context)
        self._prepare(context)
        if not self.job:
            raise ConfigError(f"{self.task_id}: the task before left no job spec; clear the run from there on")
        self._refuse_outdated(context)
        declared = self._declared()
        _refuse_cluster_mode(declared)
        self.application = str(spark_jobs_folder() / self.script)
        with self._using(context):
            connections = resolve(self._connection_ids(), declared)
            with connections_for_driver(connections):
                self._hook = _hook_with(super()._get_hook(), driver_environment(os.environ, connections))
                try:
                    super().execute(context)
                except AirflowException as error:
                    raise _explained(error, self.task_id) from error
            summary = self._finish(context["ti"])
        for name, value in summary.items():
            self.log.info("%s: %s", name, value)
        return summary

    def _skip_unless_wanted(self, context: Mapping[str, Any]) -> None:
        """Raise AirflowSkipException where the run is not to do this."""
        raise NotImplementedError

    def _prepare(self, context: Mapping[str, Any]) -> None:
        """Write the job's spec, where it was not the task before that did."""

    def _refuse_outdated(self, context: Mapping[str, Any]) -> None:
        """Raise where the job must not run any more, though it was right when its spec was written."""

    def _using(self, context: Mapping[str, Any]) -> AbstractContextManager[None]:
        """What is held while the job runs, until ``_finish`` is done."""
        return nullcontext()

    def _declared(self) -> Pipeline | Store:
        """Whose job it is, as its file says now."""
        raise NotImplementedError

    def _connection_ids(self) -> list[str]:
        """The connections that the job needs, and no more."""
        raise NotImplementedError

    def _finish(self, task_instance: Any) -> dict[str, Any]:
        """What the job did, in a few numbers, from what it left behind; and its lineage."""
        raise NotImplementedError


class ReplayJobOperator(SparkJobOperator):
    """A job of the pipeline in *pipeline_file*; *pipeline* is what the file said when the DAG was made."""

    def __init__(self, *, pipeline_file: str, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(declared=pipeline, **kwargs)
        self.pipeline_file = pipeline_file

    def _declared(self) -> Pipeline:
        return load_pipeline(self.pipeline_file).pipeline

    def _finish(self, task_instance: Any) -> dict[str, Any]:
        with open_replay(self.pipeline_file) as replay:
            return self._summarise(replay, task_instance)

    def _summarise(self, replay: "ReplayContext", task_instance: Any) -> dict[str, Any]:
        """What the job did, and its lineage, with the pipeline at hand."""
        raise NotImplementedError


class DecodeOperator(ReplayJobOperator):
    """Decodes the pinned range into a changelog, and holds a lease of the claim-check store meanwhile. Skipped in a dry run.

    Of windows that share a decode one task decodes, and the others wait.
    """

    pinned_by = SNAPSHOT
    """The task that told the job."""

    def __init__(self, **kwargs: Any) -> None:
        job = f"{{{{ (ti.xcom_pull(task_ids='{self.pinned_by}') or {{}}).get('decode_job', '') }}}}"
        super().__init__(task_id=DECODE, script="decode.py", job=job, **kwargs)

    def _skip_unless_wanted(self, context: Mapping[str, Any]) -> None:
        if run_options(context).dry_run:
            raise AirflowSkipException("Dry run: nothing is pinned, decoded or loaded")

    @contextmanager
    def _using(self, context: Mapping[str, Any]) -> Iterator[None]:
        from ticdc_replay.stages.context import ReplayContext
        from ticdc_replay.stages.jobs import SharedDecode
        from ticdc_replay.stages.shared import decoding

        loaded = load_pipeline(self.pipeline_file)
        pinned = context["ti"].xcom_pull(task_ids=self.pinned_by)
        manifest = "/".join(pinned["manifest"].rsplit("/", 2)[1:])
        shared = SharedDecode(**pinned["shared"]) if pinned.get("shared") else None
        named = loaded.pipeline.connections
        needed = [conn_id for conn_id in (named.state, named.artifacts) if conn_id]
        with (
            ReplayContext(loaded, resolve(needed, loaded.pipeline)) as replay,
            decoding(replay, manifest, pinned["run_hash"], shared),
        ):
            yield

    def _connection_ids(self) -> list[str]:
        named = self._declared().connections
        ids = (named.kafka, named.claim_check, named.schema_registry, named.source, named.artifacts)
        return [conn_id for conn_id in ids if conn_id]

    def _summarise(self, replay: "ReplayContext", task_instance: Any) -> dict[str, Any]:
        from ticdc_replay.changelog.reading import read_index
        from ticdc_replay.stages import lineage
        from ticdc_replay.stages.recording import record_decode

        run_hash = task_instance.xcom_pull(task_ids=self.pinned_by)["run_hash"]
        self.lineage = lineage.decoded(replay, run_hash)
        index = read_index(replay.artifacts, run_hash)
        record_decode(replay, index)  # here already: what it set aside must be known before the lease ends
        events = index.report.events
        return {
            "messages": index.report.messages.consumed,
            "events": events.rows,
            "outside_window": events.outside_window,
            "duplicates": events.duplicates,
            "claim_checks": events.claim_checks_resolved,
            "quarantined": sum(index.report.quarantine_reasons.values()),
            "written": events.written,
            "tables": [str(name) for name in index.table_names()],
        }


class LoadOperator(ReplayJobOperator):
    """Loads the changelog into one target. Skipped where the run's form leaves the target out."""

    jobs, run = "load_jobs", "run_hash"
    """Where the task before it told the jobs by target, and the run that they load."""

    def __init__(self, *, target: str, task_id: str | None = None, **kwargs: Any) -> None:
        job = f"{{{{ ((ti.xcom_pull(task_ids='{CHECK}') or {{}}).get('{self.jobs}') or {{}}).get('{target}', '') }}}}"
        super().__init__(
            task_id=task_id or load_task_id(target), script="load.py", job=job, max_active_tis_per_dag=1, **kwargs
        )
        self.target = target

    def _skip_unless_wanted(self, context: Mapping[str, Any]) -> None:
        if self.target not in run_options(context).targets:
            raise AirflowSkipException(f"Target {self.target} is not among the targets of this run")

    def _refuse_outdated(self, context: Mapping[str, Any]) -> None:
        from ticdc_replay.changelog.reading import read_index
        from ticdc_replay.stages.jobs import require_current

        if self._reloads(context):
            return
        # The spec may be much older than this attempt: somebody clears the task after the window was pinned anew.
        run_hash = context["ti"].xcom_pull(task_ids=CHECK)[self.run]
        with open_replay(self.pipeline_file) as replay:
            require_current(replay, read_index(replay.artifacts, run_hash))

    def _using(self, context: Mapping[str, Any]) -> AbstractContextManager[None]:
        from ticdc_replay.stages.begin_load import begin_load

        with open_replay(self.pipeline_file) as replay:
            begin_load(replay, self.job)
        return nullcontext()

    def _connection_ids(self) -> list[str]:
        pipeline = self._declared()
        target = next(target for target in pipeline.targets if target.name == self.target)
        return [conn_id for conn_id in (pipeline.connections.artifacts, target.connection_id) if conn_id]

    def _summarise(self, replay: "ReplayContext", task_instance: Any) -> dict[str, Any]:
        from ticdc_replay.stages import lineage
        from ticdc_replay.stages.publish import load_of

        run_hash = task_instance.xcom_pull(task_ids=CHECK)[self.run]
        self.lineage = lineage.loaded(replay, run_hash, self.target)
        report = load_of(replay, run_hash, self.target)
        return {
            str(table.table): {
                "outcome": table.outcome,
                "upserted": table.upserted,
                "deleted": table.deleted,
                "tombstones": table.tombstones,
                "superseded": table.superseded,
                "quarantined": table.quarantined,
            }
            for table in report.tables
        }

    def _reloads(self, context: Mapping[str, Any]) -> bool:
        return run_options(context).reload


class RedriveDecodeOperator(DecodeOperator):
    """Decodes quarantined messages again. Skipped where the run is for something else."""

    pinned_by = SELECT

    def _skip_unless_wanted(self, context: Mapping[str, Any]) -> None:
        action = quarantine_options(context).action
        if action != "redrive":
            raise AirflowSkipException(f"This run is to {action}; nothing is decoded or loaded")


class RedriveLoadOperator(LoadOperator):
    """Loads what came out of quarantine into one target. Skipped where that has no part in it."""

    def _skip_unless_wanted(self, context: Mapping[str, Any]) -> None:
        if not self.job:
            raise AirflowSkipException(f"There is nothing of this kind to load into target {self.target}")

    def _reloads(self, context: Mapping[str, Any]) -> bool:
        return False


class WindowLoadOperator(RedriveLoadOperator):
    """Loads the window's run into a target that does not hold it yet, before what came out of its quarantine."""

    jobs, run = "window_jobs", "window_run"

    def __init__(self, *, target: str, **kwargs: Any) -> None:
        super().__init__(target=target, task_id=window_load_task_id(target), **kwargs)


def _hook_with(hook: SparkSubmitHook, environment: Mapping[str, str]) -> SparkSubmitHook:
    """*hook*, which starts spark-submit in *environment*: of itself it gives it all of this process's."""
    hook.submit = partial(hook.submit, env=environment)
    return hook


def _refuse_cluster_mode(declared: Pipeline | Store) -> None:
    conn_id = declared.connections.spark
    extra = resolve([conn_id], declared)[conn_id].extra
    if extra.get("deploy-mode") == "cluster":
        raise ConfigError(
            f"connection {conn_id!r}: deploy-mode cluster is not supported: the driver would run on another machine, "
            "where the private file with its connections does not exist; set deploy-mode to client"
        )


def _explained(error: Exception, task: str) -> Exception:
    """*error* of SparkSubmitHook as what the driver's exit code says it is."""
    text = str(error)
    code = _EXIT_CODE.search(text)
    kinds = {str(EXIT_PERMANENT): PermanentError, str(EXIT_TRANSIENT): TransientError}
    kind = kinds.get(code[1]) if code else None
    if kind is None:
        return error
    told = _DRIVER_ERROR.findall(text)
    message = told[-1].strip() if told else "the driver's message stands in this task's log"
    return kind(f"{task}: {message}")
