"""The complete reading of Simple's Avro, by the schema document of TiCDC, ``simple.avsc`` (protocols: simple, section 5).

It takes exactly what the schema says, and refuses every byte that is not of it. It takes some 100 µs a row, so rows whose form is
known go through ``simple_avro_compiled`` instead; both read a row alike.

A record is a dict; a union with null is its value or None, any other union a ``Branch``; an enum is its symbol; strings are
bytes, for they may be text that is not UTF-8, but the keys of maps are text.
"""

import struct
from collections.abc import Callable
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from ticdc_replay.codecs.avro_reader import AvroError, varint

_Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value that starts at a position: the value, and the position after it."""


class Branch(NamedTuple):
    """A value of a union, and the position of its type in the union."""

    branch: int
    value: Any


def read_message(data: bytes) -> dict[str, Any]:
    """The record ``Message`` that *data* is. Raises AvroError."""
    try:
        found, end = _MESSAGE(data, 0)
    except IndexError:
        raise AvroError(f"the message ends after {len(data)} bytes") from None
    if end != len(data):
        raise AvroError(f"{len(data) - end} bytes follow the message")
    if found.branch != _MESSAGE_BRANCH:
        raise AvroError(f"record {found.branch} of the schema instead of a message")
    message: dict[str, Any] = found.value
    return message


def _compile(schema: Any, named: dict[str, _Read]) -> _Read:
    """The reader of *schema*. *named* are the records and enums before it, which it joins where it has a name."""
    if isinstance(schema, list):
        return _union(schema, [_compile(member, named) for member in schema])
    if isinstance(schema, str):
        return named[schema]
    kind = schema["type"]
    if kind == "record":
        fields = [(field["name"], _compile(field["type"], named)) for field in schema["fields"]]
        read = _record(fields)
    elif kind == "enum":
        read = _enum(schema["symbols"])
    elif kind == "array":
        return _array(_compile(schema["items"], named))
    else:
        return _map(_compile(schema["values"], named))
    named[f"{schema['namespace']}.{schema['name']}" if "namespace" in schema else schema["name"]] = read
    return read


def _record(fields: list[tuple[str, _Read]]) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = {}
        for name, read_field in fields:
            values[name], at = read_field(data, at)
        return values, at

    return read


def _enum(symbols: list[str]) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, end = varint(data, at)
        if not 0 <= index < len(symbols):
            raise AvroError(f"byte {at}: the enum has no symbol {index}")
        return symbols[index], end

    return read


def _union(members: list[Any], readers: list[_Read]) -> _Read:
    optional = len(members) == 2 and members[0] == "null"

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, end = varint(data, at)
        if not 0 <= index < len(readers):
            raise AvroError(f"byte {at}: the union has no branch {index}")
        value, end = readers[index](data, end)
        return (value if optional else Branch(index, value)), end

    return read


def _array(item: _Read) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = []
        count, at = _block(data, at)
        while count:
            for _ in range(count):
                value, at = item(data, at)
                values.append(value)
            count, at = _block(data, at)
        return values, at

    return read


def _map(read_value: _Read) -> _Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        count, at = _block(data, at)
        while count:
            for _ in range(count):
                name, end = _name(data, at)
                if name in values:
                    raise AvroError(f"byte {at}: the map has {name!r:.80} twice")
                values[name], at = read_value(data, end)
            count, at = _block(data, at)
        return values, at

    return read


def _block(data: bytes, at: int) -> tuple[int, int]:
    """The number of items in the block that starts at *at*; a negative one has the block's size in bytes after it."""
    count, end = varint(data, at)
    if count < 0:
        _, end = varint(data, end)
        count = -count
    if count > len(data) - end:
        raise AvroError(f"byte {at}: a block of {count} items in {len(data) - end} bytes")
    return count, end


def _name(data: bytes, at: int) -> tuple[str, int]:
    content, end = _bytes(data, at)
    try:
        return content.decode(), end
    except UnicodeDecodeError:
        raise AvroError(f"byte {at}: a name that is not UTF-8") from None


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, start = varint(data, at)
    end = start + length
    if length < 0 or end > len(data):
        raise AvroError(f"byte {at}: {length} bytes announced, {len(data) - start} follow")
    return data[start:end], end


def _int(data: bytes, at: int) -> tuple[int, int]:
    value, end = varint(data, at)
    if not -(1 << 31) <= value < 1 << 31:
        raise AvroError(f"byte {at}: {value} is no int of 32 bits")
    return value, end


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise AvroError(f"byte {at}: {data[at]} is no boolean")
    return data[at] == 1, at + 1


def _fixed(size: int) -> _Read:
    """A float or double stays bytes until a whole column is converted."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if at + size > len(data):
            raise AvroError(f"byte {at}: {size} bytes expected, {len(data) - at} follow")
        return data[at : at + size], at + size

    return read


def _compiled() -> _Read:
    named: dict[str, _Read] = {
        "null": lambda data, at: (None, at),
        "boolean": _boolean,
        "int": _int,
        "long": varint,
        "float": _fixed(struct.calcsize("<f")),
        "double": _fixed(struct.calcsize("<d")),
        "bytes": _bytes,
        "string": _bytes,
    }
    return _compile(_SCHEMA, named)


_SCHEMA = msgspec.json.decode(files(__package__).joinpath("simple.avsc").read_bytes())
_MESSAGE_BRANCH = next(at for at, record in enumerate(_SCHEMA) if record["name"] == "Message")
_MESSAGE = _compiled()
