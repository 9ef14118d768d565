"""Reading rows of the upstream database as they were at a TSO, by the MySQL protocol.

A fault of one row is a value that goes with its message. A fault of the server is an error.
"""

import re
import ssl
import struct
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import pymysql
import pymysql.cursors
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.errors import AuthenticationError, ConfigError, PermanentError, TransientError
from ticdc_replay.domain.limits import refused_table
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.large_messages import source_statements as statements
from ticdc_replay.large_messages.source_images import SourceRow, neutral_of
from ticdc_replay.large_messages.source_statements import Statement
from ticdc_replay.schemas.ddl.reader import definition_from_sql

_ROWS_PER_STATEMENT = 32
_TIMEOUT_S = 60
_TLS_FIELDS = ("ssl_ca", "ssl_cert", "ssl_key")

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


_retried = retry(
    retry=retry_if_exception_type(TransientError),
    stop=stop_after_attempt(3),
    wait=wait_exponential_jitter(multiplier=0.2, jitter=0.2),
    reraise=True,
)


class RowRequest(NamedTuple):
    """A row of ``table`` at ``snapshot`` (TSO), by the neutral values ``key`` of its columns ``key_names``."""

    table: TableName
    snapshot: int
    key_names: tuple[str, ...]
    key: tuple[Any, ...]


class RowUnreadable(NamedTuple):
    """Why a row could not be read again: a quarantine reason, with a text for people."""

    reason: str
    detail: str
    is_lasting: bool = True
    """Whether the source will always say so: of its state at the TSO, and not of a right that may be granted."""


class SourceReader:
    """Reads rows of one upstream database; connects when the first is asked for.

    *zone* is the changefeed's.
    """

    def __init__(self, connection: Connection, zone: str) -> None:
        self._connection = connection
        self._zone = zone
        self._session: Any = None

    def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def rows(self, requests: Sequence[RowRequest]) -> list[SourceRow | RowUnreadable]:
        """The row, or why there is none, for each of *requests*, in their order.

        Those of one table and TSO are asked for together.

        Messages are not trusted. Tables of system schemas are not read. The columns of a key must be a unique key of the table's
        definition at that TSO, and its cells of their types: so no statement reads more rows than there are keys.

        If the login may not read a table, its rows are unreadable. Raises TransientError when the source is away, also
        after further tries, AuthenticationError when it refuses the credentials, PermanentError for any other error of the
        source, also where it gives a key two rows.
        """
        groups: dict[tuple[TableName, int, tuple[str, ...]], list[int]] = {}
        for at, request in enumerate(requests):
            groups.setdefault((request.table, request.snapshot, request.key_names), []).append(at)
        found: dict[int, SourceRow | RowUnreadable] = {}
        for (table, snapshot, key_names), members in groups.items():
            refused = _refused(table)
            if refused is not None:
                found.update(dict.fromkeys(members, refused))
                continue
            for start in range(0, len(members), _ROWS_PER_STATEMENT):
                part = members[start : start + _ROWS_PER_STATEMENT]
                keys = [requests[at].key for at in part]
                found.update(zip(part, self._read(table, snapshot, key_names, keys), strict=True))
        return [found[at] for at in range(len(requests))]

    def check_safe_point(self, first_ts: int) -> None:
        """Raise PermanentError where rows at *first_ts* (TSO) are garbage already, by the source's GC safe point."""
        try:
            rows = self._safe_point()
        except _NoTableError:
            rows = []
        if not rows or rows[0][0] is None:
            raise PermanentError(
                f"{self._place} has no tikv_gc_safe_point in mysql.tidb: it is not a TiDB that keeps snapshots; "
                "name the changefeed's upstream in connections.source"
            )
        safe_ms = _safe_point_ms(rows[0][0].decode())
        if tso.physical_ms(first_ts) < safe_ms:
            raise PermanentError(
                f"{self._place}: rows before {tso.describe(tso.from_ms(safe_ms))} can no longer be read (GC safe point), "
                f"the window begins at {tso.describe(first_ts)}; replay a later window, with a longer tidb_gc_life_time for the "
                "next ones, or set policies.handle_key_only to quarantine"
            )

    @property
    def _place(self) -> str:
        return f"source (connection {self._connection.conn_id})"

    @_retried
    def _safe_point(self) -> Sequence[tuple[Any, ...]]:
        return self._query(Statement(statements.SAFE_POINT))

    @_retried
    def _read(
        self, table: TableName, snapshot: int, key_names: tuple[str, ...], keys: Sequence[tuple[Any, ...]]
    ) -> Sequence[SourceRow | RowUnreadable]:
        try:
            self._query(statements.at_snapshot(snapshot))
            definition = self._definition(table)
            if isinstance(definition, RowUnreadable):
                return [definition] * len(keys)
            return self._rows_of(definition, snapshot, key_names, keys)
        except _SnapshotGoneError as error:
            why = RowUnreadable("source_snapshot_gone", f"{table} at {tso.describe(snapshot)}: {error}")
        except _NoTableError as error:
            why = RowUnreadable("source_row_missing", f"{table} at {tso.describe(snapshot)}: {error}")
        except _NoRightError as error:
            why = RowUnreadable("source_refused", f"{table}: {error}", is_lasting=False)
        return [why] * len(keys)

    def _definition(self, table: TableName) -> TableDefinition | RowUnreadable:
        (_, created, *_rest), *_ = self._query(statements.show_create(table))
        try:
            return _parsed(table, created)
        except (ConfigError, UnicodeDecodeError) as error:
            return RowUnreadable(
                "source_refused",
                f"the definition of {table} in the source can't be read, so no key of it is known: {error}. Accept the rows as "
                "lost, or load the table from the upstream and raise the mirror's floor",
            )

    def _rows_of(
        self, definition: TableDefinition, snapshot: int, key_names: tuple[str, ...], keys: Sequence[tuple[Any, ...]]
    ) -> Sequence[SourceRow | RowUnreadable]:
        columns = definition.schema().columns
        places = {folded(column.name): at for at, column in enumerate(columns)}
        where = f"{definition.name} at {tso.describe(snapshot)}"
        unknown = [name for name in key_names if folded(name) not in places]
        if unknown:
            detail = f"{where} has no column {', '.join(unknown)}, which the message's key has"
            return [RowUnreadable("source_row_missing", detail)] * len(keys)
        if not definition.is_unique_key(key_names):
            named = ", ".join(key_names)
            detail = (
                f"{where}: ({named}) is neither its primary key nor a unique key without NULL, so it may mean any number of "
                "rows. Declare a primary key or a unique key with NOT NULL columns upstream"
            )
            return [RowUnreadable("source_refused", detail)] * len(keys)
        key_places = [places[folded(name)] for name in key_names]
        types = [columns[at].type for at in key_places]
        wanted: list[tuple[Any, ...] | None] = []
        for key in keys:
            try:
                wanted.append(statements.key_cells(key, types, self._zone))
            except (ValueError, TypeError, AttributeError, ArithmeticError, struct.error):
                wanted.append(
                    None
                )  # of another type than the source's column, or too long for it: there is no such row
        asked = [*dict.fromkeys(key for key in wanted if key is not None)]
        by_key: dict[tuple[Any, ...], SourceRow] = {}
        if asked:
            names = [columns[at].name for at in key_places]
            try:
                rows = self._query(statements.select_rows(definition, names, asked))
            except _BadValueError as error:
                if len(keys) > 1:  # whose value it is, is found by asking for each alone
                    return [each for key in keys for each in self._rows_of(definition, snapshot, key_names, [key])]
                return [RowUnreadable("source_row_missing", f"{where} can't be asked for the message's key: {error}")]
            for values in rows:
                cells = [neutral_of(columns[at].type)((values[at],))[0] for at in key_places]
                by_key[statements.key_cells(cells, types, self._zone)] = SourceRow(definition, values)
            if len(rows) > len(asked) or len(by_key) < len(rows):
                raise PermanentError(
                    f"{self._place}: {where} has several rows with one value of its unique key ({', '.join(key_names)}): which "
                    "of them the message means is not known. Check the table's indexes upstream (ADMIN CHECK TABLE)"
                )
        missing = RowUnreadable("source_row_missing", f"{where} has no row with the key of the message")
        return [missing if key is None else by_key.get(key, missing) for key in wanted]

    def _query(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """The rows that *statement* gives, cells as the bytes that the server sent."""
        try:
            session = self._session or self._connect()
            with session.cursor() as cursor:
                cursor.execute(statement.sql, statement.parameters)
                rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
                return rows
        except (pymysql.err.MySQLError, OSError) as error:
            raise self._explained(error) from error

    def _connect(self) -> Any:
        given = self._connection
        unknown = sorted(set(given.extra) - {*_TLS_FIELDS, "charset"})
        if unknown:
            raise ConfigError(
                f"connection {given.conn_id}: unknown extra {', '.join(unknown)}; allowed: {', '.join(_TLS_FIELDS)}"
            )
        self._session = pymysql.connect(
            host=given.host or "localhost",
            port=given.port or 4000,
            user=given.login or "",
            password=given.password or "",
            charset="utf8mb4",
            use_unicode=False,
            # Encoders of parameters only: without decoders every cell stays the bytes that came.
            conv={kind: encode for kind, encode in pymysql.converters.conversions.items() if not isinstance(kind, int)},
            init_command=statements.SESSION,
            autocommit=True,
            connect_timeout=_TIMEOUT_S,
            read_timeout=_TIMEOUT_S,
            write_timeout=_TIMEOUT_S,
            ssl=_tls_context(given),
        )
        return self._session

    def _explained(self, error: Exception) -> Exception:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = error.args[1] if len(error.args) > 1 else str(error)
        if code in _GONE:
            return _SnapshotGoneError(f"older than the GC safe point (error {code})")
        if code in _NO_TABLE:
            return _NoTableError(f"there is no such table (error {code})")
        if code in _BAD_VALUE:
            return _BadValueError(f"{text} (error {code})")
        if code in _REFUSED or code in _NO_RIGHT:
            return (_NoRightError if code in _NO_RIGHT else AuthenticationError)(
                f"{self._place}: refused (error {code}): {text}; check login and password of the connection, and SELECT on "
                "the tables and on mysql.tidb"
            )
        if isinstance(error.__cause__ or error.__context__, ssl.SSLCertVerificationError):
            return PermanentError(
                f"{self._place}: {text}; the extra ssl_ca of the connection must name the authority of the source's "
                "certificate, and host the name in it"
            )
        if code in _MAY_PASS or isinstance(error, (OSError, pymysql.err.InterfaceError)):
            self._drop_session()
            return TransientError(f"{self._place}: away or busy (error {code}): {text}")
        return PermanentError(f"{self._place}: error {code}: {text}")

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session._force_close()


@lru_cache(maxsize=16)
def _parsed(table: TableName, created: bytes) -> TableDefinition:
    """The definition in *created*: of 900 columns it takes a third of a second, and each statement for rows needs it."""
    return definition_from_sql(table, created.decode())


def _tls_context(given: Connection) -> ssl.SSLContext | None:
    """TLS that knows the source by ``ssl_ca`` and shows ``ssl_cert``; None where the connection names no certificate.

    Without, the session is encrypted if the source asks for it, and the source is not verified.
    """
    if not any(name in given.extra for name in _TLS_FIELDS):
        return None
    ca, certificate, key = (given.extra.get(name) for name in _TLS_FIELDS)
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(
                certificate, key, ""
            )  # without a password, OpenSSL would ask for one at the terminal
    except (OSError, TypeError) as error:
        paths = ", ".join(f"{name} {given.extra[name]}" for name in _TLS_FIELDS if name in given.extra)
        raise ConfigError(f"connection {given.conn_id}: extra {paths}: {error}") from None
    return context


def _refused(table: TableName) -> RowUnreadable | None:
    """Why the source is not asked for *table*, None where it is."""
    if statements.is_system_schema(table.schema):
        return RowUnreadable("source_refused", f"{table} is a table of the server's own, which is not replicated")
    refusal = refused_table(table.schema, table.table)
    return None if refusal is None else RowUnreadable("source_refused", refusal[1])


class _SnapshotGoneError(PermanentError):
    """Ends a read whose snapshot was garbage-collected."""


class _NoTableError(PermanentError):
    """Ends a read of a table that the snapshot does not have."""


class _NoRightError(AuthenticationError):
    """Ends a read of a table that the login may not read."""


class _BadValueError(PermanentError):
    """Ends a read for the value of a key."""


def _safe_point_ms(text: str) -> int:
    """Milliseconds since the epoch of a safe point such as ``20260301-10:00:00.000 +0800``, the fraction optional."""
    match = re.fullmatch(r"(\d{8}-\d\d:\d\d:\d\d)(\.\d{1,6})? ([+-]\d{4})", text)
    if match is None:
        raise PermanentError(f"tikv_gc_safe_point {text!r} is not a time such as 20260301-10:00:00 +0800")
    moment = datetime.strptime(match[1] + match[3], "%Y%m%d-%H:%M:%S%z")
    return tso.physical_ms(tso.from_datetime(moment)) + int(float(match[2] or 0) * 1000)
