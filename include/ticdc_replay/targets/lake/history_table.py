"""One table of a history in a lake, and the statements that bring a window's slice into it.

A load replaces the slice in one commit; where it is empty, which is the usual case, that is an append. A re-drive of a
quarantine adds to it, and replaces equal versions.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

import msgspec

from ticdc_replay.domain.errors import ConfigError, LeaseLostError, TransientError
from ticdc_replay.domain.tables import Column, TableName, TableSchema
from ticdc_replay.targets.base import Load, TableReport
from ticdc_replay.targets.history import columns as columns_
from ticdc_replay.targets.history import scd2 as scd2_columns
from ticdc_replay.targets.history.rows import DDL, OP, PLACE, VersionFile, version_files
from ticdc_replay.targets.history.table import DdlRow, HistoryTable
from ticdc_replay.targets.lake import scd2, tables
from ticdc_replay.targets.lake.commits import Statements, commit
from ticdc_replay.targets.lake.dialect import lake_dialect, quoted, string
from ticdc_replay.targets.lake.history_ledger import HistoryLedger
from ticdc_replay.targets.lake.history_rows import (
    OWN_TYPES,
    CheckTask,
    VersionsTask,
    check,
    layout_of,
    read_versions,
)
from ticdc_replay.targets.lake.lease import HeldLease
from ticdc_replay.targets.lake.mirror import format_of
from ticdc_replay.targets.lake.section import LakeSection
from ticdc_replay.targets.lake.session import LakeSession
from ticdc_replay.targets.lake.table_format import load_name, properties_sql
from ticdc_replay.targets.lake.tables import own_properties
from ticdc_replay.targets.lake.types import spark_type
from ticdc_replay.targets.mirror.planning.tables import ChangeType, MakeColumn, Relation
from ticdc_replay.targets.sql import SqlError

_SLICES, _EMPTIED = "slices", "emptied"
"""What commits of a history change; for each the terms of the table's lease number the transactions of a format that has such."""
_NO_VIEW = ("EXPECT_VIEW_NOT_TABLE", "WRONG_COMMAND_FOR_OBJECT_TYPE")
"""Conditions of errors of Spark about a table that is no view. Iceberg has words alone."""
_PART, _COPY = "_ticdc_replay_part", "_ticdc_replay_copy"
"""Columns of a query while it picks one of equal versions."""


def no_views(config: LakeSection) -> ConfigError:
    """The error for intervals in a catalog without views."""
    return ConfigError(
        f"{config.description}: mode scd2 needs a catalog that holds views, and this one can't. Choose such a catalog, or mode "
        "history and the query in docs/targets.md"
    )


class Part(msgspec.Struct, frozen=True):
    """The rows of one changelog that a slice gets, in files, and the positions that are left out of each."""

    files: tuple[VersionFile, ...]
    left_out: tuple[bytes, ...]


def column_of(column: Column) -> tuple[str, str]:
    """Name and type of *column* in the views that statements take rows from."""
    return column.name.lower(), spark_type(column.type)


def part_of(load: Load, run: str, table: TableName) -> Part:
    """The rows of *table* that the re-drive *run* has added."""
    index = load.index_of(run, [table])
    files = version_files(load, index, index.versions_of(table), column_of)
    task = CheckTask(files, f"{load.folder}/quarantine/{run}.parquet" if load.quarantine_values else None)
    return Part(files, check(task).left_out if files else ())


class LakeHistoryTable(HistoryTable[Part]):
    """One table, whose lease *load* holds."""

    def __init__(
        self,
        config: LakeSection,
        session: LakeSession,
        load: Load,
        lease: HeldLease,
        target: Relation,
        source: TableName,
    ) -> None:
        self._config = config
        self._session = session
        self._sql = session.sql
        self._format = format_of(config)
        self._dialect = lake_dialect(config.database)
        assert isinstance(session.ledger, HistoryLedger), "the ledger of a history"
        self._ledger = session.ledger
        self._load = load
        self._lease = lease
        self._target = target
        self._source = source
        self._commit_ts = config.commit_ts_column
        self.name = self._format.name_of(target)

    def is_there(self) -> bool:
        found = self._session.find_table(self._target)
        if found is None:
            return False
        columns_.require_history(self._target, found, self._commit_ts)
        return True

    @cached_property
    def types(self) -> dict[str, str]:
        return {name: type_name for name, type_name, _ in self._sql.columns(self.name)}

    def make(self, schemas: Sequence[TableSchema], key: Sequence[str]) -> None:
        # First, because Delta has statistics, which find a slice, of the first columns alone.
        columns = [f"{quoted(self._commit_ts)} bigint NOT NULL"]
        columns += [
            f"{quoted(name)} {type_name}{' NOT NULL' if name == OP else ''}" for name, type_name in OWN_TYPES.items()
        ]
        needed = columns_.needed(self._dialect, self._target, schemas).values()
        columns += [f"{quoted(column.name)} {column.type}" for column in needed]
        incarnation = self._ledger.incarnation_of(self._target)
        assert incarnation is not None, "the ledger knows a table before it is made"
        properties = own_properties(incarnation, self._config.ledger, key)
        self._session.create_schema(self._target.schema)
        layout = self._config.layout_of(self._source)
        for statement in self._format.create_table(
            self._target, ", ".join(columns), layout, properties, replaces=False
        ):
            self._sql.run(statement)

    def fit(self, schemas: Sequence[TableSchema]) -> list[str]:
        types = self.types
        steps = columns_.steps_to(self._dialect, self._target, types, schemas)
        for step in steps:
            assert isinstance(step.action, MakeColumn | ChangeType)
            if isinstance(step.action, ChangeType):
                before = types[step.action.column]
                tables.require_change(self._format, self._target, step.action.column, before, step.action.type)
            for statement in tables.statements_of(self._format, self._target, step.action):
                self._sql.run(statement)
        if steps:
            del self.types
        return [step.text for step in steps]

    def key(self) -> tuple[str, ...]:
        found = self._session.find_table(self._target)
        return found.primary_key if found is not None else ()

    def note_key(self, key: Sequence[str]) -> None:
        properties = own_properties(self._incarnation, self._config.ledger, key)
        self._sql.run(f"ALTER TABLE {self.name} SET TBLPROPERTIES ({properties_sql(properties, string)})")

    @property
    def _incarnation(self) -> str:
        return self._ledger.incarnation_of(self._target) or ""

    def rows_of(self, run: str) -> Part:
        return part_of(self._load, run, self._source)

    def drop_view(self, view: Relation) -> None:
        self._session.create_schema(view.schema)
        self._lease.verify()
        self._run_of_view(view, f"DROP VIEW IF EXISTS {self._format.name_of(view)}")

    def fit_view(self, view: Relation, key: Sequence[str]) -> None:
        name, types = self._format.name_of(view), self.types
        try:
            there = {name: type_name for name, type_name, _ in self._sql.columns(name)}
        except SqlError:
            there = {}
        names = scd2_columns.columns_of(types, self._commit_ts)
        own = scd2_columns.OWN
        kept = [types[name] for name in names if name not in own]
        # A view keeps the types that its table had when it was made.
        if (list(there), [there.get(name) for name in names if name not in own]) == (names, kept):
            return
        self._run_of_view(
            view, f"CREATE OR REPLACE VIEW {name} AS {scd2.query(self.name, types, self._commit_ts, key)}"
        )

    def _run_of_view(self, view: Relation, statement: str) -> None:
        """Run *statement*, which drops or makes *view*. Raises ConfigError for a catalog without views, and TargetMismatchError
        for a table of the name."""
        try:
            self._sql.run(statement)
        except SqlError as error:
            if "MISSING_CATALOG_ABILITY" in error.condition or "not supported by catalog" in str(error):
                raise no_views(self._config) from error
            if error.condition.startswith(_NO_VIEW) or "Table with same name already exists" in str(error):
                raise columns_.no_view(view) from error
            raise

    def end(self, report: TableReport) -> None:
        """Raises LeaseLostError, and ends the report that was written, if another run may have loaded the slice before it
        was."""
        self._ledger.note_done(self._load, self._target, report)
        self._ledger.flush()
        try:
            self._lease.verify()
        except LeaseLostError:
            self._ledger.end_runs(self._load, self._target, [self._load.index.run_hash])
            raise

    def emptied_at(self, times: Sequence[int]) -> set[int]:
        """Those of *times* (TSO) at which the table has a row of a DDL that emptied it."""
        if not times:
            return set()
        ts = quoted(self._commit_ts)
        found = self._sql.run(
            f"SELECT DISTINCT {ts} AS ts FROM {self.name} WHERE {quoted(OP)} = 'empty' AND {ts} IN ({', '.join(map(str, times))})"
        )
        return {row["ts"] for row in found}

    def replace(self, parts: Sequence[Part], ddl: Sequence[DdlRow], *, empty: bool) -> str:
        """Raises LeaseLostError, and changes nothing, once another attempt has committed since the lease was taken."""
        old = self._slice()
        with self._rows(parts, ddl) as rows:
            if rows is None:
                if empty:
                    return ""
                rows = f"SELECT * FROM {self.name} WHERE false"

            def statements(name: str, is_first: bool) -> list[str]:
                if empty and is_first:
                    return [f"INSERT INTO {name} {rows}"]
                return self._format.replace_rows(self._sql, name, old, rows)

            return self._commit(_SLICES, statements)

    def add(self, rows: Part, ddl: Sequence[DdlRow]) -> str:
        part = rows
        with self._rows([part], ddl) as added:
            if added is None:
                return ""
            same = " AND ".join(
                f"{self._identity(name, 't')} <=> {self._identity(name, 's')}" for name in self._identities([part])
            )
            cells = {quoted(name): f"s.{quoted(name)}" for name in self.types}
            updates = ", ".join(f"t.{name} = {cell}" for name, cell in cells.items())
            merge = (
                f"t USING ({added}) s ON {self._slice('t.')} AND {same} "
                f"WHEN MATCHED THEN UPDATE SET {updates} "
                f"WHEN NOT MATCHED THEN INSERT ({', '.join(cells)}) VALUES ({', '.join(cells.values())})"
            )
            return self._commit(_SLICES, lambda name, _: [f"MERGE INTO {name} {merge}"])

    def note_emptied(self, ddl: Sequence[DdlRow]) -> None:
        there = self.emptied_at([commit_ts for _, commit_ts, _ in ddl])
        lacking = [each for each in ddl if each[1] not in there]
        if lacking:
            ts, cells = quoted(self._commit_ts), ", ".join(map(quoted, self.types))
            merge = (
                f"t USING ({self._select_ddl(self.types, lacking, None)}) s ON t.{quoted(OP)} = 'empty' AND t.{ts} = s.{ts} "
                f"WHEN NOT MATCHED THEN INSERT ({cells}) VALUES ({cells})"
            )
            self._commit(_EMPTIED, lambda name, _: [f"MERGE INTO {name} {merge}"])

    def _slice(self, of: str = "") -> str:
        window = self._load.index.window
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
    def _rows(self, parts: Sequence[Part], ddl: Sequence[DdlRow]) -> Iterator[str | None]:
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
                    view = f"versions_{len(selects)}_{self._load.attempt}"
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

    def _select_ddl(self, types: Mapping[str, str], ddl: Sequence[DdlRow], part: int | None) -> str:
        lines = ", ".join(f"({string(op)}, {commit_ts}L, {string(text)})" for op, commit_ts, text in ddl)
        have = {OP: "op", self._commit_ts: "ts", DDL: "text", "_commit_time": "timestamp_millis(shiftright(ts, 18))"}
        cells = [
            f"CAST({have.get(name, 'NULL')} AS {type_name}) AS {quoted(name)}" for name, type_name in types.items()
        ]
        cells += [] if part is None else [f"{part} AS {_PART}"]
        return f"SELECT {', '.join(cells)} FROM VALUES {lines} AS ddl(op, ts, text)"

    def _commit(self, what: str, statements: Statements) -> str:
        """Run *statements* as one commit; the snapshot or version."""
        load = self._load
        name = load_name(load.index.run_hash, load.index.window, self._incarnation, f"{load.attempt}/{what}")
        events = 0 if what == _EMPTIED else sum(version.rows for version in load.index.versions_of(self._source))
        done = commit(self._sql, self._format, self._target, self._lease, load, name, events, statements, what=what)
        if done is None:
            raise TransientError(f"{self._target} has not taken the rows, as it has those of a later load; try again")
        return done.id
