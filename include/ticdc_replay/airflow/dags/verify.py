"""Makes the DAG that compares the mirrors of a pipeline with the upstream."""

from pathlib import Path

from airflow.sdk import DAG

from ticdc_replay.airflow import naming
from ticdc_replay.airflow.dags import docs
from ticdc_replay.airflow.dags.arguments import dag_arguments
from ticdc_replay.airflow.declared import declaration
from ticdc_replay.airflow.form import verify_params
from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
from ticdc_replay.airflow.operators.verify import VerifyOperator
from ticdc_replay.airflow.operators.verify_step import VerifyTarget
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import LoadPipeline


def build_verify_dag(path: str | Path, load: LoadPipeline = load_pipeline) -> DAG | None:
    """The DAG ``ticdc_replay_<name>_verify`` of the pipeline in *path*, which runs by hand; None if it names no source, or no
    target can be compared with it. Raises ConfigError."""
    loaded = load(Path(path))
    pipeline, file = loaded.pipeline, str(loaded.path)
    targets = [target for target in pipeline.targets if target.can_be_compared]
    if not targets or pipeline.connections.source is None:
        return None
    with DAG(
        dag_id=naming.verify_dag_id(pipeline.name),
        description=f"Compares the mirrors of pipeline {pipeline.name} with the upstream",
        doc_md=docs.verify(pipeline.name),
        schedule=None,
        max_active_runs=1,
        is_paused_upon_creation=False,
        params=verify_params(),
        **dag_arguments(pipeline, loaded.path, {"verify"}),
    ) as dag:
        for target in targets:
            arguments = {
                "task_id": naming.verify_task_id(target.name),
                "pipeline_file": file,
                "doc_md": docs.VERIFY,
                "doc_json": declaration(pipeline),
            }
            if target.spark_properties:  # Spark alone can look at its tables
                SparkJobOperator(step=VerifyTarget(target.name), **arguments)
            else:
                VerifyOperator(target=target.name, **arguments)
    return dag
