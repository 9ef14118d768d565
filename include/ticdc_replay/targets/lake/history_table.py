"""One table of a history, and the statements that bring a window's slice into it.

The slice of a window are the rows whose commitTs is in it. A load replaces it in one commit; where it is empty, which
is the usual case, that is an append. A re-drive of a quarantine adds to it, and replaces equal versions.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex, TableVersion
from ticdc_replay.changelog.files.reading import file_name
from ticdc_replay.domain.errors import TargetMismatchError, TransientError
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.changes import TableChanges, kind_of
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.ddl import words_of
from ticdc_replay.targets.lake import tables
from ticdc_replay.targets.lake.commits import Statements, commit
from ticdc_replay.targets.lake.dialect import quoted, string
from ticdc_replay.targets.lake.history_rows import (
    DDL,
    OP,
    OWN_TYPES,
    PLACE,
    VersionFile,
    VersionsTask,
    layout_of,
    read_versions,
)
from ticdc_replay.targets.lake.lease import HeldLease
from ticdc_replay.targets.lake.section import LakeSection
from ticdc_replay.targets.lake.table_format import TableFormat, load_name
from ticdc_replay.targets.lake.types import holds, spark_type
from ticdc_replay.targets.mirror.planning.tables import ChangeType, ColumnDefinition, MakeColumn, Relation
from ticdc_replay.targets.sql import Sql

_SLICES, _EMPTIED = "slices", "emptied"
"""What commits of a history change; for each the terms of the table's lease number the transactions of a format that has such."""
_PART, _COPY = "_ticdc_replay_part", "_ticdc_replay_copy"
"""Columns of a query while it picks one of equal versions."""


class Part(msgspec.Struct, frozen=True):
    """The rows of one changelog that a slice gets, in files, and the positions that are left out of each."""

    files: tuple[VersionFile, ...]
    left_out: tuple[bytes, ...]


def version_files(load: Load, index: ChangelogIndex, versions: Sequence[TableVersion]) -> tuple[VersionFile, ...]:
    """The files of *versions* of one table, in the changelog *index*."""
    return tuple(
        VersionFile(
            artifacts=load.artifacts,
            table=version.schema.name,
            name=file_name(index, file),
            only=file.only,
            columns=tuple(
                (column.name, column.name.lower(), spark_type(column.type)) for column in version.schema.columns
            ),
            handle_key=version.schema.handle_key,
        )
        for version in versions
        for file in version.files
    )


def require_free_names(table: TableName, schemas: Sequence[TableSchema], config: LakeSection) -> None:
    """Raise TargetMismatchError where *table* has a column with a name that the history, or the format, needs."""
    own = {name.lower() for name in (*OWN_TYPES, config.commit_ts_column, *config.system_columns)}
    taken = sorted({column.name for schema in schemas for column in schema.columns if column.name.lower() in own})
    if taken:
        raise TargetMismatchError(
            f"{table}: a history needs the names of its columns {', '.join(taken)} for itself. Choose another "
            "`commit_ts_column` if it is that; else leave the table out, or load it into a parquet target"
        )


def ddl_rows(changes: Sequence[TableChanges]) -> list[tuple[str, int, str]]:
    """The DDL in *changes* as rows: ``_op``, commitTs (TSO), and what it did. ``empty``: no older row is left after it."""
    return [
        (
            "empty" if entry.ends_rows else "ddl",
            entry.commit_ts,
            "; ".join(f"{kind_of(change)}: {words_of(change)}" for change in entry.changes),
        )
        for entry in changes
    ]


class HistoryTable:
    """One table. For an attempt that holds its lease."""

    def __init__(self, sql: Sql, table_format: TableFormat, target: Relation, source: TableName) -> None:
        self._sql = sql
        self._format = table_format
        self._target = target
        self._source = source
        self._commit_ts = table_format.config.commit_ts_column
        self.name = table_format.name_of(target)

    @cached_property
    def types(self) -> dict[str, str]:
        """Its columns, with their types, in its order."""
        return {name: type_name for name, type_name, _ in self._sql.columns(self.name)}

    def definitions(self, schemas: Sequence[TableSchema]) -> dict[str, ColumnDefinition]:
        """The columns that rows of *schemas* need, by lower name. Raises TargetMismatchError where no type holds all."""
        needed: dict[str, ColumnDefinition] = {}
        for schema in schemas:
            for column in schema.columns:
                name, type_name = column.name.lower(), spark_type(column.type)
                known = needed.get(name)
                if known is None or holds(type_name, known.type):
                    needed[name] = ColumnDefinition(known.name if known else column.name, type_name)
                elif not holds(known.type, type_name):
                    raise self._apart(column.name, known.type, type_name)
        return needed

    def fit(self, schemas: Sequence[TableSchema]) -> list[str]:
        """Add the columns that rows of *schemas* bring, and widen those that can't hold them; what was done.

        Columns that they lack stay. Raises TargetMismatchError where the types of a column can't share it.
        """
        there = {name.lower(): ColumnDefinition(name, type_name) for name, type_name in self.types.items()}
        done: list[str] = []
        for name, column in self.definitions(schemas).items():
            known = there.get(name)
            if known is None:
                action: MakeColumn | ChangeType = MakeColumn(column)
                done.append(f"add column {column.name} {column.type}")
            elif holds(known.type, column.type):
                continue
            elif holds(column.type, known.type):
                tables.require_change(self._format, self._target, known.name, known.type, column.type)
                action = ChangeType(known.name, column.type)
                done.append(f"change column {known.name} from {known.type} to {column.type}")
            else:
                raise self._apart(known.name, known.type, column.type)
            for statement in tables.statements_of(self._format, self._target, action):
                self._sql.run(statement)
        if done:
            del self.types
        return done

    def _apart(self, column: str, before: str, after: str) -> TargetMismatchError:
        return TargetMismatchError(
            f"{self._target}: no type holds the values of column {column} before and after a change from {before} to {after} "
            "unaltered. Load all windows from before the change; then rename the column in the table by hand, so that later rows "
            "get a new one, and load the window again"
        )

    def emptied_at(self, times: Sequence[int]) -> set[int]:
        """Those of *times* (TSO) at which the table has a row of a DDL that emptied it."""
        if not times:
            return set()
        ts = quoted(self._commit_ts)
        found = self._sql.run(
            f"SELECT DISTINCT {ts} AS ts FROM {self.name} WHERE {quoted(OP)} = 'empty' AND {ts} IN ({', '.join(map(str, times))})"
        )
        return {row["ts"] for row in found}

    def replace(
        self,
        load: Load,
        incarnation: str,
        lease: HeldLease,
        parts: Sequence[Part],
        ddl: Sequence[tuple[str, int, str]],
        *,
        empty: bool,
    ) -> str:
        """Make the rows of *parts*, of which later ones replace equal versions of earlier ones, and *ddl* the slice of
        the load's window. *empty*: no load can have brought, or can still bring, a row of it. The snapshot or version
        with it, or "".

        Raises LeaseLostError, and changes nothing, once another attempt has committed since *lease* was taken.
        """
        old = self._slice(load.index.window)
        with self._rows(load, parts, ddl) as rows:
            if rows is None:
                if empty:
                    return ""
                rows = f"SELECT * FROM {self.name} WHERE false"

            def statements(name: str, is_first: bool) -> list[str]:
                if empty and is_first:
                    return [f"INSERT INTO {name} {rows}"]
                return self._format.replace_rows(self._sql, name, old, rows)

            return self._commit(load, incarnation, lease, _SLICES, statements)

    def add(
        self,
        load: Load,
        incarnation: str,
        lease: HeldLease,
        part: Part,
        ddl: Sequence[tuple[str, int, str]],
    ) -> str:
        """Add the rows of *part* and *ddl* to the slice, in place of equal versions; see ``replace``."""
        with self._rows(load, [part], ddl) as rows:
            if rows is None:
                return ""
            same = " AND ".join(
                f"{self._identity(name, 't')} <=> {self._identity(name, 's')}" for name in self._identities([part])
            )
            cells = {quoted(name): f"s.{quoted(name)}" for name in self.types}
            updates = ", ".join(f"t.{name} = {cell}" for name, cell in cells.items())
            merge = (
                f"t USING ({rows}) s ON {self._slice(load.index.window, 't.')} AND {same} "
                f"WHEN MATCHED THEN UPDATE SET {updates} "
                f"WHEN NOT MATCHED THEN INSERT ({', '.join(cells)}) VALUES ({', '.join(cells.values())})"
            )
            return self._commit(load, incarnation, lease, _SLICES, lambda name, _: [f"MERGE INTO {name} {merge}"])

    def note_emptied(self, load: Load, incarnation: str, lease: HeldLease, ddl: Sequence[tuple[str, int, str]]) -> None:
        """Add those of *ddl*, which emptied the table outside of the load's window, that the table has not; see ``replace``."""
        there = self.emptied_at([commit_ts for _, commit_ts, _ in ddl])
        lacking = [each for each in ddl if each[1] not in there]
        if lacking:
            ts, cells = quoted(self._commit_ts), ", ".join(map(quoted, self.types))
            merge = (
                f"t USING ({self._select_ddl(self.types, lacking, None)}) s ON t.{quoted(OP)} = 'empty' AND t.{ts} = s.{ts} "
                f"WHEN NOT MATCHED THEN INSERT ({cells}) VALUES ({cells})"
            )
            self._commit(load, incarnation, lease, _EMPTIED, lambda name, _: [f"MERGE INTO {name} {merge}"])

    def _slice(self, window: Window, of: str = "") -> str:
        column = of + quoted(self._commit_ts)
        return f"{column} >= {window.from_ts} AND {column} < {window.to_ts}"

    def _identities(self, parts: Sequence[Part]) -> list[str]:
        """What tells versions apart: the row, its commitTs, and whether it is put, deleted, or DDL.

        Rows with one commitTs are of one definition. Those of definitions with another key have NULL, or a value that all
        copies of a version share, in the columns that other definitions need.
        """
        keys = [file.handle_key for part in parts for file in part.files]
        names = dict.fromkeys(name.lower() for key in keys for name in key)
        return [OP, self._commit_ts, DDL, *names, *(PLACE if not all(keys) or not keys else ())]

    def _identity(self, name: str, of: str) -> str:
        cell = f"{of}.{quoted(name)}"
        return f"if({cell} IN ('delete', 'ddl', 'empty'), {cell}, 'put')" if name == OP else cell

    @contextmanager
    def _rows(self, load: Load, parts: Sequence[Part], ddl: Sequence[tuple[str, int, str]]) -> Iterator[str | None]:
        """A query for the rows, with all columns of the table; None where there are none."""
        types = self.types
        selects: list[str] = []
        with ExitStack() as views:
            for number, part in enumerate(parts):
                groups: dict[tuple[tuple[str, str, str], ...], list[VersionsTask]] = {}
                for file, left_out in zip(part.files, part.left_out, strict=True):
                    groups.setdefault(file.columns, []).append(VersionsTask(file, left_out, self._commit_ts))
                for tasks in groups.values():
                    layout = layout_of(tasks[0].file, self._commit_ts)
                    view = f"versions_{len(selects)}_{load.attempt}"
                    definition = ", ".join(f"{quoted(name)} {type_name}" for name, type_name in layout.items())
                    views.enter_context(self._sql.view(view, read_versions, tasks, definition))
                    selects.append(self._select(types, layout, view, number if len(parts) > 1 else None))
            if ddl:
                selects.append(self._select_ddl(types, ddl, len(parts) if len(parts) > 1 else None))
            rows = " UNION ALL ".join(selects)
            if len(parts) > 1 and rows:
                identity = ", ".join(self._identity(name, "r") for name in self._identities(parts))
                names = ", ".join(map(quoted, types))
                rows = (
                    f"SELECT {names} FROM (SELECT *, row_number() OVER "
                    f"(PARTITION BY {identity} ORDER BY {_PART} DESC) AS {_COPY} FROM ({rows}) r) WHERE {_COPY} = 1"
                )
            yield rows or None

    def _select(self, types: Mapping[str, str], layout: Mapping[str, str], view: str, part: int | None) -> str:
        have = {name.lower(): name for name in layout}
        cells = []
        for name, type_name in types.items():
            cell = quoted(have[name.lower()]) if name.lower() in have else "NULL"
            cells.append(f"CAST({cell} AS {type_name}) AS {quoted(name)}")
        return f"SELECT {', '.join([*cells, *([] if part is None else [f'{part} AS {_PART}'])])} FROM {view}"

    def _select_ddl(self, types: Mapping[str, str], ddl: Sequence[tuple[str, int, str]], part: int | None) -> str:
        lines = ", ".join(f"({string(op)}, {commit_ts}L, {string(text)})" for op, commit_ts, text in ddl)
        have = {OP: "op", self._commit_ts: "ts", DDL: "text", "_commit_time": "timestamp_millis(shiftright(ts, 18))"}
        cells = [
            f"CAST({have.get(name, 'NULL')} AS {type_name}) AS {quoted(name)}" for name, type_name in types.items()
        ]
        cells += [] if part is None else [f"{part} AS {_PART}"]
        return f"SELECT {', '.join(cells)} FROM VALUES {lines} AS ddl(op, ts, text)"

    def _commit(self, load: Load, incarnation: str, lease: HeldLease, what: str, statements: Statements) -> str:
        """Run *statements* as one commit; the snapshot or version."""
        name = load_name(load.index.run_hash, load.index.window, incarnation, f"{load.attempt}/{what}")
        events = 0 if what == _EMPTIED else sum(version.rows for version in load.index.versions_of(self._source))
        done = commit(self._sql, self._format, self._target, lease, load, name, events, statements, what=what)
        if done is None:
            raise TransientError(f"{self._target} has not taken the rows, as it has those of a later load; try again")
        return done.id
