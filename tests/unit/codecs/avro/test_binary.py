"""Avro is read as fastavro reads it, and bytes that no encoder writes are refused: each with little time and memory."""

import json
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.avro_messages import encoded, record
from tests.support.growth import assert_linear
from ticdc_replay.codecs.avro.binary import AvroError, encode, read, schema_of
from ticdc_replay.codecs.avro.schema import parse

VALUES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=200),
    "string": st.text(max_size=100),
}


@st.composite
def fields_and_values(draw):
    fields, values = [], {}
    for at in range(draw(st.integers(1, 8))):
        name, type_ = f"f{at}", draw(st.sampled_from(sorted(VALUES)))
        branch = draw(st.sampled_from((None, 0, 1))) if type_ != "null" else None
        values[name] = draw(VALUES[type_] if branch is None else VALUES[type_] | st.none())
        union = {None: type_, 0: ["null", type_], 1: [type_, "null"]}
        fields.append({"name": name, "type": union[branch]})
    return fields, values


def schema(*fields):
    return schema_of(parse(json.dumps(record(*fields))))


def plain(values):
    """Strings as they are read."""
    return {name: value.encode() if isinstance(value, str) else value for name, value in values.items()}


@given(fields_and_values(), st.binary(max_size=5))
def test_what_an_encoder_writes_is_read_and_nothing_after_it(drawn, after):
    fields, values = drawn
    body = encoded(record(*fields), values)
    assert read(schema(*fields), body + after) == (plain(values), len(body))


@given(fields_and_values(), st.data())
def test_a_record_that_is_cut_off_is_refused(drawn, data):
    fields, values = drawn
    body = encoded(record(*fields), values)
    if body:
        cut = data.draw(st.integers(0, len(body) - 1))
        with pytest.raises(AvroError):
            read(schema(*fields), body[:cut])


@given(fields_and_values(), st.binary(max_size=60))
def test_any_bytes_are_what_an_encoder_writes_or_refused(drawn, body):
    parsed = schema(*drawn[0])
    try:
        value, end = read(parsed, body)
    except AvroError:
        return
    assert encode(parsed, value) == body[:end]


def test_a_nested_record_is_a_pair_where_it_may_be_null():
    inner = {"type": "record", "name": "i", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}
    fields = {"name": "a", "type": "int"}, {"name": "b", "type": ["null", inner]}
    for given_, found in (({"x": 2, "y": "z"}, {"x": 2, "y": b"z"}), (None, None)):
        body = encoded(record(*fields), {"a": 1, "b": given_})
        (value, _) = read(schema(*fields), body)
        assert (value["a"], value["b"] and value["b"][1]) == (1, found)


def test_text_that_is_not_utf8_and_decimals_stay_bytes():
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    found, _ = read(schema({"name": "a", "type": "string"}, {"name": "d", "type": decimal}), b"\x04a\xff\x02\x7b")
    assert found == {"a": b"a\xff", "d": b"\x7b"}


NO_AVRO = [
    ("long", "ff" * 9 + "02", "no encoder of Avro"),
    ("long", "80" * 10 + "01", "no encoder of Avro"),
    ("long", "8000", "no encoder of Avro"),
    ("boolean", "02", "no encoder of Avro"),
    (["null", "int"], "0400", "before byte 1: list index"),
    (["null", "int"], "0102", "no encoder of Avro"),
    (["null", "int"], "03", "no encoder of Avro"),
    (["null", "int"], "028080808010", "do not match"),
    ("string", "0161", "ends after 2 bytes"),
    ("bytes", "0461", "ends after 2 bytes"),
    ("bytes", "feffffffffffffffff01", "ends after 10 bytes"),
    ("double", "00" * 7, "ends after 7 bytes"),
    ("int", "80", "ends after 1 bytes"),
    ("int", "", "ends after 0 bytes"),
]


@pytest.mark.parametrize(("type_", "body", "told"), NO_AVRO)
def test_what_no_encoder_writes_is_refused(type_, body, told):
    with pytest.raises(AvroError, match=told):
        read(schema({"name": "a", "type": type_}), bytes.fromhex(body))


@given(VALUES["long"])
def test_integers_of_all_lengths(number):
    assert read("long", long(number) + b"x") == (number, len(long(number)))


def long(number):
    return encoded(record({"name": "a", "type": "long"}), {"a": number})


def test_bits_of_floats_are_kept():
    body = struct.pack("<fd", 0.1, -0.0)
    found, _ = read(schema({"name": "a", "type": "float"}, {"name": "b", "type": "double"}), body)
    assert (struct.pack("<f", found["a"]), struct.pack("<d", found["b"])) == (body[:4], body[4:])


HOSTILE = {
    "a length that is only announced": lambda size: long((1 << 62) - 1) + b"x" * size,
    "an endless integer": lambda size: b"\xff" * size,
    "a text": lambda size: long(size) + b"x" * size,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_and_memory_grow_as_the_bytes_do(name):
    parsed = schema({"name": "a", "type": "string"})

    def decode(size):
        for _ in range(10):
            try:
                read(parsed, HOSTILE[name](size))
            except AvroError:
                continue

    assert_linear(decode, 10_000)
    body = HOSTILE[name](1_000_000)
    tracemalloc.start()
    try:
        read(parsed, body)
    except AvroError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 8 * len(body)
