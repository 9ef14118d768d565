"""Open Protocol messages taken apart into events and put together again, bytes of values untouched."""

import ast
import base64
import json
import re
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

VERSION = struct.pack(">Q", 1)
LENGTH = struct.Struct(">Q")
ROW, DDL, RESOLVED = 1, 2, 3
VARCHAR_CODE, BINARY_FLAG = 15, 0x01
EVENT_OVERHEAD_BYTES = 36 + 16 + 8
"""What TiCDC adds to the length of an event's key and value when it compares with max-message-bytes."""


class Event(NamedTuple):
    """One event of a message: the JSON texts of its key and value, as TiCDC wrote them."""

    key: bytes
    value: bytes

    @property
    def head(self) -> dict[str, Any]:
        """The members of the key: ``ts``, ``scm``, ``tbl``, ``t`` and more."""
        parsed: dict[str, Any] = json.loads(self.key)
        return parsed

    @property
    def size(self) -> int:
        """Bytes that count towards max-message-bytes."""
        return len(self.key) + len(self.value) + EVENT_OVERHEAD_BYTES


def split(key: bytes, value: bytes) -> list[Event]:
    """The events of one Kafka message."""
    if key[:8] != VERSION:
        raise ValueError(f"not an Open Protocol key: {key[:16]!r}")
    keys, values = list(_chunks(key[8:])), list(_chunks(value))
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys and {len(values)} values")
    return [Event(*pair) for pair in zip(keys, values, strict=True)]


def join(events: Iterable[Event]) -> tuple[bytes, bytes]:
    """Key and value of one Kafka message with *events*."""
    pairs = list(events)
    key = VERSION + b"".join(LENGTH.pack(len(event.key)) + event.key for event in pairs)
    return key, b"".join(LENGTH.pack(len(event.value)) + event.value for event in pairs)


def resolved(ts: int) -> Event:
    """A watermark."""
    return Event(b'{"ts":%d,"t":3}' % ts, b"")


def restamped(event: Event, ts: int, location: str | None) -> Event:
    """*event* with another commitTs of as many digits, and with its claim-check object elsewhere when it has one."""
    key, count = re.subn(rb'^\{"ts":\d{18},', b'{"ts":%018d,' % ts, event.key)
    if count != 1:
        raise ValueError(f"no ts of 18 digits: {event.key!r}")
    if location is not None:
        key, count = re.subn(rb'"ccl":"[^"\\]*"', b'"ccl":"%s"' % location.encode(), key)
        if count != 1:
            raise ValueError(f"no claim-check location: {event.key!r}")
    return Event(key, event.value)


def restamped_object(content: bytes, ts: int) -> bytes:
    """The content of a claim-check object with the commitTs of its event changed."""
    wrapped = json.loads(content)
    (event,) = split(base64.b64decode(wrapped["key"]), base64.b64decode(wrapped["value"]))
    key, value = join([restamped(event, ts, None)])
    return b'{"key":"%s","value":"%s"}' % (base64.b64encode(key), base64.b64encode(value))


def row_key(event: Event) -> dict[str, bytes]:
    """The handle-key columns of a row event and their values as TiCDC's dispatcher hashes them."""
    images = json.loads(event.value, parse_float=str)
    image: Mapping[str, Any] = images.get("u") or images["d"]
    return {name: _key_bytes(column) for name, column in image.items() if column.get("h")}


def index_value_partition(event: Event, partitions: int) -> int:
    """Where TiCDC's index-value dispatcher sends a row event (delivery semantics, section 4)."""
    head = event.head
    value = zlib.crc32((head["scm"] + head["tbl"]).encode())
    for name, content in row_key(event).items():
        value ^= zlib.crc32(name.encode() + content)
    return value % partitions


def _key_bytes(column: Mapping[str, Any]) -> bytes:
    if column["t"] == VARCHAR_CODE and column["f"] & BINARY_FLAG:  # quoted as Go quotes, with escapes alone
        unquoted: str = ast.literal_eval(f'"{column["v"]}"')
        return unquoted.encode("latin-1")
    return str(column["v"]).encode()


def _chunks(data: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(data):
        (length,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        if at + length > len(data):
            raise ValueError("a length reaches past the end")
        yield data[at : at + length]
        at += length
