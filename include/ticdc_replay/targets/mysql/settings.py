"""How a mirror's database is reached: one connection → sessions that neither alter nor lose a value."""

from typing import Any

import pymysql

from ticdc_replay import mysql_protocol
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.targets.mysql.bulk import BulkConnection
from ticdc_replay.targets.mysql.server import MysqlConnection

_SESSION = (
    # Strict, so that a value which does not fit is an error; dates with zero parts are values of the upstream.
    # And 0 is one, where a person's table would number its rows.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION', "
    "time_zone = '+00:00', "
    # Tables are loaded one after the other, so keys between them are not whole on the way.
    "foreign_key_checks = 0, "
    # LOAD DATA LOCAL says by warnings alone that it altered a value; a server may keep none of them.
    "max_error_count = 64, /*T! tidb_txn_mode = 'pessimistic', */ "
    # Locks that somebody may hold for ever end in an error that a retry may mend. The session waits while workers stage.
    "innodb_lock_wait_timeout = 300, lock_wait_timeout = 300, wait_timeout = 86400",
    # What another load has committed counts. In TiDB that takes pessimistic transactions, which old clusters may not have.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)


class MysqlSettings:
    """Settings of an Airflow connection of type ``mysql`` or ``tidb``; ``extra`` has ``ssl_ca``, ``ssl_cert`` and ``ssl_key``.
    Raises ConfigError for another type or an unknown extra."""

    def __init__(self, connection: Connection) -> None:
        self.conn_id = connection.conn_id
        if connection.conn_type not in ("mysql", "tidb"):
            raise ConfigError(
                f"connection {connection.conn_id!r} has type {connection.conn_type!r}; a mysql target needs 'mysql' or 'tidb'"
            )
        port = 4000 if connection.conn_type == "tidb" else 3306
        self._arguments: dict[str, Any] = {**mysql_protocol.arguments(connection, port), "connect_timeout": 20}

    def connect(self) -> MysqlConnection:
        """A connection for statements. Raises the errors of pymysql."""
        return _prepared(pymysql.connect(**self._arguments))

    def connect_reading(self, session: str) -> MysqlConnection:
        """A connection that reads at once what is committed, after the statement *session*; its cells are the bytes that the
        server sends. Raises the errors of pymysql."""
        encoders = {
            kind: encode for kind, encode in pymysql.converters.conversions.items() if not isinstance(kind, int)
        }
        reading: dict[str, Any] = {
            **self._arguments,
            "use_unicode": False,
            "conv": encoders,
            "init_command": session,
            "autocommit": True,
        }
        return pymysql.connect(**reading)

    def connect_bulk(self) -> BulkConnection:
        """A connection that also takes rows in bulk. Raises the errors of pymysql."""
        connection = BulkConnection(**self._arguments)
        _prepared(connection)
        return connection

    def __repr__(self) -> str:
        return f"MysqlSettings({self.conn_id!r})"


def _prepared(connection: MysqlConnection) -> MysqlConnection:
    with connection.cursor() as cursor:
        for statement in _SESSION:
            cursor.execute(statement)
    return connection
