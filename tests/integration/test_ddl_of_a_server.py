"""What DDL does to rows that exist already is what a server does to them."""

from collections.abc import Iterator
from itertools import permutations

import numpy as np
import pymysql
import pytest

from tests.support import mariadb
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.schemas.changes import Change, ColumnAdded, changes_of, kind_of
from ticdc_replay.schemas.history import SchemaHistory

pytestmark = pytest.mark.integration

FLOATS = [
    "FLOAT", "FLOAT(5,1)", "FLOAT(7,2)", "FLOAT(8,2)", "FLOAT(9,4)", "DOUBLE", "DOUBLE(7,2)", "DOUBLE(10,2)", "DOUBLE(14,5)"
]  # fmt: skip
NUMBERS = ["0", "1.27", "-99.99", "0.1", "1.23457"]
"""Of no more digits than a server prints of a FLOAT."""
ROUNDED = {("FLOAT(7,2)", "FLOAT(5,1)"), ("FLOAT", "FLOAT(7,2)"), ("DOUBLE", "DOUBLE(10,2)"), ("FLOAT", "DOUBLE(10,2)")}

DEFAULTS = [
    "VARCHAR(9) DEFAULT 5", "VARCHAR(9) DEFAULT -1.50", "VARCHAR(9) DEFAULT +0.5", "VARCHAR(9) DEFAULT TRUE",
    "VARCHAR(9) DEFAULT 0.0", "VARCHAR(99) DEFAULT 18446744073709551616", f"VARCHAR(99) DEFAULT 0.{'1' * 30}",
    f"VARCHAR(99) DEFAULT {'1' * 35}.{'1' * 30}", "CHAR(9) DEFAULT -7", "VARCHAR(9) DEFAULT '007'", "CHAR(9) DEFAULT 'a  '",
    "VARCHAR(9) DEFAULT 'a  '", "DECIMAL(5,2) DEFAULT 1.005", "DECIMAL(5,2) DEFAULT -1.005", "DECIMAL(5,2) DEFAULT 1e1",
    "BIT(4) DEFAULT b'101'", "SET('a','b') DEFAULT 'b,a'", "ENUM('x','y') NOT NULL", "VARBINARY(3) DEFAULT x'4142'",
]  # fmt: skip
OTHERWISE_SPELLED = ["1e3", "1e-3", "007", "00.50", "5.", "-0"]


@pytest.fixture(scope="module")
def cursor(
    tmp_path_factory: pytest.TempPathFactory, mariadb_programs: mariadb.Programs
) -> Iterator[pymysql.cursors.Cursor]:
    with mariadb.running(tmp_path_factory.mktemp("mariadb"), mariadb_programs) as server:
        mariadb.execute(server, "CREATE DATABASE shop CHARACTER SET utf8mb4")
        with pymysql.connect(
            host=server.host or "",
            port=server.port or 0,
            user=mariadb.USER,
            password=mariadb.PASSWORD,
            database="shop",
            autocommit=True,
        ) as session:
            yield session.cursor()


def changed(*queries: str) -> list[Change]:
    """What the last of *queries* does, as the library understands it."""
    ddls = [DdlEvent(0, 10 + at, "shop", "t", query, 0) for at, query in enumerate(queries)]
    return list(changes_of(ddls, SchemaHistory().with_ddls(ddls))[-1].changes)


def test_a_float_that_has_not_changed_is_the_same_number(cursor: pymysql.cursors.Cursor) -> None:
    cursor.execute("SET SESSION sql_mode = ''")
    rounded = set()
    for before, after in permutations(FLOATS, 2):
        create = f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `c` {before})"
        modify = f"ALTER TABLE `t` MODIFY `c` {after}"
        cursor.execute("DROP TABLE IF EXISTS `t`")
        cursor.execute(create)
        cursor.execute(f"INSERT INTO `t` VALUES {', '.join(f'({at}, {number})' for at, number in enumerate(NUMBERS))}")
        old = _numbers(cursor, before)
        cursor.execute(modify)
        if _numbers(cursor, before) != old:
            rounded.add((before, after))
            (change,) = changed(create, modify)
            assert kind_of(change) in ("column_changed", "column_narrowed"), (before, after)
    assert rounded >= ROUNDED


def _numbers(cursor: pymysql.cursors.Cursor, before: str) -> list[tuple[float, float]]:
    """What the server shows of a column that was *before*, in the 32 bits that a FLOAT had, and what it calculates with."""
    cursor.execute("SELECT `c`, `c` * 1e0 FROM `t` ORDER BY `id`")
    bits = np.float32 if before.startswith("FLOAT") else np.float64
    return [(float(bits(shown)), stored) for shown, stored in cursor.fetchall()]


@pytest.mark.parametrize("definition", DEFAULTS)
def test_old_rows_have_the_default_that_is_told(cursor: pymysql.cursors.Cursor, definition: str) -> None:
    change, found = _added(cursor, definition)
    assert change.fill_known
    assert found == change.fill


@pytest.mark.parametrize("number", OTHERWISE_SPELLED)
def test_a_number_that_the_server_prints_otherwise_is_not_told_as_text(
    cursor: pymysql.cursors.Cursor, number: str
) -> None:
    change, found = _added(cursor, f"VARCHAR(9) DEFAULT {number}")
    assert found != number
    assert not change.fill_known


def _added(cursor: pymysql.cursors.Cursor, definition: str) -> tuple[ColumnAdded, str]:
    """The change that adds a column, and what a row from before it shows, bits and bytes as characters."""
    create, add = "CREATE TABLE `t` (`id` INT PRIMARY KEY)", f"ALTER TABLE `t` ADD COLUMN `c` {definition}"
    (change,) = changed(create, add)
    assert isinstance(change, ColumnAdded)
    cursor.execute("DROP TABLE IF EXISTS `t`")
    cursor.execute(create)
    cursor.execute("INSERT INTO `t` VALUES (1)")
    cursor.execute(add)
    cursor.execute("SELECT `c` + 0 FROM `t`" if definition.startswith("BIT") else "SELECT `c` FROM `t`")
    ((found,),) = cursor.fetchall()
    return change, found.decode("latin-1") if isinstance(found, bytes) else str(found)
