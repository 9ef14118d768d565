"""What a ``mysqlType`` text says of a column, and how its cells are read."""

from typing import Any

import pytest

from ticdc_replay.codecs.canal.types import are_full, cell_kind
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.schemas.ddl.column_parser import read_column
from ticdc_replay.schemas.ddl.tokens import Cursor, sql_tokens

FULL_TYPES = [
    "tinyint(1)", "tinyint(3) unsigned", "smallint(6)", "mediumint(9)", "int(11)", "int(10) unsigned zerofill", "int",
    "int unsigned", "bigint(20) unsigned", "float", "float unsigned", "float(7,3)", "double", "double(20,5)",
    "decimal(10,0)", "decimal(65,30) unsigned", "bit(1)", "bit(64)", "year(4)", "date", "time", "time(6)", "datetime",
    "datetime(3)", "timestamp", "timestamp(6)", "char(10)", "varchar(200)", "tinytext", "text", "mediumtext", "longtext",
    "binary(8)", "varbinary(300)", "tinyblob", "blob", "mediumblob", "longblob", "json", "vector", "vector(3)",
    "enum('a','b','c,d','it''s','')", "set('x','y z','(')",
]  # fmt: skip


@pytest.mark.parametrize("text", FULL_TYPES)
def test_a_full_type_is_what_the_same_ddl_declares(text: str) -> None:
    kind = cell_kind(text, full=True)
    assert kind is not None
    assert kind.type == read_column(Cursor(sql_tokens(f"`c` {text}"))).column.type


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("bigint unsigned", ColumnType("bigint", unsigned=True)),
        ("int unsigned zerofill", ColumnType("int", unsigned=True)),
        ("decimal", ColumnType("decimal")),
        ("datetime", ColumnType("datetime")),
        ("enum", ColumnType("enum")),
        ("varbinary", ColumnType("varbinary")),
    ],
)
def test_a_bare_type_is_not_declared(text: str, type_: ColumnType) -> None:
    kind = cell_kind(text, full=False)
    assert kind is not None
    assert kind.type == type_


@pytest.mark.parametrize("text", ["decimal", "varchar", "enum", "bit", "year"])
def test_a_type_that_lacks_its_arguments_is_not_declared_among_full_ones(text: str) -> None:
    kind = cell_kind(text, full=True)
    assert kind is not None
    assert not kind.type.declared


@pytest.mark.parametrize("text", ["enum('a\\nb')", "set('a\\0')", "enum('a\\r')"])
def test_names_that_may_hold_an_escape_are_left_to_the_ddl(text: str) -> None:
    """TiDB writes a line feed as backslash and n, and a backslash as it is."""
    kind = cell_kind(text, full=True)
    assert kind is not None
    assert (kind.type.elements, kind.type.declared) == (None, False)


def test_another_backslash_is_itself() -> None:
    kind = cell_kind("enum('a\\b')", full=True)
    assert kind is not None
    assert kind.type.elements == ("a\\b",)


@pytest.mark.parametrize(
    "text",
    [
        "", "INT", "int ", " int", "integer", "bool", "int(11", "int)", "int()", "int(a)", "int(-1)", "int(011)", "int(1,2)",
        "int signed", "int zerofill unsigned", "varchar(70000)", "varchar unsigned", "varchar(10) unsigned", "date(3)",
        "datetime(7)", "decimal(66,0)", "decimal(10)", "decimal(10,31)", "decimal(5,6)", "decimal(0,0)", "bit(65)",
        "bit(8) unsigned", "char(256)", "year(4) unsigned", "enum()", "enum(a)", "enum('a'b')", "enum('a',)", "enum('a' ,'b')",
        "set('a", "json(1)", "text(10)", "geometry", "null", "blob(5)", "vector<float>", "float(7)", "int(11)\n",
    ],
)  # fmt: skip
@pytest.mark.parametrize("full", [False, True])
def test_what_ticdc_does_not_write_is_no_type(text: str, full: bool) -> None:
    assert cell_kind(text, full) is None


@pytest.mark.parametrize(
    ("texts", "configured", "full"),
    [
        (["int", "datetime"], True, True),
        (["int", "datetime"], False, False),
        (["datetime", "varchar"], True, False),
        (["datetime", "varchar(10)"], False, True),
        (["decimal", "varchar(10)"], True, True),
        (["text", "enumeration"], False, False),
    ],
)
def test_types_that_stand_together_show_whether_they_are_full(texts: list[str], configured: bool, full: bool) -> None:
    assert are_full(texts, configured) is full


def neutral(text: str, *values: str | None) -> list[Any]:
    kind = cell_kind(text, full=False)
    assert kind is not None
    return list(kind.neutral(values))


@pytest.mark.parametrize(
    ("type_", "wire", "value"),
    [
        ("bigint unsigned", "18446744073709551615", 18446744073709551615),
        ("bigint", "-9223372036854775808", -9223372036854775808),
        ("tinyint", "-128", -128),
        ("mediumint unsigned", "16777215", 16777215),
        ("bit", "18446744073709551615", 18446744073709551615),
        ("year", "0", 0),
        ("enum", "3", 3),
        ("enum", "0", 0),
        ("set", "9223372036854775809", 9223372036854775809),
        ("float", "-340282350000000000000000000000000000000", -3.4028235e38),
        ("double", "0.0000001", 1e-7),
        ("decimal", "-0.0500", "-0.0500"),
        ("date", "0000-00-00", "0000-00-00"),
        ("date", "2023-00-10", "2023-00-10"),
        ("time", "-838:59:59.000", "-838:59:59.000"),
        ("datetime", "0000-00-00 00:00:00.000", "0000-00-00 00:00:00.000"),
        ("timestamp", "2024-01-04 21:54:55.699224", "2024-01-04 21:54:55.699224"),
        ("varchar", "中\ufffd", "中\ufffd"),
        ("varbinary", "\u0000\u007f\u0085ÿ", b"\x00\x7f\x85\xff"),
        ("blob", "", b""),
        ("json", "null", "null"),
        (
            "vector",
            "[1.5,-2,340000000000000000000000000000000000000]",
            "[1.5,-2,340000000000000000000000000000000000000]",
        ),
        ("vector", "[]", "[]"),
    ],
)
def test_cells_are_read_exactly(type_: str, wire: str, value: Any) -> None:
    assert neutral(type_, wire, None) == [value, None]


@pytest.mark.parametrize(
    ("type_", "wire"),
    [
        ("tinyint", "128"), ("tinyint unsigned", "256"), ("tinyint unsigned", "-1"), ("int", "1.0"), ("int", ""),
        ("year", "2156"), ("bit", "-1"), ("enum", "65536"), ("enum", "a"), ("set", "x,y"), ("float", "1e5"),
        ("float", "1" + "0" * 39), ("double", "NaN"), ("decimal", "1e5"), ("decimal", ""), ("decimal", "1,2"),
        ("date", "2024-1-1"), ("time", "1:00:00"), ("datetime", "2024-01-01T00:00:00"),
        ("timestamp", "2024-01-01 00:00:00Z"), ("vector", "[1,]"), ("blob", "Ā"), ("binary", "中"),
    ],
)  # fmt: skip
def test_cells_of_another_form_are_refused(type_: str, wire: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        neutral(type_, wire)
