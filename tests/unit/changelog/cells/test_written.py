"""A value as a person writes it: the cell that the changelog has of it, or why it is none."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ticdc_replay.changelog.cells.column import typed_array
from ticdc_replay.changelog.cells.written import written_cell
from ticdc_replay.domain.column_types import ColumnType

SHANGHAI = "Asia/Shanghai"
COLOURS = ("red", "green")


@pytest.mark.parametrize(
    ("text", "column_type", "value"),
    [
        ("7", ColumnType("bigint"), 7),
        ("-7", ColumnType("tinyint"), -7),
        ("18446744073709551615", ColumnType("bigint", unsigned=True), 2**64 - 1),
        ("5", ColumnType("bit", length=3), 5),
        ("2026", ColumnType("year"), 2026),
        ("1.5", ColumnType("double"), 1.5),
        ("1.5", ColumnType("decimal", length=10, scale=3), Decimal("1.500")),
        ("0042", ColumnType("varchar"), "0042"),
        ("", ColumnType("varchar"), ""),
        ("0x", ColumnType("varbinary"), b""),
        ("0x00fF", ColumnType("binary", length=2), b"\0\xff"),
        ("2026-03-01", ColumnType("date"), date(2026, 3, 1)),
        ("-12:00:01.5", ColumnType("time", scale=6), -43_201_500_000),
        ("2026-03-01 12:00:00.100", ColumnType("datetime", scale=1), datetime(2026, 3, 1, 12, 0, 0, 100_000)),
        ("2026-03-01T12:00:00", ColumnType("datetime"), datetime(2026, 3, 1, 12)),
        ("2026-03-01 08:00:00", ColumnType("timestamp"), datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T00:00:00.000Z", ColumnType("timestamp", scale=0), datetime(2026, 3, 1, tzinfo=UTC)),
        ("green", ColumnType("enum", elements=COLOURS), "green"),
        ("2", ColumnType("enum"), 2),
        ("red,green", ColumnType("set", elements=COLOURS), "red,green"),
    ],
)
def test_a_value_of_each_type(text: str, column_type: ColumnType, value: Any) -> None:
    cell = written_cell(text, column_type, SHANGHAI)
    assert (cell.array.to_pylist(), cell.exact) == ([value], None)
    others = pa.concat_arrays([cell.array, pa.nulls(1, cell.array.type), cell.array])
    assert cell.is_in(others).to_pylist() == [True, False, True]


@pytest.mark.parametrize(
    ("text", "column_type", "reason"),
    [
        ("x", ColumnType("int"), "'x' is not an integer"),
        ("1.0", ColumnType("int"), "'1.0' is not an integer"),
        ("", ColumnType("int"), "'' is not an integer"),
        ("128", ColumnType("tinyint"), "'128' is out of its range"),
        ("-1", ColumnType("int", unsigned=True), "out of its range"),
        ("1.5.1", ColumnType("decimal"), "not a number"),
        ("NaN", ColumnType("decimal"), "not a number"),
        ("inf", ColumnType("double"), "not a number"),
        ("1.2345", ColumnType("decimal", length=5, scale=2), "out of its range"),
        ("ff", ColumnType("blob"), "not bytes in hex, such as 0x00ff"),
        ("0xf", ColumnType("blob"), "not bytes in hex"),
        ("March 1st", ColumnType("date"), "is not a date"),
        ("2026-03-01", ColumnType("datetime"), "is not a date and time"),
        ("blue", ColumnType("enum", elements=COLOURS), "out of its range"),
    ],
)
def test_a_text_that_is_no_value_of_the_type(text: str, column_type: ColumnType, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        written_cell(text, column_type, "UTC")


def test_one_decimal_of_unknown_digits_has_several_texts() -> None:
    cell = written_cell("1.5", ColumnType("decimal"), "UTC")
    assert cell.is_in(pa.array(["1.50", "1.5", None, "01.5", "15", "1.51"])).to_pylist() == [
        *(True, True, False, True, False, False)
    ]


@pytest.mark.parametrize(
    ("text", "wire", "column_type"),
    [
        ("0000-00-00", "0000-00-00", ColumnType("date")),
        ("2026-02-00 00:00:00", "2026-02-00 00:00:00.000", ColumnType("datetime", scale=3)),
        ("2026-10-25 02:30:00", "2026-10-25 02:30:00", ColumnType("timestamp")),
    ],
)
def test_a_value_that_no_typed_cell_holds_is_compared_by_its_text(
    text: str, wire: str, column_type: ColumnType
) -> None:
    cell = written_cell(text, column_type, "Europe/Berlin")
    stored = typed_array([wire], column_type, "Europe/Berlin")
    assert cell.array.to_pylist() == [None]
    assert cell.is_exactly(stored.exact[0])
    assert not cell.is_exactly(b"2026-10-25 02:31:00")
    assert cell.is_in(stored.array).to_pylist() == [False]


@pytest.mark.parametrize(
    ("text", "column_type", "exact"),
    [
        ("0000-00-00 00:00:00.000", ColumnType("datetime", scale=3), "0000-00-00 00:00:00"),
        ("2026-02-31 10:00:00.50", ColumnType("datetime", scale=6), "2026-02-31 10:00:00.5"),
        ("0000-00-00 00:00:00", ColumnType("timestamp"), "0000-00-00 00:00:00"),
        ("0000-00-00", ColumnType("date"), "0000-00-00"),
        ("2026-03-01 10:00:00", ColumnType("datetime", scale=3), None),
    ],
)
def test_a_moment_of_no_calendar_has_one_text(text: str, column_type: ColumnType, exact: str | None) -> None:
    assert written_cell(text, column_type, "UTC").exact == exact
