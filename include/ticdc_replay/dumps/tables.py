"""The schema that the rows of a dumped table get: that of the table's events, as the changefeed sends them."""

import msgspec

from ticdc_replay.changefeed.rules import Dispatch, SourceTable
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import Column, TableName
from ticdc_replay.dumps.survey import DumpedTable
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.schemas.resolve import ResolvedSchema, version_of


def definition_of(table: DumpedTable, snapshot_ts: int, dispatch: Dispatch) -> TableDefinition:
    """The definition of *table*, valid from *snapshot_ts* (TSO), under the name that its events carry by *dispatch*.

    Raises ConfigError for a text that is no CREATE TABLE.
    """
    text = table.create_table
    while text.lstrip().startswith("/*!"):
        comment, ended, rest = text.lstrip().partition(";")
        if not ended or not comment.rstrip().endswith("*/"):
            break
        text = rest
    definition = definition_from_sql(table.name, text.strip())
    name = TableName(*dispatch.routed(SourceTable(table.name.schema, table.name.table)))
    return msgspec.structs.replace(definition, name=name, valid_from=snapshot_ts)


def schema_of(table: DumpedTable, definition: TableDefinition, dispatch: Dispatch) -> ResolvedSchema:
    """The schema of rows of *table*: without virtual columns, and without those that a column selector leaves out.

    Raises ConfigError if rows lack a column that events have: Dumpling leaves out generated columns, also stored ones.
    """
    selector = dispatch.selector_of(SourceTable(table.name.schema, table.name.table))
    schema = definition.schema()
    kept = [column for column in schema.columns if selector is None or selector.columns.keeps(column.name)]
    columns = tuple(
        Column(each.name, each.type, each.nullable, generated=each.generated, since=each.since) for each in kept
    )
    schema = msgspec.structs.replace(schema, columns=columns)
    return ResolvedSchema(
        schema, version_of(schema), all(column.type.declared for column in columns), frozenset(definition.virtual())
    )


def require_columns(table: DumpedTable, schema: ResolvedSchema, given: frozenset[str], where: str) -> None:
    """Raise ConfigError if rows in *where* with the columns *given* lack one of *schema*."""
    lacking = [column for column in schema.schema.columns if column.name not in given]
    if not lacking:
        return
    names = ", ".join(column.name for column in lacking)
    if all(column.generated for column in lacking):
        raise ConfigError(
            f"{where}: the stored generated columns {names} of {table.name} are not in the dump, and TiCDC sends them: rows "
            "would lack their values. Dump again with --include-generated-columns=stored, where Dumpling has it; or leave the "
            "columns out by a column selector of the changefeed; or leave the table out, and fill its mirror by hand"
        )
    raise ConfigError(
        f"{where}: rows of {table.name} lack the columns {names} that its definition has. Does the folder hold more than one "
        "dump?"
    )
