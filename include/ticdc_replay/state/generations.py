"""Which run of a window is newer: what a target asks before it commits one.

Each load carries the generation of its run. A driver can outlive the process that submitted it, and reach its commit after a
newer run has been loaded. The target then refuses the smaller generation.
"""

from typing import Any

from sqlalchemy import Connection, func, select, text, update

from ticdc_replay.domain.window import Window
from ticdc_replay.state import tables
from ticdc_replay.state.manifests import active_input
from ticdc_replay.state.rows import Subject, is_of_window, now_ms, upsert

_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))")


class Generations(Subject):
    """The numbers of the runs of windows.

    A generation is a time in milliseconds. A new run's never repeats or steps back within a pipeline, so a state store that is
    made again gives larger ones than the targets have seen. A run that was recorded before it got one, as by a version from
    before there were generations, has the time at which it started: it is older than all that were decoded since. 0 is no
    generation.
    """

    def of_run(self, pipeline: str, window: Window, run_hash: str, input_hash: str, rows_hash: str = "") -> int | None:
        """The generation of the run; where it has none yet its place among the others, for a new run the last. Atomic.

        Runs of the window with the same *rows_hash* (empty: none) have one generation: they decode the same rows, of different
        tables perhaps. None where the window is pinned to another input than *input_hash* now.
        """
        table = tables.generation
        with self._database.writing() as connection:
            _alone(connection, pipeline)
            if active_input(connection, pipeline, window) not in (None, input_hash):
                return None
            of_window = is_of_window(table, pipeline, window)
            found = connection.execute(
                select(table.c.generation).where(*of_window, table.c.run_hash == run_hash)
            ).scalar_one_or_none()
            if found is not None:
                return int(found)
            rows_hash = rows_hash or run_hash
            same = connection.execute(
                select(func.max(table.c.generation)).where(*of_window, table.c.rows_hash == rows_hash)
            ).scalar_one()
            given = _place(connection, pipeline, run_hash) if same is None else int(same)
            upsert(connection, table, [_row(pipeline, window, run_hash, rows_hash, given)])
        return given

    def given(self, pipeline: str) -> dict[str, int]:
        """The generation of each run of *pipeline* that has one."""
        columns = tables.generation.c
        wanted = select(columns.run_hash, columns.generation).where(columns.pipeline == pipeline)
        with self._database.reading() as connection:
            return {row.run_hash: int(row.generation) for row in connection.execute(wanted)}

    def newest(self, pipeline: str, window: Window) -> int:
        """The largest generation of a run of *window*; 0 where none has one."""
        wanted = select(func.max(tables.generation.c.generation)).where(
            *is_of_window(tables.generation, pipeline, window)
        )
        with self._database.reading() as connection:
            return int(connection.execute(wanted).scalar_one() or 0)

    def advance(self, pipeline: str, window: Window, run_hash: str) -> int:
        """A generation that is newer than all of the pipeline, for the run and for those that decode the same rows.

        For a person who decides that this run counts from now on. Atomic.
        """
        table = tables.generation
        with self._database.writing() as connection:
            _alone(connection, pipeline)
            of_window = is_of_window(table, pipeline, window)
            known = select(table.c.rows_hash).where(*of_window, table.c.run_hash == run_hash)
            rows_hash = connection.execute(known).scalar_one_or_none() or run_hash
            given = _next(connection, pipeline)
            upsert(connection, table, [_row(pipeline, window, run_hash, rows_hash, given)])
            connection.execute(update(table).where(*of_window, table.c.rows_hash == rows_hash).values(generation=given))
        return given


def _place(connection: Connection, pipeline: str, run_hash: str) -> int:
    columns = tables.run.c
    known = select(columns.started_at_ms).where(columns.pipeline == pipeline, columns.run_hash == run_hash)
    started_at_ms = connection.execute(known).scalar_one_or_none()
    return _next(connection, pipeline) if started_at_ms is None else int(started_at_ms)


def _next(connection: Connection, pipeline: str) -> int:
    columns = tables.generation.c
    last = connection.execute(select(func.max(columns.generation)).where(columns.pipeline == pipeline)).scalar_one()
    return max(now_ms(connection), int(last or 0) + 1)


def _alone(connection: Connection, pipeline: str) -> None:
    """Keep others from giving generations of *pipeline* until the transaction ends. SQLite has one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK, {"key": f"ticdc-replay generations {pipeline}"})


def _row(pipeline: str, window: Window, run_hash: str, rows_hash: str, generation: int) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "from_ts": window.from_ts,
        "to_ts": window.to_ts,
        "run_hash": run_hash,
        "rows_hash": rows_hash,
        "generation": generation,
    }
