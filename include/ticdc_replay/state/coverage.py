"""What the places of targets hold, and which loads have begun and not ended."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from sqlalchemy import Table, delete, exists, or_, select, update

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Grade, Window
from ticdc_replay.state import tables
from ticdc_replay.state.quarantine import delete_redrives
from ticdc_replay.state.rows import Subject, record_of, row_of, upsert

Quality = Literal["complete", "quarantine"]
"""``quarantine`` where a part was set aside by policy."""
_PLACED = (tables.coverage, tables.covered_table, tables.begun_load, tables.redrive)
"""What is recorded of the places of targets."""


class CoveredTable(msgspec.Struct, frozen=True, order=True):
    """A table for which a run had rows or DDL."""

    table: TableName
    quality: Quality | Literal["left_out", "forgotten"]
    """``left_out`` where the target can't hold the table: it has no key, or a reserved name. ``forgotten`` where it was loaded
    and dropped since."""


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """A window that the place of a target holds, for all tables that match ``selection``: also those that had nothing in it."""

    pipeline: str
    target: str
    """What the target was called when the run was loaded."""
    place: str
    """Where the target's content lay (``TargetSection.place``): what holds the window."""
    window: Window
    run_hash: str
    selection: tuple[str, ...]
    """The patterns of tables that the run was for."""
    grade: Grade
    quality: Quality
    """Of the tables of the selection that are not among ``tables``."""
    tables: tuple[CoveredTable, ...]
    """Sorted."""
    loaded_at_ms: int
    generation: int = 0
    """Of the run, as the load carried it (``generations``)."""
    attempt: str = ""
    """The load whose report says so."""


class BegunLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A load into a target that replaces what it has of the window, from its beginning until its coverage is recorded.

    Until then the target may hold what was there before, what the load brings, or the one of some tables and the other of others.
    """

    pipeline: str
    target: str
    place: str
    """As in ``Coverage``."""
    window: Window
    run_hash: str
    selection: tuple[str, ...]
    generation: int


class CoverageOfTargets(Subject):
    """What the places of targets hold, by run."""

    def record_begun(self, load: BegunLoad) -> None:
        """Note that *load* begins."""
        self._replace(tables.begun_load, [load])

    def begun(self, pipeline: str) -> list[BegunLoad]:
        """The loads of *pipeline* that have begun, and whose coverage is not recorded yet."""
        columns = tables.begun_load.c
        wanted = select(tables.begun_load).where(columns.pipeline == pipeline)
        return self._records(BegunLoad, wanted.order_by(columns.target, columns.run_hash))

    def record(self, records: Sequence[Coverage], *, ended: bool = False) -> None:
        """Note what places of targets hold; what a place was known to hold of the same run is replaced.

        With *ended* it is what loads have left: those of the run with this or a smaller generation are begun no more.
        """
        with self._database.writing() as connection:
            for record in records if ended else ():
                begun = tables.begun_load
                connection.execute(
                    delete(begun).where(*_is_held(begun, record), begun.c.generation <= record.generation)
                )
            for record in records:
                for table in (tables.coverage, tables.covered_table):
                    connection.execute(delete(table).where(*_is_held(table, record)))
            upsert(connection, tables.coverage, [_coverage_row(record) for record in records])
            upsert(
                connection,
                tables.covered_table,
                [
                    _covered_row(record.pipeline, record.target, record.place, record.run_hash, covered)
                    for record in records
                    for covered in record.tables
                ],
            )

    def settle_places(self, pipeline: str, places: Mapping[str, str]) -> None:
        """Give what earlier versions recorded of targets the place that each has now, by its name in *places*.

        Does nothing where everything of these targets has its place.
        """
        with self._database.reading() as connection:
            placeless = [exists().where(*_is_placeless(table, pipeline, places)) for table in _PLACED]
            if not connection.execute(select(or_(*placeless))).scalar_one():
                return
        with self._database.writing() as connection:
            for table in _PLACED:
                for target, place in places.items():
                    connection.execute(
                        update(table).where(*_is_placeless(table, pipeline, [target])).values(place=place)
                    )

    def forget(self, pipeline: str, place: str, table: TableName, redrives: Sequence[str]) -> None:
        """Note that *place* holds nothing of *table* any more, whatever runs have loaded, and lacks what *redrives* brought."""
        columns = tables.coverage.c
        wanted = select(columns.target, columns.run_hash).where(columns.pipeline == pipeline, columns.place == place)
        forgotten = CoveredTable(table, "forgotten")
        with self._database.writing() as connection:
            delete_redrives(connection, pipeline, place, redrives)
            held = connection.execute(wanted).all()
            rows = [_covered_row(pipeline, target, place, run_hash, forgotten) for target, run_hash in held]
            upsert(connection, tables.covered_table, rows)

    def all(self, pipeline: str) -> list[Coverage]:
        """What the places of targets of *pipeline* hold, by target, window, run and place."""
        covered: dict[tuple[str, str, str], list[CoveredTable]] = {}
        with self._database.reading() as connection:
            rows = connection.execute(select(tables.coverage).where(tables.coverage.c.pipeline == pipeline)).all()
            wanted = select(tables.covered_table).where(tables.covered_table.c.pipeline == pipeline)
            for row in connection.execute(wanted):
                table = CoveredTable(TableName(row.schema, row.table), row.quality)
                covered.setdefault((row.target, row.place, row.run_hash), []).append(table)
        found = [
            record_of(Coverage, row, tables=tuple(sorted(covered.get((row.target, row.place, row.run_hash), ()))))
            for row in rows
        ]
        return sorted(found, key=lambda record: (record.target, record.window, record.run_hash, record.place))


def _is_held(table: Table, record: Coverage) -> tuple[Any, ...]:
    """Whether a row is of what the place of *record* holds of its run."""
    return (
        table.c.pipeline == record.pipeline,
        table.c.place == record.place,
        table.c.run_hash == record.run_hash,
    )


def _is_placeless(table: Table, pipeline: str, targets: Iterable[str]) -> tuple[Any, ...]:
    """Whether a row is of what an earlier version recorded of *targets*."""
    return table.c.pipeline == pipeline, table.c.target.in_(list(targets)), table.c.place == ""


def _coverage_row(record: Coverage) -> dict[str, Any]:
    row = row_of(record)
    del row["tables"]
    return row


def _covered_row(pipeline: str, target: str, place: str, run_hash: str, covered: CoveredTable) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "target": target,
        "place": place,
        "run_hash": run_hash,
        "schema": covered.table.schema,
        "table": covered.table.table,
        "quality": covered.quality,
    }
