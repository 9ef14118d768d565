"""What a wire value becomes in the changelog, type by type: the typed cell, or the exact text beside a null cell."""

import datetime
import struct
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_replay.changelog.cells.column import typed_array
from ticdc_replay.changelog.cells.times import check_zone
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import ConfigError

ZONE = "Asia/Shanghai"


def declared(base, **details):
    return ColumnType(base, declared=True, **details)


def cells(values, column_type):
    """(cells, exact, bad) as Python values."""
    converted = typed_array(values, column_type, ZONE)
    return converted.array.to_pylist(), converted.exact, converted.bad


@pytest.mark.parametrize(
    ("column_type", "value", "cell"),
    [
        (ColumnType("tinyint"), -128, -128),
        (ColumnType("tinyint", unsigned=True), 255, 255),
        (ColumnType("mediumint"), -8388608, -8388608),
        (ColumnType("mediumint", unsigned=True), 16777215, 16777215),
        (ColumnType("bigint"), -(1 << 63), -(1 << 63)),
        (ColumnType("bigint", unsigned=True), (1 << 64) - 1, (1 << 64) - 1),
        (declared("bit", length=64), (1 << 64) - 1, (1 << 64) - 1),
        (ColumnType("year"), 2155, 2155),
        (ColumnType("double"), 1.7976931348623157e308, 1.7976931348623157e308),
        (declared("decimal", length=12, scale=4), "-0.0500", Decimal("-0.0500")),
        (declared("decimal", length=38, scale=0), "9" * 38, Decimal("9" * 38)),
        (declared("decimal", length=65, scale=30), "-0." + "0" * 29 + "1", "-0." + "0" * 29 + "1"),
        (ColumnType("decimal"), "12.3400", "12.3400"),
        (ColumnType("date"), "9999-12-31", datetime.date(9999, 12, 31)),
        (ColumnType("date"), "0001-01-01", datetime.date(1, 1, 1)),
        (ColumnType("datetime"), "2015-12-20 23:58:58.123456", datetime.datetime(2015, 12, 20, 23, 58, 58, 123456)),
        (declared("datetime", scale=1), "2015-12-20 23:58:58.1", datetime.datetime(2015, 12, 20, 23, 58, 58, 100000)),
        (
            ColumnType("timestamp"),
            "1970-01-01 08:00:01",
            datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
        ),
        (ColumnType("time"), "23:59:59", 86_399_000_000),
        (ColumnType("time"), "-838:59:59.000001", -3_020_399_000_001),
        (ColumnType("time"), "24:00:00.5", 86_400_500_000),
        (ColumnType("varchar"), "数据库 é", "数据库 é"),
        (ColumnType("json"), '{"a": null}', '{"a": null}'),
        (ColumnType("vector"), "[1,2.5]", "[1,2.5]"),
        (ColumnType("varbinary"), b"\x00\xff", b"\x00\xff"),
        (declared("enum", elements=("a", "b,c", "it's")), 2, "b,c"),
        (declared("enum", elements=("a", "b")), 0, ""),
        (declared("enum", elements=("a", "b")), "b", "b"),
        (declared("enum", elements=("a", "")), 2, ""),
        (declared("enum", elements=("a", "")), "", ""),
        (ColumnType("enum"), 3, 3),
        (declared("set", elements=("x", "y", "z w")), 5, "x,z w"),
        (declared("set", elements=("x", "y")), 0, ""),
        (declared("set", elements=("x", "y")), "y", "y"),
        (declared("set", elements=("", "x")), 0, ""),
        (declared("set", elements=("", "x")), 2, "x"),
        (declared("set", elements=("", "x")), 3, ",x"),
        (declared("set", elements=tuple(f"e{n}" for n in range(64))), 1 << 63, "e63"),
        (ColumnType("set"), (1 << 64) - 1, (1 << 64) - 1),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_value_of_the_type_is_a_typed_cell_and_null_stays_null(column_type, value, cell):
    assert cells([value, None], column_type) == ([cell, None], {}, {})


@pytest.mark.parametrize(
    ("column_type", "value", "text"),
    [
        (ColumnType("date"), "0000-00-00", b"0000-00-00"),
        (ColumnType("date"), "2023-00-10", b"2023-00-10"),
        (ColumnType("date"), "2023-02-30", b"2023-02-30"),
        (ColumnType("date"), "0000-01-01", b"0000-01-01"),
        (ColumnType("datetime"), "0000-00-00 00:00:00", b"0000-00-00 00:00:00"),
        (ColumnType("datetime"), "0000-05-05 00:00:00", b"0000-05-05 00:00:00"),
        (declared("datetime", scale=6), "0000-00-00 00:00:00.000000", b"0000-00-00 00:00:00.000000"),
        (declared("datetime", scale=0), "2023-01-01 00:00:00.5", b"2023-01-01 00:00:00.5"),
        (declared("timestamp", scale=3), "2023-01-01 00:00:00.123456", b"2023-01-01 00:00:00.123456"),
        (ColumnType("timestamp"), "0000-00-00 00:00:00", b"0000-00-00 00:00:00"),
        (ColumnType("tinyint"), 128, b"128"),
        (ColumnType("mediumint"), 8388608, b"8388608"),
        (ColumnType("bigint", unsigned=True), -1, b"-1"),
        (ColumnType("bigint", unsigned=True), 1 << 64, b"18446744073709551616"),
        (declared("bit", length=8), 256, b"256"),
        (declared("decimal", length=5, scale=2), "1000.00", b"1000.00"),
        (declared("decimal", length=5, scale=2), "1.001", b"1.001"),
        (ColumnType("float"), 1e300, b"1e+300"),
        (declared("enum", elements=("a", "b")), 3, b"3"),
        (declared("enum", elements=("a", "b")), "c", b"c"),
        (declared("enum", elements=("", "a")), 0, b"0"),
        (declared("set", elements=("", "a")), 1, b"1"),
        (ColumnType("enum"), "a", b"a"),
        (declared("set", elements=("x", "y")), 4, b"4"),
        (declared("set", elements=("x", "y")), "x,q", b"x,q"),
        (ColumnType("varchar"), b"caf\xe9", b"caf\xe9"),
        (ColumnType("varchar"), "\ud800", b"\xed\xa0\x80"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_value_the_typed_cell_cannot_hold_keeps_its_wire_text(column_type, value, text):
    assert cells([None, value], column_type) == ([None, None], {1: text}, {})


@pytest.mark.parametrize(
    ("column_type", "value"),
    [
        (ColumnType("int"), "7"),
        (ColumnType("int"), True),
        (ColumnType("int"), 1.5),
        (ColumnType("double"), "1.5"),
        (declared("decimal", length=5, scale=2), "1,5"),
        (ColumnType("date"), "01/02/2003"),
        (ColumnType("date"), 20030201),
        (ColumnType("datetime"), "2003-02-01"),
        (ColumnType("timestamp"), "2003-02-01T00:00:00+01:00"),
        (ColumnType("time"), "noon"),
        (ColumnType("varchar"), 5),
        (ColumnType("varbinary"), 5),
        (declared("enum", elements=("a",)), 1.5),
        (ColumnType("set"), [1]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_value_of_another_kind_is_bad_and_not_shown(column_type, value):
    array, exact, bad = cells([None, value, None], column_type)
    assert (array, exact) == ([None, None, None], {})
    assert list(bad) == [1]
    assert str(value) not in bad[1]


def test_local_times_that_clocks_showed_twice_or_never_are_not_guessed():
    # Shanghai had summer time from 1986 to 1991: 1986-05-04 02:00 was skipped, 1986-09-14 01:00 came twice.
    values = ["1986-09-14 00:59:59", "1986-09-14 01:30:00", "1986-05-04 02:30:00", "1986-09-14 02:00:00", None]
    array, exact, bad = cells(values, ColumnType("timestamp"))
    assert [None if moment is None else moment.isoformat() for moment in array] == [
        "1986-09-13T15:59:59+00:00",
        None,
        None,
        "1986-09-13T18:00:00+00:00",
        None,
    ]
    assert exact == {1: b"1986-09-14 01:30:00", 2: b"1986-05-04 02:30:00"}
    assert bad == {}


def test_an_unknown_zone_is_the_configurations_fault_not_the_values():
    with pytest.raises(ConfigError, match=r"changefeed\.timezone.*Mars/Olympus"):
        check_zone("Mars/Olympus")


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_comes_back_bit_by_bit_from_its_shortest_text(number):
    shortest = next(text for digits in range(1, 18) if _float32(float(text := f"{number:.{digits}g}")) == number)
    array = typed_array([float(shortest)], ColumnType("float"), ZONE).array
    assert struct.pack("<f", array[0].as_py()) == struct.pack("<f", number)


def _float32(number):
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return None


_DIGITS = st.integers(0, 99).map("{:02d}".format)
_DATES = st.builds("{}{}-{}-{}".format, _DIGITS, _DIGITS, _DIGITS, _DIGITS)
_CLOCKS = st.builds(
    "{}:{}:{}{}".format, _DIGITS, _DIGITS, _DIGITS, st.sampled_from(["", ".", ".5", ".123456", ".1234567"])
)
_MOMENTS = st.builds("{}{}{}".format, _DATES, st.sampled_from([" ", "T", "  "]), _CLOCKS)
_NUMBERS = st.from_regex(r"\A[+-]?[0-9]{0,9}\.?[0-9]{0,9}([eE][+-]?[0-9]{1,2})?\Z")
_TEXTS = st.one_of(st.text(max_size=12), _DATES, _MOMENTS, _CLOCKS, _NUMBERS)
_TEMPORAL = [
    ColumnType("date"),
    ColumnType("datetime"),
    declared("datetime", scale=0),
    declared("datetime", scale=3),
    ColumnType("timestamp"),
    ColumnType("time"),
]
_POISONED = [
    *((column_type, "nothing of the kind", _TEXTS) for column_type in _TEMPORAL),
    (declared("decimal", length=9, scale=3), "nothing of the kind", _TEXTS),
    (ColumnType("varchar"), 7, st.one_of(st.text(max_size=8), st.binary(max_size=8))),
    (ColumnType("varbinary"), 7, st.binary(max_size=8)),
    (ColumnType("smallint"), "x", st.one_of(st.integers(), st.floats(), st.booleans())),
    (ColumnType("mediumint", unsigned=True), "x", st.integers(-10, 1 << 25)),
    (ColumnType("bigint", unsigned=True), "x", st.integers(-10, 1 << 65)),
    (declared("bit", length=9), "x", st.integers(-10, 1 << 10)),
    (ColumnType("float"), "x", st.one_of(st.floats(), st.integers(-(1 << 60), 1 << 60))),
    (ColumnType("double"), "x", st.one_of(st.floats(), st.integers(-(1 << 60), 1 << 60))),
    (ColumnType("enum"), 1.5, st.one_of(st.integers(-2, 1 << 17), st.text(max_size=3))),
    (declared("enum", elements=("a", "b")), 1.5, st.one_of(st.integers(-2, 4), st.sampled_from("abc"))),
    (declared("enum", elements=("", "b")), 1.5, st.one_of(st.integers(-2, 4), st.sampled_from(["", "b", "c"]))),
    (declared("set", elements=("a", "b")), 1.5, st.one_of(st.integers(-2, 9), st.sampled_from(["a", "b,a", "c", ""]))),
    (declared("set", elements=("", "b")), 1.5, st.one_of(st.integers(-2, 5), st.sampled_from(["", ",b", "b"]))),
]


@pytest.mark.parametrize(("column_type", "poison", "values"), _POISONED, ids=lambda value: str(value)[:20])
def test_what_a_value_becomes_does_not_depend_on_its_neighbours(column_type, poison, values):
    @settings(deadline=None)
    @given(values)
    def alone_as_with_others(value):
        alone = typed_array([value], column_type, ZONE)
        beside = typed_array([value, poison], column_type, ZONE)
        assert repr(beside.array[:1].to_pylist()) == repr(alone.array.to_pylist())
        assert beside.exact == alone.exact
        assert {at: reason for at, reason in beside.bad.items() if at == 0} == alone.bad
        assert 1 in beside.bad

    alone_as_with_others()


@pytest.mark.parametrize("base", ["enum", "set"])
@pytest.mark.parametrize("elements", [("a", "b"), ("", "a", "b"), ("a", "", "b")])
def test_no_two_numbers_of_an_enum_or_set_are_one_text(base, elements):
    numbers = range(len(elements) + 1 if base == "enum" else 1 << len(elements))
    texts, exact, _ = cells(list(numbers), declared(base, elements=elements))
    assert len(exact) == ("" in elements)
    typed = [text for text in texts if text is not None]
    assert len({*typed}) == len(typed) == len(numbers) - len(exact)


@pytest.mark.parametrize(
    ("text", "column_type"),
    [
        ("9" * 38, declared("decimal", length=38, scale=0)),
        ("9" * 28 + ".9", declared("decimal", length=38, scale=10)),
        ("-" + "9" * 28 + ".9999999999", declared("decimal", length=38, scale=10)),
    ],
)
def test_a_decimal_at_its_limit_is_kept_whatever_stands_beside_it(text, column_type):
    converted = typed_array([text, "1" * 39], column_type, ZONE)
    assert [None if cell is None else Decimal(cell) for cell in converted.array.to_pylist()] == [Decimal(text), None]
    assert converted.exact == {1: b"1" * 39}


def test_a_decimal_too_small_for_its_scale_is_kept_exact_however_small():
    converted = typed_array(["1E-78", "1.5"], declared("decimal", length=9, scale=3), ZONE)
    assert converted.array.to_pylist() == [None, Decimal("1.500")]
    assert converted.exact == {0: b"1E-78"}


def test_timestamps_with_z_are_utc_beside_those_in_the_changefeeds_zone():
    values = ["2024-01-01 08:00:00.5", "2024-01-01 00:00:00.5Z", None, "0000-00-00 00:00:00Z"]
    converted = typed_array(values, ColumnType("timestamp"), "Asia/Shanghai")
    midnight = datetime.datetime(2024, 1, 1, 0, 0, 0, 500_000, datetime.UTC)
    assert converted.array.to_pylist() == [midnight, midnight, None, None]
    assert converted.exact == {3: b"0000-00-00 00:00:00Z"}
    assert converted.bad == {}


@pytest.mark.parametrize("text", ["0E40", "-0.0e99", "0E-99", "00E5"])
def test_a_zero_may_have_any_exponent(text):
    converted = typed_array([text], declared("decimal", length=9, scale=3), ZONE)
    assert (converted.array.to_pylist(), converted.exact, converted.bad) == ([Decimal("0.000")], {}, {})


def test_a_local_time_of_another_zone_is_kept_as_text_that_names_it():
    values = [
        "2024-10-27 02:30:00 Europe/Berlin",
        "2024-01-01 08:00:00",
        "2024-01-01 00:00:00Z",
        "nonsense Europe/Berlin",
    ]
    converted = typed_array(values, ColumnType("timestamp"), ZONE)
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    assert converted.array.to_pylist() == [None, moment, moment, None]
    assert converted.exact == {0: b"2024-10-27 02:30:00 Europe/Berlin"}
    assert list(converted.bad) == [3]
