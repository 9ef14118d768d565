"""Messages of Simple's Avro, read by the schema document of TiCDC, ``simple.avsc``.

A record is a dict; an enum is its symbol; strings are bytes, for they may be text that is not UTF-8, but the keys of maps are
text. In a union, a record is a pair of its full name and that dict. So is a cell, a pair of the name of its branch and the value,
and an image, the pair ``("map", cells)``. Any other value of a union is not paired: its union has one type beside null.
"""

from importlib.resources import files
from typing import Any

import msgspec
from fastavro import parse_schema

from ticdc_replay.codecs.avro.binary import AvroError, Schema, read
from ticdc_replay.codecs.simple.values import BYTES, DOUBLE, FLOAT, LONG, STRING, TIMESTAMP, UNSIGNED

NAMESPACE = "com.pingcap.simple.avro."
_LONG, _STRING = "long", "bytes"
_RECORDS = {
    "float": {"type": "fixed", "name": "Float4", "size": 4},
    "double": {"type": "fixed", "name": "Double8", "size": 8},
    "bytes": "bytes",
}
"""Branches of a cell that are read as records with a ``value`` of this type, so that their name is known. A record has no bytes
of its own. Floats and doubles are bytes: a whole column of them is converted at once."""
BRANCHES = {
    _LONG: LONG,
    _STRING: STRING,
    f"{NAMESPACE}Float": FLOAT,
    f"{NAMESPACE}Double": DOUBLE,
    f"{NAMESPACE}Bytes": BYTES,
    f"{NAMESPACE}Timestamp": TIMESTAMP,
    f"{NAMESPACE}UnsignedBigint": UNSIGNED,
}
"""Branches of a cell by their names."""


def read_message(data: bytes) -> dict[str, Any]:
    """The record ``Message`` that *data* is. Raises AvroError."""
    if data[:1] != _MESSAGE_BRANCH:
        raise AvroError(f"record {data[:1].hex()} of the schema instead of a message")
    message, end = read(_MESSAGE, data[1:], _with_named_cells)
    if 1 + end != len(data):
        raise AvroError(f"{len(data) - 1 - end} bytes follow the message")
    found: dict[str, Any] = message
    return found


def _with_named_cells(message: dict[str, Any]) -> dict[str, Any]:
    """*message*, which is changed, with pairs for all images and cells. Hot: 2 µs for 13 cells."""
    payload = message["payload"][1]
    for side in ("data", "old"):
        image = payload.get(side)
        if image is not None:
            for name, cell in image.items():
                kind = type(cell)
                if kind is bytes:
                    image[name] = _STRING, cell
                elif kind is int:
                    image[name] = _LONG, cell
            payload[side] = "map", image
    return message


def _plain(schema: Any) -> Any:
    """*schema* without what does not say how bytes are read; strings are bytes."""
    if isinstance(schema, list):
        return [_plain(member) for member in schema]
    if isinstance(schema, str):
        return "bytes" if schema == "string" else schema
    plain = {name: schema[name] for name in ("type", "name", "namespace", "symbols") if name in schema}
    if schema["type"] == "record":
        plain["fields"] = [{"name": field["name"], "type": _plain(field["type"])} for field in schema["fields"]]
    elif schema["type"] == "array":
        plain["items"] = _plain(schema["items"])
    elif schema["type"] == "map":
        plain["values"] = [
            NAMESPACE + branch.capitalize() if branch in _RECORDS else _plain(branch) for branch in schema["values"]
        ]
    return plain


def _message() -> tuple[bytes, Schema]:
    """The byte that a message begins with, and the schema of what follows it."""
    document = msgspec.json.decode(files(__package__).joinpath("simple.avsc").read_bytes())
    branch = next(at for at, record in enumerate(document) if record["name"] == "Message")
    named: dict[str, Any] = {}
    for name, holds in _RECORDS.items():
        fields = [{"name": "value", "type": holds}]
        parse_schema({"type": "record", "name": NAMESPACE + name.capitalize(), "fields": fields}, named)
    for record in document[:branch]:
        parse_schema(_plain(record), named)
    return bytes([branch << 1]), parse_schema(_plain(document[branch]), named)


_MESSAGE_BRANCH, _MESSAGE = _message()
