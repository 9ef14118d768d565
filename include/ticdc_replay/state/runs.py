"""The runs of pipelines: each decodes one window."""

from typing import Literal

import msgspec
from sqlalchemy import select

from ticdc_replay.domain.window import Window
from ticdc_replay.state import tables
from ticdc_replay.state.rows import Subject, overlaps

RunStatus = Literal["running", "done", "failed"]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One changelog: a window's input, decoded with one configuration and library version."""

    pipeline: str
    run_hash: str
    window: Window
    input_hash: str
    status: RunStatus
    started_at_ms: int
    finished_at_ms: int | None = None
    index: str | None = None
    """Name of the changelog's index in the artefact store, once there is one."""
    counts: dict[str, int] = {}


class Runs(Subject):
    """The runs of pipelines."""

    def record(self, run: Run) -> None:
        """Keep what is known of *run* now."""
        self._replace(tables.run, [run])

    def get(self, pipeline: str, run_hash: str) -> Run | None:
        """The run called *run_hash*; None where it is not known."""
        columns = tables.run.c
        wanted = select(tables.run).where(columns.pipeline == pipeline, columns.run_hash == run_hash)
        return next(iter(self._records(Run, wanted)), None)

    def all(self, pipeline: str) -> list[Run]:
        """The runs of *pipeline*, latest window first."""
        columns = tables.run.c
        wanted = select(tables.run).where(columns.pipeline == pipeline)
        return self._records(Run, wanted.order_by(columns.from_ts.desc(), columns.started_at_ms.desc()))

    def within(self, pipeline: str, window: Window) -> list[Run]:
        """The runs of *pipeline* whose windows overlap *window*, in order of time."""
        columns = tables.run.c
        wanted = select(tables.run).where(*overlaps(tables.run, pipeline, window))
        return self._records(Run, wanted.order_by(columns.from_ts, columns.to_ts, columns.started_at_ms))
