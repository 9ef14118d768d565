"""Random histories of an upstream's tables, rows and DDL mixed, with a model of the tables that shares nothing with the library.

The DDL is of the kinds that a mirror follows, and RENAME where it is asked for, at every place: before and after rows, without
any row, at a row's own commitTs, upon columns that other DDL has added. ``changelogs`` cuts a history into windows, as decode
would write them.
"""

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
from hypothesis import strategies as st

from tests.support.changelogs import Changelog, Row, delete, put, table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.schemas.ddl.reader import definition_from_sql

TABLES = ("a", "b")
FIRST_TS = 100


class Type(NamedTuple):
    """A type as the upstream's DDL has it, as the changelog has it, and as the mirror shows it."""

    text: str
    column: ColumnType
    mirrored: str


def _type(text: str, base: str, mirrored: str, length: int | None = None, scale: int | None = None) -> Type:
    return Type(text, ColumnType(base, length=length, scale=scale, declared=True), mirrored)


FAMILIES = (
    (
        _type("SMALLINT", "smallint", "smallint"),
        _type("INT", "int", "integer"),
        _type("BIGINT", "bigint", "bigint"),
    ),
    (
        _type("VARCHAR(10)", "varchar", "text", 10),
        _type("VARCHAR(30)", "varchar", "text", 30),
        _type("TEXT", "text", "text"),
    ),
    (
        _type("DECIMAL(6,2)", "decimal", "numeric(6,2)", 6, 2),
        _type("DECIMAL(8,2)", "decimal", "numeric(8,2)", 8, 2),
        _type("DECIMAL(12,4)", "decimal", "numeric(12,4)", 12, 4),
    ),
)
"""Each type of a family has all values of those before it."""
VALUES: tuple[tuple[object, ...], ...] = (
    (1, -7, 42),
    ("x", "it's", ""),
    (Decimal("1.25"), Decimal("-3.50"), Decimal(0)),
)
ZEROS: tuple[object, ...] = (0, "", Decimal(0))


class Column(NamedTuple):
    """A column: its family, which type of it, and what rows show that have no value of their own, where a DDL has added it."""

    family: int
    width: int
    origin: object = None
    not_null: bool = False

    @property
    def type(self) -> Type:
        return FAMILIES[self.family][self.width]


Cells = dict[str, object]


class Table(NamedTuple):
    """A table at a moment. ``since``: the commitTs of the DDL that gave it its columns."""

    columns: dict[str, Column]
    rows: dict[int, Cells]
    since: int

    def create(self, name: str) -> str:
        """Its CREATE TABLE."""
        columns = [
            f"`{name}` {each.type.text}{' NOT NULL' if each.not_null else ''}" for name, each in self.columns.items()
        ]
        return f"CREATE TABLE `{name}` ({', '.join(columns)}, PRIMARY KEY (`id`))"


class Step(NamedTuple):
    """What somebody does next; numbers are taken modulo what there is to choose from."""

    kind: str
    table: str
    key: int
    value: int
    choice: int
    after: int


def _steps(*more: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(
        st.builds(
            Step,
            st.sampled_from(
                [
                    *("put", "put", "put", "delete", "add", "add", "add", "modify", "modify", "modify"),
                    *("default", "comment", "truncate", "recreate", "drop", "create"),
                    *more,
                ]
            ),
            st.sampled_from(TABLES),
            st.integers(1, 3),
            st.integers(0, 2),
            st.integers(0, 30),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=14,
    )


STEPS = _steps()
STEPS_WITH_RENAMES = _steps("rename", "rename", "rename")
"""A mirror does not follow a RENAME."""


class Event(NamedTuple):
    """One change: of a row, or by a DDL. ``schema``: the columns of the row; ``sql`` does the same to a real server."""

    commit_ts: int
    table: str
    sql: str
    row: Row | None = None
    schema: TableSchema | None = None


class History(NamedTuple):
    """What happened: events by commitTs, and the tables before the first and after the last of them."""

    database: str
    before: dict[str, Table]
    events: list[Event]
    tables: dict[str, Table]
    definitions: dict[str, list[tuple[int, Table | None]]]
    """By table: from which commitTs (exclusive) on it is what."""
    end_ts: int
    unlike: bool
    """Whether a table was made again with other columns than the one before it."""

    def definition(self, name: str, at: int) -> TableDefinition | None:
        """The definition that rows of the commitTs *at* have."""
        found = [known for since, known in self.definitions[name] if since < at]
        if not found or found[-1] is None:
            return None
        known = found[-1]
        definition = definition_from_sql(TableName(self.database, name), known.create(name))
        return msgspec.structs.replace(definition, valid_from=known.since)


class _Upstream:
    """The tables while *steps* are done to them."""

    def __init__(self, database: str, known: Sequence[str]) -> None:
        self.database = database
        self.ts = FIRST_TS
        self.last_ddl = FIRST_TS
        self.tables = {name: Table({"id": Column(0, 1, not_null=True), "v": Column(1, 0)}, {}, 0) for name in known}
        self.definitions: dict[str, list[tuple[int, Table | None]]] = {
            name: [(0, self.tables[name])] if name in self.tables else [] for name in TABLES
        }
        self.events: list[Event] = []
        self.numbers = 0
        self.past: dict[str, Table] = {}
        self.unlike = False

    def do(self, step: Step) -> None:
        """Do *step*; what can't be done now is left out."""
        there = self.tables.get(step.table)
        if step.kind in ("put", "delete"):
            if there is not None:
                self.ts = max(self.ts + max(step.after, 1), self.last_ddl + 1)
                self._change_row(step, there)
        elif there is None:
            if step.kind in ("create", "recreate"):
                self._create(step)
        elif step.kind == "recreate":
            self._drop(step, there)
            self._create(step)
        elif step.kind == "drop":
            self._drop(step, there)
        elif step.kind == "rename":
            self._rename(step, there)
        elif step.kind == "truncate":
            there.rows.clear()
            self._ddl(step, f"TRUNCATE TABLE `{step.table}`")
        elif step.kind in ("add", "modify"):
            self._alter(step, there)
        elif step.kind == "comment":
            self._ddl(step, f"ALTER TABLE `{step.table}` COMMENT = 'c{step.choice}'")
        elif step.kind == "default":
            name = list(there.columns)[step.choice % len(there.columns)]
            column = there.columns[name]
            if column.type.text != "TEXT" and name != "id":
                default = _literal(VALUES[column.family][step.value])
                self._ddl(step, f"ALTER TABLE `{step.table}` ALTER COLUMN `{name}` SET DEFAULT {default}")

    def _change_row(self, step: Step, there: Table) -> None:
        schema = table(
            f"{self.database}.{step.table}",
            {name: column.type.column for name, column in there.columns.items()},
            valid_from=there.since,
        )
        if step.kind == "delete":
            if there.rows.pop(step.key, None) is not None:
                sql = f"DELETE FROM `{step.table}` WHERE id = {step.key}"
                self.events.append(Event(self.ts, step.table, sql, delete(self.ts, id=step.key), schema))
            return
        cells: Cells = {}
        for at, (name, column) in enumerate(there.columns.items()):
            chosen = (step.value + at * step.choice) % 4
            null = chosen == 3 and not column.not_null
            cells[name] = step.key if name == "id" else None if null else VALUES[column.family][chosen % 3]
        there.rows[step.key] = cells
        names = ", ".join(f"`{name}`" for name in cells)
        sql = f"REPLACE INTO `{step.table}` ({names}) VALUES ({', '.join(map(_literal, cells.values()))})"
        self.events.append(Event(self.ts, step.table, sql, put(self.ts, **cells), schema))

    def _ddl(self, step: Step, sql: str) -> None:
        # At the commitTs of the row before it, where the step comes at once: the row is older than the DDL.
        self.ts = max(self.ts + step.after, self.last_ddl + 1)
        self.last_ddl = self.ts
        self.events.append(Event(self.ts, step.table, sql))

    def _is_now(self, name: str, now: Table | None) -> None:
        if now is None:
            del self.tables[name]
        else:
            now = now._replace(since=self.ts)
            self.tables[name] = now
        self.definitions[name].append((self.ts, now))

    def _drop(self, step: Step, there: Table) -> None:
        self.past[step.table] = there
        self._ddl(step, f"DROP TABLE `{step.table}`")
        self._is_now(step.table, None)

    def _rename(self, step: Step, there: Table) -> None:
        new = next(name for name in TABLES if name != step.table)
        if new not in self.tables:
            self._ddl(step._replace(table=new), f"RENAME TABLE `{step.table}` TO `{new}`")
            self._is_now(step.table, None)
            self._is_now(new, there)

    def _create(self, step: Step) -> None:
        columns = {"id": Column(0, 1, not_null=True), "v": Column(1, 0)}
        if step.choice % 2:
            columns[f"w{step.choice % 3}"] = Column(step.value, 0)
        made = Table(columns, {}, 0)
        past = self.past.get(step.table)
        if past is not None and {name: each.type for name, each in past.columns.items()} != {
            name: each.type for name, each in columns.items()
        }:
            self.unlike = True
        self._ddl(step, made.create(step.table))
        self._is_now(step.table, made)

    def _alter(self, step: Step, there: Table) -> None:
        columns = dict(there.columns)
        if step.kind == "add":
            self.numbers += 1
            name, family = f"n{self.numbers}", step.choice % 3
            not_null, with_default = step.choice % 2 == 1, step.choice % 5 > 1
            origin = VALUES[family][step.value] if with_default else ZEROS[family] if not_null else None
            columns[name] = Column(family, 0, origin, not_null)
            for row in there.rows.values():
                row[name] = origin
            text = FAMILIES[family][0].text + (" NOT NULL" if not_null else "")
            text += f" DEFAULT {_literal(origin)}" if with_default else ""
            place = ("", " FIRST", " AFTER `id`")[step.value]
            self._ddl(step, f"ALTER TABLE `{step.table}` ADD COLUMN `{name}` {text}{place}")
        else:
            names = [name for name, column in columns.items() if column.width < 2]
            if not names:
                return
            name = names[-1 - step.choice % len(names)]
            wider = columns[name]._replace(width=columns[name].width + 1)
            columns[name] = wider
            text = wider.type.text + (" NOT NULL" if wider.not_null else "")
            self._ddl(step, f"ALTER TABLE `{step.table}` MODIFY COLUMN `{name}` {text}")
        self._is_now(step.table, there._replace(columns=columns))


def happened(database: str, known: Sequence[str], steps: Sequence[Step]) -> History:
    """What *steps* do in *database*, which has the tables *known* before."""
    upstream = _Upstream(database, known)
    before = dict(upstream.tables)
    for step in steps:
        upstream.do(step)
    return History(
        database, before, upstream.events, upstream.tables, upstream.definitions, upstream.ts + 1, upstream.unlike
    )


def changelogs(history: History, folder: Path, cuts: Sequence[int]) -> list[Changelog]:
    """*history* in windows, which end at *cuts* and at its end."""
    bounds = sorted({FIRST_TS, history.end_ts, *(cut for cut in cuts if FIRST_TS < cut < history.end_ts)})
    return [_window(history, folder, start, end) for start, end in pairwise(bounds)]


def _window(history: History, folder: Path, start: int, end: int) -> Changelog:
    window = Changelog(folder, start, end)
    window.knows(*(known for name in TABLES if (known := history.definition(name, start)) is not None))
    rows: dict[TableSchema, list[Row]] = {}
    for event in history.events:
        if start <= event.commit_ts < end:
            if event.row is None or event.schema is None:
                window.ddl(event.commit_ts, event.sql, table=f"{history.database}.{event.table}")
            else:
                rows.setdefault(event.schema, []).append(event.row)
    for schema, of_schema in rows.items():
        window.rows(schema, of_schema, files=2)
    return window


def defaults_of(history: History, name: str) -> Callable[[str], object]:
    """What rows show in a column of the table *name*, those that are older than the column; nothing where no such row is left."""
    emptied = max(
        (
            event.commit_ts
            for event in history.events
            if event.table == name and event.sql.startswith(("TRUNCATE", "DROP", "CREATE"))
        ),
        default=0,
    )
    added: dict[str, object] = {
        column: history.tables[name].columns[column].origin
        for event in _alterations(history, name)
        if event.commit_ts > emptied and (column := event.sql.split("`")[3]) in history.tables[name].columns
    }
    return lambda column: added.get(column)


def _alterations(history: History, name: str) -> Iterator[Event]:
    return (event for event in history.events if event.table == name and " ADD COLUMN " in event.sql)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
