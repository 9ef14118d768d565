"""Writer schemas as TiCDC's Debezium-Avro registers them.

They are the schema blocks of Debezium in Avro: what Kafka Connect knows of a field is in members called ``connect.…``.
Defaults are not looked at: they say nothing of the columns' own.
"""

from typing import NamedTuple, get_args

from ticdc_replay.codecs.avro.schema import AvroField, AvroRecord, SchemaError, document_of, parse, record_of
from ticdc_replay.codecs.debezium.schema import BITS, DECIMAL, ConnectField, ConnectType, bits

_CONNECT: dict[str, ConnectType] = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}
_CONNECT_TYPES = get_args(ConnectType)


class WriterSchema(NamedTuple):
    """The schema of a key or value: what to read, and a row's columns."""

    record: AvroRecord
    """Without what follows ``ddl`` in a schema change: nothing of it is needed but its beginning."""
    columns: tuple[ConnectField, ...] = ()


def parse_key(text: str) -> WriterSchema:
    """The schema document *text* of a key. Raises SchemaError."""
    record = parse(text)
    return WriterSchema(record, tuple(map(_column, record.fields)))


def parse_value(text: str) -> WriterSchema:
    """The schema document *text* of a value: of rows, watermarks or schema changes. Raises SchemaError."""
    document = document_of(text)
    fields = document.get("fields")
    names = [field.get("name") for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    if "ddl" in names:
        return WriterSchema(record_of({**document, "fields": fields[: names.index("ddl") + 1]}))  # type: ignore[index]
    record = record_of(document)
    before = [field.type for field in record.fields if field.name == "before"]
    if not before:
        return WriterSchema(record)
    if not isinstance(before[0], AvroRecord):
        raise SchemaError("field 'before' is not a record")
    return WriterSchema(record, tuple(map(_column, before[0].fields)))


def _column(field: AvroField) -> ConnectField:
    written = field.written_type
    name, tidb_type = field.document.get("connect.field", field.name), field.document.get("tidb_type", "")
    semantic = written.get("connect.name", "")
    if not all(isinstance(text, str) for text in (name, semantic, tidb_type)):
        raise SchemaError(f"field {field.name!r:.80}: members that are not text")
    plain = _CONNECT.get(field.type) if isinstance(field.type, str) else None
    type_ = written.get("connect.type", plain)
    if type_ not in _CONNECT_TYPES:
        raise SchemaError(f"field {field.name!r:.80}: a type that columns do not have")
    length = scale = None
    if semantic == BITS:
        length = bits(field.parameters.get("length"))
    elif field.decimal is not None:
        semantic = semantic or DECIMAL
        length, scale = field.decimal
    # Where all columns are unions, being one says nothing of NULL.
    nullable = None if field.null_branch is not None else False
    allowed = field.parameters.get("allowed")
    return ConnectField(name, type_, semantic, tidb_type, nullable, allowed, length, scale, None, avro=True)
