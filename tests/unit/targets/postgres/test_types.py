"""Which PostgreSQL types hold which, and names that fit."""

import itertools

import pyarrow as pa
import pytest

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.targets.mirror.planning.table_plan import tombstones_of
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.postgres.dialect import DIALECT, fit
from ticdc_replay.targets.postgres.types import checks_of, holds, pg_type

WIDENINGS = [
    ("smallint", "integer"),
    ("integer", "bigint"),
    ("bigint", "numeric(20,0)"),
    ("bigint", "numeric"),
    ("numeric(10,2)", "numeric(12,4)"),
    ("numeric(10,2)", "numeric"),
    ("real", "double precision"),
    ("timestamp(0) without time zone", "timestamp(3) without time zone"),
    ("timestamp(3) with time zone", "timestamp with time zone"),
]
OTHERS = [
    ("bigint", "double precision"),
    ("bigint", "numeric(18,0)"),
    ("numeric(10,2)", "numeric(10,4)"),
    ("numeric", "numeric(65,30)"),
    ("text", "bytea"),
    ("text", "json"),
    ("integer", "text"),
    ("date", "timestamp(0) without time zone"),
    ("timestamp(3) without time zone", "timestamp(3) with time zone"),
]


@pytest.mark.parametrize(("narrow", "wide"), WIDENINGS)
def test_a_wider_type_holds_a_narrower_one_and_not_the_reverse(narrow: str, wide: str) -> None:
    assert holds(wide, narrow)
    assert not holds(narrow, wide)
    assert DIALECT.wider(narrow, wide) == DIALECT.wider(wide, narrow) == wide


@pytest.mark.parametrize(("first", "second"), OTHERS)
def test_types_that_would_alter_a_value_do_not_stand_in_for_each_other(first: str, second: str) -> None:
    assert not holds(second, first)
    assert DIALECT.wider(first, second) in (None, first)


def test_holding_is_transitive() -> None:
    types = sorted({name for pair in [*WIDENINGS, *OTHERS] for name in pair})
    for first, second, third in itertools.product(types, repeat=3):
        if holds(first, second) and holds(second, third):
            assert holds(first, third), (first, second, third)


def test_fraction_digits_nobody_told_are_all_of_them() -> None:
    assert pg_type(ColumnType("datetime")) == "timestamp without time zone"
    assert pg_type(ColumnType("datetime", scale=0, declared=True)) == "timestamp(0) without time zone"


def test_names_of_more_than_63_bytes_are_shortened_and_stay_different() -> None:
    assert fit("x" * 63) == "x" * 63
    long_names = ["x" * 64, "x" * 63 + "y", "表" * 30, "表" * 29 + "a"]
    fitted = [fit(name) for name in long_names]
    assert len(set(fitted)) == len(fitted)
    assert all(len(name.encode()) <= 63 for name in fitted)
    assert fitted == [fit(name) for name in long_names]
    assert len(tombstones_of(Relation("s" * 64, "表" * 21), DIALECT).table.encode()) <= 63


@pytest.mark.parametrize(
    ("text", "deep"),
    [
        ("[" * 500 + "]" * 500, False),
        ("[" * 501 + "]" * 501, True),
        ('{"a":[' * 251 + "]}" * 251, True),
        ("[" + ",".join(["{}"] * 600) + "]", False),
        ('["' + "[" * 600 + '"]', False),
        ('["\\"' + "[" * 600 + '"]', False),
        ('["' + "]" * 600 + '",' + "[" * 500 + "]" * 501, True),
        ('"' + '\\"' * 100_000 + "[" * 600, False),
    ],
    ids=["at the limit", "arrays", "both", "flat", "in a text", "after a quote", "behind brackets in a text", "no end"],
)
def test_depth_of_json_is_that_of_its_objects_and_arrays(text: str, deep: bool) -> None:
    ((_, _), (check, reason)) = checks_of("json", pa.string())
    assert check(pa.array([None, text, "[]"])).to_pylist()[1:] == [deep, False]
    assert reason == "JSON of more than 500 levels, one in the other"
