"""Which windows are scheduled, and that a run by hand is free of that."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from ticdc_replay.domain import tso
from ticdc_replay.domain.window import Window

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


@pytest.fixture
def clock_hour():
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def dag_after_run(process, scheduling):
    """The DAG as Airflow's database has it, and a run of a kind in it, whose window ends then."""

    def dag_after_run(run_type, end, created_by=None, **schedule):
        from airflow.models.serialized_dag import SerializedDagModel
        from airflow.utils.state import DagRunState
        from airflow.utils.types import DagRunTriggeredByType

        scheduling(**{"start": START.isoformat(), **schedule})
        process()
        dag = SerializedDagModel.get_dag("ticdc_replay_shop")
        start = end - timedelta(hours=1)
        run = dag.create_dagrun(
            run_id=(created_by or run_type).generate_run_id(suffix=start.isoformat()),
            logical_date=start,
            data_interval=(start, end),
            run_after=end,
            run_type=run_type,
            triggered_by=DagRunTriggeredByType.TIMETABLE,
            state=DagRunState.SUCCESS,
        )
        return dag, run

    return dag_after_run


@pytest.fixture
def next_window(process):
    """The window that Airflow schedules next, after the DAG processor has seen the newest run."""

    def next_window(dag, _run):
        from airflow.models.dag import DagModel

        process()
        model = DagModel.get_dagmodel(dag.dag_id)
        return model.next_dagrun_data_interval_start, model.next_dagrun_data_interval_end

    return next_window


@pytest.fixture
def scheduled_runs(process):
    """The windows of the runs that Airflow's scheduler makes one after the other; the DAG processor runs between, too."""

    def scheduled_runs(dag, loops=12):
        from airflow.jobs.job import Job
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
        from airflow.models.dag import DagModel
        from airflow.models.dagrun import DagRun
        from airflow.utils.session import create_session
        from airflow.utils.types import DagRunType
        from sqlalchemy import select

        scheduler = SchedulerJobRunner(Job())
        process()
        for loop in range(loops):
            if loop % 3 == 2:
                process()
            with create_session() as session:
                models = DagModel.dags_needing_dagruns(session)[0].all()
                scheduler._create_dag_runs(models, session)
        with create_session() as session:
            runs = select(DagRun).where(DagRun.dag_id == dag.dag_id, DagRun.run_type == DagRunType.SCHEDULED)
            found = session.scalars(runs.order_by(DagRun.logical_date)).all()
            return [Window(*map(tso.from_datetime, (run.data_interval_start, run.data_interval_end))) for run in found]

    return scheduled_runs


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


def test_no_window_is_left_out_once_one_was_scheduled(dag_after_run, next_window, clock_hour):
    """Airflow was down, or as many runs waited for the changefeed as may run at the same time."""
    from airflow.utils.types import DagRunType

    last = clock_hour - timedelta(hours=5)
    assert next_window(*dag_after_run(DagRunType.SCHEDULED, last)) == (last, last + timedelta(hours=1))


def test_a_backfill_does_not_move_a_schedule_without_catchup(dag_after_run, next_window, clock_hour):
    from airflow.utils.types import DagRunType

    dag, run = dag_after_run(DagRunType.BACKFILL_JOB, clock_hour - timedelta(days=30))
    assert next_window(dag, run)[1] >= clock_hour


def test_a_scheduled_run_that_a_backfill_repeats_is_followed_by_the_next_window(dag_after_run, next_window, clock_hour):
    from airflow.utils.types import DagRunType

    last = clock_hour - timedelta(hours=5)
    dag, run = dag_after_run(DagRunType.BACKFILL_JOB, last, created_by=DagRunType.SCHEDULED)
    assert next_window(dag, run) == (last, last + timedelta(hours=1))


@pytest.mark.parametrize(
    ("ended", "cron", "hours"), [(5, "0 0 * * *", 19), (0, "0 * * * *", 1), (5, "30 * * * *", 0.5)]
)
def test_windows_follow_each_other_after_the_schedule_has_changed(
    dag_after_run, next_window, clock_hour, ended, cron, hours
):
    from airflow.utils.types import DagRunType

    last = clock_hour.replace(hour=ended) - timedelta(days=2)
    dag, run = dag_after_run(DagRunType.SCHEDULED, last, cron=cron, catchup=True)
    assert next_window(dag, run) == (last, last + timedelta(hours=hours))


def test_windows_before_a_later_start_are_left_out(dag_after_run, next_window, clock_hour):
    from airflow.utils.types import DagRunType

    last, start = clock_hour - timedelta(hours=9), clock_hour - timedelta(hours=3)
    dag, run = dag_after_run(DagRunType.SCHEDULED, last, start=start.isoformat())
    assert next_window(dag, run) == (start, start + timedelta(hours=1))


@pytest.mark.parametrize(
    "interval", [(-1, 0), (0, 1), (2, 3)], ids=["of the form", "the window", "of the command line"]
)
def test_a_run_by_hand_takes_no_window_of_the_schedule(dag_after_run, scheduled_runs, clock_hour, interval):
    """Airflow makes no second run of a logical date: here of that of the next window, whatever the run by hand replays."""
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    hours = [clock_hour + timedelta(hours=hour) for hour in range(-4, 1)]
    dag, _ = dag_after_run(DagRunType.SCHEDULED, hours[1], paused=False, max_active_runs=9)
    dag.create_dagrun(
        run_id="by_hand",
        logical_date=hours[1],
        data_interval=tuple(hours[1] + timedelta(hours=hour) for hour in interval),
        run_after=datetime.now(UTC),
        run_type=DagRunType.MANUAL,
        triggered_by=DagRunTriggeredByType.UI,
        state=DagRunState.SUCCESS,
    )
    assert scheduled_runs(dag) == [Window(*map(tso.from_datetime, interval)) for interval in pairwise(hours)]


@pytest.mark.parametrize("catchup", [False, True])
@pytest.mark.parametrize("backfilled", [1, 2], ids=["next", "ahead"])
@pytest.mark.parametrize("conf", [{}, {"dry_run": True}], ids=["all", "dry run"])
def test_a_schedule_leaves_out_what_a_backfill_has_run_alone(
    dag_after_run, scheduled_runs, clock_hour, conf, backfilled, catchup
):
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    windows = list(pairwise(clock_hour + timedelta(hours=hour) for hour in range(-5, 1)))
    dag, _ = dag_after_run(DagRunType.SCHEDULED, windows[1][0], paused=False, max_active_runs=9, catchup=catchup)
    assert scheduled_runs(dag, loops=0) == [Window(*map(tso.from_datetime, windows[0]))]
    start, end = windows[backfilled]
    dag.create_dagrun(
        run_id=DagRunType.BACKFILL_JOB.generate_run_id(suffix=end.isoformat()),
        logical_date=start,
        data_interval=(start, end),
        run_after=end,
        run_type=DagRunType.BACKFILL_JOB,
        triggered_by=DagRunTriggeredByType.BACKFILL,
        state=DagRunState.SUCCESS,
        conf=conf,
    )
    if not conf:
        del windows[backfilled]
    assert scheduled_runs(dag) == [Window(*map(tso.from_datetime, window)) for window in windows]


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
