"""Waits for a window's watermark without holding a worker."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from ticdc_replay.airflow.connections import resolve_in_trigger
from ticdc_replay.domain.errors import TicdcReplayError, TransientError
from ticdc_replay.domain.window import Window


class WatermarkTrigger(BaseTrigger):
    """Looks every *poll_seconds* whether the window is complete in Kafka, until *deadline* (ISO 8601).

    Its one event has ``outcome`` (``reached``, ``late`` or ``failed``) and ``message``, and for ``failed`` the name of the
    error class. Errors that may pass are waited out. Only a path and times are serialised: connections are looked up here.
    """

    def __init__(self, pipeline_file: str, from_ts: int, to_ts: int, poll_seconds: int, deadline: str) -> None:
        super().__init__()
        self.pipeline_file = pipeline_file
        self.window = Window(from_ts, to_ts)
        self.poll_seconds = poll_seconds
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "pipeline_file": self.pipeline_file,
                "from_ts": self.window.from_ts,
                "to_ts": self.window.to_ts,
                "poll_seconds": self.poll_seconds,
                "deadline": self.deadline,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        deadline = datetime.fromisoformat(self.deadline)
        last = ""
        while True:
            try:
                reached, status = await self._look()
            except TransientError as error:
                reached, status = False, f"{type(error).__name__}: {error}"
            except TicdcReplayError as error:
                yield TriggerEvent({"outcome": "failed", "error": type(error).__name__, "message": str(error)})
                return
            if reached:
                yield TriggerEvent({"outcome": "reached", "message": status})
                return
            if status != last:
                self.log.info("%s", status)
                last = status
            if datetime.now(UTC) >= deadline:
                yield TriggerEvent({"outcome": "late", "message": status})
                return
            await asyncio.sleep(self.poll_seconds)

    async def _look(self) -> tuple[bool, str]:
        from ticdc_replay.config.load import load_pipeline
        from ticdc_replay.stages.context import connection_ids

        loaded = await asyncio.to_thread(load_pipeline, self.pipeline_file)
        connections = await resolve_in_trigger(connection_ids(loaded.pipeline), loaded.pipeline)
        return await asyncio.to_thread(self._status, loaded, connections)

    def _status(self, loaded: Any, connections: Any) -> tuple[bool, str]:
        """Kafka's client blocks, so this runs in a thread; what it opens it closes, since the next thread is another."""
        from ticdc_replay.stages.context import ReplayContext
        from ticdc_replay.stages.window.watermark import watermark_status

        with ReplayContext(loaded, connections) as context:
            status = watermark_status(context, self.window)
            return status.reached, str(status)
