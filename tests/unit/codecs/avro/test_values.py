"""What ``connect.parameters`` say of a column, and what its Avro values mean."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.avro_messages import column, decimal, record
from ticdc_replay.codecs.avro.schema import SchemaError, parse
from ticdc_replay.codecs.avro.values import cell_kind, elements
from ticdc_replay.domain.column_types import ColumnType


def kind(field):
    return cell_kind(parse(json.dumps(record(field))).fields[0])


def neutral(field, *values):
    return list(kind(field).neutral(values))


@pytest.mark.parametrize(
    ("field", "type_"),
    [
        (column("c", "int", "INT"), ColumnType("int")),
        (column("c", "int", "INT UNSIGNED"), ColumnType("int", unsigned=True)),
        (column("c", "long", "INT UNSIGNED"), ColumnType("int", unsigned=True)),
        (column("c", "long", "BIGINT"), ColumnType("bigint", declared=True)),
        (column("c", "long", "BIGINT UNSIGNED"), ColumnType("bigint", unsigned=True, declared=True)),
        (column("c", "string", "BIGINT UNSIGNED"), ColumnType("bigint", unsigned=True, declared=True)),
        (decimal("c", 65, 30), ColumnType("decimal", length=65, scale=30, declared=True)),
        (column("c", "string", "DECIMAL"), ColumnType("decimal")),
        (column("c", "bytes", "BIT", length="17"), ColumnType("bit", length=17, declared=True)),
        (column("c", "string", "ENUM", allowed="a,b"), ColumnType("enum", elements=("a", "b"), declared=True)),
        (column("c", "string", "SET", allowed="a,b"), ColumnType("set", elements=("a", "b"), declared=True)),
        (column("c", "string", "TEXT"), ColumnType("text")),
        (column("c", "bytes", "BLOB"), ColumnType("blob")),
        (column("c", "string", "JSON"), ColumnType("json", declared=True)),
        (column("c", "string", "TiDBVECTORFloat32"), ColumnType("vector", declared=True)),
        (column("c", "int", "YEAR"), ColumnType("year", declared=True)),
        (column("c", "string", "TIMESTAMP"), ColumnType("timestamp")),
    ],
)
def test_the_schema_tells_the_type_as_far_as_it_goes(field, type_):
    assert kind(field).type == type_
    assert kind(field) is kind(field)


@pytest.mark.parametrize(
    "field",
    [
        column("c", "long", "INT"),
        column("c", "string", "GEOMETRY"),
        column("c", "bytes", "DECIMAL"),
        column("c", "bytes", "BIT"),
        column("c", "bytes", "BIT", length="65"),
        column("c", "string", "ENUM"),
    ],
)
def test_a_type_that_ticdc_does_not_write_is_refused(field):
    with pytest.raises(SchemaError, match="column 'c'"):
        kind(field)


def test_a_comma_in_a_name_of_an_enum_is_escaped_and_a_set_has_none():
    assert elements("enum", r"a,c\,d,it's,") == ("a", "c,d", "it's", "")
    assert elements("set", "x,y\\,z") == ("x", "y\\", "z")


def test_the_bits_of_an_unsigned_bigint_lose_their_sign():
    assert neutral(column("c", "long", "BIGINT UNSIGNED"), -1, 5, None, -(1 << 63)) == [(1 << 64) - 1, 5, None, 1 << 63]
    assert neutral(column("c", "string", "BIGINT UNSIGNED"), b"18446744073709551615", None) == [(1 << 64) - 1, None]


@given(st.integers(-(10**65) + 1, 10**65 - 1), st.integers(0, 30))
def test_a_decimal_has_all_digits_and_exactly_its_scale(number, scale):
    length = (number + (number < 0)).bit_length() // 8 + 1
    (text,) = neutral(decimal("c", 65, scale), number.to_bytes(length, "big", signed=True))
    whole, point, fraction = text.partition(".")
    assert (len(fraction), bool(point)) == (scale, scale > 0)
    assert int(whole + fraction) == number
    assert text.startswith("-") == (number < 0)


def test_bits_are_big_endian_with_leading_zeros_or_without():
    assert neutral(column("c", "bytes", "BIT", length="17"), b"\x00\x01\x02", b"\x01\x02", None) == [258, 258, None]
    assert neutral(column("c", "bytes", "BIT", length="64"), b"\xff" * 8) == [(1 << 64) - 1]


@given(st.lists(st.none() | st.text() | st.binary()))
def test_text_that_is_not_utf_8_stays_bytes(values):
    wire = [value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value for value in values]
    for one, found in zip(wire, neutral(column("c", "string", "TEXT"), *wire), strict=True):
        assert (found.encode() if isinstance(found, str) else found) == one
        if isinstance(found, bytes):
            with pytest.raises(UnicodeDecodeError):
                found.decode()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (column("c", "int", "INT"), 1 << 31),
        (column("c", "int", "INT UNSIGNED"), 1 << 24),
        (column("c", "long", "INT UNSIGNED"), -1),
        (column("c", "int", "YEAR"), 2156),
        (column("c", "float", "FLOAT"), math.inf),
        (column("c", "double", "DOUBLE"), math.nan),
        (column("c", "string", "BIGINT UNSIGNED"), b"18446744073709551616"),
        (column("c", "string", "BIGINT UNSIGNED"), b"-1"),
        (column("c", "string", "BIGINT UNSIGNED"), b"1_0"),
        (column("c", "string", "DECIMAL"), b"1e5"),
        (column("c", "bytes", "BIT", length="7"), b"\x80"),
        (column("c", "bytes", "BIT", length="7"), b""),
        (decimal("c", 5, 2), b""),
        (column("c", "string", "DATE"), b"2020-1-1"),
        (column("c", "string", "DATETIME"), b"2020-01-01\n00:00:00"),
        (column("c", "string", "TIME"), "١٢:00:00".encode()),
        (column("c", "string", "TiDBVECTORFloat32"), b"[1,]"),
    ],
)
def test_a_value_that_its_column_can_not_have_is_refused(field, value):
    with pytest.raises(ValueError):
        neutral(field, None, value)
