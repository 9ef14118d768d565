"""What the native extension has to know of rows of one form, told from a row that the codec in Python read.

A form is all that rows have in common: how they look on the wire, which schema they are written with, and between which commitTs
both hold. Of a cell the extension is told what ordinary values become (``changelog/convert.py``); it hands back the others.
"""

from typing import NamedTuple

import msgspec
import pyarrow as pa

from ticdc_replay.changelog.layout import refused
from ticdc_replay.changelog.types import arrow_type
from ticdc_replay.codecs import canal_rows
from ticdc_replay.codecs import open as open_
from ticdc_replay.codecs.open_framing import split
from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES, BaseType, ColumnType
from ticdc_replay.domain.events import RowEvent, Shape
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.resolve import ResolvedSchema

KindSpec = tuple[str, int, int, int, tuple[str, ...]]
"""Name, width or length, lowest and highest integer or digits after the point, and names of an enum or set."""
_LONG_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_NOT_AS_WRITTEN = (ValueError, RecursionError)
"""What the parser raises for a message that the codec made sense of some other way."""
_SKIP: KindSpec = ("skip", 0, 0, 0, ())
_MAX_COLUMNS = 128
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64, "bit": 64}
_MAX_UINT64 = (1 << 64) - 1
_LONGEST_MOMENT = 26
_NOT_PLAIN = frozenset('"\\') | {chr(code) for code in range(32)}


class Column(NamedTuple):
    """One column of a form: its place among the schema's columns or None, and how cells are read."""

    to: int | None
    kind: KindSpec


class Form(NamedTuple):
    """What all rows of one form have in common, but for the protocol's own."""

    columns: tuple[Column, ...]
    key: tuple[int, ...]
    """Places of the handle key's columns, in the order of their names."""


class Wire(NamedTuple):
    """How rows of a form look on the wire."""

    table: bytes
    """Canal-JSON: all before ``es``. Open: ``"scm":…,"tbl":…`` of the key."""
    columns: tuple[tuple[bytes, ...], ...]
    """By column. Canal-JSON: its name and ``mysqlType``. Open: all before its value."""
    seed: int
    """Of fingerprints, see the codecs."""


class _Canal(msgspec.Struct, gc=False):
    keys: list[str] | None = msgspec.field(name="pkNames")
    types: dict[str, str] = msgspec.field(name="mysqlType")


class _OpenColumn(msgspec.Struct, gc=False):
    t: int
    f: int
    h: bool = False


class _OpenRow(msgspec.Struct, gc=False):
    u: dict[str, _OpenColumn] = {}
    d: dict[str, _OpenColumn] = {}


def canal_wire(message: RawMessage, row: RowEvent, shape: Shape) -> Wire | None:
    """How rows like *row*, which came in the Canal-JSON *message*, look; None where they are not as TiCDC writes them."""
    value = message.value or b""
    try:
        found = msgspec.json.decode(value, type=_Canal)
    except _NOT_AS_WRITTEN:
        return None
    keys, types = found.keys, found.types
    names = (row.schema, row.table, *(keys or ()), *shape.names, *(types[name] for name in shape.names))
    if not all(map(is_plain, names)):
        return None
    type_ = row.operation.value.upper()
    listed = "null" if keys is None else "[" + ",".join(f'"{name}"' for name in keys) + "]"
    start = (
        f'{{"id":0,"database":"{row.schema}","table":"{row.table}","pkNames":{listed},"isDdl":false,"type":"{type_}"'
    ).encode()
    # Where a member comes twice, the last one counts, and what is written first says nothing of the row.
    if not value.startswith(start + b',"es":'):
        return None
    columns = tuple((name.encode(), types[name].encode()) for name in shape.names)
    return Wire(start, columns, canal_rows.seed_of(row.schema, row.table, type_))


def open_wire(message: RawMessage, row: RowEvent, shape: Shape) -> Wire | None:
    """How rows like *row*, which came in the Open Protocol *message*, look; None where they are not as TiCDC writes them."""
    _, value = split(message.key, message.value)[row.ordinal]
    if not all(map(is_plain, (row.schema, row.table, *shape.names))):
        return None
    try:
        members = msgspec.json.decode(value, type=_OpenRow)
    except _NOT_AS_WRITTEN:
        return None
    found = members.u if row.after is not None else members.d
    columns = []
    for name in shape.names:
        mark = '"h":true,' if found[name].h else ""
        columns.append((f'"{name}":{{"t":{found[name].t},{mark}"f":{found[name].f},"v":'.encode(),))
    table = f'"scm":"{row.schema}","tbl":"{row.table}"'.encode()
    return Wire(table, tuple(columns), open_.seed_of(row.schema, row.table))


def form_of(row: RowEvent, resolved: ResolvedSchema, *, of_open: bool) -> Form | None:
    """The form of *row*, whose schema is *resolved*; None where there is something about it that is not ordinary.

    *of_open* is whether it came by Open Protocol, else by Canal-JSON.
    """
    image = row.after if row.after is not None else row.before
    if resolved.unlike or refused(resolved.schema) is not None:
        return None
    unusual = row.large is not None or row.lossy or row.damage or row.before_unknown or row.commit_ts is None
    if image is None or unusual or len(image.shape.columns) > _MAX_COLUMNS:
        return None
    if row.before is not None and row.before.shape is not image.shape:
        return None
    return _form(image.shape, resolved, of_open)


def _form(shape: Shape, resolved: ResolvedSchema, of_open: bool) -> Form | None:
    places = {column.name: at for at, column in enumerate(resolved.schema.columns)}
    columns = []
    for column in shape.columns:
        to = places.get(column.name)
        kind = _SKIP if to is None else _kind(column.type.base, resolved.schema.columns[to].type, of_open)
        if kind is None:
            return None
        columns.append(Column(to, kind))
    if any(columns[at].to is None for at in shape.handle_key_positions):
        return None
    return Form(tuple(columns), shape.handle_key_positions)


def is_plain(text: str) -> bool:
    """Whether JSON has *text* as it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return _NOT_PLAIN.isdisjoint(text)


def _kind(wire: BaseType, target: ColumnType, of_open: bool) -> KindSpec | None:
    base = target.base
    arrow = arrow_type(target)
    if base in _INTEGER_BITS:
        bits = target.length if base == "bit" and target.length is not None else _INTEGER_BITS[base]
        if target.unsigned or base == "bit":
            return ("integer", arrow.bit_width // 8, 0, (1 << bits) - 1, ())
        return ("integer", arrow.bit_width // 8, -(1 << (bits - 1)), (1 << (bits - 1)) - 1, ())
    if base == "year":
        return ("integer", 2, 0, 2155, ())
    if base in ("float", "double"):
        return ("float32" if base == "float" else "float64", 0, 0, 0, ())
    if base == "decimal":
        if pa.types.is_string(arrow):
            return ("decimal_text", 0, 0, 0, ())
        return ("decimal", arrow.precision, 0, target.scale or 0, ())
    if base in ("date", "time"):
        return (base, 0, 0, 0, ())
    if base in ("datetime", "timestamp"):
        longest = _LONGEST_MOMENT if target.scale is None else 20 + target.scale if target.scale else 19
        return (base, longest, 0, 0, ())
    if base in ("enum", "set"):
        if target.elements is not None:
            return (base, 0, 0, 0, target.elements)
        return ("integer", 2, 0, 65_535, ()) if base == "enum" else ("integer", 8, 0, _MAX_UINT64, ())
    if base in BINARY_TYPES:
        name = "latin1" if not of_open else "quoted" if wire in ("binary", "varbinary") else "base64"
        return (name, 0, 0, 0, ())
    if base in CHARACTER_TYPES or base == "json":
        return ("base64_text" if of_open and wire in _LONG_TEXTS else "text", 0, 0, 0, ())
    return None
