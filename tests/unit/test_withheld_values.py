"""An error says where a value is wrong, of which column and kind, and never what it is: the column may be masked in a target."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.dumpling_files import Table, Variant, write_dump
from tests.support.replayed_windows import pipeline_for
from tests.support.seeds import read_dump, request_of
from ticdc_replay.changelog.cells.column import typed_array
from ticdc_replay.codecs import text_forms, text_numbers
from ticdc_replay.codecs.avro import values as avro
from ticdc_replay.codecs.debezium import values as debezium
from ticdc_replay.codecs.neutral import within
from ticdc_replay.codecs.open import go_quote
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.withheld import withheld
from ticdc_replay.dumps import cells
from ticdc_replay.dumps.csv_rows import csv_rows
from ticdc_replay.dumps.dialect import Dialect
from ticdc_replay.dumps.records import WrongRowError
from ticdc_replay.dumps.sql_rows import sql_rows

PLANTED = "plan-ted"
NUMBER = 987654321012345
TYPES = [
    ColumnType("int"), ColumnType("year"), ColumnType("double"), ColumnType("float"), ColumnType("date"), ColumnType("time"),
    ColumnType("datetime", scale=3), ColumnType("timestamp"), ColumnType("decimal", length=9, scale=2),
]  # fmt: skip


@pytest.mark.parametrize("column_type", TYPES, ids=str)
@pytest.mark.parametrize("value", [PLANTED, PLANTED.encode(), [PLANTED]], ids=["text", "bytes", "list"])
def test_a_cell_of_a_message_is_not_shown(column_type: ColumnType, value: object) -> None:
    why = typed_array([None, value], column_type, "UTC").bad[1]
    assert withheld(value) in why
    assert PLANTED not in why


@pytest.mark.parametrize("column_type", TYPES, ids=str)
def test_a_cell_of_a_dump_is_not_shown(column_type: ColumnType) -> None:
    why = cells.cells(pa.array([None, PLANTED.encode()], pa.binary()), column_type, "UTC", cells.raw).bad[1]
    assert "a text of 8 characters" in why
    assert PLANTED not in why


@pytest.mark.parametrize("read", [cells.from_hex, cells.from_base64, cells.from_literal])
def test_bytes_of_a_dump_are_not_shown(read: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="a value of 8 bytes") as error:
        read(PLANTED.encode())
    assert PLANTED not in str(error.value)


@pytest.mark.parametrize(
    ("neutral", "value"),
    [
        (text_numbers.integers(0, 9), PLANTED),
        (text_numbers.integers(0, 9), str(NUMBER)),
        (text_numbers.float_64, PLANTED),
        (text_forms.DECIMAL.of_texts, PLANTED),
        (text_forms.MOMENT.of_bytes, PLANTED.encode()),
        (within(0, 9), NUMBER),
        (avro.unsigned_texts, PLANTED.encode()),
        (debezium.unsigned_64, NUMBER << 20),
        (debezium.bits(8), PLANTED.encode()),
        (debezium.decimals(1), NUMBER / 1e7),
        (debezium.times(6), NUMBER << 20),
        (go_quote.unquote_all, f'"{PLANTED}\n'),
        (go_quote.unquote_all, f"\\q{PLANTED}"),
        (go_quote.unquote_all, f"\\u{PLANTED}"),
    ],
    ids=lambda value: getattr(value, "__qualname__", str(value))[:30],
)
def test_a_value_on_the_wire_is_not_shown(neutral: Callable[[Any], Any], value: object) -> None:
    with pytest.raises(ValueError, match=r"[a-z] ") as error:
        neutral([value])
    assert not any(part in str(error.value) for part in (PLANTED, str(value), str(NUMBER)))


@pytest.mark.parametrize("line", [f'"1",{PLANTED}', f'"1","\\{PLANTED}"', f'"1","x","{PLANTED}"'], ids=str)
def test_a_line_of_a_csv_file_is_not_shown(line: str) -> None:
    with pytest.raises(WrongRowError, match="file, line 2: ") as error:
        list(csv_rows(iter([f'"a","b"\r\n{line}\r\n'.encode()]), "file", Dialect()))
    assert PLANTED not in str(error.value)


@pytest.mark.parametrize("count", [1, 3])
def test_a_first_row_that_was_taken_for_the_names_of_columns_is_not_shown(tmp_path: Path, count: int) -> None:
    create = "CREATE TABLE `people` (`id` INT PRIMARY KEY, `mail` VARCHAR(100))"
    rows = [(str(number).encode(), PLANTED.encode()) for number in range(count)]
    people = Table("shop", "people", create, ["id", "mail"], ["number", "string"], rows)
    dump = write_dump(tmp_path / "dump", [people], 1 << 58, Variant(dialect=Dialect(header=False)))
    with (
        pipeline_for(tmp_path, "unused:9092", "topic") as context,
        pytest.raises(
            WrongRowError, match=r"line 1: 2 of 2 .*: value 1 is a text of 1 character\..* --no-header"
        ) as error,
    ):
        read_dump(context, request_of(dump))
    assert PLANTED not in str(error.value)


@pytest.mark.parametrize(
    "line", [f"(1,'{PLANTED}',3);", f"(1,'\\{PLANTED}');", f"(1,{PLANTED}'", f"{PLANTED};"], ids=str
)
def test_a_line_of_an_sql_file_is_not_shown(line: str) -> None:
    content = f"INSERT INTO `t` VALUES\n(1,'x'),\n{line}\n"
    with pytest.raises(WrongRowError, match="file, line ") as error:
        list(sql_rows(iter([content.encode()]), "file", escape_backslash=True))
    assert PLANTED not in str(error.value)


def test_base64_of_a_value_is_not_shown_either() -> None:
    encoded = base64.b64encode(PLANTED.encode()).decode()
    with pytest.raises(ValueError, match="is not base64") as error:
        cells.from_base64(f"{encoded}!".encode())
    assert encoded not in str(error.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a text of 1 character"),
        (b"", "a value of 0 bytes"),
        (None, "NULL"),
        (1.5, "a number (float)"),
        ([], "a value of type list"),
    ],
)
def test_what_is_said_of_a_value(value: object, text: str) -> None:
    assert withheld(value) == text
