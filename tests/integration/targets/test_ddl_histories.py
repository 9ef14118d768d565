"""A mirror has the columns, types, defaults and rows of the upstream's tables, wherever DDL stands in a history, however the
history is cut into windows, and in whatever order these are loaded, also twice or after an attempt that broke."""

import contextlib
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from demo.embedded_stack.postgres import Postgres
from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog
from tests.support.ddl_histories import STEPS, TABLES, History, Step, changelogs, defaults_of, happened
from tests.support.examples import examples
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.targets.postgres.ledger import PostgresLedger

pytestmark = pytest.mark.integration

FOLLOW = {"truncate": "apply", "drop": "apply"}
NUMBERS = count()

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid)
FROM pg_attribute a LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
WHERE a.attrelid = to_regclass('{}') AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> '_commit_ts'
"""


@pytest.fixture(scope="module")
def mirror(postgres: Postgres) -> Iterator[Mirror]:
    """One database for all histories: each has an upstream database, and so a schema of the mirror, of its own."""
    dsn = postgres.create_database("ddl_histories")
    yield Mirror(dsn)
    postgres.drop_database("ddl_histories")


class BrokenOffError(Exception):
    """The attempt dies just before it commits."""


def break_off(mirror: Mirror, window: Changelog) -> None:
    """An attempt to load *window* that dies after all it does, just before a commit."""

    def die(*_: object) -> None:
        raise BrokenOffError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresLedger, "note_done", die)
        with contextlib.suppress(BrokenOffError, PolicyStopError):
            mirror.load(window, **FOLLOW)


def load_all(mirror: Mirror, history: History, windows: list[Changelog], data: st.DataObject) -> None:
    """Load *windows* in any order. One that must wait for others comes again after them."""
    waiting = data.draw(st.permutations(windows))
    while waiting:
        later = []
        for window in waiting:
            if data.draw(st.integers(0, 9)) == 0:
                break_off(mirror, window)
            try:
                mirror.load(window, reload=data.draw(st.booleans()), **FOLLOW)
            except PolicyStopError as stop:
                if not history.unlike or "Load the windows between them first" not in str(stop):
                    raise  # only windows of a table that was made again with other columns wait for others
                later.append(window)
        assert len(later) < len(waiting), "windows wait for each other"
        waiting = later
    for window in windows:
        if data.draw(st.integers(0, 3)) == 0:
            mirror.load(window, reload=True, **FOLLOW)


def shown(value: object) -> object:
    return value.normalize() if isinstance(value, Decimal) else value


def mirrored(mirror: Mirror, name: str) -> tuple[dict[str, tuple[str, object]], list[dict[str, object]]] | None:
    """The columns of the mirror *name*, each with type and default, and its rows; None where it is not there."""
    found = mirror.rows(_COLUMNS.format(name))
    if not found:
        return None
    columns = {}
    for column, type_name, default in found:
        ((value,),) = mirror.rows(f"SELECT {default or 'NULL'}")
        columns[column] = (type_name, shown(value))
    names = sorted(columns)
    listed = ", ".join(f'"{each}"' for each in names)
    rows = mirror.rows(f"SELECT {listed} FROM {name} ORDER BY id")
    return columns, [dict(zip(names, map(shown, row), strict=True)) for row in rows]


def upstream(history: History, name: str) -> tuple[dict[str, tuple[str, object]], list[dict[str, object]]] | None:
    """The same of the upstream's table."""
    there = history.tables.get(name)
    if there is None:
        return None
    default = defaults_of(history, name)
    columns = {each: (column.type.mirrored, shown(default(each))) for each, column in there.columns.items()}
    rows = [{each: shown(there.rows[key][each]) for each in sorted(columns)} for key in sorted(there.rows)]
    return columns, rows


def is_told(history: History, name: str) -> bool:
    """Whether the windows show all columns of the table: its rows do, or its CREATE TABLE."""
    told = False
    for each in history.events:
        if each.table == name:
            told = not each.sql.startswith("DROP") and (told or each.row is not None or each.sql.startswith("CREATE"))
    return told


def converges(mirror: Mirror, folder: Path, known: list[str], steps: list[Step], data: Any) -> None:
    history = happened(f"h{next(NUMBERS)}", known, steps)
    cuts = data.draw(st.lists(st.integers(101, max(101, history.end_ts)), max_size=5))
    windows = changelogs(history, folder, cuts)
    event(f"{len(windows)} windows")
    load_all(mirror, history, windows, data)
    for name in TABLES:
        found = mirrored(mirror, f"{history.database}.{name}")
        if found is None and not is_told(history, name):
            assert not history.tables.get(name, None) or not history.tables[name].rows
        else:
            assert found == upstream(history, name)
    mirror.execute(f"DROP SCHEMA IF EXISTS {history.database} CASCADE")


@settings(max_examples=examples(0.15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(known=st.lists(st.sampled_from(TABLES), unique=True), steps=STEPS, data=st.data())
def test_ddl_anywhere_in_windows_of_any_order_gives_the_tables_of_the_upstream(
    mirror: Mirror, tmp_path_factory: pytest.TempPathFactory, known: list[str], steps: list[Step], data: st.DataObject
) -> None:
    converges(mirror, tmp_path_factory.mktemp("history"), known, steps, data)
