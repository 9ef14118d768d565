"""A session at the upstream database, by the MySQL protocol: statements, snapshots, and what its errors mean."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pymysql
import pymysql.cursors
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from ticdc_replay import mysql_protocol
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, PermanentError, TransientError
from ticdc_replay.large_messages import source_statements as statements
from ticdc_replay.large_messages.source_statements import Statement

_TIMEOUT_S = 60

_REFUSED = frozenset({1044, 1045, 1227, 1698})
_NO_RIGHT = frozenset({1142, 1143})
"""None on the table or one of its columns."""
_GONE = frozenset({8055, 9006})
"""The snapshot is older than the GC safe point."""
_NO_TABLE = frozenset({1049, 1059, 1102, 1103, 1146, 1300})
"""There is none, or none can have this name."""
_BAD_VALUE = frozenset({1267, 1270, 1271, 1292, 1366, 1367, 1411, 1525, 3854})
"""A value in the statement is none of the column's type, or of its character set (1270, 1271: several are)."""
_MAY_PASS = frozenset(
    {1040, 1053, 1158, 1159, 1160, 1161, 1205, 1213, 2002, 2003, 2006, 2013, 2055, *range(9001, 9006), 9010, 9012}
)
"""Connections lost or refused for now, locks, and TiKV or PD that is busy or away."""


retried = retry(
    retry=retry_if_exception_type(TransientError),
    stop=stop_after_attempt(3),
    wait=wait_exponential_jitter(multiplier=0.2, jitter=0.2),
    reraise=True,
)


class SourceSession:
    """Statements at one upstream database; connects when the first is sent, and again after the session was lost.

    *timeout_s*: how long an answer may take, in seconds.
    """

    def __init__(self, connection: Connection, timeout_s: int = _TIMEOUT_S) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._session: Any = None

    @property
    def place(self) -> str:
        """The source, for people."""
        return f"source (connection {self._connection.conn_id})"

    def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def check_safe_point(self, first_ts: int, purpose: str, advice: str) -> None:
        """Raise PermanentError if rows at *first_ts* (TSO) are garbage already, by the source's GC safe point.

        The message has *purpose*, what needs *first_ts*, and *advice*, what to do.
        """
        try:
            rows = self._safe_point()
        except NoTableError:
            rows = []
        if not rows or rows[0][0] is None:
            raise PermanentError(
                f"{self.place} has no tikv_gc_safe_point in mysql.tidb: it is not a TiDB that keeps snapshots; "
                "name the changefeed's upstream in connections.source"
            )
        safe_ms = _safe_point_ms(rows[0][0].decode())
        if tso.physical_ms(first_ts) < safe_ms:
            raise PermanentError(
                f"{self.place}: rows before {tso.describe(tso.from_ms(safe_ms))} can no longer be read (GC safe point), "
                f"{purpose} {tso.describe(first_ts)}; {advice}"
            )

    @retried
    def _safe_point(self) -> Sequence[tuple[Any, ...]]:
        return self.query(Statement(statements.SAFE_POINT))

    def query(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """The rows that *statement* gives, cells as the bytes that the server sent.

        Raises TransientError if the source is away or busy, AuthenticationError if it refuses the login, and PermanentError
        for any other error; SnapshotGoneError, NoTableError, NoRightError and BadValueError are such.
        """
        try:
            session = self._session or self._connect()
            with session.cursor() as cursor:
                cursor.execute(statement.sql, statement.parameters)
                rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
                return rows
        except (pymysql.err.MySQLError, OSError) as error:
            raise self._explained(error) from error

    def _connect(self) -> Any:
        self._session = pymysql.connect(
            **mysql_protocol.arguments(self._connection, 4000),
            use_unicode=False,
            # Encoders of parameters only: without decoders every cell stays the bytes that came.
            conv={kind: encode for kind, encode in pymysql.converters.conversions.items() if not isinstance(kind, int)},
            init_command=statements.SESSION,
            autocommit=True,
            connect_timeout=_TIMEOUT_S,
            read_timeout=self._timeout_s,
            write_timeout=self._timeout_s,
        )
        return self._session

    def _explained(self, error: Exception) -> Exception:
        code, text = mysql_protocol.code_and_text(error)
        if code in _GONE:
            return SnapshotGoneError(f"older than the GC safe point (error {code})")
        if code in _NO_TABLE:
            return NoTableError(f"there is no such table (error {code})")
        if code in _BAD_VALUE:
            return BadValueError(f"the source can't compare the key with its column (error {code})")
        if code in _REFUSED or code in _NO_RIGHT:
            return (NoRightError if code in _NO_RIGHT else AuthenticationError)(
                f"{self.place}: refused (error {code}): {text}; check login and password of the connection, and SELECT on "
                "the tables and on mysql.tidb"
            )
        if mysql_protocol.is_bad_certificate(error):
            return PermanentError(
                f"{self.place}: {text}; the extra ssl_ca of the connection must name the authority of the source's "
                "certificate, and host the name in it"
            )
        if code in _MAY_PASS or isinstance(error, (OSError, pymysql.err.InterfaceError)):
            self._drop_session()
            return TransientError(f"{self.place}: away or busy (error {code}): {text}")
        return PermanentError(f"{self.place}: error {code}: {text}")

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            mysql_protocol.end(session)


class SnapshotGoneError(PermanentError):
    """Ends a read whose snapshot was garbage-collected."""


class NoTableError(PermanentError):
    """Ends a read of a table that the snapshot does not have."""


class NoRightError(AuthenticationError):
    """Ends a read of a table that the login may not read."""


class BadValueError(PermanentError):
    """Ends a read for the value of a key."""


def _safe_point_ms(text: str) -> int:
    """Milliseconds since the epoch of a safe point such as ``20260301-10:00:00.000 +0800``, the fraction optional."""
    match = re.fullmatch(r"(\d{8}-\d\d:\d\d:\d\d)(\.\d{1,6})? ([+-]\d{4})", text)
    if match is None:
        raise PermanentError(f"tikv_gc_safe_point {text!r} is not a time such as 20260301-10:00:00 +0800")
    moment = datetime.strptime(match[1] + match[3], "%Y%m%d-%H:%M:%S%z")
    return tso.physical_ms(tso.from_datetime(moment)) + int(float(match[2] or 0) * 1000)
