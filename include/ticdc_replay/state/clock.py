"""The one clock of a state store: PostgreSQL's own, or that of the one machine that a SQLite file is on."""

import time

from sqlalchemy import Connection, text

_SERVER_CLOCK = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")


def now_ms(connection: Connection) -> int:
    """This moment by the clock of the database, in milliseconds since the Unix epoch."""
    if connection.dialect.name == "postgresql":
        return int(connection.execute(_SERVER_CLOCK).scalar_one())
    return int(time.time() * 1000)
