"""The ledger of a mirror in PostgreSQL: which loads have begun, and which databases their windows dropped."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, LiteralString

import psycopg

from ticdc_replay.domain import canonical
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.generations import Mark
from ticdc_replay.targets.mirror.ledger import Ledger, MirrorPlaces, NotedDrop
from ticdc_replay.targets.postgres.ledger_tables import LONG_WAIT, in_ledger

_DROPS_LOCK = 0x7469636464
"""Advisory lock: shared by transactions that make a mirror, alone to one that notes what was dropped."""

_PUT: LiteralString = """
INSERT INTO {schema}.generations AS old
(pipeline, target, mirror_schema, from_ts, to_ts, selection_hash, selection, generation, run_hash)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (pipeline, mirror_schema, from_ts, to_ts, selection_hash) DO UPDATE
SET target = excluded.target, generation = excluded.generation, run_hash = excluded.run_hash, began_at = now()
WHERE old.generation <= excluded.generation
"""
_NEWER: LiteralString = """
SELECT from_ts, to_ts, selection, generation, run_hash, mirror_schema FROM {schema}.generations
WHERE pipeline = %s AND from_ts < %s AND to_ts > %s AND generation > %s AND (mirror_schema IS NOT NULL OR target = %s)
"""
"""Of marks by an older version, without ``mirror_schema``, those of targets that are called so."""
_REPLACE_DROPS: LiteralString = """
DELETE FROM {schema}.dropped_databases
WHERE (pipeline, mirror_schema, from_ts, to_ts, selection) = (%s, %s, %s, %s, %s) AND generation <= %s
AND (run_hash = %s OR window_run <> %s)
"""
_KEEP_DROPS: LiteralString = """
UPDATE {schema}.dropped_databases SET generation = %s
WHERE (pipeline, mirror_schema, from_ts, to_ts, selection, window_run) = (%s, %s, %s, %s, %s, %s) AND generation < %s
"""
"""What a run and re-drives of its quarantine have noted stays where one of them is loaded again: mirrors keep their rows, too."""
_NOTE_DROP: LiteralString = """
INSERT INTO {schema}.dropped_databases
(pipeline, mirror_schema, from_ts, to_ts, selection, generation, run_hash, window_run, schema_name, floor_ts)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_NOTED_DROPS: LiteralString = """
SELECT d.floor_ts, d.selection, (
    SELECT json_agg(m.selection) FROM {schema}.generations m
    WHERE (m.pipeline, m.from_ts, m.to_ts) = (d.pipeline, d.from_ts, d.to_ts) AND m.generation > d.generation
    AND m.mirror_schema = ANY(%(places)s)
)
FROM {schema}.dropped_databases d
WHERE d.pipeline = ANY(%(pipelines)s) AND d.schema_name = ANY(%(names)s)
AND (d.mirror_schema IS NULL OR d.mirror_schema = ANY(%(places)s)) AND %(mirror)s <> ALL(d.forgotten)
AND NOT (d.pipeline = %(pipeline)s AND coalesce((d.from_ts, d.to_ts) = (%(from_ts)s, %(to_ts)s), false)
    AND d.window_run <> %(window_run)s)
ORDER BY d.floor_ts DESC
"""
"""Of notes by an older version, without ``mirror_schema``, it is not known which mirrors and which window they are about."""
_FORGET_DROPS: LiteralString = """
UPDATE {schema}.dropped_databases SET forgotten = array_append(forgotten, %(mirror)s)
WHERE schema_name = ANY(%(names)s) AND (mirror_schema IS NULL OR mirror_schema = ANY(%(places)s))
AND %(mirror)s <> ALL(forgotten)
"""


class BegunLoads(Ledger):
    """The tables ``generations`` and ``dropped_databases`` of ``ledger_tables``."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def put_mark(self, load: Load, place: str, mark: Mark) -> None:
        window = (mark.window.from_ts, mark.window.to_ts)
        selection = (canonical.hash_of(mark.selection), list(mark.selection))
        own = (load.index.pipeline, load.target, place, *window, *selection, mark.generation, mark.run_hash)
        self._execute(_PUT, own)

    def newer_marks(self, load: Load, generation: int) -> list[tuple[Mark, str | None]]:
        window = load.index.window
        rows = self._execute(_NEWER, [load.index.pipeline, window.to_ts, window.from_ts, generation, load.target])
        return [(Mark(Window(row[0], row[1]), tuple(row[2]), row[3], row[4]), row[5]) for row in rows]

    def share_drops(self) -> None:
        self._execute("SELECT pg_advisory_xact_lock_shared(%s)", [_DROPS_LOCK])

    def replace_drops(self, load: Load, place: str, window_run: str, floors: Mapping[str, int]) -> None:
        if floors:
            self._execute(LONG_WAIT)
            self._execute("SELECT pg_advisory_xact_lock(%s)", [_DROPS_LOCK])
        index = load.index
        window = [index.pipeline, place, index.window.from_ts, index.window.to_ts, sorted(load.selection)]
        own = [*window, load.generation, index.run_hash, window_run]
        self._execute(_REPLACE_DROPS, own)
        self._execute(_KEEP_DROPS, [load.generation, *window, window_run, load.generation])
        self._execute_many(_NOTE_DROP, [(*own, *floor) for floor in floors.items()])

    def noted_drops(
        self, mirror: MirrorPlaces, pipelines: Sequence[str], window: tuple[str, int, int], window_run: str
    ) -> list[NotedDrop]:
        pipeline, from_ts, to_ts = window
        own = {"pipeline": pipeline, "from_ts": from_ts, "to_ts": to_ts, "window_run": window_run}
        found = self._execute(_NOTED_DROPS, {**mirror._asdict(), "pipelines": list(pipelines), **own})
        return [NotedDrop(floor_ts, selection, newer or ()) for floor_ts, selection, newer in found]

    def forget_drops(self, mirror: MirrorPlaces) -> None:
        self._execute(_FORGET_DROPS, mirror._asdict())

    def _execute(
        self, statement: LiteralString, parameters: Sequence[object] | Mapping[str, object] | None = None
    ) -> psycopg.Cursor[Any]:
        return self._connection.execute(in_ledger(statement), parameters)

    def _execute_many(self, statement: LiteralString, rows: Iterable[Sequence[object]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(in_ledger(statement), rows)
