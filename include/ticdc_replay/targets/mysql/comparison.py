"""A mirror in MySQL, TiDB or MariaDB as a side of a comparison: ``verify.mysql`` with the types that the mirror has."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import msgspec
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from ticdc_replay import mysql_protocol
from ticdc_replay.domain.errors import PermanentError, TransientError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.large_messages import source_statements as statements
from ticdc_replay.large_messages.source_statements import Statement
from ticdc_replay.mysql_protocol import quoted
from ticdc_replay.targets.mirror.comparison import Comparisons, MirrorTable
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.mysql.errors import Errors, is_lost, translate
from ticdc_replay.targets.mysql.server import MysqlConnection
from ticdc_replay.targets.mysql.settings import MysqlSettings
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.mysql import MySqlColumn, MySqlSide
from ticdc_replay.verify.side import ComparedColumn, FoundRow, Key, MirrorSide, Range

_FORMS = {
    "float": {Form.FLOAT},
    "double": {Form.FLOAT},
    "date": {Form.DATE},
    "year": {Form.INTEGER},
    "datetime": {Form.MOMENT},
    "timestamp": {Form.INSTANT},
    "time": {Form.SPAN},
    "varchar": {Form.TEXT},
    "longtext": {Form.TEXT, Form.JSON},
    "varbinary": {Form.BYTES},
    "longblob": {Form.BYTES},
    "bit": {Form.INTEGER},
    "decimal": {Form.DECIMAL},
}
_NO_FUNCTION = frozenset({1046, 1305})
"""It is looked for in the session's database, which there is none of."""
_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_DIGITS = re.compile(r"(?:datetime|timestamp|time)\((\d)\)")
_SCALE = re.compile(r"decimal\(\d+,(\d+)\)")

_retried = retry(
    retry=retry_if_exception_type(TransientError),
    stop=stop_after_attempt(3),
    wait=wait_exponential_jitter(multiplier=0.2, jitter=0.2),
    reraise=True,
)


class MysqlComparisons(Comparisons):
    """A session that connects when the first statement is sent, and again after it was lost."""

    def __init__(self, settings: MysqlSettings) -> None:
        self._settings = settings
        self._connection: Any = None

    def close(self) -> None:
        """End the session."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def forms(self, type_name: str) -> frozenset[Form]:
        base = _base_of(type_name)
        return frozenset({Form.INTEGER} if base in _INTEGERS else _FORMS.get(base, ()))

    def side(self, table: MirrorTable, columns: Sequence[ComparedColumn], key: Sequence[int]) -> MirrorSide:
        return MysqlMirrorSide(self, table, columns, key)

    @_retried
    def query(self, doing: str, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """The rows of *statement*, cells as the bytes that the server sent; *doing* says in errors what it is for."""
        try:
            if self._connection is None:
                connection = self._settings.connect_reading(statements.SESSION)
                _require_md5(connection)
                self._connection = connection
            with self._connection.cursor() as cursor:
                cursor.execute(statement.sql, statement.parameters)
                rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
                return rows
        except Errors as error:
            self._fail(error, doing)

    def _fail(self, error: Exception, doing: str) -> NoReturn:
        if is_lost(error):
            self._connection = None
        raise translate(error, doing, self._settings.conn_id) from error


def _require_md5(connection: MysqlConnection) -> None:
    """Raise PermanentError if the server has no function MD5: since 9.6, MySQL has it in a component."""
    with connection.cursor() as cursor:
        try:
            cursor.execute("SELECT MD5('')")
        except Errors as error:
            if mysql_protocol.code_and_text(error)[0] not in _NO_FUNCTION:
                raise
            raise PermanentError(
                "the server has no function MD5, which comparisons need: INSTALL COMPONENT 'file://component_classic_hashing'"
            ) from error


class MysqlMirrorSide(MySqlSide, MirrorSide):
    """Compares *columns* of *table*; *key* are the places of the key's columns among them."""

    def __init__(
        self, session: MysqlComparisons, table: MirrorTable, columns: Sequence[ComparedColumn], key: Sequence[int]
    ) -> None:
        assert table.found is not None, table.relation
        types = {column.name: column.type for column in table.found.columns}
        compared = [_compared(column, types[column.mirror]) for column in columns]
        doing = f"compare {table.relation}"
        marker = table.state.deleted_column
        conditions = () if marker is None else (f"NOT {quoted(marker)}",)
        super().__init__(partial(session.query, doing), _named(table.relation), compared, key, conditions)
        self._version = quoted(table.version_column)
        self._deletes: tuple[TableName, tuple[str, ...]] = _named(table.state.tombstones), ()
        if marker is not None:
            self._deletes = _named(table.relation), (quoted(marker),)

    def rows(self, part: Range) -> list[FoundRow]:
        return [FoundRow(key, md5, int(version)) for key, md5, version in self.rows_with(part, self._version)]

    def deleted(self, keys: Sequence[Key]) -> dict[Key, int]:
        table, conditions = self._deletes
        place = (table.schema, table.table)
        exists = "SELECT 1 FROM information_schema.tables WHERE (table_schema, table_name) = (%s, %s)"
        if not keys or not self.query(Statement(exists, place)):
            return {}
        return {key: int(version) for key, version in self.keys_with(keys, self._version, table, conditions)}


def _compared(column: ComparedColumn, type_name: str) -> MySqlColumn:
    """*column* of the mirror, whose type there may have more digits than at the source. If two mirrors are compared, the column's
    type only shows its form: a BIT or YEAR is read as such."""
    own = column.type
    base = _base_of(type_name)
    if base == "bit" or base == "year":
        own = msgspec.structs.replace(own, base=base)
    digits, scale = _DIGITS.fullmatch(type_name), _SCALE.fullmatch(type_name)
    if digits is not None:
        own = msgspec.structs.replace(own, scale=int(digits[1]))
    found_scale = int(scale[1]) if scale is not None else None
    return MySqlColumn(column.mirror, own, column.form, column.nullable, own_scale=found_scale, by_bytes=True)


def _base_of(type_name: str) -> str:
    return re.split(r"[( ]", type_name)[0]


def _named(relation: Relation) -> TableName:
    return TableName(relation.schema, relation.table)
