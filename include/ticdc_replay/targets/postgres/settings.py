"""How a mirror's database is reached: one connection → what psycopg and ADBC want."""

from functools import lru_cache
from typing import Any

import adbc_driver_postgresql
import psycopg
from adbc_driver_manager import AdbcConnection, AdbcDatabase
from adbc_driver_manager.dbapi import _SharedDatabase
from adbc_driver_postgresql import dbapi
from psycopg.conninfo import make_conninfo

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError

_ALLOWED_EXTRA = frozenset(
    {"application_name", "channel_binding", "connect_timeout", "gssencmode", "keepalives", "keepalives_count"}
    | {"keepalives_idle", "keepalives_interval", "options", "sslcert", "sslcrl", "sslkey", "sslmode", "sslpassword"}
    | {"sslrootcert", "target_session_attrs", "tcp_user_timeout"}
)


class PostgresSettings:
    """Settings of an Airflow connection of type ``postgres``: ``schema`` is the database, ``extra`` has libpq
    parameters. Raises ConfigError for another type or an unknown extra."""

    def __init__(self, connection: Connection) -> None:
        where = f"connection {connection.conn_id!r}"
        if connection.conn_type not in ("postgres", "postgresql"):
            raise ConfigError(f"{where} has type {connection.conn_type!r}; a postgres target needs type 'postgres'")
        if not connection.host or not connection.schema:
            raise ConfigError(f"{where}: host and schema (the database) must be set")
        unknown = sorted(set(connection.extra) - _ALLOWED_EXTRA)
        if unknown:
            allowed = ", ".join(sorted(_ALLOWED_EXTRA))
            raise ConfigError(f"{where}: extra {', '.join(unknown)} not supported; allowed: {allowed}")
        self.conn_id = connection.conn_id
        # A load leaves its connection idle for as long as workers stage: keepalives hold it open.
        parameters: dict[str, Any] = {
            "application_name": "ticdc-replay",
            "connect_timeout": 20,
            "keepalives_idle": 60,
            **connection.extra,
            "host": connection.host,
            "port": connection.port or 5432,
            "dbname": connection.schema,
            "user": connection.login,
            "password": connection.password,
            "client_encoding": "UTF8",
        }
        self._conninfo = make_conninfo("", **{name: value for name, value in parameters.items() if value is not None})

    def connect(self) -> psycopg.Connection:
        """A connection for statements. Raises psycopg.Error."""
        connection = psycopg.connect(self._conninfo)
        # What another load has committed counts once its lock is given back, whatever the role's default is.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        # A policy that hides rows of a mirror is an error: hidden rows would stay as they are, or pass for missing.
        connection.execute("SET row_security = off")
        connection.commit()
        return connection

    def connect_bulk(self) -> dbapi.Connection:
        """A connection that takes Arrow data by binary COPY. The caller sends BEGIN and COMMIT, since the driver can't
        roll back to a savepoint. It knows the server's own types alone. Raises the errors of ADBC."""
        database, shared = _database(self._conninfo)
        return dbapi.Connection(shared, AdbcConnection(database), autocommit=True)

    def __repr__(self) -> str:
        return f"PostgresSettings({self.conn_id!r})"


@lru_cache(maxsize=8)
def _database(conninfo: str) -> tuple[AdbcDatabase, _SharedDatabase]:
    """A database of ADBC, and the holder that keeps it open for the next connection. It has no connection itself.

    To open one reads all types of the server, which takes 70 ms of processor time.
    """
    database = adbc_driver_postgresql.connect(conninfo)
    return database, _SharedDatabase(database)
