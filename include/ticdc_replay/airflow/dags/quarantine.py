"""Makes the DAG for a pipeline's quarantine."""

from pathlib import Path

from airflow.sdk import DAG, Asset

from ticdc_replay.airflow import naming
from ticdc_replay.airflow.dags import docs
from ticdc_replay.airflow.dags.arguments import dag_arguments
from ticdc_replay.airflow.declared import declaration
from ticdc_replay.airflow.form import quarantine_params
from ticdc_replay.airflow.operators.quarantine import CheckRedriveOperator, PublishRedriveOperator, SelectOperator
from ticdc_replay.airflow.operators.replay_steps import DecodeAgain, LoadAgain
from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import LoadPipeline


def build_quarantine_dag(path: str | Path, load: LoadPipeline = load_pipeline) -> DAG:
    """The DAG ``ticdc_replay_<name>_quarantine`` of the pipeline in *path*: started by hand only, one run at a time.

    Reads what ``factory.build_dag`` reads. Raises ConfigError.
    """
    loaded = load(Path(path))
    pipeline, file = loaded.pipeline, str(loaded.path)
    with DAG(
        dag_id=naming.quarantine_dag_id(pipeline.name),
        description=f"What was set aside of pipeline {pipeline.name}, and the ways back",
        doc_md=docs.quarantine(pipeline.name),
        schedule=None,
        max_active_runs=1,
        is_paused_upon_creation=False,
        params=quarantine_params(pipeline),
        **dag_arguments(pipeline, loaded.path, {"quarantine"}),
    ) as dag:
        select = SelectOperator(
            task_id=naming.SELECT, pipeline_file=file, doc_md=docs.SELECT, doc_json=declaration(pipeline)
        )
        decode = SparkJobOperator(
            task_id=naming.DECODE, step=DecodeAgain(), pipeline_file=file, doc_md=docs.DECODE_AGAIN
        )
        check = CheckRedriveOperator(task_id=naming.CHECK, pipeline_file=file, doc_md=docs.CHECK_REDRIVE)
        publish = PublishRedriveOperator(
            task_id=naming.PUBLISH,
            pipeline_file=file,
            trigger_rule="none_failed_min_one_success",
            doc_md=docs.PUBLISH_REDRIVE,
        )
        select >> decode >> check
        for target in pipeline.targets:
            window = SparkJobOperator(
                task_id=naming.window_load_task_id(target.name),
                step=LoadAgain(target.name, window=True),
                pipeline_file=file,
                doc_md=docs.LOAD_WINDOW,
            )
            load = SparkJobOperator(
                task_id=naming.load_task_id(target.name),
                step=LoadAgain(target.name),
                pipeline_file=file,
                trigger_rule="none_failed",  # the window's run is loaded before it only where it is missing
                outlets=[Asset(name=naming.asset_name(pipeline.name, target.name))],
                doc_md=docs.load(pipeline.name, target),
            )
            check >> window >> load >> publish
    return dag
