"""Reading rows of the upstream database as they were at a TSO, by the MySQL protocol.

A fault of one row is a value that goes with its message. A fault of the server is an error.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ticdc_replay import mysql_protocol
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.errors import ConfigError, PermanentError
from ticdc_replay.domain.limits import refused_table
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.large_messages import source_statements as statements
from ticdc_replay.large_messages.source_images import SourceRow, neutral_of
from ticdc_replay.large_messages.source_session import (
    BadValueError,
    NoRightError,
    NoTableError,
    SnapshotGoneError,
    SourceSession,
    retried,
)
from ticdc_replay.large_messages.source_statements import Statement
from ticdc_replay.schemas.ddl.reader import definition_from_sql

_ROWS_PER_STATEMENT = 32


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
        self._zone = zone
        self._session = SourceSession(connection)

    def close(self) -> None:
        """End the session."""
        self._session.close()

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
        """Raise PermanentError if rows at *first_ts* (TSO) are garbage already, by the source's GC safe point."""
        self._session.check_safe_point(
            first_ts,
            "the window begins at",
            "replay a later window, with a longer tidb_gc_life_time for the next ones, or set policies.handle_key_only to "
            "quarantine",
        )

    @retried
    def _read(
        self, table: TableName, snapshot: int, key_names: tuple[str, ...], keys: Sequence[tuple[Any, ...]]
    ) -> Sequence[SourceRow | RowUnreadable]:
        try:
            self._query(statements.at_snapshot(snapshot))
            definition = self._definition(table)
            if isinstance(definition, RowUnreadable):
                return [definition] * len(keys)
            return self._rows_of(definition, snapshot, key_names, keys)
        except SnapshotGoneError as error:
            why = RowUnreadable("source_snapshot_gone", f"{table} at {tso.describe(snapshot)}: {error}")
        except NoTableError as error:
            why = RowUnreadable("source_row_missing", f"{table} at {tso.describe(snapshot)}: {error}")
        except NoRightError as error:
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
            except BadValueError as error:
                if len(keys) > 1:  # whose value it is, is found by asking for each alone
                    return [each for key in keys for each in self._rows_of(definition, snapshot, key_names, [key])]
                return [RowUnreadable("source_row_missing", f"{where} can't be asked for the message's key: {error}")]
            for values in rows:
                cells = [neutral_of(columns[at].type)((values[at],))[0] for at in key_places]
                by_key[statements.key_cells(cells, types, self._zone)] = SourceRow(definition, values)
            if len(rows) > len(asked) or len(by_key) < len(rows):
                raise PermanentError(
                    f"{self._session.place}: {where} has several rows with one value of its unique key "
                    f"({', '.join(key_names)}): which of them the message means is not known. Check the table's indexes "
                    "upstream (ADMIN CHECK TABLE)"
                )
        missing = RowUnreadable("source_row_missing", f"{where} has no row with the key of the message")
        return [missing if key is None else by_key.get(key, missing) for key in wanted]

    def _query(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        return self._session.query(statement)


@lru_cache(maxsize=16)
def _parsed(table: TableName, created: bytes) -> TableDefinition:
    """The definition in *created*: of 900 columns it takes a third of a second, and each statement for rows needs it."""
    return definition_from_sql(table, created.decode())


def _refused(table: TableName) -> RowUnreadable | None:
    """Why the source is not asked for *table*, None where it is."""
    if mysql_protocol.is_system_schema(table.schema):
        return RowUnreadable("source_refused", f"{table} is a table of the server's own, which is not replicated")
    refusal = refused_table(table.schema, table.table)
    return None if refusal is None else RowUnreadable("source_refused", refusal[1])
