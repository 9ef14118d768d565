"""A state store as an earlier version has left it keeps what it holds, and gets what is new."""

from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Boolean, Connection, Integer, MetaData, inspect, make_url, select
from sqlalchemy.engine.interfaces import ReflectedIndex
from sqlalchemy.types import JSON

from tests.support.processes import at_once
from ticdc_replay.state import database as databases
from ticdc_replay.state import open_state, tables
from ticdc_replay.state.database import Database

Contents = dict[str, list[dict[str, Any]]]


def scripts() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(databases.__file__).parent / "migrations"))
    return config


def earlier_revisions() -> list[str]:
    found = [script.revision for script in ScriptDirectory.from_config(scripts()).walk_revisions()]
    return sorted(found)[:-1]


def test_the_tables_name_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(scripts()).get_current_head() == tables.REVISION


def fill(connection: Connection) -> Contents:
    """Put two rows into every table that there is; all of them."""
    found = MetaData()
    found.reflect(connection)
    for table in found.sorted_tables:
        if table.name == "alembic_version":
            continue
        for number in (1, 2):
            row: dict[str, Any] = {}
            for column in table.columns:
                if isinstance(column.type, JSON):
                    row[column.name] = {"kept ☃": number}
                elif isinstance(column.type, Boolean):
                    row[column.name] = number == 1
                elif isinstance(column.type, Integer):
                    row[column.name] = number - 1
                else:
                    row[column.name] = f"{column.name} {number} ☃"
            connection.execute(table.insert().values(row))
    return contents(connection, found)


def contents(connection: Connection, known: MetaData) -> Contents:
    """The rows of the tables and columns that are *known*."""
    return {
        table.name: [dict(row._mapping) for row in connection.execute(select(table))]
        for table in known.sorted_tables
        if table.name != "alembic_version"
    }


def leave_at(url: str, revision: str) -> tuple[Contents, MetaData]:
    """Make the database of *revision* with rows in all tables; what it holds, and its tables."""
    file = make_url(url).database
    if url.startswith("sqlite") and file is not None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
    database = Database(url)
    with database.writing() as connection:
        config = scripts()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        held = fill(connection)
        known = MetaData()
        known.reflect(connection)
    database.close()
    return held, known


def test_there_are_earlier_versions() -> None:
    assert earlier_revisions() == [f"{number:04}" for number in range(1, 13)], (
        "add the newest to this list when there is a newer one"
    )


@pytest.mark.slow
@pytest.mark.parametrize("revision", earlier_revisions())
def test_what_an_earlier_version_kept_is_kept(url: str, revision: str) -> None:
    before, known = leave_at(url, revision)
    assert len(before) > 5
    assert all(len(rows) == 2 for rows in before.values())
    state = open_state(url)
    assert state.leases.current("s3://claims") == []
    state.leases.release(state.leases.acquire("s3://claims", "one", "deletion", "plan", 1000))
    state.close()
    database = Database(url)
    with database.reading() as connection:
        after = contents(connection, known)
        if "machine" in after:  # opening a file notes this one
            after["machine"] = after["machine"][:2]
        assert after == before
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
    database.close()


def described(connection: Connection) -> dict[str, Any]:
    """All that is known of the tables: columns with types and defaults, keys, indexes, and the version."""
    found = inspect(connection)
    tables_found = {
        name: (
            sorted(str(column) for column in found.get_columns(name)),
            found.get_pk_constraint(name),
            sorted(str({**index, "dialect_options": _texts(index)}) for index in found.get_indexes(name)),
            found.get_unique_constraints(name),
        )
        for name in found.get_table_names()
    }
    return {**tables_found, "version": connection.execute(select(tables.version)).all()}


def _texts(index: ReflectedIndex) -> dict[str, str]:
    return {name: str(option) for name, option in index.get("dialect_options", {}).items()}


def test_a_new_store_has_the_tables_that_the_migrations_leave(url: str) -> None:
    open_state(url).close()
    database = Database(url)
    with database.writing() as connection:
        made = described(connection)
        tables.metadata.drop_all(connection)
        tables.version.drop(connection)
    leave_at(url, tables.REVISION)
    with database.reading() as connection:
        migrated = described(connection)
    database.close()
    assert len(made) > 15
    assert made == migrated


def open_and_read(_: int, url: str) -> int:
    store = open_state(url)
    leases = len(store.leases.current("s3://claims"))
    store.close()
    return leases


def test_processes_that_open_an_earlier_store_at_the_same_time_migrate_it_once(url: str) -> None:
    before, known = leave_at(url, "0001")
    assert at_once(4, open_and_read, url) == [0] * 4
    database = Database(url)
    with database.reading() as connection:
        assert contents(connection, known) == before
    database.close()
