"""Which windows are scheduled, and that a run by hand is free of that."""

from datetime import UTC, datetime, timedelta

import pytest

pytestmark = [pytest.mark.airflow, pytest.mark.matrix]

START = datetime(2026, 3, 1, tzinfo=UTC)
END = datetime(2026, 3, 1, 2, tzinfo=UTC)


@pytest.fixture
def scheduling(pipelines):
    """Gives the pipeline a schedule."""

    def scheduling(**schedule):
        pipelines.add("shop", {"schedule": {"cron": "0 * * * *"} | schedule})

    return scheduling


@pytest.fixture
def as_scheduler_sees(parse, scheduling):
    """The DAG of a pipeline with a schedule, through Airflow's serialization."""

    def as_scheduler_sees(**schedule):
        from airflow.serialization.serialized_objects import DagSerialization

        scheduling(**schedule)
        return DagSerialization.from_dict(DagSerialization.to_dict(parse().dags["ticdc_replay_shop"]))

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


def test_a_run_by_hand_has_all_its_tasks_whatever_its_logical_date(process, scheduling):
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    scheduling(start=START.isoformat(), end=END.isoformat())
    process()
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
