"""Makes the DAG that maintains the lake tables of a pipeline."""

from pathlib import Path

from airflow.sdk import DAG
from airflow.timetables.trigger import CronTriggerTimetable

from ticdc_replay.airflow import naming
from ticdc_replay.airflow.dags import docs
from ticdc_replay.airflow.dags.arguments import dag_arguments
from ticdc_replay.airflow.declared import declaration
from ticdc_replay.airflow.form import maintain_params
from ticdc_replay.airflow.operators.maintain_step import MaintainTarget
from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import LoadPipeline
from ticdc_replay.targets.lake.section import LakeSection


def build_maintain_dag(path: str | Path, load: LoadPipeline = load_pipeline) -> DAG | None:
    """The DAG ``ticdc_replay_<name>_maintain`` of the pipeline in *path*; None if it has no lake tables.

    Runs at ``maintenance.schedule`` of its targets, which is one for all; without it, by hand only. Raises ConfigError.
    """
    loaded = load(Path(path))
    pipeline, file = loaded.pipeline, str(loaded.path)
    targets = [target for target in pipeline.targets if isinstance(target, LakeSection)]
    if not targets:
        return None
    cron = targets[0].maintenance.schedule
    with DAG(
        dag_id=naming.maintain_dag_id(pipeline.name),
        description=f"Maintains the lake tables of pipeline {pipeline.name}",
        doc_md=docs.maintain(pipeline.name),
        schedule=None if cron is None else CronTriggerTimetable(cron, timezone=pipeline.schedule.timezone),
        max_active_runs=1,
        is_paused_upon_creation=cron is not None and pipeline.schedule.paused,
        params=maintain_params(),
        **dag_arguments(pipeline, loaded.path, {"maintain"}),
    ) as dag:
        for target in targets:
            SparkJobOperator(
                task_id=naming.maintain_task_id(target.name),
                step=MaintainTarget(target.name),
                pipeline_file=file,
                doc_md=docs.MAINTAIN,
                doc_json=declaration(pipeline),
            )
    return dag
