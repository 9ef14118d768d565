"""The ledger of a mirror in MySQL: which loads have begun, and which databases their windows dropped."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, LiteralString

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.generations import Mark
from ticdc_replay.targets.mirror.ledger import Ledger, MirrorPlaces, NotedDrop
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mysql.server import MysqlConnection

_PUT: LiteralString = """
INSERT INTO {schema}.generations
(pipeline, target, mirror_schema, from_ts, to_ts, selection_hash, selection, generation, run_hash)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON DUPLICATE KEY UPDATE target = IF(generation <= VALUES(generation), VALUES(target), target),
run_hash = IF(generation <= VALUES(generation), VALUES(run_hash), run_hash),
began_at = IF(generation <= VALUES(generation), CURRENT_TIMESTAMP(6), began_at),
generation = GREATEST(generation, VALUES(generation))
"""
"""Assignments are made in their order: the generation is the last that changes."""
_NEWER: LiteralString = """
SELECT from_ts, to_ts, selection, generation, run_hash, mirror_schema FROM {schema}.generations
WHERE pipeline = %s AND from_ts < %s AND to_ts > %s AND generation > %s
"""
_OF_LOADS: LiteralString = "WHERE (pipeline, mirror_schema, from_ts, to_ts, selection) = (%s, %s, %s, %s, %s)"
_NOTE_DROP: LiteralString = """
INSERT INTO {schema}.dropped_databases
(pipeline, mirror_schema, from_ts, to_ts, selection, generation, run_hash, window_run, schema_name, floor_ts, forgotten)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, '[]')
"""
_NEWER_OF_WINDOW: LiteralString = """
SELECT selection, mirror_schema FROM {schema}.generations
WHERE (pipeline, from_ts, to_ts) = (%s, %s, %s) AND generation > %s
"""


class BegunLoads(Ledger):
    """The tables ``generations`` and ``dropped_databases``."""

    def __init__(self, connection: MysqlConnection) -> None:
        self._connection = connection

    def put_mark(self, load: Load, place: str, mark: Mark) -> None:
        window = (mark.window.from_ts, mark.window.to_ts)
        selection = (canonical.hash_of(mark.selection), _listed(mark.selection))
        own = (load.index.pipeline, load.target, place, *window, *selection, mark.generation, mark.run_hash)
        self._execute(_PUT, own)

    def newer_marks(self, load: Load, generation: int) -> list[tuple[Mark, str | None]]:
        window = load.index.window
        rows = self._execute(_NEWER, [load.index.pipeline, window.to_ts, window.from_ts, generation])
        return [(Mark(Window(row[0], row[1]), tuple(_list(row[2])), row[3], row[4]), row[5]) for row in rows]

    def share_drops(self) -> None:
        """The lock is given back where a new mirror is made, which ends the transaction: from then on it can be seen."""
        self._execute("SELECT name FROM {schema}.locks WHERE name = 'drops' FOR UPDATE")

    def replace_drops(self, load: Load, place: str, window_run: str, floors: Mapping[str, int]) -> None:
        if floors:
            self.share_drops()
        index = load.index
        window = [index.pipeline, place, index.window.from_ts, index.window.to_ts, _listed(sorted(load.selection))]
        self._execute(
            "DELETE FROM {schema}.dropped_databases "
            + _OF_LOADS
            + " AND generation <= %s AND (run_hash = %s OR window_run <> %s)",
            [*window, load.generation, index.run_hash, window_run],
        )
        # What a run and re-drives of its quarantine have noted stays where one of them is loaded again.
        self._execute(
            "UPDATE {schema}.dropped_databases SET generation = %s "
            + _OF_LOADS
            + " AND window_run = %s AND generation < %s",
            [load.generation, *window, window_run, load.generation],
        )
        own = [*window, load.generation, index.run_hash, window_run]
        self._execute_many(_NOTE_DROP, [(*own, *floor) for floor in floors.items()])

    def noted_drops(
        self, mirror: MirrorPlaces, pipelines: Sequence[str], window: tuple[str, int, int], window_run: str
    ) -> list[NotedDrop]:
        found = []
        for note in self._notes(mirror):
            _, pipeline, *span, selection, generation, run, floor_ts, forgotten = note
            of_window = (pipeline, *span) == window and run != window_run
            if pipeline in pipelines and mirror.mirror not in _list(forgotten) and not of_window:
                marks = self._execute(_NEWER_OF_WINDOW, [pipeline, *span, generation])
                newer = [_list(patterns) for patterns, place in marks if place in mirror.places]
                found.append(NotedDrop(floor_ts, _list(selection), newer))
        return sorted(found, key=lambda note: -note.floor_ts)

    def forget_drops(self, mirror: MirrorPlaces) -> None:
        for note in self._notes(mirror):
            forgotten = _list(note[-1])
            if mirror.mirror not in forgotten:
                self._execute(
                    "UPDATE {schema}.dropped_databases SET forgotten = %s WHERE id = %s",
                    [_listed([*forgotten, mirror.mirror]), note[0]],
                )

    def _notes(self, mirror: MirrorPlaces) -> Sequence[Any]:
        """The notes that may be about *mirror*: id, pipeline, from_ts, to_ts, selection, generation, window_run, floor_ts,
        forgotten."""
        rows = self._execute(
            "SELECT id, pipeline, from_ts, to_ts, selection, generation, window_run, floor_ts, forgotten, mirror_schema, "
            "schema_name FROM {schema}.dropped_databases"
        )
        return [row[:-2] for row in rows if row[-2] in mirror.places and row[-1] in mirror.names]

    def _execute(self, statement: LiteralString, parameters: Sequence[object] = ()) -> Sequence[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement.replace("{schema}", LEDGER_SCHEMA), tuple(parameters))
            found: Sequence[Any] = cursor.fetchall()
            return found

    def _execute_many(self, statement: LiteralString, rows: Iterable[Sequence[object]]) -> None:
        for row in rows:
            self._execute(statement, row)


def _listed(texts: Iterable[str]) -> str:
    return msgspec.json.encode(list(texts)).decode()


def _list(text: str) -> list[str]:
    return msgspec.json.decode(text, type=list[str])
