"""Readers of Avro binary agree with fastavro on what is right, and refuse what is wrong."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.avro_messages import encoded, record
from ticdc_replay.codecs.avro_reader import AvroError, compile_reader, varint
from ticdc_replay.codecs.avro_schema import SchemaError, parse

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


def reader_of(document, first=0):
    parsed = parse(json.dumps(document))
    return compile_reader(parsed, [range(len(parsed.fields))], first)


def plain(values):
    """Strings as the reader gives them."""
    return tuple(value.encode() if isinstance(value, str) else value for value in values)


@given(fields_and_values(), st.binary(max_size=5))
def test_what_fastavro_writes_is_read_and_nothing_behind_it(drawn, behind):
    fields, values = drawn
    body = encoded(record(*fields), values)
    cells, _, end = reader_of(record(*fields))(body + behind, 0)
    assert plain(values.values()) == cells
    assert end == len(body)


@given(fields_and_values(), st.data())
def test_a_record_that_is_cut_off_is_refused(drawn, data):
    fields, values = drawn
    body = encoded(record(*fields), values)
    if body:
        cut = data.draw(st.integers(0, len(body) - 1))
        with pytest.raises(AvroError):
            reader_of(record(*fields))(body[:cut], 0)


@given(fields_and_values(), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(drawn, body):
    try:
        _, _, end = reader_of(record(*drawn[0]))(body, 0)
    except AvroError:
        return
    assert end <= len(body)


def test_the_position_after_the_first_fields_is_told():
    document = record({"name": "a", "type": "long"}, {"name": "b", "type": "string"}, {"name": "c", "type": "int"})
    body = encoded(document, {"a": 1 << 40, "b": "text", "c": 1})
    positions = [reader_of(document, first)(body, 0)[1] for first in range(4)]
    assert positions == [0, 6, 11, 12]


def test_a_nested_record_is_a_tuple_of_its_values():
    inner = {"type": "record", "name": "i", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}
    document = record({"name": "a", "type": "int"}, {"name": "b", "type": ["null", inner]})
    read = reader_of(document)
    assert read(encoded(document, {"a": 1, "b": {"x": 2, "y": "z"}}), 0)[0] == (1, (2, b"z"))
    assert read(encoded(document, {"a": 1, "b": None}), 0)[0] == (1, None)


@pytest.mark.parametrize(
    ("type_", "body", "told"),
    [
        ("long", "ff" * 9 + "02", "more than 64 bits"),
        ("long", "80" * 10 + "01", "more than 10 bytes"),
        ("boolean", "02", "no boolean"),
        (["null", "int"], "0400", "no branch"),
        (["null", "int"], "0100", "no branch"),
        ("string", "0161", "announced|before byte|length"),
        ("bytes", "0461", "4|announced"),
        ("bytes", "feffffffffffffffff01", "announced"),
        ("double", "00" * 7, "ends after 7 bytes"),
        ("int", "80", "ends after 1 bytes"),
    ],
)
def test_what_avro_does_not_allow_is_refused(type_, body, told):
    with pytest.raises(AvroError, match=told):
        reader_of(record({"name": "a", "type": type_}))(bytes.fromhex(body), 0)


@given(VALUES["long"])
def test_integers_of_all_lengths(number):
    body = encoded(record({"name": "a", "type": "long"}), {"a": number})
    assert varint(body, 0) == (number, len(body))


def test_bits_of_floats_are_kept():
    document = record({"name": "a", "type": "float"}, {"name": "b", "type": "double"})
    body = struct.pack("<fd", 0.1, -0.0)
    (single, double), _, _ = reader_of(document)(body, 0)
    assert (struct.pack("<f", single), struct.pack("<d", double)) == (body[:4], body[4:])


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("{", "not JSON"),
        ("\ud800", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('"string"', "a str instead of a record"),
        ('{"type":"enum","name":"e"}', "'enum' instead of record"),
        ('{"type":"record","name":"t"}', "without name, namespace or fields"),
        (json.dumps(record({"name": "a"})), "no type"),
        (json.dumps(record({"type": "int"})), "without name"),
        (json.dumps(record({"name": "a", "type": "int"}, {"name": "a", "type": "int"})), "two fields of one name"),
        (json.dumps(record({"name": "a", "type": {"type": "array", "items": "int"}})), "'array' is none"),
        (json.dumps(record({"name": "a", "type": ["null", "int", "string"]})), "not of null and one type"),
        (json.dumps(record({"name": "a", "type": ["int", "string"]})), "not of null and one type"),
        (json.dumps(record({"name": "a", "type": {"type": "int", "connect.parameters": {"x": 1}}})), "not texts"),
        (
            json.dumps(record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 0}})),
            "no decimal",
        ),
        (
            json.dumps(
                record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 65, "scale": 31}})
            ),
            "no decimal",
        ),
        (json.dumps(record({"name": "a", "type": record({"name": "b", "type": record()})})), "a record in a record"),
    ],
)
def test_a_document_that_is_no_schema_of_ticdc_is_refused(document, told):
    with pytest.raises(SchemaError, match=told):
        parse(document)


def test_defaults_are_not_looked_at():
    fields = [{"name": "a", "type": "double", "default": 1}, {"name": "b", "type": "bytes", "default": "AAE="}]
    assert [field.name for field in parse(json.dumps(record(*fields))).fields] == ["a", "b"]
