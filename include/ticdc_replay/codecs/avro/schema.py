"""Writer schemas as TiCDC's Avro registers them (protocols: avro, section 3): a record of plain fields.

Only what says how bytes are read is kept. Defaults play no part in it, and TiCDC writes some that Avro does not allow
(base64 for bytes, an integer for a double; protocols: errata 4), so they are not looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import msgspec

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.limits import refused_type

Primitive = Literal["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
_PRIMITIVES = frozenset(get_args(Primitive))


class SchemaError(ValueError):
    """A document is no schema, or not one that TiCDC's Avro has."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field. ``null_branch`` is the position of null in its union, None where it is no union."""

    name: str
    type: "Primitive | Record"
    null_branch: Literal[0, 1] | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """``connect.parameters``."""
    decimal: tuple[int, int] | None = None
    """Precision and scale where the bytes are a decimal."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record: ``name`` and ``namespace`` as they are written, fields in the order of their bytes."""

    name: str
    namespace: str
    fields: tuple[Field, ...]


def parse(text: str) -> Record:
    """The record that *text*, a schema document, describes. Raises SchemaError."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise SchemaError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise SchemaError(f"a {type(document).__name__} instead of a record")
    return _record(document, depth=0)


def _record(document: dict[str, Any], depth: int) -> Record:
    if document.get("type") != "record":
        raise SchemaError(f"type {document.get('type')!r:.80} instead of record")
    name, namespace, listed = document.get("name"), document.get("namespace", ""), document.get("fields")
    if not isinstance(name, str) or not name or not isinstance(namespace, str) or not isinstance(listed, list):
        raise SchemaError("a record without name, namespace or fields")
    fields = tuple(_field(entry, depth) for entry in listed)
    names = {entry.name for entry in fields}
    if len(names) != len(fields):
        raise SchemaError(f"record {name!r} has two fields of one name")
    return Record(name, namespace, fields)


def _field(document: Any, depth: int) -> Field:
    name = document.get("name") if isinstance(document, dict) else None
    if not isinstance(name, str) or not name:
        raise SchemaError("a field without name")
    written = document.get("type")
    null_branch: Literal[0, 1] | None = None
    if isinstance(written, list):
        if len(written) != 2 or "null" not in written:
            raise SchemaError(f"field {name!r}: a union that is not of null and one type")
        null_branch = 0 if written[0] == "null" else 1
        written = written[1 - null_branch]
    if isinstance(written, str):
        return Field(name, _primitive(written, name), null_branch)
    if not isinstance(written, dict):
        raise SchemaError(f"field {name!r}: no type")
    if written.get("type") == "record":
        if depth:
            raise SchemaError(f"field {name!r}: a record in a record in a record")
        return Field(name, _record(written, depth + 1), null_branch)
    parameters = written.get("connect.parameters", {})
    if not isinstance(parameters, dict) or not all(isinstance(value, str) for value in parameters.values()):
        raise SchemaError(f"field {name!r}: connect.parameters are not texts")
    return Field(name, _primitive(written.get("type"), name), null_branch, parameters, _decimal(written, name))


def _primitive(written: Any, name: str) -> Any:
    if written not in _PRIMITIVES:
        raise SchemaError(f"field {name!r}: type {written!r:.80} is none that TiCDC uses")
    return written


def decimal_of(precision: object, scale: object) -> tuple[int, int] | None:
    """*precision* and *scale* where a DECIMAL may have them, else None."""
    if type(precision) is not int or type(scale) is not int:
        return None
    return (precision, scale) if refused_type(ColumnType("decimal", length=precision, scale=scale)) is None else None


def _decimal(written: dict[str, Any], name: str) -> tuple[int, int] | None:
    if written.get("logicalType") != "decimal":
        return None
    precision, scale = written.get("precision"), written.get("scale", 0)
    found = decimal_of(precision, scale)
    if found is None:
        raise SchemaError(f"field {name!r}: precision {precision!r:.20} and scale {scale!r:.20} are no decimal's")
    return found
