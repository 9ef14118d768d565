"""Statements that read the source: names are quoted, values are parameters, equal key cells have one form."""

from decimal import Decimal
from typing import Any

import pytest

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.tables import TableName
from ticdc_replay.large_messages.source_statements import at_snapshot, key_cell, key_cells, select_rows, show_create
from ticdc_replay.schemas.ddl.reader import definition_from_sql


def test_the_snapshot_is_a_session_variable_of_tidb() -> None:
    assert at_snapshot(443812345) == ("SET @@tidb_snapshot = %s", ("443812345",))


def test_names_are_quoted_and_values_are_parameters() -> None:
    name = TableName("s`%s", "tä`b")
    sql = "CREATE TABLE `tä``b` (`k``1` int, `x%d` bit(3), e enum('a'), f float, v int AS (1) VIRTUAL, PRIMARY KEY (`k``1`))"
    statement = select_rows(definition_from_sql(name, sql), ["k`1", "e"], [(1, 2), ("'; DROP", None)])
    assert statement.sql == (
        "SELECT `k``1`, CAST(`x%%d` AS UNSIGNED), CAST(`e` AS UNSIGNED), `f` * 1e0 FROM `s``%%s`.`tä``b` "
        "WHERE (`k``1`, `e`) IN ((%s, %s), (%s, %s)) LIMIT 3"
    )
    assert statement.parameters == (1, 2, "'; DROP", None)
    assert show_create(name).sql == "SHOW CREATE TABLE `s``%%s`.`tä``b`"


@pytest.mark.parametrize(
    ("column_type", "value", "cell"),
    [
        (ColumnType("decimal"), "1.50", Decimal("1.5")),
        (ColumnType("float"), 1.1, 1.100000023841858),
        (ColumnType("binary", length=3), b"a", b"a\0\0"),
        (ColumnType("varbinary", length=3), b"a", b"a"),
        (ColumnType("char", length=3), "a ", "a"),
        (ColumnType("varchar", length=3), "a ", "a "),
        (ColumnType("enum", elements=("a", "b")), "b", 2),
        (ColumnType("set", elements=("a", "b", "c")), "a,c", 5),
        (ColumnType("bigint", unsigned=True), 2**64 - 1, 2**64 - 1),
        (ColumnType("datetime", scale=3), "2020-01-01 10:00:00.120", "2020-01-01 10:00:00.12"),
        (ColumnType("timestamp"), "2020-01-01 10:00:00", "2020-01-01 02:00:00"),
        (ColumnType("timestamp", scale=3), "2020-01-01 02:00:00.100Z", "2020-01-01 02:00:00.1"),
        (ColumnType("timestamp"), "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    ],
)
def test_a_key_cell_has_one_form(column_type: ColumnType, value: Any, cell: Any) -> None:
    assert key_cell(value, column_type, "Asia/Shanghai") == cell


@pytest.mark.parametrize(
    ("key", "size"),
    [
        (("x" * 12_289, 1), 12_289),
        (("é" * 6_000, b"x" * 289), 12_289),
        (("2020-01-01" + "0" * 20_000, 1), 20_010),
    ],
)
def test_a_key_longer_than_any_index_holds_is_refused(key: tuple[Any, ...], size: int) -> None:
    types = [ColumnType("varchar", length=9_000), ColumnType("varbinary", length=9_000)]
    with pytest.raises(ValueError, match=f"a key of {size} bytes"):
        key_cells(key, types, "UTC")


def test_a_key_may_be_as_long_as_an_index_can_be() -> None:
    key, types = (
        ("x" * 6_144, b"x" * 6_144),
        [ColumnType("varchar", length=9_000), ColumnType("varbinary", length=9_000)],
    )
    assert key_cells(key, types, "UTC") == key
