"""What writer schemas say of keys and values: which table, which columns, and how their bytes become images."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from ticdc_replay.codecs.avro.binary import Schema, schema_of
from ticdc_replay.codecs.avro.registered import MAX_REMEMBERED, forms_by_id
from ticdc_replay.codecs.avro.schema import AvroField, AvroRecord, SchemaError, parse
from ticdc_replay.codecs.avro.values import cell_kind
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.fingerprints import seed_of
from ticdc_replay.domain.events import Shape, WireColumn
from ticdc_replay.domain.limits import refused_columns
from ticdc_replay.schemas.lookup import WriterSchemas

_BEFORE = "_ticdc_before"
_APPENDED = {
    "_tidb_op": "string",
    "_tidb_commit_ts": "long",
    "_tidb_commit_physical_time": "long",
    "_tidb_row_level_checksum": "string",
    "_tidb_corrupted": "boolean",
    "_tidb_checksum_version": "int",
}
"""Fields that TiCDC appends. Columns differ: theirs have ``connect.parameters``."""
_READ = (
    "_tidb_op",
    "_tidb_commit_ts",
    "_tidb_commit_physical_time",
    "_tidb_row_level_checksum",
    "_tidb_corrupted",
    _BEFORE,
)
"""Those that are read, in the order of ``WriterForm.appended``."""


class WriterForm(NamedTuple):
    """A writer schema, ready to read with."""

    schema: str
    table: str
    seed: int
    """Ties a fingerprint to the table, as the seed of a hash over the bytes of a record."""
    columns: tuple[WireColumn, ...]
    """Without handle-key marks: only a key's schema names the key."""
    old_columns: tuple[WireColumn, ...]
    """Those of ``_ticdc_before``; empty where the schema has no such field."""
    appended: tuple[str, ...]
    """The names in ``_READ``: operation, commitTs (TSO), its physical time (ms), checksum, the mark of a corrupted row, the old
    image. "" where the schema lacks the field, or a column has its name."""
    avro: Schema
    """What its records are read by. Columns are in the order of ``columns`` in a record."""

    @property
    def about(self) -> tuple[None, str, str]:
        """What errors of a row say it is about: its commitTs is not known."""
        return None, self.schema, self.table

    def cells(self, record: dict[str, Any]) -> tuple[Any, ...]:
        """The cells of the columns of *record*."""
        return tuple([record[column.name] for column in self.columns])


_FormById = Callable[[str], WriterForm]
_Interned = Callable[[tuple[WireColumn, ...]], Shape]


class RowForm(NamedTuple):
    """The shapes of the images in values of one writer schema beside keys of one writer schema, or without key."""

    shape: Shape
    old_shape: Shape


def form_of(text: str) -> WriterForm:
    """The form of the writer schema *text*. Raises SchemaError for a document that TiCDC's Avro does not write.

    The names are those of the record and the second part of its namespace; both were sanitised, and nothing keeps the original.
    """
    record = parse(text)
    _, dot, schema = record.namespace.partition(".")
    if not dot or not schema:
        raise SchemaError(f"namespace {record.namespace!r:.80} does not name a database after a dot")
    columns: list[AvroField] = []
    appended: dict[str, AvroField] = {}
    for field in record.fields:
        if "tidb_type" in field.parameters:
            columns.append(field)
        elif (isinstance(field.type, AvroRecord) and field.name == _BEFORE and field.null_branch is not None) or (
            field.null_branch is None and field.type == _APPENDED.get(field.name)
        ):
            appended[field.name] = field
        else:
            raise SchemaError(f"field {field.name!r} is neither a column nor one that TiCDC appends")
    if not columns:
        raise SchemaError("a record without columns")
    before = appended[_BEFORE].type if _BEFORE in appended else None
    old_columns = before.fields if isinstance(before, AvroRecord) else ()
    for fields in (columns, old_columns):
        refusal = refused_columns([field.name for field in fields])
        if refusal is not None:
            raise SchemaError(refusal[1])
    return WriterForm(
        schema,
        record.name,
        seed_of(schema, record.name),
        tuple(map(_column, columns)),
        tuple(map(_column, old_columns)),
        tuple(name if name in appended else "" for name in _READ),
        schema_of(record),
    )


class Forms:
    """The forms of a registry's schemas by id, and what follows from pairs of them.

    It holds no reference to itself: splits are decoded without the search for cycles, which would keep it and its registry.
    """

    def __init__(self, schemas: WriterSchemas) -> None:
        self.form = forms_by_id(schemas, form_of)
        """The form with an id, see ``forms_by_id``."""
        interned = lru_cache(MAX_REMEMBERED)(Shape)
        self.row = lru_cache(MAX_REMEMBERED)(partial(_row, self.form, interned))
        """The shapes of values of one id beside keys of another, or without key (None). Raises MessageError."""
        self.key_shape = lru_cache(MAX_REMEMBERED)(partial(_key_shape, self.form, interned))
        """The shape of what keys of an id alone say of a row. Raises MessageError."""

    def key(self, schema_id: str) -> WriterForm:
        """The form of keys with *schema_id*; raises MessageError (``bad_key``) also for that of values."""
        return _key(self.form, schema_id)


def _key(form: _FormById, schema_id: str) -> WriterForm:
    found = form(schema_id)
    if any(found.appended):
        raise MessageError("bad_key", f"key: schema {schema_id} is one of values", *found.about)
    return found


def _row(form: _FormById, interned: _Interned, value_id: str, key_id: str | None) -> RowForm:
    value = form(value_id)
    names = {column.name for column in _key(form, key_id).columns} if key_id is not None else set()
    unknown = names - {column.name for column in value.columns}
    if unknown:
        detail = f"the key has columns that the value lacks: {', '.join(sorted(unknown))}"
        raise MessageError("key_mismatch", detail, *value.about)
    shape = interned(_marked(value.columns, names))
    return RowForm(shape, interned(_marked(value.old_columns, names)) if value.old_columns else shape)


def _key_shape(form: _FormById, interned: _Interned, key_id: str) -> Shape:
    columns = _key(form, key_id).columns
    return interned(_marked(columns, {column.name for column in columns}))


def _marked(columns: tuple[WireColumn, ...], key: set[str]) -> tuple[WireColumn, ...]:
    """*columns* with the handle key *key*."""
    return tuple(column._replace(is_handle_key=column.name in key) for column in columns)


def _column(field: AvroField) -> WireColumn:
    if isinstance(field.type, AvroRecord):
        raise SchemaError(f"column {field.name!r} is a record")
    kind = cell_kind(field)
    return WireColumn(field.name, kind.type, False, kind.neutral)
