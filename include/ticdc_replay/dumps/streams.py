"""The content of a file of a dump, decompressed, block by block.

Source of the compressions: pkg/objstore/compressedio (gzip, zstd; snappy in its framing format, as golang/snappy writes it).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError
from ticdc_replay.dumps.names import Compression
from ticdc_replay.storage import ObjectStore

BLOCK_BYTES = 8 * 1024 * 1024
"""What is read at once, decompressed; one row may need more."""

_STREAM_ID, _COMPRESSED, _PLAIN, _FIRST_SKIPPED = 0xFF, 0x00, 0x01, 0x80
_STREAM_BODY = b"sNaPpY"
_CHECKSUM_BYTES = 4
_MOST_PLAIN_BYTES = 65_536
"""Of a chunk of the framing format, decompressed."""


def blocks(store: ObjectStore, name: str, compression: Compression) -> Iterator[bytes]:
    """The decompressed content of *name*, about ``BLOCK_BYTES`` at a time.

    Raises ConfigError for content that is cut off or damaged, ArtifactNotFoundError where there is no such file.
    """
    filesystem, root = store.arrow_filesystem()
    uri = store.uri(name)
    try:
        source = filesystem.open_input_stream(f"{root}/{name}", compression=None)
    except FileNotFoundError:
        raise ArtifactNotFoundError(f"{uri} is gone: the dump has changed since it was pinned") from None
    with source:
        if compression == "snappy":
            yield from _snappy_blocks(source, uri)
            return
        with _readable(uri, compression):
            stream = pa.CompressedInputStream(source, compression) if compression else source
            while block := stream.read(BLOCK_BYTES):
                yield block


def read_whole(store: ObjectStore, name: str, compression: Compression) -> bytes:
    """The decompressed content of a small file. Raises what ``blocks`` raises."""
    return b"".join(blocks(store, name, compression))


@contextmanager
def _readable(uri: str, compression: Compression) -> Iterator[None]:
    """Arrow's error for damaged content names no file."""
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        if not compression:
            raise
        raise ConfigError(f"{uri}: can't be decompressed ({compression}): {error}. Dump it again") from error


def _snappy_blocks(source: Any, uri: str) -> Iterator[bytes]:
    """Chunks of a type (1 byte), a length (3 bytes, little-endian) and a body (snappy's framing_format.txt). Checksums are
    not compared."""
    codec, parts, size, is_begun = pa.Codec("snappy"), [], 0, False
    while header := _read(source, 4, uri, may_end=True):
        kind, length = header[0], int.from_bytes(header[1:], "little")
        body = _read(source, length, uri)
        if kind == _STREAM_ID and body == _STREAM_BODY:
            is_begun = True
        elif not is_begun or (kind not in (_COMPRESSED, _PLAIN) and kind < _FIRST_SKIPPED):
            raise ConfigError(f"{uri}: not a file in snappy's framing format: a chunk of type {kind:#04x}")
        elif kind in (_COMPRESSED, _PLAIN):
            content = body[_CHECKSUM_BYTES:]
            parts.append(_snappy(codec, content, uri) if kind == _COMPRESSED else content)
            size += len(parts[-1])
        if size >= BLOCK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if size:
        yield b"".join(parts)


def _snappy(codec: pa.Codec, content: bytes, uri: str) -> bytes:
    length = shift = 0
    for byte in content[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if not 0 < length <= _MOST_PLAIN_BYTES:
        raise ConfigError(f"{uri}: a chunk of snappy declares {length} bytes, and 1 to {_MOST_PLAIN_BYTES} are allowed")
    try:
        plain: bytes = codec.decompress(content, decompressed_size=length, asbytes=True)
    except OSError as error:
        raise ConfigError(f"{uri}: can't be decompressed (snappy): {error}. Dump it again") from error
    return plain


def _read(source: Any, size: int, uri: str, *, may_end: bool = False) -> bytes:
    content: bytes = source.read(size)
    while content and len(content) < size:
        more = source.read(size - len(content))
        if not more:
            break
        content += more
    if len(content) < size and not (may_end and not content):
        raise ConfigError(f"{uri}: it ends within a chunk of snappy: the file is cut off. Dump it again")
    return content
