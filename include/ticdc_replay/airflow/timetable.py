"""When the runs of DAGs are scheduled."""

from datetime import datetime, timedelta
from typing import Any

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.utils.types import DagRunType
from pendulum import FixedTimezone, Timezone, instance

_TICK = timedelta(microseconds=1)
"""The least difference of two logical dates. Windows are in milliseconds: it makes no other window."""


class BoundedTimetable(CronDataIntervalTimetable):
    """The intervals of a cron expression; those that begin before *start* or after *end* are not scheduled.

    The DAG itself has no start and end date. With them Airflow makes no task for a manual run whose logical date, which is now
    unless somebody sets another, lies outside (``DagRun.verify_integrity``), and calls the run a success: a window of a
    changefeed that has ended could not be replayed by hand, without any error. Airflow takes no *catchup* without a
    start date, so it lives here too.

    A backfill names its own range and may reach outside.
    """

    def __init__(
        self,
        cron: str,
        timezone: str | Timezone | FixedTimezone,
        *,
        start: datetime,
        end: datetime | None,
        catchup: bool,
    ) -> None:
        super().__init__(cron, timezone)
        self._start = start
        self._end = end
        self._catchup = catchup

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        if restriction.earliest is None:  # the scheduler asks; a backfill has a start
            end = None if self._end is None else instance(self._end)
            restriction = TimeRestriction(instance(self._start), end, self._catchup)
        return super().next_dagrun_info_v2(last_dagrun_info=last_dagrun_info, restriction=restriction)

    def serialize(self) -> dict[str, Any]:
        end = None if self._end is None else self._end.isoformat()
        return {**super().serialize(), "start": self._start.isoformat(), "end": end, "catchup": self._catchup}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "BoundedTimetable":
        plain = CronDataIntervalTimetable.deserialize(data)
        assert isinstance(plain, CronDataIntervalTimetable)
        end = data["end"]
        return cls(
            plain._expression,
            plain._timezone,
            start=datetime.fromisoformat(data["start"]),
            end=None if end is None else datetime.fromisoformat(end),
            catchup=data["catchup"],
        )


class WindowTimetable(BoundedTimetable):
    """When a pipeline's windows are scheduled: once one was, each next one begins where the last one ended.

    Also if Airflow was down or as many runs waited as may run, and after a change of the schedule. Airflow itself leaves such
    windows out, without a trace. A later *start* alone does that here. Runs by hand and of backfills do not move the schedule.
    It leaves out a window alone that a backfill has run, if not with answers of its own, such as a dry run.
    """

    def run_info_from_dag_run(self, *, dag_run: Any) -> DagRunInfo:
        """Of *dag_run*: the newest one, or one with the logical date of the next window, which Airflow gives to no second run."""
        info = super().run_info_from_dag_run(dag_run=dag_run)
        # By the id: a backfill that repeats a scheduled run makes it a run of its own type.
        made_by = DagRunType.from_run_id(dag_run.run_id)
        following = dag_run.dag_model.next_dagrun
        if made_by is DagRunType.SCHEDULED or following is None:
            return info
        if dag_run.logical_date != following:
            return info._replace(data_interval=DataInterval.exact(instance(following)))
        if made_by is DagRunType.BACKFILL_JOB and not dag_run.conf:
            return info
        return info._replace(data_interval=DataInterval.exact(instance(following) + _TICK))

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        if last_dagrun_info is None or restriction.earliest is not None:  # the first one, or a backfill asks
            return super().next_dagrun_info_v2(last_dagrun_info=last_dagrun_info, restriction=restriction)
        assert last_dagrun_info.data_interval is not None, "each run of this timetable has one"
        start = max(last_dagrun_info.data_interval.end, self._align_to_next(instance(self._start)))
        is_after_end = self._end is not None and start > instance(self._end) + _TICK
        return None if is_after_end else DagRunInfo.interval(start, self._get_next(start))
