"""What DDL does to rows that exist already is what a server does to them."""

from collections.abc import Iterator
from itertools import permutations

import numpy as np
import pymysql
import pytest

from tests import mariadb
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.schemas.changes import Change, changes_of, kind_of
from ticdc_replay.schemas.history import SchemaHistory

pytestmark = pytest.mark.integration

FLOATS = [
    "FLOAT", "FLOAT(5,1)", "FLOAT(7,2)", "FLOAT(8,2)", "FLOAT(9,4)", "DOUBLE", "DOUBLE(7,2)", "DOUBLE(10,2)", "DOUBLE(14,5)"
]  # fmt: skip
NUMBERS = ["0", "1.27", "-99.99", "0.1", "1.23457"]
"""Of no more digits than a server prints of a FLOAT."""
ROUNDED = {("FLOAT(7,2)", "FLOAT(5,1)"), ("FLOAT", "FLOAT(7,2)"), ("DOUBLE", "DOUBLE(10,2)"), ("FLOAT", "DOUBLE(10,2)")}


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
            assert [kind_of(change) for change in changed(create, modify)] == ["column_changed"], (before, after)
    assert rounded >= ROUNDED


def _numbers(cursor: pymysql.cursors.Cursor, before: str) -> list[tuple[float, float]]:
    """What the server shows of a column that was *before*, in the 32 bits that a FLOAT had, and what it calculates with."""
    cursor.execute("SELECT `c`, `c` * 1e0 FROM `t` ORDER BY `id`")
    bits = np.float32 if before.startswith("FLOAT") else np.float64
    return [(float(bits(shown)), stored) for shown, stored in cursor.fetchall()]
