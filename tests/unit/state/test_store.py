"""Opening the state store on SQLite and on PostgreSQL, and what both databases take."""

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from tests.support.processes import at_once
from tests.support.topics import identity
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.errors import AuthenticationError, ConfigError, PermanentError, TransientError
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.state import StateStore, open_state
from ticdc_replay.state.database import Database
from ticdc_replay.state.ddl import KnownDdl
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.quarantine import Redrive
from ticdc_replay.state.tables import metadata

PINNED = WindowManifest("shop", Window(1000, 2000), "a", "manifests/a.json", 1)
TOPIC = identity()


def open_and_read(_: int, url: str) -> int:
    store = open_state(url)
    runs = len(store.runs.all("shop"))
    store.close()
    return runs


def test_processes_that_open_a_new_store_at_the_same_time_migrate_it_once(url: str) -> None:
    assert at_once(4, open_and_read, url) == [0] * 4


def test_migrations_and_tables_agree(url: str) -> None:
    database = Database(url)
    database.migrate()
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    database.close()


def test_a_store_that_a_newer_version_has_migrated_is_left_alone(url: str) -> None:
    database = Database(url)
    database.migrate()
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(PermanentError, match=r"9999.*newer"):
        open_state(url)


def test_a_locked_file_is_a_transient_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticdc_replay.state.database._LOCK_TIMEOUT_S", 0.1)
    path = tmp_path / "state.db"
    store = open_state(f"sqlite:///{path}")
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TransientError, match="locked"):
            store.manifests.register(PINNED)
        assert store.manifests.of_window("shop", PINNED.window) is None
        other.execute("ROLLBACK")
    assert store.manifests.register(PINNED) == PINNED
    store.close()


@pytest.mark.parametrize("url", ["mysql://u:hidden@h/d", "sqlite://", "not a url", "sqlite:///:memory:"])
def test_another_kind_of_database_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_state(url)
    assert "hidden" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PermanentError, match=r"file/state\.db"):
        open_state(f"sqlite:///{tmp_path}/file/state.db")


def test_a_server_that_is_away_is_transient() -> None:
    with pytest.raises(TransientError) as caught:
        open_state("postgresql://u:hidden@127.0.0.1:9/d")
    assert "hidden" not in str(caught.value)


@pytest.mark.integration
def test_a_missing_database_is_a_configuration_error(make_database) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=r"no_such_database.*does not exist"):
        open_state(make_database().rpartition("/")[0] + "/no_such_database")


@pytest.mark.integration
def test_a_wrong_password_is_an_authentication_error(make_database) -> None:  # type: ignore[no-untyped-def]
    url: str = make_database()
    with pytest.raises(AuthenticationError) as caught:
        open_state(
            url.replace("://", "://nobody:hidden@", 1)
            if "@" not in url
            else "postgresql://nobody:hidden@" + url.split("@")[1]
        )
    assert "hidden" not in str(caught.value)


HOSTILE = "a\0b\ud800c\udfff\uffffd\uffff0000 \U0001f600"


def test_text_of_any_characters_comes_back(state: StateStore) -> None:
    wire = HOSTILE.encode(errors="ignore").decode()  # codecs refuse what is not Unicode
    ddl = [
        KnownDdl(TOPIC, DdlEvent(0, at, wire, name, f"ALTER TABLE t COMMENT '{wire}'", 3))
        for at, name in ((1, "\0"), (2, ""))
    ]
    state.ddl.record("shop", ddl)
    assert state.ddl.all("shop") == ddl
    definition = TableDefinition(TableName("s", "a\0b\uffff"), (), valid_from=7)
    state.table_versions.record("shop", [definition])
    state.table_versions.record("shop", [definition])
    assert state.table_versions.all("shop") == [definition]
    redrive = Redrive(HOSTILE, "run", "redrive", "target", 1)
    state.quarantine.record_redrive(redrive)
    assert state.quarantine.redrives(HOSTILE, "run") == [redrive]


def test_what_is_larger_than_the_database_takes_is_a_permanent_error(state: StateStore) -> None:
    name = "".join(map(str, range(40_000)))
    record = Redrive("shop", "run", "redrive", name, 1)
    if state._database.dialect == "postgresql":
        with pytest.raises(PermanentError, match="index row"):
            state.quarantine.record_redrive(record)
    else:
        state.quarantine.record_redrive(record)
        assert state.quarantine.redrives("shop", "run") == [record]
