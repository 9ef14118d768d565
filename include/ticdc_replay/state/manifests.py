"""Which manifest a window has."""

import time
from collections.abc import Collection
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, or_, select, update

from ticdc_replay.domain.window import Window
from ticdc_replay.state.rows import Subject, insert_new, is_of_window, overlaps, record_of, row_of
from ticdc_replay.state.tables import window_manifest


class WindowManifest(msgspec.Struct, frozen=True):
    """Which manifest a window of a pipeline has. ``name`` is the manifest's name in the artefact store."""

    pipeline: str
    window: Window
    input_hash: str
    name: str
    pinned_at_ms: int


class Manifests(Subject):
    """The manifests of windows. A window has one at a time: a manifest that replaces another leaves the other superseded."""

    def of_window(self, pipeline: str, window: Window) -> WindowManifest | None:
        """The manifest that *window* has, None where it is not pinned yet."""
        return next(iter(self._records(WindowManifest, _active(pipeline, window))), None)

    def ending_at(self, pipeline: str, ts: int, inputs: Collection[str]) -> list[WindowManifest]:
        """The manifests of the windows of *pipeline* that end at *ts* (TSO), and those that they had of *inputs* (hashes)."""
        table = window_manifest.c
        counts = or_(table.superseded_at_ms.is_(None), table.input_hash.in_(inputs))
        wanted = _of_pipeline(pipeline).where(table.to_ts == ts, counts)
        return self._records(WindowManifest, wanted.order_by(table.from_ts, table.pinned_at_ms))

    def within(self, pipeline: str, window: Window) -> list[WindowManifest]:
        """The manifests of the windows of *pipeline* that overlap *window*, in order of time."""
        table = window_manifest.c
        wanted = select(window_manifest).where(
            *overlaps(window_manifest, pipeline, window), table.superseded_at_ms.is_(None)
        )
        return self._records(WindowManifest, wanted.order_by(table.from_ts, table.to_ts))

    def last(self, pipeline: str) -> WindowManifest | None:
        """The manifest of *pipeline* that was pinned last, of any window."""
        last = _of_pipeline(pipeline).order_by(window_manifest.c.pinned_at_ms.desc()).limit(1)
        return next(iter(self._records(WindowManifest, last)), None)

    def register(self, made: WindowManifest, *, replaces: WindowManifest | None = None) -> WindowManifest:
        """Give the window the manifest *made*, and return the one that it has from now on.

        That is another than *made* where a run that pinned the same window at the same time was faster. An existing
        manifest is replaced only if it is still *replaces*.
        """
        table = window_manifest
        with self._database.writing() as connection:
            if replaces is not None:
                connection.execute(
                    update(table)
                    .where(*is_of_window(table, made.pipeline, made.window), table.c.superseded_at_ms.is_(None))
                    .where(table.c.input_hash == replaces.input_hash, table.c.pinned_at_ms == replaces.pinned_at_ms)
                    .values(superseded_at_ms=int(time.time() * 1000))
                )
            insert_new(connection, table, [row_of(made)])
            return record_of(WindowManifest, connection.execute(_active(made.pipeline, made.window)).one())


def active_input(connection: Connection, pipeline: str, window: Window) -> str | None:
    """The hash of the input that *window* is pinned to; None where it is not pinned."""
    row = connection.execute(_active(pipeline, window)).one_or_none()
    return row.input_hash if row else None


def _of_pipeline(pipeline: str) -> Select[Any]:
    return select(window_manifest).where(window_manifest.c.pipeline == pipeline)


def _active(pipeline: str, window: Window) -> Select[Any]:
    return select(window_manifest).where(
        *is_of_window(window_manifest, pipeline, window), window_manifest.c.superseded_at_ms.is_(None)
    )
