"""The Spark jobs of a store: the scan for references, the join of a reconciliation, the check before a deletion."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from ticdc_replay.airflow.naming import CHOOSE_PLAN, LIST_OBJECTS, RECHECK, RECONCILE, SCAN, SURVEY
from ticdc_replay.airflow.operators.base import OnStore
from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
from ticdc_replay.config.load_store import LoadedStore, load_store
from ticdc_replay.config.store import Store

if TYPE_CHECKING:
    from ticdc_replay.stages.jobs import WrittenJob
    from ticdc_replay.stages.store_context import StoreContext


class StoreJobOperator(OnStore, SparkJobOperator):
    """A job of the store in *store_file*; *store* is what the file said when the DAG was made."""

    def __init__(self, *, store_file: str, pipelines: str, store: Store, **kwargs: Any) -> None:
        super().__init__(declared=store, max_active_tis_per_dag=1, **kwargs)
        self.store_file = store_file
        self.pipelines = pipelines

    def _declared(self) -> Store:
        return self._loaded().store

    def _loaded(self) -> LoadedStore:
        return load_store(self.store_file, self.pipelines)

    def _skip_unless_wanted(self, context: Mapping[str, Any]) -> None:
        """It is always wanted."""


class ScanOperator(StoreJobOperator):
    """Searches the retained offsets that nobody has searched. Skipped where there are none."""

    def __init__(self, **kwargs: Any) -> None:
        job = f"{{{{ (ti.xcom_pull(task_ids='{SURVEY}') or {{}}).get('scan_job', '') }}}}"
        super().__init__(task_id=SCAN, script="scan.py", job=job, **kwargs)

    def _skip_unless_wanted(self, context: Mapping[str, Any]) -> None:
        if not self.job:
            raise AirflowSkipException("Every retained offset has been searched before")

    def _connection_ids(self) -> list[str]:
        loaded = self._loaded()
        kafka = {listed.pipeline.connections.kafka for listed in loaded.pipelines}
        return sorted({*kafka, *filter(None, [loaded.store.connections.artifacts])})

    def _finish(self, task_instance: Any) -> dict[str, Any]:
        from ticdc_replay.stages.reconcile import record_scan

        with self.opened() as store:
            report = record_scan(store, self.job)
        return {
            feed.pipeline: {
                "messages": feed.counts.messages,
                "decoded": feed.counts.decoded,
                "references": feed.counts.references,
                "unread": len(feed.unsearched),
            }
            for feed in report.feeds
        }


class JoinOperator(StoreJobOperator):
    """Joins objects with references. The job's spec is written here, so that a repeat has evidence of its own time."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(script="reconcile.py", job="", **kwargs)
        self.written = ""
        """Names what the job leaves."""

    def _prepare(self, context: Mapping[str, Any]) -> None:
        with self.opened() as store:
            job = self._write_job(store, context["ti"])
        self.job, self.written = job.uri, job.run_hash
        self.application_args = [job.uri]

    def _write_job(self, store: "StoreContext", task_instance: Any) -> "WrittenJob":
        raise NotImplementedError

    def _connection_ids(self) -> list[str]:
        loaded = self._loaded()
        artifacts = {listed.pipeline.connections.artifacts for listed in loaded.pipelines}
        return sorted(filter(None, {*artifacts, loaded.store.connections.artifacts}))


class ReconcileOperator(JoinOperator):
    """Joins the store's inventory with every known reference."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(task_id=RECONCILE, **kwargs)

    def _write_job(self, store: "StoreContext", task_instance: Any) -> "WrittenJob":
        from ticdc_replay.stages.reconcile import write_reconcile_job

        survey = task_instance.xcom_pull(task_ids=SURVEY)["survey"]
        return write_reconcile_job(store, survey, task_instance.xcom_pull(task_ids=LIST_OBJECTS)["inventory"])

    def _finish(self, task_instance: Any) -> dict[str, Any]:
        return {"reconciliation": self.written}


class RecheckOperator(JoinOperator):
    """Joins the objects of a deletion plan with every reference that is known now."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(task_id=RECHECK, **kwargs)

    def _write_job(self, store: "StoreContext", task_instance: Any) -> "WrittenJob":
        from ticdc_replay.stages.reconcile import write_recheck_job

        survey = task_instance.xcom_pull(task_ids=SURVEY)["survey"]
        return write_recheck_job(store, survey, task_instance.xcom_pull(task_ids=CHOOSE_PLAN)["plan"])

    def _finish(self, task_instance: Any) -> dict[str, Any]:
        return {"recheck": self.written}
