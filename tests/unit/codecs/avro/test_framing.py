"""The frames of Avro keys and values, Confluent's and AWS Glue's."""

import zlib
from uuid import UUID

import pytest

from ticdc_replay.codecs.avro.framing import Framed, unframe
from ticdc_replay.codecs.errors import MessageError

UUID_TEXT = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
UUID_BYTES = UUID(UUID_TEXT).bytes
CAP = 1000


def refusal(data, cap=CAP):
    """The reason for which *data* is refused."""
    with pytest.raises(MessageError) as error:
        unframe(data, cap)
    return error.value.reason


def test_confluent_has_a_magic_byte_and_a_big_endian_id():
    assert unframe(bytes.fromhex("000000000104"), CAP) == Framed("1", b"\x04")


def test_confluent_ids_are_unsigned():
    assert unframe(b"\x00\xff\xff\xff\xff", CAP) == Framed("4294967295", b"")


def test_glue_has_the_uuid_in_the_order_of_its_text():
    assert unframe(b"\x03\x00" + UUID_BYTES + b"\x04", CAP) == Framed(UUID_TEXT, b"\x04")


def test_glue_may_be_compressed_with_zlib():
    assert unframe(b"\x03\x05" + UUID_BYTES + zlib.compress(b"abc" * 100), CAP) == Framed(UUID_TEXT, b"abc" * 100)


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x00\x00\x00", b"\x03\x00" + UUID_BYTES[:-1], b"\x01{}", b"\x03\x01" + UUID_BYTES, b"\x04" * 40]
)
def test_other_bytes_are_no_frame(data):
    assert refusal(data) == "bad_framing"


def test_a_compressed_bomb_stops_at_the_cap():
    assert refusal(b"\x03\x05" + UUID_BYTES + zlib.compress(bytes(CAP + 1))) == "too_large"
    assert unframe(b"\x03\x05" + UUID_BYTES + zlib.compress(bytes(CAP)), CAP).body == bytes(CAP)


@pytest.mark.parametrize("header", [b"\x00\x00\x00\x00\x01", b"\x03\x00" + UUID_BYTES])
def test_the_cap_holds_without_compression_too(header):
    assert refusal(header + bytes(CAP + 1)) == "too_large"


@pytest.mark.parametrize(
    "stream", [b"", b"no zlib", zlib.compress(b"abc")[:-1], zlib.compress(b"abc") + b"\x00"], ids=repr
)
def test_what_is_not_exactly_one_zlib_stream_is_refused(stream):
    assert refusal(b"\x03\x05" + UUID_BYTES + stream) == "bad_compression"
