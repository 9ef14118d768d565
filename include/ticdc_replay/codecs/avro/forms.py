"""What writer schemas say of keys and values: which table, which columns, and how their bytes become images."""

from functools import lru_cache
from typing import Any, NamedTuple

import xxhash

from ticdc_replay.codecs.avro.binary import Schema, schema_of
from ticdc_replay.codecs.avro.schema import Field, Record, SchemaError, parse
from ticdc_replay.codecs.avro.values import cell_kind
from ticdc_replay.domain.events import Shape, WireColumn
from ticdc_replay.domain.limits import refused_columns
from ticdc_replay.schemas.lookup import UnusableAnswerError, WriterSchemas

_MAX_REMEMBERED = 10_000
_BEFORE = "_ticdc_before"
_APPENDED = {
    "_tidb_op": "string",
    "_tidb_commit_ts": "long",
    "_tidb_commit_physical_time": "long",
    "_tidb_row_level_checksum": "string",
    "_tidb_corrupted": "boolean",
    "_tidb_checksum_version": "int",
}
"""Fields that TiCDC appends (protocols: avro, section 4). Columns differ: theirs have ``connect.parameters``."""
_READ = (
    "_tidb_op",
    "_tidb_commit_ts",
    "_tidb_commit_physical_time",
    "_tidb_row_level_checksum",
    "_tidb_corrupted",
    _BEFORE,
)
"""Those that are read, in the order of ``Form.appended``."""


class MessageError(ValueError):
    """A message can't be understood. ``reason`` groups it; ``form`` is that of its table, as far as it is known."""

    def __init__(self, reason: str, detail: str, form: "Form | None" = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.form = form


class Form(NamedTuple):
    """A writer schema, ready to read with."""

    schema: str
    table: str
    seed: int
    """Ties a fingerprint to the table, as the seed of a hash over the bytes of a record."""
    columns: tuple[WireColumn, ...]
    """Without handle-key marks: only a key's schema tells the key."""
    old_columns: tuple[WireColumn, ...]
    """Those of ``_ticdc_before``; empty where the schema has no such field."""
    appended: tuple[str, ...]
    """The names in ``_READ``: operation, commitTs (TSO), its physical time (ms), checksum, the mark of a corrupted row, the old
    image. "" where the schema lacks the field, or a column has its name."""
    avro: Schema
    """What its records are read by. Columns are in the order of ``columns`` in a record."""

    def cells(self, record: dict[str, Any]) -> tuple[Any, ...]:
        """The cells of the columns of *record*."""
        return tuple([record[column.name] for column in self.columns])


class RowForm(NamedTuple):
    """The shapes of the images in values of one writer schema beside keys of one writer schema, or without key."""

    shape: Shape
    old_shape: Shape


def form_of(text: str) -> Form:
    """The form of the writer schema *text*. Raises SchemaError for a document that TiCDC's Avro does not write.

    The names are those of the record and the second part of its namespace; both were sanitised, and nothing keeps the original.
    """
    record = parse(text)
    _, dot, schema = record.namespace.partition(".")
    if not dot or not schema:
        raise SchemaError(f"namespace {record.namespace!r:.80} does not name a database after a dot")
    columns: list[Field] = []
    appended: dict[str, Field] = {}
    for field in record.fields:
        if "tidb_type" in field.parameters:
            columns.append(field)
        elif (isinstance(field.type, Record) and field.name == _BEFORE and field.null_branch is not None) or (
            field.null_branch is None and field.type == _APPENDED.get(field.name)
        ):
            appended[field.name] = field
        else:
            raise SchemaError(f"field {field.name!r} is neither a column nor one that TiCDC appends")
    if not columns:
        raise SchemaError("a record without columns")
    before = appended[_BEFORE].type if _BEFORE in appended else None
    old_columns = before.fields if isinstance(before, Record) else ()
    for fields in (columns, old_columns):
        refusal = refused_columns([field.name for field in fields])
        if refusal is not None:
            raise SchemaError(refusal[1])
    return Form(
        schema,
        record.name,
        _seed(schema, record.name),
        tuple(map(_column, columns)),
        tuple(map(_column, old_columns)),
        tuple(name if name in appended else "" for name in _READ),
        schema_of(record),
    )


class Forms:
    """The forms of a registry's schemas by id, and what follows from pairs of them. Remembers ids that are not there, too."""

    def __init__(self, schemas: WriterSchemas) -> None:
        self._schemas = schemas
        self._forms: dict[str, Form | MessageError] = {}
        self._rows: dict[tuple[str, str | None], RowForm] = {}
        self._key_shapes: dict[str, Shape] = {}
        self._shapes: dict[tuple[WireColumn, ...], Shape] = {}

    def form(self, schema_id: str) -> Form:
        """The form with *schema_id*. Raises MessageError (``schema_unknown``, ``bad_schema``), and what the registry raises."""
        form = self._forms.get(schema_id)
        if form is None:
            form = self._load(schema_id)
        if isinstance(form, MessageError):
            raise MessageError(form.reason, str(form))
        return form

    def key(self, schema_id: str) -> Form:
        """The form of keys with *schema_id*; raises MessageError (``bad_key``) also for that of values."""
        form = self.form(schema_id)
        if any(form.appended):
            raise MessageError("bad_key", f"key: schema {schema_id} is one of values", form)
        return form

    def row(self, value_id: str, key_id: str | None) -> RowForm:
        """The shapes of values of *value_id* beside keys of *key_id*, or without key. Raises MessageError."""
        found = self._rows.get((value_id, key_id))
        if found is None:
            value = self.form(value_id)
            key = self.key(key_id) if key_id is not None else None
            found = self._rows[value_id, key_id] = self._row(value, key)
        return found

    def key_shape(self, key_id: str) -> Shape:
        """The shape of what keys of *key_id* alone say of a row."""
        shape = self._key_shapes.get(key_id)
        if shape is None:
            columns = self.key(key_id).columns
            shape = self._key_shapes[key_id] = self._shape(columns, {column.name for column in columns})
        return shape

    def _load(self, schema_id: str) -> Form | MessageError:
        if len(self._forms) >= _MAX_REMEMBERED:
            for remembered in (self._forms, self._rows, self._key_shapes, self._shapes):
                remembered.clear()
        found: Form | MessageError
        try:
            text = self._schemas.text(schema_id)
            found = (
                MessageError("schema_unknown", f"the schema registry has no schema {schema_id}")
                if text is None
                else form_of(text)
            )
        except UnusableAnswerError as error:
            found = MessageError("schema_unknown", str(error))
        except SchemaError as error:
            found = MessageError("bad_schema", f"schema {schema_id} of the registry: {error}")
        self._forms[schema_id] = found
        return found

    def _row(self, value: Form, key: Form | None) -> RowForm:
        names = {column.name for column in key.columns} if key is not None else set()
        unknown = names - {column.name for column in value.columns}
        if unknown:
            raise MessageError(
                "key_mismatch", f"the key has columns that the value lacks: {', '.join(sorted(unknown))}", value
            )
        shape = self._shape(value.columns, names)
        return RowForm(shape, self._shape(value.old_columns, names) if value.old_columns else shape)

    def _shape(self, columns: tuple[WireColumn, ...], key: set[str]) -> Shape:
        """The one Shape of *columns* with the handle key *key*."""
        marked = tuple(column._replace(is_handle_key=column.name in key) for column in columns)
        return self._shapes.setdefault(marked, Shape(marked))


def _column(field: Field) -> WireColumn:
    if isinstance(field.type, Record):
        raise SchemaError(f"column {field.name!r} is a record")
    kind = cell_kind(field)
    return WireColumn(field.name, kind.type, False, kind.neutral)


@lru_cache(maxsize=10_000)
def _seed(schema: str, table: str) -> int:
    seed: int = xxhash.xxh3_64_intdigest(f"{schema}\0{table}".encode())
    return seed
