"""Connecting to the state store's database and bringing it to the newest schema."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from ticdc_replay.domain.errors import (
    AuthenticationError,
    ConfigError,
    PermanentError,
    TicdcReplayError,
    TransientError,
)
from ticdc_replay.state import tables
from ticdc_replay.state.sqlite_file import require_local, require_one_machine, this_boot, use_rollback_journal

_LOCK_TIMEOUT_S = 30
_CONNECT_TIMEOUT_S = 10
_MIGRATION_LOCK = 0x7469_6364_635F_7270  # any number that only this library uses: "ticdc_rp"
_REFUSED = ("password authentication failed", "no pg_hba.conf entry", 'role "', "no password supplied")
_LIMITS = "54"
"""SQLSTATE class of what is larger than PostgreSQL takes, such as a row of an index: its driver calls it operational."""

_migrating = threading.Lock()
"""Alembic keeps what it works on in module variables, so one migration at a time in a process."""


class Database:
    """One database of a URL, thread-safe."""

    def __init__(self, url: str) -> None:
        self._url = _parse(url)
        self.dialect = self._url.get_backend_name()
        self.name = self._url.render_as_string(hide_password=True)
        self._engine = _engine(self._url)

    def close(self) -> None:
        """Close the pooled connections."""
        self._engine.dispose()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with self._errors(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes: committed at the end, rolled back on any error."""
        with self._errors(), self._engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                yield connection

    def migrate(self) -> None:
        """Bring the schema to the newest version, once, however many processes start at the same time.

        Raises PermanentError where a newer library has been here, or another machine in turns with this one, and ConfigError for
        a SQLite file on a network file system.
        """
        with self._errors():
            if self.dialect == "sqlite":
                self._prepare_file()
            with self.reading() as connection:
                is_newest = _revision(connection) == tables.REVISION
            if not is_newest:
                with _migrating, self.writing() as connection:
                    if self.dialect == "postgresql":
                        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
                    if _revision(connection) is None:
                        tables.make_all(connection)
                    else:
                        from ticdc_replay.state.upgrade import upgrade  # with Alembic, which takes 0.3 s

                        upgrade(connection, self.name)
            if self.dialect == "sqlite":
                self._note_machine(str(self._url.database))

    def _prepare_file(self) -> None:
        file = Path(str(self._url.database))
        require_local(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        use_rollback_journal(self._engine)

    def _note_machine(self, file: str) -> None:
        with self.reading() as connection:
            last = select(tables.machine.c.boot).order_by(tables.machine.c.number.desc()).limit(1)
            if connection.execute(last).scalar_one_or_none() == this_boot()[0]:
                return
        with self.writing() as connection:
            require_one_machine(connection, file)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise self._translated(error) from error
        except OSError as error:
            raise PermanentError(f"the state store {self.name} can't be opened: {error}") from error

    def _translated(self, error: SQLAlchemyError) -> TicdcReplayError:
        reason = str(error.orig) if isinstance(error, DBAPIError) else str(error)
        message = f"state store {self.name}: {reason.strip()}"
        if any(sign in reason for sign in _REFUSED) and "FATAL" in reason:
            return AuthenticationError(f"{message}; check login and password of the state connection")
        if "FATAL" in reason and "does not exist" in reason:
            return ConfigError(f"{message}; create it, or correct the schema field of the state connection")
        if "unable to open database file" in reason or "readonly database" in reason:
            return PermanentError(f"{message}; the folder must exist and be writable")
        sqlstate = getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
        if sqlstate is not None and sqlstate.startswith(_LIMITS):
            return PermanentError(message)
        if isinstance(error, OperationalError | InterfaceError):
            return TransientError(message)
        return PermanentError(message)


def _revision(connection: Connection) -> str | None:
    """The version of the schema; None where there is none yet."""
    if not inspect(connection).has_table(tables.version.name):
        return None
    return connection.execute(select(tables.version.c.version_num)).scalar_one_or_none()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigError(
            "the URL of the state store can't be read; it looks like sqlite:////folder/state.db or "
            "postgresql+psycopg://user@host:5432/database"
        ) from None
    if parsed.get_backend_name() == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return parsed
    raise ConfigError(
        f"no state store at {parsed.render_as_string()}: a SQLite file or a PostgreSQL database is needed"
    )


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "postgresql":
        options: dict[str, Any] = {"connect_timeout": _CONNECT_TIMEOUT_S, "application_name": "ticdc-replay"}
        return create_engine(url, pool_pre_ping=True, connect_args=options)
    engine = create_engine(url, connect_args={"timeout": _LOCK_TIMEOUT_S})

    @event.listens_for(engine, "connect")
    def _leave_transactions_to_us(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver would begin them too late: not before DDL, not before a read

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that read first and then writes could fail at once instead of waiting for the lock.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
