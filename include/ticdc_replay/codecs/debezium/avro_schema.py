"""Writer schemas as TiCDC's Debezium-Avro registers them (protocols: debezium, section 6).

They are the schema blocks of Debezium in Avro's clothes: what Kafka Connect knows of a field is in members called ``connect.…``,
and a record that occurs again is named instead of repeated. Defaults are not looked at: they say nothing of the columns' own.
"""

from typing import Any, NamedTuple, get_args

import msgspec

from ticdc_replay.codecs.avro import schema as avro_schema
from ticdc_replay.codecs.avro.schema import Primitive, Record, SchemaError
from ticdc_replay.codecs.debezium.schema import BITS, DECIMAL, ConnectType, Field, bits
from ticdc_replay.domain.limits import MAX_COLUMNS

_CONNECT: dict[str, ConnectType] = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}
_CONNECT_TYPES: frozenset[ConnectType] = frozenset(get_args(ConnectType))
_PRIMITIVES: dict[str, Primitive] = {name: name for name in _CONNECT}  # type: ignore[misc]
_MAX_FIELDS = 2 * MAX_COLUMNS + 1_000
"""Of all records, each as often as it occurs: both images of the widest table, and what stands beside them. A reader is compiled
of them, which takes about 70 µs and 16 kB for each."""


class WriterSchema(NamedTuple):
    """The schema of a key or value: what to read, and what it tells of a row's columns."""

    record: Record
    """Without what follows ``ddl`` in a schema change: nothing of it is needed but its beginning."""
    columns: tuple[Field, ...] = ()


def parse_key(text: str) -> WriterSchema:
    """The schema document *text* of a key. Raises SchemaError."""
    document = _document(text)
    return WriterSchema(_record(document, {}), _columns(document))


def parse_value(text: str) -> WriterSchema:
    """The schema document *text* of a value: of rows, watermarks or schema changes. Raises SchemaError."""
    document = _document(text)
    fields = document.get("fields")
    names = [field.get("name") for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    if "ddl" in names:
        return WriterSchema(_record({**document, "fields": fields[: names.index("ddl") + 1]}, {}))  # type: ignore[index]
    record = _record(document, {})
    for field in document["fields"]:
        if field["name"] == "before":
            images = [branch for branch in _branches(field["type"]) if isinstance(branch, dict)]
            if not images or images[0].get("type") != "record":
                raise SchemaError("field 'before' is no record")
            return WriterSchema(record, _columns(images[0]))
    return WriterSchema(record)


def _document(text: str) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise SchemaError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise SchemaError(f"a {type(document).__name__} instead of a record")
    return document


def _record(document: dict[str, Any], named: dict[str, Record], depth: int = 0) -> Record:
    name, namespace, fields = document.get("name"), document.get("namespace", ""), document.get("fields")
    if (
        document.get("type") != "record"
        or not isinstance(name, str)
        or not isinstance(namespace, str)
        or not isinstance(fields, list)
    ):
        raise SchemaError("a record without name, namespace or fields")
    if depth > 1:
        raise SchemaError(f"record {name!r:.80}: a record in a record in a record")
    record = Record(name, namespace, tuple(_field(field, named, depth) for field in fields))
    if len({field.name for field in record.fields}) != len(record.fields):
        raise SchemaError(f"record {name!r:.80} has two fields of one name")
    if depth == 0:
        count = sum(1 + len(field.type.fields) if isinstance(field.type, Record) else 1 for field in record.fields)
        if count > _MAX_FIELDS:
            raise SchemaError(f"record {name!r:.80}: {count} fields, and TiCDC writes no more than {_MAX_FIELDS}")
    named[f"{namespace}.{name}" if namespace else name] = record
    return record


def _field(document: Any, named: dict[str, Record], depth: int) -> avro_schema.Field:
    name = document.get("name") if isinstance(document, dict) else None
    if not isinstance(name, str) or not name or "type" not in document:
        raise SchemaError("a field without name or type")
    branches = _branches(document["type"])
    if len(branches) > 2 or (len(branches) == 2) != ("null" in branches):
        raise SchemaError(f"field {name!r:.80}: a union that is not of null and one type")
    null_branch = branches.index("null") if len(branches) == 2 else None
    written = branches[0 if null_branch is None else 1 - null_branch]
    type_: Primitive | Record | None
    if isinstance(written, dict) and written.get("type") == "record":
        type_ = _record(written, named, depth + 1)
    else:
        plain = written.get("type") if isinstance(written, dict) else written
        type_ = _PRIMITIVES.get(plain) if isinstance(plain, str) else None
        if type_ is None and isinstance(plain, str) and depth == 0:
            type_ = named.get(plain)
    if type_ is None:
        raise SchemaError(f"field {name!r:.80}: type {written!r:.80} is none that TiCDC uses")
    return avro_schema.Field(name, type_, null_branch)  # type: ignore[arg-type]


def _columns(image: dict[str, Any]) -> tuple[Field, ...]:
    """What the record *image*, which was read before, says of a row's columns."""
    return tuple(_column(field) for field in image["fields"])


def _column(document: dict[str, Any]) -> Field:
    branches = _branches(document["type"])
    written = next(branch for branch in branches if branch != "null")
    shape = written if isinstance(written, dict) else {"type": written}
    name = document.get("connect.field", document["name"])
    parameters = shape.get("connect.parameters") or {}
    semantic, tidb_type, allowed = shape.get("connect.name", ""), document.get("tidb_type", ""), None
    if not isinstance(parameters, dict) or not all(isinstance(text, str) for text in (name, semantic, tidb_type)):
        raise SchemaError(f"field {document['name']!r:.80}: members that are not text")
    plain = shape.get("type")
    type_ = shape.get("connect.type", _CONNECT.get(plain) if isinstance(plain, str) else None)
    if type_ not in _CONNECT_TYPES:
        raise SchemaError(f"field {document['name']!r:.80}: type {plain!r:.80} is none that columns have")
    allowed = parameters.get("allowed")
    if allowed is not None and not isinstance(allowed, str):
        raise SchemaError(f"field {document['name']!r:.80}: names that are not text")
    length = scale = None
    if semantic == BITS:
        length = bits(parameters.get("length"))
    elif shape.get("logicalType") == "decimal":
        semantic = semantic or DECIMAL
        length, scale = shape.get("precision"), shape.get("scale", 0)
        if avro_schema.decimal_of(length, scale) is None:
            raise SchemaError(f"field {document['name']!r:.80}: {length!r:.20} and {scale!r:.20} are no decimal's")
    # Where all columns are unions, being one says nothing of NULL.
    nullable = None if len(branches) == 2 else False
    return Field(name, type_, semantic, tidb_type, nullable, allowed, length, scale, None, avro=True)


def _branches(written: Any) -> list[Any]:
    return written if isinstance(written, list) else [written]
