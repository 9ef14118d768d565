"""For each kind of DDL what a mirror does: one test per row of the table in docs/targets.md, held against a model.

The windows are [0, 100) before the DDL, [100, 200) with it at 150, and [200, 300) after it. Each history has an upstream
database, and so a schema of the mirror, of its own.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from demo.embedded_stack.postgres import Postgres
from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.ddl_outcomes import COLUMNS, CREATE, STATEMENTS, Cells, Rows, Statement, event_table
from ticdc_replay.config.target_rules import MIRROR
from ticdc_replay.domain.errors import PermanentError, PolicyStopError
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.schemas.ddl.reader import definition_from_sql

pytestmark = pytest.mark.integration

FIRST = list({(statement.kind, statement.row): statement for statement in reversed(STATEMENTS)}.values())
"""One statement of each row."""
APPLIED = [each for each in FIRST if MIRROR[each.kind].outcome in ("apply", "nothing")]
STOPPED = [each for each in FIRST if MIRROR[each.kind].outcome in ("stop", "rebuild")]
BY_POLICY = [each for each in APPLIED if MIRROR[each.kind].policy]
DDL_TS = 150
DUMP_TS = 155
FOLLOW = {"truncate": "apply", "drop": "apply"}


@pytest.fixture(scope="module")
def mirror(postgres: Postgres) -> Iterator[Mirror]:
    """One database for all histories."""
    dsn = postgres.create_database("ddl_outcomes")
    yield Mirror(dsn)
    postgres.drop_database("ddl_outcomes")


class History(NamedTuple):
    """What happened upstream to the table ``t`` of a database."""

    statement: Statement
    database: str
    folder: Path

    @property
    def table(self) -> str:
        return f"{self.database}.t"

    @property
    def table_after(self) -> str:
        """What the table is called after the DDL."""
        return f"{self.database}.t2" if self.statement.kind == "renamed_away" else self.table

    @property
    def tables(self) -> tuple[str, ...]:
        """What the pipeline wants."""
        return tuple(dict.fromkeys((self.table, self.table_after)))

    @property
    def before(self) -> list[Row]:
        if self.statement.kind in ("table_created", "renamed_here"):
            return []
        rows = [put(10 + key, **cells_of(key, "a")) for key in (1, 2, 3, 9)]
        return [*rows, delete(20, id=9)]

    @property
    def just_before(self) -> list[Row]:
        """In the window of the DDL, the last one at its very commitTs."""
        if not self.before:
            return []
        return [put(110, **cells_of(2, "b")), put(DDL_TS, **cells_of(4, "b"))]

    @property
    def just_after(self) -> list[Row]:
        return [put(160, **self.cells_after(5)), put(161, **self.cells_after(6))]

    @property
    def after(self) -> list[Row]:
        key = self.statement.key
        return [put(210, **self.cells_after(3)), delete(220, **{key: self.cells_after(6)[key]})]

    def cells_after(self, key: int) -> Cells:
        cells: dict[str, object] = {"id": key, "u": key, "n": 7}
        columns = self.statement.columns
        return {
            name: str(cells.get(name, "c")) if columns[name].base == "varchar" else cells.get(name) for name in columns
        }

    def upstream(self, until: int = 300) -> Rows:
        """The rows of the upstream at *until*."""
        events: list[tuple[int, Callable[[Rows], Rows]]] = [
            (row.commit_ts, changing(row))
            for row in itertools.chain(self.before, self.just_before, self.just_after, self.after)
        ]
        events.append((DDL_TS, self.statement.then))
        rows: Rows = {}
        for commit_ts, change in sorted(
            events, key=lambda event: event[0]
        ):  # stable: the DDL after rows of its commitTs
            if commit_ts <= until:
                rows = change(rows)
        return rows

    def windows(self) -> tuple[Changelog, Changelog, Changelog]:
        second = self.with_ddl(200).rows(self.schema_before, self.just_before).rows(self.schema_after, self.just_after)
        return (
            Changelog(self.folder, 0, 100).rows(self.schema_before, self.before),
            second,
            Changelog(self.folder, 200, 300).rows(self.schema_after, self.after),
        )

    def window_up_to_the_ddl(self) -> Changelog:
        return self.with_ddl(DDL_TS + 1).rows(self.schema_before, self.just_before)

    def with_ddl(self, to_ts: int) -> Changelog:
        window = Changelog(self.folder, 100, to_ts)
        if self.statement.kind not in ("table_created", "renamed_here"):
            window.knows(definition_from_sql(TableName(self.database, "t"), CREATE))
        query = self.statement.query.replace("{db}", self.database)
        window.ddl(DDL_TS, query, table=event_table(self.statement, self.database))
        if self.statement.kind == "dropped" and to_ts == 200:
            window.ddl(DDL_TS + 1, CREATE, table=self.table)
        return window

    @property
    def schema_before(self) -> TableSchema:
        return table(self.table, COLUMNS)

    @property
    def schema_after(self) -> TableSchema:
        statement = self.statement
        same_form = (statement.columns, statement.key, statement.kind) == (COLUMNS, "id", "no_row_change")
        return table(self.table_after, statement.columns, [statement.key], valid_from=0 if same_form else DDL_TS)


def cells_of(key: int, text: str) -> Cells:
    return {"id": key, "v": text, "u": key}


def changing(row: Row) -> Callable[[Rows], Rows]:
    if row.op != "delete":
        return lambda rows: {**rows, int(str(row.cells["id"])): dict(row.cells)}
    ((name, value),) = row.cells.items()
    return lambda rows: {key: cells for key, cells in rows.items() if cells[name] != value}


def shown(rows: Iterable[Cells]) -> list[tuple[str, ...]]:
    """*rows* as text, sorted; cells by the name of their column."""
    return sorted(tuple(f"{name}={row[name]}" for name in sorted(row)) for row in rows)


def mirrored(mirror: Mirror, name: str) -> list[tuple[str, ...]]:
    """The rows of the mirror *name*; none where it is not there."""
    try:
        found = mirror.rows(f"SELECT to_jsonb(t) - '_commit_ts' FROM {name} t")
    except psycopg.errors.UndefinedTable:
        return []
    return shown({name: str(cell).replace("T", " ") for name, cell in row.items()} for (row,) in found)


def history_of(statement: Statement, tmp_path: Path, name: str) -> History:
    return History(statement, f"{name}_{FIRST.index(statement)}", tmp_path)


def name_of(statement: Statement) -> str:
    return f"{statement.kind}: {statement.query}"


ORDERS = {"in order": (0, 1, 2), "the latest first": (2, 1, 0), "the DDL last": (0, 2, 1)}


@pytest.mark.parametrize("statement", APPLIED, ids=name_of)
def test_ddl_that_is_followed_ends_as_the_upstream_in_whatever_order_windows_come(
    mirror: Mirror, tmp_path: Path, statement: Statement
) -> None:
    for number, order in enumerate(ORDERS.values()):
        history = history_of(statement, tmp_path / str(number), f"order{number}")
        windows = history.windows()
        mirror.load_all((windows[at] for at in order), tables=history.tables, **FOLLOW)
        assert mirrored(mirror, history.table) == shown(history.upstream().values())
    for at in (1, 0):  # the one with the DDL again, then one that is older
        mirror.load(windows[at], tables=history.tables, reload=True, **FOLLOW)
    assert mirrored(mirror, history.table) == shown(history.upstream().values())


@pytest.mark.parametrize("statement", BY_POLICY, ids=name_of)
def test_what_policies_forbid_to_follow_stops(mirror: Mirror, tmp_path: Path, statement: Statement) -> None:
    policy = MIRROR[statement.kind].policy
    stops_until_a_person_did_it(mirror, history_of(statement, tmp_path, "policy"), **{str(policy): "stop"})


@pytest.mark.parametrize("statement", STOPPED, ids=name_of)
def test_ddl_that_stops_goes_on_as_the_message_says(mirror: Mirror, tmp_path: Path, statement: Statement) -> None:
    stops_until_a_person_did_it(mirror, history_of(statement, tmp_path, "stop"))


def stops_until_a_person_did_it(mirror: Mirror, history: History, **policies: str) -> None:
    def load(window: Changelog, **changes: bool) -> None:
        mirror.load(window, tables=history.tables, **policies, **changes)

    first, second, third = history.windows()
    statement = history.statement
    told = rf"{history.table} at {DDL_TS} [\s\S]*: {MIRROR[statement.kind].remedy}"
    load(first)
    with pytest.raises(PolicyStopError, match=told):
        load(second)
    assert mirrored(mirror, history.table) == shown(rows_of(history.before).values()), "nothing was touched"
    if statement.by_hand:
        ends_with_it = history.window_up_to_the_ddl()
        with pytest.raises(PolicyStopError, match=told + r"[\s\S]*Raise each mirror's floor to 151"):
            load(ends_with_it)
        assert mirrored(mirror, history.table) == shown(rows_of([*history.before, *history.just_before]).values())
        mirror.execute(statement.by_hand.replace("{t}", history.table))
        for name in history.tables:
            mirror.raise_floor(name, DDL_TS + 1)
        load(ends_with_it)
    else:
        fill_anew(mirror, history, DUMP_TS)
    for window in (second, third):
        load(window)
    load(first, reload=True)
    assert mirrored(mirror, history.table_after) == shown(history.upstream().values())


def rows_of(events: Iterable[Row]) -> Rows:
    rows: Rows = {}
    for row in events:
        rows = changing(row)(rows)
    return rows


def fill_anew(mirror: Mirror, history: History, dump_ts: int) -> None:
    """As docs/targets.md has it: a dump of the upstream at a TSO, which is the floor from then on."""
    dump = history.upstream(dump_ts).values()
    values = ", ".join(f"({row['id']}, '{row['v']}', {row['u']}, {dump_ts})" for row in dump)
    mirror.execute(
        f"""
        CREATE SCHEMA IF NOT EXISTS {history.database};
        CREATE TABLE IF NOT EXISTS {history.table}
            (id integer PRIMARY KEY, v text COLLATE "C", u integer, _commit_ts bigint NOT NULL);
        TRUNCATE {history.table};
        INSERT INTO {history.table} (id, v, u, _commit_ts) VALUES {values}"""
    )
    mirror.raise_floor(history.table, dump_ts)


@pytest.mark.parametrize("statement", STOPPED, ids=name_of)
def test_ddl_that_stops_is_not_passed_over_where_a_later_window_came_first(
    mirror: Mirror, tmp_path: Path, statement: Statement
) -> None:
    history = history_of(statement, tmp_path, "late")
    first, second, third = history.windows()
    mirror.load(first, tables=history.tables)
    try:
        mirror.load(third, tables=history.tables)
    except PermanentError:
        return  # the form of its rows told
    told = rf"{history.table} at {DDL_TS}"
    if history.table_after == history.table:
        told += rf"[\s\S]*{history.table}: its mirror has rows from after this window.* dump of the upstream at or after 220 "
    with pytest.raises(PolicyStopError, match=told):
        mirror.load(second, tables=history.tables)
    if not statement.by_hand:
        fill_anew(mirror, history, 220)
        for window in (second, third):
            mirror.load(window, tables=history.tables)
        assert mirrored(mirror, history.table) == shown(history.upstream().values())
