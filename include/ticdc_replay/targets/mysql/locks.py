"""Locks by name, held by a session until it gives them back or ends; DDL, which ends transactions, leaves them."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from ticdc_replay.targets.mysql.server import MysqlConnection

WAIT_S = 300
"""For locks that somebody may hold for ever."""


def take(connection: MysqlConnection, name: str, wait_s: int = WAIT_S) -> bool:
    """Wait at most *wait_s* seconds for the lock *name*; whether this session holds it now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK(%s, %s)", (_fitted(name), wait_s))
        row = cursor.fetchone()
    return row is not None and row[0] == 1


def holds(connection: MysqlConnection, name: str) -> bool:
    """Whether this session still holds the lock *name*."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT IS_USED_LOCK(%s) = CONNECTION_ID()", (_fitted(name),))
        row = cursor.fetchone()
    return row is not None and row[0] == 1


def give_back(connection: MysqlConnection, name: str) -> None:
    """Give back the lock *name*."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT RELEASE_LOCK(%s)", (_fitted(name),))
        cursor.fetchall()


@contextmanager
def locked(connection: MysqlConnection, name: str, wait_s: int = WAIT_S) -> Iterator[bool]:
    """Hold the lock *name*; False where somebody else held it all the time."""
    held = take(connection, name, wait_s)
    try:
        yield held
    finally:
        if held and connection.open:
            give_back(connection, name)


def _fitted(name: str) -> str:
    """*name* in the 64 characters that the name of a lock may have, which all databases of a server share."""
    return "ticdc-replay:" + hashlib.sha256(name.encode()).hexdigest()[:40]
