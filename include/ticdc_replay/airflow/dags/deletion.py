"""Makes the DAG that deletes what a plan of a store names."""

from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset

from ticdc_replay.airflow import naming
from ticdc_replay.airflow.dags import store_docs
from ticdc_replay.airflow.dags.arguments import dag_arguments
from ticdc_replay.airflow.dags.store import AFTER_SCAN
from ticdc_replay.airflow.declared import declaration
from ticdc_replay.airflow.operators.deletion import (
    ApprovePlanOperator,
    ChoosePlanOperator,
    DeletePlanOperator,
    DeletionAlertOperator,
)
from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
from ticdc_replay.airflow.operators.store import SurveyOperator
from ticdc_replay.airflow.operators.store_steps import Recheck, Scan
from ticdc_replay.airflow.store_form import deletion_params
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import LoadPipeline, load_store


def build_deletion_dag(path: str | Path, pipelines: str | Path, load: LoadPipeline = load_pipeline) -> DAG | None:
    """The DAG ``ticdc_replay_store_<name>_deletion`` of the store in *path*; None where its policy is never to delete.

    With the policy approval it is started by hand, and asks; with the policy automatic it also runs after each reconciliation.
    Reads what ``store_dag.build_store_dag`` reads. Raises ConfigError.
    """
    loaded = load_store(path, pipelines, load)
    store = loaded.store
    if store.deletion.policy == "never":
        return None
    automatic = store.deletion.policy == "automatic"
    files: dict[str, Any] = {"store_file": str(path), "pipelines": str(pipelines)}
    with DAG(
        dag_id=naming.deletion_dag_id(store.name),
        description=f"Deletes objects of {store.uri} that a plan names",
        doc_md=store_docs.deletion(loaded),
        schedule=[Asset(name=naming.store_asset_name(store.name))] if automatic else None,
        max_active_runs=1,
        is_paused_upon_creation=automatic and store.schedule.paused,
        params=deletion_params(),
        **dag_arguments(store, loaded.path, {"store", "deletion"}),
    ) as dag:
        choose = ChoosePlanOperator(
            task_id=naming.CHOOSE_PLAN, doc_md=store_docs.CHOOSE_PLAN, doc_json=declaration(store), **files
        )
        survey = SurveyOperator(task_id=naming.SURVEY, doc_md=store_docs.SURVEY, **files)
        if automatic:
            choose >> survey
        else:
            approve = ApprovePlanOperator(task_id=naming.APPROVE, store=store.name, doc_md=store_docs.APPROVE, **files)
            choose >> approve >> survey
        scan = SparkJobOperator(task_id=naming.SCAN, step=Scan(), doc_md=store_docs.SCAN, **files)
        recheck = SparkJobOperator(
            task_id=naming.RECHECK, step=Recheck(), trigger_rule=AFTER_SCAN, doc_md=store_docs.RECHECK, **files
        )
        delete = DeletePlanOperator(task_id=naming.DELETE, doc_md=store_docs.DELETE, **files)
        alert = DeletionAlertOperator(task_id=naming.ALERT, doc_md=store_docs.DELETION_ALERT, **files)
        survey >> [scan, recheck]
        scan >> recheck >> delete >> alert
    return dag
