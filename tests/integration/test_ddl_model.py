"""The model that mirrors and lakes are held against does to tables what a server does."""

from collections.abc import Iterator
from itertools import count

import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import mariadb
from tests.support.ddl_histories import STEPS, TABLES, Step, happened
from tests.support.examples import examples
from ticdc_replay.domain.connections import Connection

pytestmark = pytest.mark.integration

NUMBERS = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, mariadb_programs: mariadb.Programs) -> Iterator[Connection]:
    with mariadb.running(tmp_path_factory.mktemp("mariadb"), mariadb_programs) as connection:
        yield connection


@settings(max_examples=examples(0.08), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(known=st.lists(st.sampled_from(TABLES), unique=True), steps=STEPS)
def test_a_server_has_the_tables_of_the_model(server: Connection, known: list[str], steps: list[Step]) -> None:
    """Columns in their types, and in old rows what columns show that were added or changed later."""
    database = f"m{next(NUMBERS)}"
    history = happened(database, known, steps)
    made = [table.create(name) for name, table in history.before.items()]
    done = [event.sql for event in history.events]
    mariadb.execute(server, f"CREATE DATABASE {database} CHARACTER SET utf8mb4", f"USE {database}", *made, *done)
    with pymysql.connect(
        host=server.host or "", port=server.port or 0, user=mariadb.USER, password=mariadb.PASSWORD, database=database
    ) as session:
        cursor = session.cursor()
        cursor.execute("SHOW TABLES")
        assert {name for (name,) in cursor.fetchall()} == set(history.tables)
        for name, table in history.tables.items():
            columns = sorted(table.columns)
            cursor.execute(f"SELECT {', '.join(f'`{column}`' for column in columns)} FROM `{name}` ORDER BY id")
            found = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
            assert found == [table.rows[key] for key in sorted(table.rows)]
            cursor.execute(
                "SELECT column_name, upper(column_type) FROM information_schema.columns "
                "WHERE (table_schema, table_name) = (%s, %s)",
                (database, name),
            )
            types = {column: type_name.partition("(")[0] for column, type_name in cursor.fetchall()}
            assert types == {each: column.type.text.partition("(")[0] for each, column in table.columns.items()}
