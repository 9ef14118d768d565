"""A Kafka message as the documents in it, and back: frames and compression of the protocols undone and done again."""

import struct

import lz4.frame
import pyarrow as pa

from ticdc_replay.changefeed.config import Changefeed, Compression
from ticdc_replay.domain.messages import RawMessage

_VERSION = struct.pack(">Q", 1)
_length = struct.Struct(">Q")


def compress(content: bytes, compression: Compression) -> bytes:
    """*content* as TiCDC compresses it."""
    if compression == "snappy":
        packed: bytes = pa.compress(content, "snappy", asbytes=True)
        return packed
    if compression == "lz4":
        frame: bytes = lz4.frame.compress(
            content, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, content_checksum=True, store_size=False
        )
        return frame
    return content


def decompress(content: bytes, compression: Compression) -> bytes:
    """The content of an unchanged unit."""
    if compression == "snappy":
        size, shift = 0, 0
        for byte in content:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        plain: bytes = pa.decompress(content, size, "snappy", asbytes=True)
        return plain
    if compression == "lz4":
        content = lz4.frame.decompress(content)
    return content


def open_units(changefeed: Changefeed, message: RawMessage) -> list[bytes]:
    """The documents of *message*, an unchanged one; in Open, keys and values of its events in turn."""
    protocol, compression = changefeed.protocol, changefeed.compression
    if protocol in ("open-protocol", "default"):
        keys, values = _parts(message.key or b"", 8), _parts(message.value or b"", 0)
        units = [
            (key, decompress(value, compression) if value else value) for key, value in zip(keys, values, strict=True)
        ]
        return [part for pair in units for part in pair]
    if protocol == "debezium":
        return [decompress(part, compression) for part in (message.key, message.value) if part]
    if protocol in ("canal-json", "simple"):
        return [decompress(message.value or b"", compression)]
    return [part for part in (message.key, message.value) if part]


def close_units(changefeed: Changefeed, message: RawMessage, units: list[bytes]) -> RawMessage:
    """*message* with *units* in the place of its own, as many as there were."""
    protocol, compression = changefeed.protocol, changefeed.compression
    if protocol in ("open-protocol", "default"):
        values = [compress(value, compression) if value else value for value in units[1::2]]
        key = _VERSION + b"".join(_length.pack(len(part)) + part for part in units[0::2])
        return message._replace(key=key, value=b"".join(_length.pack(len(part)) + part for part in values))
    if protocol in ("canal-json", "simple"):
        return message._replace(value=compress(units[0], compression))
    packed = iter([compress(unit, compression) for unit in units] if protocol == "debezium" else units)
    return message._replace(
        key=next(packed) if message.key else message.key, value=next(packed) if message.value else message.value
    )


def _parts(data: bytes, at: int) -> list[bytes]:
    parts = []
    while at < len(data):
        (size,) = _length.unpack_from(data, at)
        parts.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    return parts
