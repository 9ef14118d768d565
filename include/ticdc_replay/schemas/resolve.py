"""Which schema the rows of a changelog file have: the history's if the wire agrees, else the wire's.

The wire of Open and Canal-JSON lacks precision, fraction digits, widths and names; the history of table definitions has
them. It may be wrong (a DDL that was filtered away, a definition out of date). So each column's declared type counts only
if it is of the family the wire shows, and everything known by the wire alone is flagged. Rows of Simple come with their table's
definition, and need no history.
"""

from dataclasses import dataclass

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import INTEGER_TYPES, ColumnType
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.events import RowEvent, Shape, WireColumn
from ticdc_replay.domain.tables import Column, TableName, TableSchema, folded
from ticdc_replay.schemas.history import KnownTable, SchemaHistory
from ticdc_replay.schemas.layout_check import LayoutCheck, gone

_FAMILIES = {
    **dict.fromkeys(("char", "varchar"), "characters"),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("binary", "varbinary"), "bytes"),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), "blob"),
}


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedSchema:
    """The schema that rows are typed with. Interned by its resolver: compare by identity or by ``version``."""

    schema: TableSchema
    """Columns as the changelog has them: no defaults, no virtual columns."""
    version: str
    """The first 16 hex digits of the schema's canonical hash, ``valid_from`` left out."""
    declared: bool
    """Whether every column's type came from a table definition."""
    virtual: frozenset[str]
    """Virtual generated columns: left out even where a protocol sends them."""
    unlike: str = ""
    """Why no row of the table can look like these; "" where one may, and where nobody asked (``LayoutCheck``)."""


def brings_types(row: RowEvent) -> bool:
    """Whether *row* says all of its columns' types itself, so that no definition adds to them."""
    shapes = [image.shape for image in (row.after, row.before) if image is not None]
    return all(
        shape.definition is not None or all(column.type.declared for column in shape.columns) for shape in shapes
    )


def version_of(schema: TableSchema) -> str:
    """Names *schema* by its table, columns, types and keys, whenever it became valid: 16 hex digits."""
    columns = tuple(msgspec.structs.replace(each, since=0) if each.since else each for each in schema.columns)
    stable = TableSchema(schema.name, columns, schema.handle_key, schema.unique_keys)
    return canonical.hash_of(stable)[:16]


class SchemaResolver:
    """Resolves rows against one history. Cheap per row: answers are kept by shape and by moment of the history."""

    def __init__(self, history: SchemaHistory, check: LayoutCheck | None = None) -> None:
        """*check* judges each layout of rows by each definition that it meets; without it none is."""
        self._history = history
        self._check = check
        self._answers: dict[tuple[str, str, Shape | None, Shape | None, bool, int, int | None], ResolvedSchema] = {}
        self._interned: dict[tuple[str, int, frozenset[str], str], ResolvedSchema] = {}

    def resolve(self, row: RowEvent) -> ResolvedSchema:
        """The schema of *row*.

        Where the history knows the table, a partial row has all its columns, sent or not, so that key-only deletes share
        the version of whole rows. A whole row shows which columns there are: one that neither image has does not exist on
        the wire (a column selector drops it, or the definition is out of date) and is left out. Where the history does not
        know the table, the columns of the row's images are the schema. A row without commitTs has no place in the history
        and is typed by the wire alone. A definition that came with the row replaces the history's, which then only says what
        columns are virtual.
        """
        known, dropped_ts = None, None
        if row.commit_ts is not None:
            known = self._history.known_at(row.schema, row.table, row.commit_ts)
            if known is None and self._check is not None:
                dropped_ts = self._history.dropped_at(row.schema, row.table, row.commit_ts)
        after = row.after.shape if row.after is not None else None
        before = row.before.shape if row.before is not None else None
        key = (row.schema, row.table, after, before, row.partial, id(known), dropped_ts)
        answer = self._answers.get(key)
        if answer is None:
            found = self._resolve(row, after, before, known, dropped_ts)
            identity = (found.version, found.schema.valid_from, found.virtual, found.unlike)
            answer = self._answers[key] = self._interned.setdefault(identity, found)
        return answer

    def _resolve(
        self, row: RowEvent, after: Shape | None, before: Shape | None, known: KnownTable | None, dropped_ts: int | None
    ) -> ResolvedSchema:
        virtual = frozenset(known.virtual) if known is not None else frozenset()
        image = after or before
        if image is not None and image.definition is not None:
            return _by_definition(row, image, image.definition, virtual, known)
        wire: dict[str, WireColumn] = {}
        for shape in (after, before):
            for column in shape.columns if shape is not None else ():
                if column.name not in virtual:
                    wire.setdefault(column.name, column)
        handle_key = tuple(sorted(image.handle_key)) if image is not None else ()
        unlike = ""
        if known is None:
            columns = tuple(_from_wire(wire[column]) for column in sorted(wire))
            unique_keys: tuple[tuple[str, ...], ...] = ()
            valid_from = 0
            if dropped_ts is not None:
                unlike = gone(TableName(row.schema, row.table), dropped_ts)
        else:
            columns = _reconciled(known.schema, wire, row.partial)
            unique_keys = known.schema.unique_keys
            valid_from = known.schema.valid_from
            if self._check is not None:
                unlike = self._check.difference(known, wire.values(), handle_key, None if row.partial else after)
        schema = TableSchema(TableName(row.schema, row.table), columns, handle_key, unique_keys, valid_from)
        declared = all(column.type.declared for column in columns)
        return ResolvedSchema(schema, version_of(schema), declared, virtual, unlike)


def _by_definition(
    row: RowEvent, image: Shape, definition: TableDefinition, virtual: frozenset[str], known: KnownTable | None
) -> ResolvedSchema:
    """The schema of *row*, whose images have the columns of *image*; both are of one *definition*. Since when a column has
    its name is what is *known*: the definition does not say it."""
    # Early releases of new TiCDC send virtual columns, as NULL. Of these the definition only tells hidden ones.
    virtual |= {column.name for column in definition.columns if column.generated == "virtual"}
    sent = set(image.names) - virtual
    since = {column.name: column.since for column in known.schema.columns} if known is not None else {}
    columns = tuple(
        Column(column.name, column.type, column.nullable, since=since.get(column.name, 0))
        for column in definition.columns
        if column.name in sent or (row.partial and column.name not in virtual)
    )
    names = {column.name for column in columns}
    unique_keys = tuple(key for key in definition.schema().unique_keys if names.issuperset(key))
    name = TableName(row.schema, row.table)
    schema = TableSchema(name, columns, tuple(sorted(image.handle_key)), unique_keys, definition.valid_from)
    declared = all(column.type.declared for column in columns)
    return ResolvedSchema(schema, version_of(schema), declared, virtual)


def _reconciled(declared: TableSchema, wire: dict[str, WireColumn], partial: bool) -> tuple[Column, ...]:
    unmatched = {folded(name): column for name, column in wire.items()}
    columns = []
    for column in declared.columns:
        sent = unmatched.pop(folded(column.name), None)
        if sent is not None:
            type_ = sent.type if sent.type.declared or not agree(column.type, sent.type) else column.type
            columns.append(Column(sent.name, type_, column.nullable, generated=column.generated, since=column.since))
        elif partial:
            columns.append(
                Column(column.name, column.type, column.nullable, generated=column.generated, since=column.since)
            )
    columns += [_from_wire(unmatched[name]) for name in sorted(unmatched)]
    return tuple(columns)


def _from_wire(column: WireColumn) -> Column:
    return Column(column.name, column.type, nullable=not column.is_handle_key)


def agree(declared: ColumnType, wire: ColumnType) -> bool:
    """Whether values of the wire type *wire* can be of the type *declared*, as far as the wire shows types."""
    if _FAMILIES.get(declared.base, declared.base) != _FAMILIES.get(wire.base, wire.base):
        return False
    return declared.base not in INTEGER_TYPES or declared.unsigned == wire.unsigned
