"""What an error of the server or its driver means for a load: a retry may mend it, or not."""

from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from ticdc_replay import mysql_protocol
from ticdc_replay.domain.errors import AuthenticationError, PermanentError, TicdcReplayError, TransientError

Errors = (pymysql.err.MySQLError, OSError)
"""What a statement raises."""

LOCK_TIMEOUT = 1205
NULL_IN_KEY = 1048
SAME_KEY = 1062
_LOST = frozenset({2006, 2013, 2055, 4031, 1053, 1927})
_TRANSIENT = frozenset(
    {
        *_LOST, 1040, 1041, 1037, 1038, 1158, 1159, 1160, 1161, 1203, LOCK_TIMEOUT, 1206, 1213, 1226, 2002, 2003, 3572,
        1290, 1792, 1836,  # read-only: a replica that is not promoted yet
        3, 28, 1021, 1026, 1030, 1114,  # no space, or a table that is full for now
        8002, 8022, 8027, 8028, 8029, 8125, 8176, 9007, *range(9001, 9006), 9010, 9012, 8229,  # TiDB, TiKV or PD, busy or away
    }
)  # fmt: skip
_REFUSED = frozenset({1045, 1251, 1698, 1862, 3118, 3159})
_NO_RIGHT = frozenset({1044, 1142, 1143, 1227, 1370})
_NO_TABLE = 1146
_NO_DATABASE = 1049
_TOO_LARGE = frozenset({8004, 8175, 1197})
"""A transaction or statement beyond a limit of the server."""


@contextmanager
def translated(doing: str, conn_id: str) -> Iterator[None]:
    """Turns errors of the driver into those of the library; *doing* says what failed, for example ``load "a"."b"``."""
    try:
        yield
    except Errors as error:
        raise translate(error, doing, conn_id) from error


def is_lost(error: Exception) -> bool:
    """Whether the connection is gone, so that nothing tells whether its last statement was done."""
    code, _ = mysql_protocol.code_and_text(error)
    return code in _LOST or isinstance(error, OSError | pymysql.err.InterfaceError)


def lacks_right(error: Exception) -> bool:
    """Whether the login must not do what it asked for."""
    code, _ = mysql_protocol.code_and_text(error)
    return code in _NO_RIGHT


def is_missing(error: Exception) -> bool:
    """Whether there is no table of that name."""
    code, _ = mysql_protocol.code_and_text(error)
    return code in (_NO_TABLE, _NO_DATABASE)


def translate(error: Exception, doing: str, conn_id: str) -> TicdcReplayError:
    """The error of the library that says what *error* means."""
    code, text = mysql_protocol.code_and_text(error)
    message = f"cannot {doing} (connection {conn_id!r}): {text}"
    if mysql_protocol.is_bad_certificate(error):
        return PermanentError(
            f"{message}; the extra ssl_ca of the connection must name the authority of the server's certificate, and host the "
            "name in it"
        )
    if code in _REFUSED:
        return AuthenticationError(f"{message}; check login and password of the connection")
    if code in _NO_RIGHT:
        return PermanentError(f"{message} (error {code}); grant the login the missing privilege")
    if code in _TOO_LARGE:
        return PermanentError(
            f"{message} (error {code}); set a smaller rows_per_commit in the target, or shorter windows"
        )
    if (
        code in _TRANSIENT or is_lost(error) or (code == _NO_TABLE and "stage_" in text)
    ):  # staging that another load cleared
        return TransientError(f"{message} (error {code})")
    return PermanentError(f"{message} (error {code})")
