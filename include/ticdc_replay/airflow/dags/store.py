"""Makes the DAG that reconciles a store."""

from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset

from ticdc_replay.airflow import naming
from ticdc_replay.airflow.dags import store_docs
from ticdc_replay.airflow.dags.arguments import dag_arguments
from ticdc_replay.airflow.declared import declaration
from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
from ticdc_replay.airflow.operators.store import (
    AlertOperator,
    ListObjectsOperator,
    PlanDeletionOperator,
    ReportOperator,
    SurveyOperator,
)
from ticdc_replay.airflow.operators.store_steps import Reconcile, Scan
from ticdc_replay.airflow.store_form import store_params
from ticdc_replay.airflow.timetable import BoundedTimetable
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import LoadPipeline, load_store

AFTER_SCAN = "none_failed_min_one_success"
"""Trigger rule of what comes after survey and scan: the scan may be skipped, but not both."""


def build_store_dag(path: str | Path, pipelines: str | Path, load: LoadPipeline = load_pipeline) -> DAG:
    """The DAG ``ticdc_replay_store_<name>`` of the store in *path*, whose pipelines are in the folder *pipelines*.

    Reads the files of both and nothing else. Raises ConfigError.
    """
    loaded = load_store(path, pipelines, load)
    store, schedule = loaded.store, loaded.store.schedule
    files: dict[str, Any] = {"store_file": str(path), "pipelines": str(pipelines)}
    with DAG(
        dag_id=naming.store_dag_id(store.name),
        description=store.description or f"Reconciles the claim-check objects of {store.uri}",
        doc_md=store_docs.store(loaded),
        schedule=BoundedTimetable(schedule.cron, schedule.timezone, start=schedule.start, end=None, catchup=False),
        max_active_runs=1,
        is_paused_upon_creation=schedule.paused,
        params=store_params(store),
        **dag_arguments(store, loaded.path, {"store"}),
    ) as dag:
        survey = SurveyOperator(task_id=naming.SURVEY, doc_md=store_docs.SURVEY, doc_json=declaration(store), **files)
        scan = SparkJobOperator(task_id=naming.SCAN, step=Scan(), doc_md=store_docs.SCAN, **files)
        listing = ListObjectsOperator(
            task_id=naming.LIST_OBJECTS, trigger_rule=AFTER_SCAN, doc_md=store_docs.LIST_OBJECTS, **files
        )
        reconcile = SparkJobOperator(task_id=naming.RECONCILE, step=Reconcile(), doc_md=store_docs.RECONCILE, **files)
        report = ReportOperator(
            task_id=naming.REPORT,
            outlets=[Asset(name=naming.store_asset_name(store.name))],
            doc_md=store_docs.REPORT,
            **files,
        )
        survey >> [scan, listing]
        scan >> listing >> reconcile >> report
        report >> AlertOperator(task_id=naming.ALERT, doc_md=store_docs.ALERT, **files)
        if store.deletion.policy != "never":
            report >> PlanDeletionOperator(task_id=naming.PLAN_DELETION, doc_md=store_docs.PLAN_DELETION, **files)
    return dag
