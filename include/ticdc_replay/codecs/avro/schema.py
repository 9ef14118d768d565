"""Writer schemas as TiCDC registers them: a record of plain fields.

Only what says how bytes are read is kept. Defaults play no part in it, and TiCDC writes some that Avro does not allow
(base64 for bytes, an integer for a double), so they are not looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import msgspec

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.limits import MAX_COLUMNS, refused_type

Primitive = Literal["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
_PRIMITIVES = frozenset(get_args(Primitive))
_MAX_FIELDS = 2 * MAX_COLUMNS + 1_000
"""Of all records, each as often as it occurs: both images of the widest table, and what stands beside them."""


class SchemaError(ValueError):
    """A document is no schema, or not one that TiCDC writes."""


@dataclass(frozen=True, slots=True)
class AvroField:
    """One field. ``null_branch`` is the position of null in its union, None where it is no union."""

    name: str
    type: "Primitive | AvroRecord"
    null_branch: Literal[0, 1] | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    """The field as it is written."""
    written_type: Mapping[str, Any] = field(default_factory=dict)
    """Its type as it is written; empty where that is a name alone."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """``connect.parameters``."""
    decimal: tuple[int, int] | None = None
    """Precision and scale where the bytes are a decimal."""


@dataclass(frozen=True, slots=True)
class AvroRecord:
    """A record: ``name`` and ``namespace`` as they are written, fields in the order of their bytes."""

    name: str
    namespace: str
    fields: tuple[AvroField, ...]


def parse(text: str) -> AvroRecord:
    """The record that *text*, a schema document, describes. Raises SchemaError."""
    return record_of(document_of(text))


def document_of(text: str) -> dict[str, Any]:
    """The JSON object *text*. Raises SchemaError."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise SchemaError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise SchemaError(f"a {type(document).__name__} instead of a record")
    return document


def record_of(document: dict[str, Any]) -> AvroRecord:
    """The record that *document* describes. Raises SchemaError."""
    record = _record(document, {}, depth=0)
    count = sum(1 + len(each.type.fields) if isinstance(each.type, AvroRecord) else 1 for each in record.fields)
    if count > _MAX_FIELDS:
        raise SchemaError(f"record {record.name!r:.80}: {count} fields, and TiCDC writes no more than {_MAX_FIELDS}")
    return record


def _record(document: dict[str, Any], named: dict[str, AvroRecord], depth: int) -> AvroRecord:
    """*named* are the records before it by their full names, to which it is added: one that occurs again is only named."""
    if document.get("type") != "record":
        raise SchemaError(f"type {document.get('type')!r:.80} instead of record")
    name, namespace, listed = document.get("name"), document.get("namespace", ""), document.get("fields")
    if not isinstance(name, str) or not name or not isinstance(namespace, str) or not isinstance(listed, list):
        raise SchemaError("a record without name, namespace or fields")
    fields = tuple(_field(entry, named, depth) for entry in listed)
    if len({entry.name for entry in fields}) != len(fields):
        raise SchemaError(f"record {name!r:.80} has two fields of one name")
    record = named[f"{namespace}.{name}" if namespace else name] = AvroRecord(name, namespace, fields)
    return record


def _field(document: Any, named: dict[str, AvroRecord], depth: int) -> AvroField:
    name = document.get("name") if isinstance(document, dict) else None
    if not isinstance(name, str) or not name:
        raise SchemaError("a field without name")
    written = document.get("type")
    null_branch: Literal[0, 1] | None = None
    if isinstance(written, list):
        if len(written) != 2 or "null" not in written:
            raise SchemaError(f"field {name!r:.80}: a union that is not of null and one type")
        null_branch = 0 if written[0] == "null" else 1
        written = written[1 - null_branch]
    members = written if isinstance(written, dict) else {}
    if members.get("type") == "record":
        if depth:
            raise SchemaError(f"field {name!r:.80}: a record in a record in a record")
        return AvroField(name, _record(members, named, depth + 1), null_branch, document, members)
    plain = members.get("type") if members else written
    if not isinstance(plain, str):
        raise SchemaError(f"field {name!r:.80}: no type")
    type_: Any = plain if plain in _PRIMITIVES else named.get(plain)
    if type_ is None or (depth and isinstance(type_, AvroRecord)):
        raise SchemaError(f"field {name!r:.80}: type {plain!r:.80} is none that TiCDC uses")
    parameters = members.get("connect.parameters", {})
    if not isinstance(parameters, dict) or not all(isinstance(value, str) for value in parameters.values()):
        raise SchemaError(f"field {name!r:.80}: connect.parameters are not texts")
    return AvroField(name, type_, null_branch, document, members, parameters, _decimal(members, name))


def _decimal(written: dict[str, Any], name: str) -> tuple[int, int] | None:
    if written.get("logicalType") != "decimal":
        return None
    precision, scale = written.get("precision"), written.get("scale", 0)
    if (
        type(precision) is not int
        or type(scale) is not int
        or refused_type(ColumnType("decimal", length=precision, scale=scale)) is not None
    ):
        raise SchemaError(
            f"field {name!r:.80}: precision {precision!r:.20} and scale {scale!r:.20} are not those of a decimal"
        )
    return precision, scale
