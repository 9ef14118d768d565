"""What an error of PostgreSQL or its drivers means for a load: a retry may mend it, or not."""

from collections.abc import Iterator
from contextlib import contextmanager

import adbc_driver_manager
import psycopg

from ticdc_replay.domain.errors import AuthenticationError, PermanentError, TicdcReplayError, TransientError

_TRANSIENT_CLASSES = ("08", "40", "53", "55", "57", "58")
"""SQLSTATE classes: connection, transaction rollback, resources, object not in state (lock), operator, system."""

_REFUSED = ("password authentication failed", "no password supplied", "no pg_hba.conf entry", "authentication failed")
_WRONG = ('database "', 'role "')


@contextmanager
def translated(doing: str, conn_id: str) -> Iterator[None]:
    """Turns errors of the drivers into those of the library; *doing* says what failed, for example ``load "a"."b"``."""
    try:
        yield
    except (psycopg.Error, adbc_driver_manager.Error) as error:
        raise translate(error, doing, conn_id) from error


def translate(error: psycopg.Error | adbc_driver_manager.Error, doing: str, conn_id: str) -> TicdcReplayError:
    """The error of the library that says what *error* means."""
    text = " ".join(str(error).split())
    state = error.sqlstate
    message = f"cannot {doing} (connection {conn_id!r}): {text}"
    if state is None:
        # libpq hides the SQLSTATE of a connection that was refused, so its text decides.
        if any(hint in text for hint in _REFUSED):
            return AuthenticationError(f"{message}; check login and password of the connection")
        if any(hint in text for hint in _WRONG) and "does not exist" in text:
            return PermanentError(f"{message}; check schema (the database) and login of the connection")
        if isinstance(error, psycopg.DataError | psycopg.ProgrammingError):  # refused by the driver, such as a NUL
            return PermanentError(message)
        return TransientError(message)
    if state.startswith("28"):
        return AuthenticationError(f"{message}; check login and password of the connection")
    if state.startswith(_TRANSIENT_CLASSES):
        return TransientError(message)
    if state == "42501":
        return PermanentError(f"{message}; grant the login the missing privilege")
    return PermanentError(f"{message} (SQLSTATE {state})")
