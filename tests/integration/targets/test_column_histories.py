"""A mirror has the columns and values of the upstream's table, wherever columns are added, dropped, renamed and added again,
however the history is cut into windows, and in whatever order these are loaded, also twice. With ``drop_column: keep`` it also
has dropped columns until another one takes their name."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from demo.embedded_stack.postgres import Postgres
from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, Row, delete, put
from tests.support.examples import examples
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableSchema
from ticdc_replay.schemas.history import SchemaHistory

pytestmark = pytest.mark.integration

NUMBERS = count()
FIRST_TS, STEP = 100, 10
NAMES = ("a", "b", "c")
TYPE = "VARCHAR(20)"
CREATE = f"CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `a` {TYPE}, `b` {TYPE})"
Cells = dict[str, object]


@pytest.fixture(scope="module")
def mirror(postgres: Postgres) -> Iterator[Mirror]:
    """One database for all histories: each has an upstream database, and so a schema of the mirror, of its own."""
    dsn = postgres.create_database("column_histories")
    yield Mirror(dsn)
    postgres.drop_database("column_histories")


class Step(NamedTuple):
    """What somebody does next; numbers are taken modulo what there is to choose from. *gap*: TSO after the step before."""

    kind: str
    key: int
    choice: int
    gap: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["put", "put", "put", "delete", "add", "add", "drop", "drop", "rename", "rename"]),
        st.integers(1, 3),
        st.integers(0, 5),
        st.integers(1, STEP),
    ),
    min_size=2,
    max_size=14,
)


class Upstream:
    """The table while steps are done to it, and what the changefeed sends of them."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.ts = FIRST_TS
        self.columns: list[str] = ["a", "b"]
        self.rows: dict[int, Cells] = {}
        self.ddl: list[DdlEvent] = [DdlEvent(0, 1, database, "t", CREATE, 0)]
        self.changes: list[Row] = []
        self.kept: dict[str, dict[int, object]] = {}
        """What a mirror may keep: by dropped columns the cells of rows that have not changed since, by key."""

    def do(self, step: Step) -> None:
        """Do *step*; what can't be done now is left out."""
        self.ts += step.gap
        free = [name for name in NAMES if name not in self.columns]
        if step.kind == "put":
            cells: Cells = {name: f"{name}{self.ts}" if step.choice else None for name in self.columns}
            self.rows[step.key] = {"id": step.key, **cells}
            self._forget(step.key)
            self.changes.append(put(self.ts, id=step.key, **cells))
        elif step.kind == "delete":
            if self.rows.pop(step.key, None) is not None:
                self._forget(step.key)
                self.changes.append(delete(self.ts, id=step.key))
        elif step.kind == "add" and free:
            name, fill = free[step.choice % len(free)], f"fill{self.ts}" if step.choice % 2 else None
            self._alter(f"ADD COLUMN `{name}` {TYPE}" + (f" DEFAULT '{fill}'" if fill else "") + " AFTER `id`")
            self.columns.insert(0, name)
            self.kept.pop(name, None)
            self.rows = {key: {**row, name: fill} for key, row in self.rows.items()}
        elif step.kind == "drop" and self.columns:
            name = self.columns[step.choice % len(self.columns)]
            self._alter(f"DROP COLUMN `{name}`")
            self.columns.remove(name)
            self.kept[name] = {key: row[name] for key, row in self.rows.items()}
            self.rows = {
                key: {each: cell for each, cell in row.items() if each != name} for key, row in self.rows.items()
            }
        elif step.kind == "rename" and self.columns and free:
            name, to = self.columns[step.choice % len(self.columns)], free[step.choice % len(free)]
            self._alter(f"RENAME COLUMN `{name}` TO `{to}`")
            self.columns[self.columns.index(name)] = to
            self.kept.pop(to, None)
            self.rows = {
                key: {to if each == name else each: cell for each, cell in row.items()}
                for key, row in self.rows.items()
            }

    def _forget(self, key: int) -> None:
        for cells in self.kept.values():
            cells.pop(key, None)

    def _alter(self, action: str) -> None:
        self.ddl.append(DdlEvent(0, self.ts, self.database, "t", f"ALTER TABLE `t` {action}", 0))

    def windows(self, folder: Path, cuts: Sequence[int]) -> list[Changelog]:
        """What happened in windows, which end at *cuts*; none of those in which nothing did."""
        end_ts = self.ts + 1
        bounds = sorted({FIRST_TS, end_ts, *(cut for cut in cuts if FIRST_TS < cut < end_ts)})
        return [window for start, end in pairwise(bounds) if (window := self._window(folder, start, end)) is not None]

    def _window(self, folder: Path, start: int, end: int) -> Changelog | None:
        """As decode makes it, which knows the table just before the window."""
        history = SchemaHistory(ddls=self.ddl)
        window = Changelog(folder, start, end)
        known = history.definition_at(self.database, "t", start)
        assert known is not None
        window.knows(known)
        of_window = [ddl for ddl in self.ddl if start <= ddl.commit_ts < end]
        for ddl in of_window:
            window.ddl(ddl.commit_ts, ddl.query, table=f"{self.database}.t")
        rows: dict[TableSchema, list[Row]] = {}
        for row in self.changes:
            if start <= row.commit_ts < end:
                at = history.known_at(self.database, "t", row.commit_ts)
                assert at is not None
                rows.setdefault(at.schema, []).append(row)
        for schema, of_schema in rows.items():
            window.rows(schema, of_schema, files=2)
        return window if rows or of_window else None


def load_all(mirror: Mirror, windows: Sequence[Changelog], data: st.DataObject, drop_column: str) -> None:
    """Load *windows* in any order, some twice. One that asks for windows between comes again after them."""
    mirror.load_all(data.draw(st.permutations(windows)), drop_column=drop_column)
    for window in windows:
        if data.draw(st.integers(0, 3)) == 0:
            mirror.load(window, drop_column=drop_column, reload=True)


def shown(row: Mapping[str, object]) -> list[tuple[str, object]]:
    return sorted(row.items())


def happened(steps: Sequence[Step]) -> Upstream:
    upstream = Upstream(f"d{next(NUMBERS)}")
    for step in steps:
        upstream.do(step)
    return upstream


def load_history(
    mirror: Mirror, upstream: Upstream, folder: Path, data: st.DataObject, drop_column: str
) -> tuple[list[Cells], list[str]]:
    """The rows and the columns of the mirror after all windows."""
    cuts = data.draw(st.lists(st.integers(FIRST_TS, upstream.ts), max_size=5))
    load_all(mirror, upstream.windows(folder, cuts), data, drop_column)
    if not upstream.changes:
        return [], ["_commit_ts", "id", *upstream.columns]
    found = mirror.rows(f"SELECT to_jsonb(t) - '_commit_ts' FROM {upstream.database}.t t ORDER BY id")
    columns = mirror.rows(
        f"SELECT attname FROM pg_attribute WHERE attrelid = '{upstream.database}.t'::regclass "
        "AND attnum > 0 AND NOT attisdropped"
    )
    mirror.execute(f"DROP SCHEMA IF EXISTS {upstream.database} CASCADE")
    return [row for (row,) in found], [name for (name,) in columns]


@settings(max_examples=examples(0.3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, data=st.data())
def test_columns_that_come_go_and_change_names_end_as_the_upstream_s_in_any_order_of_windows(
    mirror: Mirror, tmp_path_factory: pytest.TempPathFactory, steps: list[Step], data: st.DataObject
) -> None:
    upstream = happened(steps)
    rows, columns = load_history(mirror, upstream, tmp_path_factory.mktemp("history"), data, "apply")
    assert list(map(shown, rows)) == [shown(upstream.rows[key]) for key in sorted(upstream.rows)]
    assert sorted(columns) == sorted(["id", "_commit_ts", *upstream.columns])


@settings(max_examples=examples(0.3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, data=st.data())
def test_dropped_columns_are_kept_until_another_one_takes_their_name_in_any_order_of_windows(
    mirror: Mirror, tmp_path_factory: pytest.TempPathFactory, steps: list[Step], data: st.DataObject
) -> None:
    upstream = happened(steps)
    rows, columns = load_history(mirror, upstream, tmp_path_factory.mktemp("history"), data, "keep")
    expected = [
        {**upstream.rows[key], **{name: cells.get(key) for name, cells in upstream.kept.items()}}
        for key in sorted(upstream.rows)
    ]
    lacking = dict.fromkeys(upstream.kept.keys() - set(columns))  # of which no row has come
    assert [shown({**lacking, **row}) for row in rows] == list(map(shown, expected))
    assert {"id", "_commit_ts", *upstream.columns} <= set(columns)
    assert set(columns) <= {"id", "_commit_ts", *upstream.columns, *upstream.kept}
