"""Decompressing one unit: exact, bounded, and never more or less than one unit."""

import contextlib
import random
import tracemalloc

import lz4.frame
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.changefeed.config import Compression
from ticdc_replay.large_messages.compression import CompressionError, DecompressedTooLargeError, decompress

MEBI = 1 << 20
# As the protocol notes spell them out for {"version":1}.
SNAPPY = bytes.fromhex("0d307b2276657273696f6e223a317d")
LZ4 = bytes.fromhex("04224d186470b90d0000807b2276657273696f6e223a317d00000000b6cca37f")
KINDS = pytest.mark.parametrize("kind", ["snappy", "lz4"])


def compress(content: bytes, kind: str) -> bytes:
    if kind == "lz4":
        # TiCDC's header: independent blocks of 4 MiB, content checksum, no size.
        return lz4.frame.compress(
            content,
            block_size=lz4.frame.BLOCKSIZE_MAX4MB,
            block_linked=False,
            content_checksum=True,
            store_size=False,
        )
    return pa.compress(content, "snappy", asbytes=True)


@pytest.mark.parametrize(("kind", "unit"), [("snappy", SNAPPY), ("lz4", LZ4), ("none", b'{"version":1}')])
def test_the_documented_examples_decompress(kind: Compression, unit: bytes) -> None:
    assert decompress(unit, kind, MEBI) == b'{"version":1}'


@KINDS
@given(content=st.binary(max_size=2000), cap=st.integers(0, 4000))
def test_content_comes_back_whole_or_not_at_all(kind: Compression, content: bytes, cap: int) -> None:
    unit = compress(content, kind)
    if len(content) <= cap:
        assert decompress(unit, kind, cap) == content
    else:
        with pytest.raises(DecompressedTooLargeError):
            decompress(unit, kind, cap)


def test_a_frame_that_declares_its_size_is_read_too() -> None:
    content = b"x" * 5000
    assert decompress(lz4.frame.compress(content, store_size=True), "lz4", MEBI) == content


@KINDS
@pytest.mark.parametrize("cap", [40, MEBI], ids=["streamed", "at once"])
def test_every_truncation_is_refused(kind: Compression, cap: int) -> None:
    unit = compress(b"some content, some content", kind)
    for length in range(len(unit)):
        with pytest.raises(CompressionError):
            decompress(unit[:length], kind, cap)


@pytest.mark.parametrize("cap", [60, MEBI], ids=["streamed", "at once"])
@pytest.mark.parametrize("tail", [b"x", b"\0" * 20, LZ4], ids=["garbage", "zeros", "another frame"])
def test_bytes_after_an_lz4_frame_are_refused(tail: bytes, cap: int) -> None:
    with pytest.raises(CompressionError, match=f"{len(tail)} bytes after the frame"):
        decompress(LZ4 + tail, "lz4", cap)


def test_bytes_after_a_snappy_block_are_refused() -> None:
    with pytest.raises(CompressionError):
        decompress(SNAPPY + b"\0x", "snappy", MEBI)


def test_a_changed_lz4_frame_fails_its_checksum() -> None:
    changed = LZ4.replace(b"version", b"versian")
    with pytest.raises(CompressionError, match="contentChecksum"):
        decompress(changed, "lz4", MEBI)


@KINDS
def test_the_other_compression_is_refused(kind: Compression) -> None:
    other = {"snappy": LZ4, "lz4": SNAPPY}[kind]
    with pytest.raises(CompressionError):
        decompress(other, kind, MEBI)


@KINDS
def test_a_bomb_takes_no_more_memory_than_the_cap(kind: Compression) -> None:
    bomb = compress(b"\0" * (64 * MEBI), kind)
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLargeError):
            decompress(bomb, kind, MEBI)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MEBI


def test_a_declared_size_is_not_believed() -> None:
    huge = b"\xff\xff\xff\xff\x0f" + b"\0" * 20
    with pytest.raises(DecompressedTooLargeError):
        decompress(huge, "snappy", MEBI)
    with pytest.raises(CompressionError, match="can't hold"):
        decompress(huge, "snappy", 1 << 40)


@KINDS
def test_changed_bytes_give_content_or_an_error_and_nothing_else(kind: Compression) -> None:
    chance = random.Random(7)
    unit = compress(b'{"u":{"id":{"t":3,"h":true,"f":11,"v":1}}}' * 20, kind)
    for _ in range(5000):
        changed = bytearray(unit)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        with contextlib.suppress(CompressionError):
            assert len(decompress(bytes(changed), kind, chance.choice((100, MEBI)))) <= MEBI
