"""Which windows are scheduled, and that a run by hand is free of that."""

import json
from datetime import UTC, datetime, timedelta

import pytest

pytestmark = pytest.mark.airflow

START = datetime(2026, 3, 1, tzinfo=UTC)
END = datetime(2026, 3, 1, 2, tzinfo=UTC)
BUNDLE = "timetables"


@pytest.fixture
def parse(pipelines):
    """The DAG files of a pipeline with *schedule*, parsed."""

    def parse(**schedule):
        from airflow.dag_processing.dagbag import DagBag

        from ticdc_replay.airflow.bundle import PipelineBundle

        pipelines.add("shop", {"schedule": {"cron": "0 * * * *"} | schedule})
        bundle = PipelineBundle(name=BUNDLE, pipelines=str(pipelines.path))
        bundle.initialize()
        bag = DagBag(bundle.path, bundle_path=bundle.path, bundle_name=BUNDLE)
        assert bag.import_errors == {}
        return bag

    return parse


@pytest.fixture
def as_scheduler_sees(parse):
    """The DAG of a pipeline with a schedule, through Airflow's serialization."""

    def as_scheduler_sees(**schedule):
        from airflow.serialization.serialized_objects import DagSerialization

        return DagSerialization.from_dict(DagSerialization.to_dict(parse(**schedule).dags["ticdc_replay_shop"]))

    return as_scheduler_sees


def scheduled(dag):
    """The starts of the windows that the scheduler would run, one after the other."""
    info, starts = None, []
    while (info := dag.next_dagrun_info(last_automated_run_info=info)) is not None:
        starts.append(info.data_interval.start)
        assert len(starts) < 10, "the schedule has no end"
    return starts


def test_windows_are_scheduled_from_the_start_to_the_end(as_scheduler_sees):
    dag = as_scheduler_sees(start=START.isoformat(), end=END.isoformat(), catchup=True)
    assert scheduled(dag) == [START, START + timedelta(hours=1), END]
    assert dag.timetable.summary == "0 * * * *"


def test_without_catchup_the_window_that_ended_last_is_the_first(as_scheduler_sees):
    dag = as_scheduler_sees(start=START.isoformat())
    end = dag.next_dagrun_info(last_automated_run_info=None).data_interval.end
    now = datetime.now(UTC)
    assert now - timedelta(hours=1) <= end <= now


def test_nothing_is_scheduled_after_the_end_or_before_the_start(as_scheduler_sees):
    assert scheduled(as_scheduler_sees(start=START.isoformat(), end=END.isoformat())) == []
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(days=2)
    first = as_scheduler_sees(start=start.isoformat()).next_dagrun_info(last_automated_run_info=None)
    assert first.data_interval.start == start


def test_a_backfill_may_reach_outside(as_scheduler_sees):
    dag = as_scheduler_sees(start=START.isoformat(), end=START.isoformat())
    windows = dag.iter_dagrun_infos_between(START - timedelta(hours=1), START + timedelta(hours=1))
    assert [window.data_interval.start - START for window in windows] == [timedelta(hours=hour) for hour in (-1, 0, 1)]


def test_a_run_by_hand_has_all_its_tasks_whatever_its_logical_date(parse, pipelines, airflow_database, monkeypatch):
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import sync_bag_to_db
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    bundle = {
        "name": BUNDLE,
        "classpath": "ticdc_replay.airflow.bundle.PipelineBundle",
        "kwargs": {"pipelines": str(pipelines.path)},
    }
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(parse(start=START.isoformat(), end=END.isoformat()), BUNDLE, None)
    dag = SerializedDagModel.get_dag("ticdc_replay_shop")
    for name, logical_date in {
        "early": START - timedelta(days=9),
        "late": END + timedelta(days=9),
        "none": None,
    }.items():
        run = dag.create_dagrun(
            run_id=name,
            logical_date=logical_date,
            run_after=datetime.now(UTC),
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.UI,
            state=DagRunState.QUEUED,
        )
        assert {instance.task_id for instance in run.get_task_instances()} == set(dag.task_ids)
