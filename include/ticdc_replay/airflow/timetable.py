"""When a pipeline's windows are scheduled."""

from datetime import datetime
from typing import Any

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from pendulum import FixedTimezone, Timezone, instance


class WindowTimetable(CronDataIntervalTimetable):
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

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        if restriction.earliest is None:  # the scheduler asks; a backfill has a start
            end = None if self._end is None else instance(self._end)
            restriction = TimeRestriction(instance(self._start), end, self._catchup)
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )

    def serialize(self) -> dict[str, Any]:
        end = None if self._end is None else self._end.isoformat()
        return {**super().serialize(), "start": self._start.isoformat(), "end": end, "catchup": self._catchup}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "WindowTimetable":
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
