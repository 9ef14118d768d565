"""Waits until a window is complete in Kafka."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ticdc_replay.airflow.form import run_options, run_window
from ticdc_replay.airflow.operators.base import ReplayOperator
from ticdc_replay.airflow.trigger import WatermarkTrigger
from ticdc_replay.domain import errors


class AwaitWatermarkOperator(ReplayOperator):
    """Succeeds once every live partition has carried a resolved-ts at or after the end of the window, or if it is pinned already.

    Looks first, and waits in the triggerer only if need be; in a dry run not at all. Raises WatermarkNotReachedError after the
    pipeline's ``window.timeout_minutes``.
    """

    def execute(self, context: Mapping[str, Any]) -> str:
        from ticdc_replay.stages.selection import selected_tables
        from ticdc_replay.stages.window.pin import is_in_changelogs, is_pinned
        from ticdc_replay.stages.window.watermark import watermark_status

        window, options = run_window(context), run_options(context)
        self.log.info("Window %s", window)
        with self.opened() as replay:
            selected_tables(replay.pipeline, options.tables)  # nobody waits for a run that will be refused
            if not options.repin and is_pinned(replay, window):
                return "The window has a manifest already: it was complete when it was pinned"
            status = watermark_status(replay, window)
            if status.reached or options.dry_run:
                return str(status)
            if is_in_changelogs(replay, window):
                return f"{status}; changelogs hold the window"
            settings = replay.pipeline.window
        self.log.info("Not yet: %s", status)
        deadline = datetime.now(UTC) + timedelta(minutes=settings.timeout_minutes)
        self.defer(
            trigger=WatermarkTrigger(
                self.pipeline_file, window.from_ts, window.to_ts, settings.poll_seconds, deadline.isoformat()
            ),
            method_name="resume",
        )
        raise AssertionError("defer does not return")

    def resume(self, context: Mapping[str, Any], event: Mapping[str, str]) -> str:
        """Go on with what the trigger saw."""
        message = event["message"]
        if event["outcome"] == "reached":
            return message
        if event["outcome"] == "late":
            raise errors.WatermarkNotReachedError(
                f"window {run_window(context)}: {message}. It was waited for as long as window.timeout_minutes says; "
                "see whether the changefeed is running, then clear this task"
            )
        raise getattr(errors, event["error"], errors.PermanentError)(message)
