"""Makes the DAG of a pipeline."""

from pathlib import Path

from airflow.sdk import DAG, Asset

from ticdc_replay.airflow import naming
from ticdc_replay.airflow.dags import docs
from ticdc_replay.airflow.dags.arguments import dag_arguments
from ticdc_replay.airflow.declared import declaration
from ticdc_replay.airflow.form import params
from ticdc_replay.airflow.operators.await_watermark import AwaitWatermarkOperator
from ticdc_replay.airflow.operators.check import CheckOperator
from ticdc_replay.airflow.operators.publish import PublishOperator
from ticdc_replay.airflow.operators.replay_steps import Decode, LoadTarget
from ticdc_replay.airflow.operators.snapshot import SnapshotOperator
from ticdc_replay.airflow.operators.spark_job import SparkJobOperator
from ticdc_replay.airflow.timetable import WindowTimetable
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import LoadPipeline


def build_dag(path: str | Path, load: LoadPipeline = load_pipeline) -> DAG:
    """The DAG ``ticdc_replay_<name>`` of the pipeline in *path*.

    Reads that file, and the changefeed's TOML where it is given by path, and nothing else. Raises ConfigError.
    """
    loaded = load(Path(path))
    pipeline, schedule = loaded.pipeline, loaded.pipeline.schedule
    file = str(loaded.path)
    with DAG(
        dag_id=naming.dag_id(pipeline.name),
        description=pipeline.description or f"Replays the changefeed of topic {loaded.changefeed.topic}",
        doc_md=docs.dag(loaded),
        schedule=WindowTimetable(
            schedule.cron, schedule.timezone, start=schedule.start, end=schedule.end, catchup=schedule.catchup
        ),
        max_active_runs=schedule.max_active_runs,
        is_paused_upon_creation=schedule.paused,
        params=params(pipeline),
        **dag_arguments(pipeline, loaded.path, {target.type for target in pipeline.targets}),
    ) as dag:
        await_watermark = AwaitWatermarkOperator(
            task_id=naming.AWAIT_WATERMARK,
            pipeline_file=file,
            # A task that defers can be failed by Airflow itself (apache/airflow issues 71580, 72716): always try again.
            retries=max(1, pipeline.retries.attempts),
            doc_md=docs.AWAIT_WATERMARK,
            doc_json=declaration(pipeline),
        )
        snapshot = SnapshotOperator(task_id=naming.SNAPSHOT, pipeline_file=file, doc_md=docs.SNAPSHOT)
        decode = SparkJobOperator(task_id=naming.DECODE, step=Decode(), pipeline_file=file, doc_md=docs.DECODE)
        check = CheckOperator(task_id=naming.CHECK, pipeline_file=file, doc_md=docs.CHECK)
        loads = [
            SparkJobOperator(
                task_id=naming.load_task_id(target.name),
                step=LoadTarget(target.name),
                pipeline_file=file,
                outlets=[Asset(name=naming.asset_name(pipeline.name, target.name))],
                doc_md=docs.load(pipeline.name, target),
            )
            for target in pipeline.targets
        ]
        publish = PublishOperator(
            task_id=naming.PUBLISH,
            pipeline_file=file,
            trigger_rule="none_failed_min_one_success",
            doc_md=docs.PUBLISH,
        )
        await_watermark >> snapshot >> decode >> check >> loads >> publish
    return dag
