"""DDL statements as values: what ``parser`` reads and ``alter`` applies.

Names are (schema or None, table): the schema is missing where the text does not qualify it.
"""

from typing import NamedTuple

from ticdc_replay.domain.definition import DefinedColumn, Index
from ticdc_replay.schemas.ddl.literals import Literal

QualifiedName = tuple[str | None, str]


class Position(NamedTuple):
    """Where a column is put: after *after*, or first when *after* is None."""

    after: str | None


class ColumnSpec(NamedTuple):
    """A column as a statement defines it, with the indexes its options ask for.

    ``charset_given``: the column names a charset or collation of its own; without it the table decides
    whether character types hold bytes.
    """

    column: DefinedColumn
    charset_given: bool
    indexes: tuple[Index, ...]


class CreateTable(NamedTuple):
    """CREATE TABLE with a column list. Table-level indexes only; ``binary``: the default charset is binary."""

    name: QualifiedName
    columns: tuple[ColumnSpec, ...]
    indexes: tuple[Index, ...]
    binary: bool


class CreateTableLike(NamedTuple):
    name: QualifiedName
    source: QualifiedName


class AddColumn(NamedTuple):
    """Position None: at the end. ``unless_there``: IF NOT EXISTS."""

    spec: ColumnSpec
    position: Position | None
    unless_there: bool = False


class DropColumn(NamedTuple):
    name: str


class ModifyColumn(NamedTuple):
    """MODIFY and CHANGE COLUMN. Position None: where it was."""

    name: str
    spec: ColumnSpec
    position: Position | None


class RenameColumn(NamedTuple):
    name: str
    to: str


class SetDefault(NamedTuple):
    """ALTER COLUMN … SET DEFAULT or DROP DEFAULT; None where it is dropped or computed by the server."""

    name: str
    default: Literal | None
    computed: bool


class AddIndex(NamedTuple):
    """ADD INDEX, CREATE INDEX; the name is "" where the statement has none."""

    added: Index


class DropIndex(NamedTuple):
    """DROP INDEX; PRIMARY for the primary key."""

    name: str


class RenameIndex(NamedTuple):
    name: str
    to: str


class RenameTo(NamedTuple):
    to: QualifiedName


class SetCharset(NamedTuple):
    """The table's default charset; ``convert`` for CONVERT TO, which changes the columns too."""

    binary: bool
    convert: bool


class RemovePartitions(NamedTuple):
    """Partitions are dropped or truncated: rows go, the definition stays."""

    what: str


class ExchangePartition(NamedTuple):
    """A partition and a table of the same definition change places."""

    table: QualifiedName


class NoEffect(NamedTuple):
    """An action that leaves rows and keys as they are: ``what`` names it."""

    what: str


Action = (
    AddColumn | DropColumn | ModifyColumn | RenameColumn | SetDefault
    | AddIndex | DropIndex | RenameIndex | RenameTo | SetCharset | RemovePartitions | ExchangePartition | NoEffect
)  # fmt: skip


class AlterTable(NamedTuple):
    """ALTER TABLE, CREATE INDEX, DROP INDEX."""

    name: QualifiedName
    actions: tuple[Action, ...]


class RenameTables(NamedTuple):
    """RENAME TABLE; pairs of old and new name."""

    pairs: tuple[tuple[QualifiedName, QualifiedName], ...]


class DropTables(NamedTuple):
    names: tuple[QualifiedName, ...]


class TruncateTable(NamedTuple):
    """TRUNCATE TABLE: the rows go, the definition stays."""

    name: QualifiedName


class DropDatabase(NamedTuple):
    name: str


class RecoverTable(NamedTuple):
    """RECOVER TABLE, FLASHBACK TABLE: a dropped or truncated table is back, with its rows, under this name.

    None where the statement does not tell it (BY JOB). *former* is the name that the table had, if that is another one.
    """

    name: QualifiedName | None
    former: QualifiedName | None = None


Statement = (
    CreateTable | CreateTableLike | AlterTable | RenameTables | DropTables | TruncateTable | DropDatabase
    | RecoverTable | NoEffect
)  # fmt: skip
