"""Which rows a narrower type alters is what a server does to them, and each database of a mirror finds the same rows."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import psycopg
import pymysql
import pytest
from psycopg import sql
from pymysql.converters import escape_string

from tests.integration.targets.conftest import SERVERS
from tests.support.mariadb import PASSWORD, USER
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.schemas.changes import BreakingChange, changes_of
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.targets.mirror.planning.narrowing import unfit

pytestmark = pytest.mark.integration


class Values(NamedTuple):
    """Of the wider type: those that the narrower one has, too, and others."""

    kept: list[str]
    altered: list[str]


MOMENTS = Values(
    ["2024-05-06 07:08:09", "2024-05-06 07:08:09.120000", "2024-05-06 07:08:59.999000"],
    ["2024-05-06 07:08:59.999999", "1999-12-31 00:00:00.000001"],
)
TIMES = Values(["838:59:59", "-00:00:01.500000", "00:00:00.999900"], ["-838:59:58.000010", "00:00:00.123456"])
FLOATS = Values(
    ["0", "1.5", "-16777216", "3.4028234663852886e38", "1.401298464324817e-45", "-1.1754943508222875e-38"],
    ["-0.1", "16777217", "1e300", "-1e-300", "2.1019476964872256e-45", "3.4028234663852890e38", "1.17549443e-38"],
)
WHOLE = {"DATETIME(6)": MOMENTS, "TIMESTAMP(6)": MOMENTS, "TIME(6)": TIMES}
ODD = r"'it''s', 'back\\slash', 'a%b'"
NARROWED = {
    ("DATETIME(6)", "DATETIME(3)"): MOMENTS,
    ("TIMESTAMP(6)", "TIMESTAMP(3)"): MOMENTS,
    ("TIME(6)", "TIME(4)"): TIMES,
    **{
        (before, before.partition("(")[0]): Values(values.kept[:1], values.kept[1:] + values.altered)
        for before, values in WHOLE.items()
    },
    ("DOUBLE", "FLOAT"): FLOATS,
    ("DOUBLE", "FLOAT UNSIGNED"): Values(["0", "1.5"], ["-1.5", "0.1"]),
    ("FLOAT", "DOUBLE UNSIGNED"): Values(["0", "1.5", "0.1"], ["-0.5"]),
    ("ENUM('a', 'b', 'c')", "ENUM('c', 'a')"): Values(["a", "c"], ["b"]),
    (f"ENUM({ODD}, 'é')", f"ENUM({ODD})"): Values(["it's", r"back\slash", "a%b"], ["é"]),
    (f"SET({ODD}, 'é')", f"SET({ODD}, 'n')"): Values(
        ["", "it's", r"it's,back\slash", r"it's,back\slash,a%b"], ["é", "a%b,é"]
    ),
    ("SET('a', 'aa', 'b')", "SET('a', 'b')"): Values(["", "a", "b", "a,b"], ["aa", "a,aa,b"]),
}
IN_POSTGRESQL = {
    "DATETIME": "timestamp",
    "TIMESTAMP": "timestamptz",
    "TIME": "interval",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "ENUM": "text",
    "SET": "text",
}


def narrower(types: tuple[str, str]) -> tuple[str, str, ColumnType]:
    """The statements that make and alter the table, and the column's type after them."""
    create = f"create table t (id int primary key, c {types[0]})"
    modify = f"alter table t modify c {types[1]}"
    ddls = [DdlEvent(0, 10 + at, "shop", "t", query, 0) for at, query in enumerate((create, modify))]
    (change,) = changes_of(ddls, SchemaHistory().with_ddls(ddls))[-1].changes
    assert isinstance(change, BreakingChange)
    assert change.kind == "column_narrowed"
    assert change.column is not None
    return create, modify, change.column.type


@pytest.fixture(params=list(SERVERS))
def cursor(request: pytest.FixtureRequest) -> Iterator[pymysql.cursors.Cursor]:
    server: Connection = request.getfixturevalue(SERVERS[request.param])
    with pymysql.connect(
        host=server.host or "", port=server.port or 0, user=USER, password=PASSWORD, autocommit=True, charset="utf8mb4"
    ) as session:
        found = session.cursor()
        found.execute("CREATE DATABASE IF NOT EXISTS narrowing CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        found.execute("USE narrowing")
        found.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        yield found


@pytest.mark.parametrize("types", NARROWED, ids=" to ".join)
def test_the_rows_that_a_server_alters_are_found_before(cursor: pymysql.cursors.Cursor, types: tuple[str, str]) -> None:
    create, modify, after = narrower(types)
    values = NARROWED[types]
    cursor.execute("DROP TABLE IF EXISTS `t`")
    cursor.execute(create)
    for number, value in enumerate([None, *values.kept, *values.altered]):
        cursor.execute("INSERT INTO `t` VALUES (%s, %s)", (number, value))
    condition = unfit("`c`", after, lambda text: f"'{escape_string(text)}'", "extract(microsecond FROM `c`)")
    cursor.execute(f"SELECT `id` FROM `t` WHERE {condition}")
    found = sorted(number for (number,) in cursor.fetchall())
    old = shown(cursor)
    cursor.execute(modify)
    new = shown(cursor)
    assert found == [number for number in sorted(old) if old[number] != new[number]]
    assert found == numbers(values)


def shown(cursor: pymysql.cursors.Cursor) -> dict[int, object]:
    """The cells by number: floats as the number that the server calculates with, which is exact."""
    cursor.execute("SHOW COLUMNS FROM `t` LIKE 'c'")
    ((_, type_name, *_),) = cursor.fetchall()
    cursor.execute(f"SELECT `id`, {'`c` * 1e0' if type_name.startswith(('float', 'double')) else '`c`'} FROM `t`")
    return dict(cursor.fetchall())


@pytest.mark.parametrize("types", NARROWED, ids=" to ".join)
def test_postgresql_finds_the_same_rows(make_database: Callable[[], str], types: tuple[str, str]) -> None:
    *_, after = narrower(types)
    values = NARROWED[types]
    kind = IN_POSTGRESQL[types[0].partition("(")[0]]
    with psycopg.connect(make_database(), options="-c TimeZone=UTC") as connection:
        connection.execute(f"CREATE TABLE t (id integer, c {kind})")
        for number, value in enumerate([None, *values.kept, *values.altered]):
            connection.execute(f"INSERT INTO t VALUES (%s, %s::text::{kind})", (number, value))
        condition = unfit('"c"', after, lambda text: sql.Literal(text).as_string(), 'extract(microsecond FROM "c")')
        found = connection.execute(f"SELECT id FROM t WHERE {condition} ORDER BY id").fetchall()
    assert [number for (number,) in found] == numbers(values)


def numbers(values: Values) -> list[int]:
    """Of the altered rows. That with NULL has the number 0, and those that are kept come before them."""
    first = len(values.kept) + 1
    return list(range(first, first + len(values.altered)))
