"""Makes the DAG that fills the mirrors of a pipeline from a dump."""

from pathlib import Path

from airflow.sdk import DAG, Asset

from ticdc_replay.airflow import naming
from ticdc_replay.airflow.dags import docs
from ticdc_replay.airflow.dags.arguments import dag_arguments
from ticdc_replay.airflow.declared import declaration
from ticdc_replay.airflow.form import seed_params
from ticdc_replay.airflow.operators.publish import PublishOperator
from ticdc_replay.airflow.operators.replay_steps import LoadBase, ReadDump
from ticdc_replay.airflow.operators.seed import CheckBaseOperator, PinDumpOperator
from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import LoadPipeline


def build_seed_dag(path: str | Path, load: LoadPipeline = load_pipeline) -> DAG | None:
    """The DAG ``ticdc_replay_<name>_seed`` of the pipeline in *path*: started by hand only, one run at a time; None if it has
    no mirror. Raises ConfigError."""
    loaded = load(Path(path))
    pipeline, file = loaded.pipeline, str(loaded.path)
    if not any(target.is_mirror for target in pipeline.targets):
        return None
    with DAG(
        dag_id=naming.seed_dag_id(pipeline.name),
        description=f"Fills the mirrors of pipeline {pipeline.name} from a dump",
        doc_md=docs.seed(pipeline.name),
        schedule=None,
        max_active_runs=1,
        is_paused_upon_creation=False,
        params=seed_params(pipeline),
        **dag_arguments(pipeline, loaded.path, {"seed"}),
    ) as dag:
        pin = PinDumpOperator(
            task_id=naming.SNAPSHOT, pipeline_file=file, doc_md=docs.PIN_DUMP, doc_json=declaration(pipeline)
        )
        read = SparkJobOperator(task_id=naming.DECODE, step=ReadDump(), pipeline_file=file, doc_md=docs.READ_DUMP)
        check = CheckBaseOperator(task_id=naming.CHECK, pipeline_file=file, doc_md=docs.CHECK_BASE)
        loads = [
            SparkJobOperator(
                task_id=naming.load_task_id(target.name),
                step=LoadBase(target.name),
                pipeline_file=file,
                outlets=[Asset(name=naming.asset_name(pipeline.name, target.name))],
                doc_md=docs.load(pipeline.name, target),
            )
            for target in pipeline.targets
            if target.takes_base
        ]
        publish = PublishOperator(
            task_id=naming.PUBLISH, pipeline_file=file, trigger_rule="none_failed_min_one_success", doc_md=docs.PUBLISH
        )
        pin >> read >> check >> loads >> publish
    return dag
