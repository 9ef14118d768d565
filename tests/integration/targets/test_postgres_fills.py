"""What older rows show in an added column is a literal that PostgreSQL reads, or stops the load: never an error of the server."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import sql

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, put, table
from tests.support.examples import examples
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import Column, TableName
from ticdc_replay.schemas.changes import ColumnAdded, changes_of
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.targets.mirror.planning.fills import fill_of
from ticdc_replay.targets.postgres.dialect import DIALECT
from ticdc_replay.targets.postgres.types import pg_type

pytestmark = pytest.mark.integration

HISTORY = SchemaHistory().with_ddls([DdlEvent(0, 10, "shop", "t", "CREATE TABLE `t` (`id` INT PRIMARY KEY)", 0)])

_NUMBERS = st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{0,12})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
_PARTS = st.sampled_from(["00", "01", "02", "12", "13", "23", "24", "28", "29", "30", "31", "32", "59", "60", "99"])
_YEARS = st.sampled_from(["0000", "0001", "1899", "1901", "1970", "2000", "2024", "2026", "2155", "2156", "9999"])
_DATES = st.builds("{}-{}-{}".format, _YEARS, _PARTS, _PARTS)
_CLOCKS = st.builds(
    "{}:{}:{}{}".format,
    st.one_of(_PARTS, st.sampled_from(["-00", "-838", "838", "839", "999"])),
    _PARTS,
    _PARTS,
    st.sampled_from(["", ".5", ".999999", ".000000"]),
)
_TEXTS = st.one_of(_NUMBERS, _DATES, _CLOCKS, _YEARS, st.builds("{} {}".format, _DATES, _CLOCKS), st.text(max_size=8))


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"


_LITERALS = st.one_of(
    _TEXTS.map(_quoted),
    _NUMBERS,
    st.from_regex(r"b'[01]{0,70}'|0x[0-9a-f]{1,20}|x'([0-9a-f]{2}){0,9}'", fullmatch=True),
    st.sampled_from(["TRUE", "FALSE", "NULL"]),
)
_TYPES = st.sampled_from(
    [
        *(f"{name}{sign}" for name in ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT") for sign in ("", " UNSIGNED")),
        *("FLOAT", "DOUBLE", "FLOAT(5,2)", "DOUBLE UNSIGNED", "DECIMAL", "DECIMAL(5,2)", "DECIMAL(38,30)", "DECIMAL(65,30)"),
        *("BIT", "BIT(3)", "BIT(63)", "BIT(64)", "YEAR", "DATE", "TIME", "TIME(3)", "DATETIME", "DATETIME(6)", "TIMESTAMP"),
        *("CHAR", "CHAR(5)", "VARCHAR(5)", "TEXT", "BINARY(5)", "VARBINARY(5)", "BLOB", "JSON", "VECTOR(3)"),
        *("ENUM('a','','2026','b\\0')", "SET('a','b','\\\\x')"),
    ]
)  # fmt: skip


@pytest.fixture(scope="module")
def connection(postgres: Any) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        yield connection


def _shown(connection: psycopg.Connection, change: ColumnAdded, type_name: str) -> object:
    fill, why = fill_of(change, type_name, DIALECT)
    assert fill is None or why is None
    if fill is None:
        return None
    (shown,) = connection.execute(sql.SQL("SELECT ({})::text").format(sql.SQL(fill))).fetchone()
    return shown


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_TYPES, _LITERALS, st.booleans())
@example("DATE", "'2026-02-00'", True)
@example("FLOAT", "1e-45", True)
@example("DECIMAL(65,30)", "1e35", True)
def test_any_default_of_a_ddl_is_held_or_refused_before_the_server_sees_it(
    connection: psycopg.Connection, definition: str, default: str, nullable: bool
) -> None:
    query = f"ALTER TABLE `t` ADD COLUMN `n` {definition} {'' if nullable else 'NOT NULL'} DEFAULT {default}"
    for entry in changes_of([DdlEvent(0, 20, "shop", "t", query, 0)], HISTORY):
        for change in entry.changes:
            if isinstance(change, ColumnAdded):
                _shown(connection, change, pg_type(change.column.type))


_STORED_TYPES = st.sampled_from(
    [
        *(ColumnType(base, declared=True) for base in ("tinyint", "int", "float", "double", "year", "date")),
        *(ColumnType(base, scale=0, declared=True) for base in ("time", "datetime")),
        ColumnType("bigint", unsigned=True, declared=True),
        ColumnType("decimal", length=5, scale=2, declared=True),
        ColumnType("decimal", length=65, scale=2, declared=True),
        ColumnType("bit", length=3, declared=True),
        ColumnType("varchar", length=5, declared=True),
        ColumnType("varbinary", length=5, declared=True),
        ColumnType("enum", elements=("a", "b"), declared=True),
        ColumnType("set", elements=("a", "b"), declared=True),
    ]
)


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(ColumnType("decimal", length=65, scale=2, declared=True), "")
@example(ColumnType("decimal", length=65, scale=2, declared=True), "-")
@example(ColumnType("float", declared=True), "1E-100")
@example(ColumnType("double", declared=True), "1E-400")
@given(_STORED_TYPES, st.one_of(_TEXTS, st.sampled_from(["a", "b", "a,b", "\u0663", "2026-0\u0663-01", "\ud800"])))
def test_so_is_any_that_an_index_of_an_earlier_version_has(
    connection: psycopg.Connection, column_type: ColumnType, fill: str
) -> None:
    if column_type.base == "varbinary":
        fill = fill.encode("utf-8", "surrogatepass").decode("latin-1")
    _shown(connection, ColumnAdded(Column("n", column_type, True), fill, True), pg_type(column_type))


def test_a_default_of_32_bits_is_the_same_number_in_a_column_of_64() -> None:
    change = ColumnAdded(Column("n", ColumnType("float", declared=True), True), "0.1", True)
    assert fill_of(change, "double precision", DIALECT) == ("'0.1'::real::double precision", None)


BIGINT = ColumnType("bigint", declared=True)
ORDERS = definition_from_sql(TableName("shop", "orders"), "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY)")


def test_rows_of_another_type_than_the_ddl_adds_stop_the_load(make_database: Callable[[], str], tmp_path: Path) -> None:
    mirror = Mirror(make_database())
    before = table("shop.orders", {"id": BIGINT})
    mirror.load(Changelog(tmp_path, 100, 200).knows(ORDERS).rows(before, [put(150, id=1)]))
    window = Changelog(tmp_path, 200, 300).knows(ORDERS)
    window.ddl(250, "ALTER TABLE `orders` ADD COLUMN `d` DATE DEFAULT '2026-02-01'")
    after = table("shop.orders", {"id": BIGINT, "d": BIGINT}, valid_from=270)
    window.rows(after, [put(280, id=2, d=5)])
    with pytest.raises(PolicyStopError, match="d is date by the DDL and bigint in rows of the window"):
        mirror.load(window)


def test_a_default_by_name_of_a_column_mirrored_by_number_stops_the_load(
    make_database: Callable[[], str], tmp_path: Path
) -> None:
    mirror = Mirror(make_database())
    before = table("shop.orders", {"id": BIGINT})
    mirror.load(Changelog(tmp_path, 100, 200).knows(ORDERS).rows(before, [put(150, id=1)]))
    window = Changelog(tmp_path, 200, 300).knows(ORDERS)
    window.ddl(250, "ALTER TABLE `orders` ADD COLUMN `e` ENUM('a','b') DEFAULT 'b'")
    window.rows(table("shop.orders", {"id": BIGINT, "e": ColumnType("enum")}, valid_from=270), [put(280, id=2, e=1)])
    with pytest.raises(PolicyStopError, match="e is mirrored by number, and the DDL names the default"):
        mirror.load(window)


def test_the_way_on_after_a_default_that_postgresql_lacks(make_database: Callable[[], str], tmp_path: Path) -> None:
    mirror = Mirror(make_database())
    rows = table("shop.orders", {"id": BIGINT})
    mirror.load(Changelog(tmp_path, 100, 200).knows(ORDERS).rows(rows, [put(150, id=1)]))
    window = Changelog(tmp_path, 200, 300).knows(ORDERS)
    window.ddl(250, "ALTER TABLE `orders` ADD COLUMN `d` DATE DEFAULT '2026-02-00'").rows(rows, [put(220, id=2)])
    with pytest.raises(PolicyStopError, match="add the column to its mirror"):
        mirror.load(window)
    mirror.load(Changelog(tmp_path, 200, 250).knows(ORDERS).rows(rows, [put(220, id=2)]))
    mirror.execute("ALTER TABLE shop.orders ADD COLUMN d date")
    mirror.raise_floor("shop.orders", 251)
    mirror.load(window)
    assert mirror.rows("SELECT id, d FROM shop.orders ORDER BY id") == [(1, None), (2, None)]
