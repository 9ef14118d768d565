"""A table of the upstream as it was at a TSO, as a side of a comparison."""

from collections.abc import Sequence
from typing import Any

from ticdc_replay.domain import tso
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.large_messages import source_statements as statements
from ticdc_replay.large_messages.source_session import NoTableError, SnapshotGoneError, SourceSession, retried
from ticdc_replay.large_messages.source_statements import Statement
from ticdc_replay.mysql_protocol import is_system_schema
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.verify.mysql import MySqlColumn, MySqlSide
from ticdc_replay.verify.side import ComparedColumn


class SourceSnapshot:
    """The upstream as of *at* (TSO), in *session*."""

    def __init__(self, session: SourceSession, at: int) -> None:
        self._session = session
        self._at = at

    def tables(self) -> list[TableName]:
        """All tables but those of the server's own; views are none."""
        found = self.query(statements.TABLES)
        names = (TableName(schema.decode(), table.decode()) for schema, table in found)
        return [name for name in names if not is_system_schema(name.schema)]

    def has_rows(self, table: TableName) -> bool:
        """Whether *table* has a row."""
        return bool(self.query(statements.first_row(table)))

    def definition(self, table: TableName) -> TableDefinition | None:
        """The definition of *table*, None if there is no such table. Raises PermanentError if it can't be read."""
        try:
            (_, created, *_rest), *_ = self.query(statements.show_create(table))
        except NoTableError:
            return None
        return definition_from_sql(table, created.decode())

    def side(self, definition: TableDefinition, columns: Sequence[ComparedColumn], key: Sequence[int]) -> MySqlSide:
        """The table of *definition* as a side of a comparison of *columns*; *key* are the places of the key's columns."""
        found = self.query(statements.show_columns(definition.name))
        collations = {folded(name.decode()): collation and collation.decode() for name, _, collation, *_ in found}
        compared = [
            MySqlColumn(column.name, column.type, column.form, column.nullable, collations.get(folded(column.name)))
            for column in columns
        ]
        return MySqlSide(self.query, definition.name, compared, key)

    @retried
    def query(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """The rows of *statement* as of the TSO. Raises PermanentError once the snapshot is garbage, TransientError if the
        source is away after further tries."""
        try:
            # Each time: a session that was lost begins anew at the present.
            for setting in (statements.at_snapshot(self._at), *statements.GENTLE):
                self._session.query(setting)
            return self._session.query(statement)
        except SnapshotGoneError as error:
            raise PermanentError(
                f"{self._session.place}: {tso.describe(self._at)} can no longer be read: {error}. Load newer windows, and "
                "verify again with a tidb_gc_life_time that is longer than the comparison takes"
            ) from error
