"""No type gives a false alarm, and a change of any type is found."""

import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.target_rigs import LakeRig
from tests.support.verified import Verified

pytestmark = pytest.mark.integration

UTC = datetime.UTC
SETS = ",".join(f"'m{n}'" for n in range(64))

TYPES: list[tuple[str, list[Any]]] = [
    ("tinyint", [-128, 0, 127]),
    ("tinyint unsigned", [0, 255]),
    ("smallint", [-32768]),
    ("mediumint unsigned", [16777215]),
    ("int", [-(2**31)]),
    ("int(9) unsigned zerofill", [2**32 - 1, 7]),
    ("bigint", [-(2**63), 2**63 - 1]),
    ("bigint unsigned", [2**64 - 1, 0]),
    ("float", [0.1, 1.100000023841858, 3.4028234663852886e38, 1.401298464324817e-45, -0.0, 16777216.0, 1e-13, 123456.7]),
    (
        "double",
        [0.1, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, -2.2250738585072014e-308, -0.0, 1e15, 1e16, 123456789012345678.0,
         1e-4, 1e-5, 1e-13, 9.999999999999999e-14, 1e34, 1e35, 1e80, 9.999999999999999e79, 2.0**53 + 2, -1e22, 1e23],
    ),
    ("decimal(12,4)", [Decimal("12345678.9000"), Decimal("-0.0001"), Decimal("0.0000")]),
    ("decimal(10,2) unsigned zerofill", [Decimal("12.50")]),
    ("decimal(65,30)", ["9" * 35 + "." + "9" * 30, "-0." + "0" * 29 + "1"]),
    ("decimal(38,0)", [Decimal("9" * 38)]),
    ("bit(1)", [1, 0]),
    ("bit(64)", [2**64 - 1]),
    ("year", [2155, 0]),
    ("date", [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    ("time", [-((838 * 60 + 59) * 60 + 59) * 1_000_000, 3_723_000_000, 0]),
    ("time(6)", [-500_000, 1, 86_400_000_000, -((838 * 60 + 59) * 60 + 58) * 1_000_000 - 999_999]),
    ("datetime", [datetime.datetime(2026, 3, 1, 10, 20, 30)]),
    ("datetime(3)", [datetime.datetime(9999, 12, 31, 23, 59, 59, 999000), datetime.datetime(1, 1, 1)]),
    ("datetime(6)", [datetime.datetime(2026, 3, 1, 0, 0, 0, 100), datetime.datetime(2026, 3, 1, 0, 0, 10)]),
    ("timestamp(6) NULL", [datetime.datetime(2038, 1, 19, 3, 14, 7, 999999, UTC), datetime.datetime(2000, 7, 1, tzinfo=UTC)]),
    ("timestamp NULL", [datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]),
    ("char(5)", ["a", "", " x"]),
    ("varchar(20)", ["", "N", "1:N", "e\u0301 😀 \t\n\\'\"%,", "  x ", "a,b"]),
    ("varchar(20) CHARACTER SET gbk", ["中", "a"]),
    ("varchar(20) CHARACTER SET latin1", ["é", "ÿ"]),
    ("varchar(400)", ["x" * 400, "😀" * 400, "N"]),
    ("longtext", ["x" * 100_000, "", "é"]),
    ("binary(4)", [b"\0\xff\0\0"]),
    ("varbinary(300)", [bytes(range(256)), b"", b"N"]),
    ("longblob", [b"\x80" * 70_000]),
    ("enum('new','it''s','')", ["it's", ""]),
    ("set('a','b','c d')", ["a,c d", ""]),
    (f"set({SETS})", ["m0,m63"]),
    ("json", ['{"a": [1, 1.5, "ü", null], "b": {}}', "null", '"\\u0001"']),
]  # fmt: skip


def test_no_type_gives_a_false_alarm_and_each_change_is_found(verified: Verified) -> None:
    columns = ", ".join(f"`c {at}` {column}" for at, (column, _) in enumerate(TYPES))
    schema = verified.create(f"id int PRIMARY KEY, {columns}")
    most = max(len(values) for _, values in TYPES)
    rows = [
        {"id": number, **{f"c {at}": values[number % len(values)] for at, (_, values) in enumerate(TYPES)}}
        for number in range(most)
    ]
    rows.append({"id": most})
    verified.both(schema, rows)
    found = verified.verify()
    assert (found.problems, found.columns) == ((), len(TYPES) + 1)
    assert found.findings.differences == ()
    assert (found.outcome, found.findings.source_rows, found.findings.mirror_rows) == ("equal", most + 1, most + 1)
    # Row by row: NULL in place of a value is a difference of that column alone.
    for at in range(len(TYPES)):
        verified.mirror(f'UPDATE {{t}}.t SET "c {at}" = NULL WHERE id = {at % most}')
    changed = {key: columns for kind, key, columns in verified.differing() if kind == "changed"}
    expected: dict[tuple[str, ...], tuple[str, ...]] = {}
    for at in range(len(TYPES)):
        expected[(str(at % most),)] = (*expected.get((str(at % most),), ()), f"c {at}")
    assert changed == expected


def _text(most: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=most)


MICROS = st.integers(-((838 * 60 + 59) * 60 + 59) * 1_000_000, ((838 * 60 + 59) * 60 + 59) * 1_000_000)
MOMENTS = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59))
RANDOM: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("bigint", st.integers(-(2**63), 2**63 - 1)),
    ("bigint unsigned", st.integers(0, 2**64 - 1)),
    ("float", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    ("double", st.floats(allow_nan=False, allow_infinity=False)),
    ("decimal(20,6)", st.decimals(-(10**13), 10**13, places=6)),
    ("bit(40)", st.integers(0, 2**40 - 1)),
    ("date", st.dates()),
    ("time(6)", MICROS),
    ("datetime(6)", MOMENTS),
    ("datetime", MOMENTS.map(lambda moment: moment.replace(microsecond=0))),
    ("timestamp(6) NULL", st.datetimes(datetime.datetime(1971, 1, 1), datetime.datetime(2037, 1, 1), timezones=st.just(UTC))),
    ("varchar(20)", _text(20)),
    ("char(10)", _text(10).map(lambda text: text.rstrip(" "))),
    ("longtext", _text(300)),
    ("varbinary(30)", st.binary(max_size=30)),
    ("longblob", st.binary(max_size=300)),
]  # fmt: skip
ROWS = st.lists(st.tuples(*(st.none() | values for _, values in RANDOM)), min_size=10, max_size=40)


def test_many_random_values_give_no_false_alarm_in_a_lake(verified: Verified) -> None:
    if not isinstance(verified.rig, LakeRig):
        pytest.skip("databases have examples of few rows")

    @settings(max_examples=1, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
    @given(rows=st.lists(st.tuples(*(st.none() | values for _, values in RANDOM)), min_size=200, max_size=200))
    def compared(rows: list[tuple[Any, ...]]) -> None:
        _compare_random(verified, rows)

    compared()


def _compare_random(verified: Verified, rows: list[tuple[Any, ...]]) -> None:
    verified.clear()
    columns = ", ".join(f"c{at} {column}" for at, (column, _) in enumerate(RANDOM))
    schema = verified.create(f"id int PRIMARY KEY, {columns}")
    verified.both(schema, [{"id": at, **{f"c{n}": cell for n, cell in enumerate(row)}} for at, row in enumerate(rows)])
    found = verified.verify()
    assert (found.outcome, found.findings.source_rows) == ("equal", len(rows))


@settings(max_examples=examples(0.2), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_random_values_give_no_false_alarm(verified: Verified, rows: list[tuple[Any, ...]]) -> None:
    if isinstance(verified.rig, LakeRig):
        pytest.skip("one example of many rows, as Spark takes seconds for each")
    _compare_random(verified, rows)
