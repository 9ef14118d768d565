"""What stands before every Avro key and value: which schema it was written with.

    Confluent   00, id of the schema (32 bits, big-endian), Avro
    AWS Glue    03, compression (00 none, 05 zlib), UUID of the schema version (16 bytes), Avro

They differ in the first byte.
"""

import zlib
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from ticdc_replay.codecs.errors import MessageError

CONFLUENT, GLUE = 0x00, 0x03
CONFLUENT_HEADER_BYTES, GLUE_HEADER_BYTES = 5, 18
_UNCOMPRESSED, _ZLIB = 0x00, 0x05

# Hot: a NamedTuple's constructor takes twice the time.
_new = tuple.__new__


class Framed(NamedTuple):
    """One framed datum. ``schema_id`` is what ``WriterSchemas.text`` takes: a decimal number, or a UUID for Glue."""

    schema_id: str
    body: bytes
    """Avro binary of one datum, decompressed."""


def unframe(data: bytes, max_bytes: int) -> Framed:
    """The schema id and the Avro binary of *data*, a whole Kafka key or value. About 0.5 µs.

    Raises MessageError, also where the Avro binary would be larger than *max_bytes* when decompressed.
    """
    size = len(data)
    if size >= CONFLUENT_HEADER_BYTES and data[0] == CONFLUENT:
        if size - CONFLUENT_HEADER_BYTES > max_bytes:
            raise _too_large(f"{size} bytes", max_bytes)
        return _new(Framed, (_confluent_id(data[:CONFLUENT_HEADER_BYTES]), data[CONFLUENT_HEADER_BYTES:]))
    if size >= GLUE_HEADER_BYTES and data[0] == GLUE:
        compression = data[1]
        if compression == _ZLIB:
            return Framed(_glue_id(data[2:GLUE_HEADER_BYTES]), _inflated(data[GLUE_HEADER_BYTES:], max_bytes))
        if compression != _UNCOMPRESSED:
            raise MessageError("bad_framing", f"compression {compression} in byte 1; 0 (none) and 5 (zlib) are known")
        if size - GLUE_HEADER_BYTES > max_bytes:
            raise _too_large(f"{size} bytes", max_bytes)
        return Framed(_glue_id(data[2:GLUE_HEADER_BYTES]), data[GLUE_HEADER_BYTES:])
    raise MessageError(
        "bad_framing",
        f"{size} bytes that start with {data[:1].hex() or 'nothing'}: neither 00 and a schema id (5 bytes) "
        "nor 03, compression and a UUID (18 bytes)",
    )


def _inflated(data: bytes, max_bytes: int) -> bytes:
    """The content of one zlib stream; nothing beyond the cap is made."""
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise MessageError("bad_compression", f"zlib from byte {GLUE_HEADER_BYTES} on: {error}") from None
    if len(content) > max_bytes:
        raise _too_large(f"zlib: more than {max_bytes} bytes", max_bytes)
    if not stream.eof:
        raise MessageError("bad_compression", f"zlib: the stream does not end in {len(data)} bytes")
    if stream.unused_data:
        raise MessageError("bad_compression", f"zlib: {len(stream.unused_data)} bytes after the stream")
    return content


def _too_large(what: str, max_bytes: int) -> MessageError:
    return MessageError("too_large", f"{what}; {max_bytes} allowed")


def is_framed(*parts: bytes | None) -> bool:
    """Whether each of *parts* that has any bytes begins as Avro does, and one of them has some. No registry gives the id 0, which
    keys and values of Open Protocol seem to have."""
    given = [part for part in parts if part]
    return bool(given) and all(map(_begins_framed, given))


def _begins_framed(data: bytes) -> bool:
    if data[0] == CONFLUENT:
        return len(data) >= CONFLUENT_HEADER_BYTES and any(data[1:CONFLUENT_HEADER_BYTES])
    return data[0] == GLUE and len(data) >= GLUE_HEADER_BYTES and data[1] in (_UNCOMPRESSED, _ZLIB)


@lru_cache(maxsize=4096)
def _confluent_id(header: bytes) -> str:
    return str(int.from_bytes(header[1:], "big"))


@lru_cache(maxsize=4096)
def _glue_id(uuid: bytes) -> str:
    return str(UUID(bytes=uuid))
