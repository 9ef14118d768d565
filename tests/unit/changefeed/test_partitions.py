"""The partition of a row, held against what TiCDC computed in captures."""

from pathlib import Path

import msgspec
import pytest

from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.partitions import cell_hash, partitions_of, table_hash
from ticdc_replay.changefeed.rules import ColumnSelector, Dispatch, DispatchRule
from ticdc_replay.changefeed.table_filter import ColumnFilter, TableFilter
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.events import Image, Operation, RowEvent, Shape, WireColumn
from ticdc_replay.domain.tables import Column, TableName, TableSchema


def column(name: str, base: str, *, key: bool = False, unsigned: bool = False) -> WireColumn:
    return WireColumn(name, ColumnType(base, unsigned), key, list)


def row(*cells: tuple[WireColumn, object], commit_ts: int | None = 7, table: str = "t") -> RowEvent:
    shape = Shape(tuple(each for each, _ in cells))
    image = Image(shape, tuple(value for _, value in cells))
    operation, nothing = Operation.INSERT, None
    return RowEvent(0, commit_ts, "test", table, nothing, operation, image, nothing, False, nothing, nothing, (), b"")


def by(partition: str, **members: object) -> Dispatch:
    return Dispatch((msgspec.convert({"partition": partition, **members}, DispatchRule),))


def expected(*cells: tuple[str, bytes], count: int) -> frozenset[int]:
    number = table_hash("test", "t")
    for name, text in cells:
        number ^= cell_hash(name, text)
    return frozenset((number % count,))


def test_the_vectors_of_the_protocol_notes() -> None:
    assert table_hash("test", "t") == 2349099517
    assert table_hash("test", "t") ^ cell_hash("id", b"1") == 1678569177
    one = row((column("id", "int", key=True), 1))
    assert partitions_of(one, by("table"), 3, "UTC") == {1}
    assert partitions_of(one, by("index-value"), 3, "UTC") == {0}


@pytest.mark.parametrize("generation", ["classic", "new"])
def test_rows_of_a_capture_stand_where_they_are_computed_to(open_captures: Path, generation: str) -> None:
    capture = Capture(open_captures / generation / "open-2part-index")
    changefeed = capture.changefeed()
    codec = codec_for(changefeed, 1 << 26)
    placed = [
        message.partition in (partitions_of(event, changefeed.dispatch, 2, changefeed.timezone) or ())
        for message in capture.messages()
        for event in codec.decode(message)
        if isinstance(event, RowEvent)
    ]
    assert len(placed) > 300
    assert all(placed)


@pytest.mark.parametrize(
    ("base", "value", "texts"),
    [
        ("bigint", 18446744073709551615, {b"18446744073709551615"}),
        ("varchar", "a'b", {b"a'b"}),
        ("varbinary", b"\xff\x00", {b"\xff\x00"}),
        ("decimal", "1.50", {b"1.50"}),
        ("double", 1e21, {b"1000000000000000000000"}),
        ("double", 1e-7, {b"0.0000001"}),
        ("double", 2.0, {b"2"}),
        ("float", 3.140000104904175, {b"3.14"}),
        ("float", 3.4028234663852886e38, {b"34028235" + b"0" * 31}),
        ("enum", 2, {b"2"}),
        ("datetime", "2026-03-01 00:00:00.500", {b"2026-03-01 00:00:00.500"}),
        ("timestamp", "2026-03-01 00:00:00.5Z", {b"2026-03-01 08:00:00.5"}),
        ("time", "-01:02:03.5", {b"-01:02:03.5", b"-01:02:03"}),
    ],
)
def test_values_are_hashed_as_their_text(base: str, value: object, texts: set[bytes]) -> None:
    found = partitions_of(row((column("k", base, key=True), value)), by("index-value"), 1000, "Asia/Shanghai")
    assert found == frozenset().union(*(expected(("k", text), count=1000) for text in texts))


def test_a_name_of_an_enum_tells_no_partition() -> None:
    assert partitions_of(row((column("k", "enum", key=True), "red")), by("index-value"), 5, "UTC") is None


@pytest.mark.parametrize(
    ("base", "value"),
    [
        ("timestamp", "2026-02-31 00:00:00Z"),
        ("timestamp", "0000-00-00 00:00:00Z"),
        ("timestamp", "9999-12-31 23:59:59Z"),
        ("timestamp", "2026-01-01 25:00:00Z"),
        ("varchar", "\ud800"),
        ("time", "\ud800"),
        ("float", 1e39),
    ],
)
@pytest.mark.parametrize("rule", [by("index-value"), by("columns", columns=("A",))], ids=["key", "columns"])
def test_a_value_that_no_table_has_tells_no_partition(rule: Dispatch, base: str, value: object) -> None:
    assert partitions_of(row((column("A", base, key=True), value)), rule, 5, "Asia/Shanghai", COLUMNS) is None


def test_a_float_between_two_is_the_nearer_one() -> None:
    found = partitions_of(row((column("k", "float", key=True), 0.3094535023920717)), by("index-value"), 1000, "UTC")
    assert found == expected(("k", b"0.30945352"), count=1000)


@pytest.mark.parametrize("rule", [by("index-value"), by("columns", columns=[f"k{at}" for at in range(200)])])
def test_one_architecture_writes_all_times_of_a_row(rule: Dispatch) -> None:
    names = [f"k{at}" for at in range(200)]
    cells = ((column(name, "time", key=True), "01:02:03.5") for name in names)
    schema = TableSchema(TableName("test", "t"), tuple(Column(name, ColumnType("time")) for name in names))
    found = partitions_of(row(*cells), rule, 1 << 30, "UTC", schema)
    classic, new = ([(name, text) for name in names] for text in (b"01:02:03.5", b"01:02:03"))
    assert found == expected(*classic, count=1 << 30) | expected(*new, count=1 << 30)


def test_all_parts_of_a_key_count_and_nothing_else() -> None:
    found = row((column("b", "int", key=True), 2), (column("x", "int"), 9), (column("a", "int", key=True), 1))
    assert partitions_of(found, by("index-value"), 50, "UTC") == expected(("a", b"1"), ("b", b"2"), count=50)


def test_rows_without_a_key_stay_together() -> None:
    assert partitions_of(row((column("x", "int"), 9)), by("index-value"), 50, "UTC") == expected(count=50)


def test_by_time_the_commit_decides() -> None:
    assert partitions_of(row((column("k", "int", key=True), 1), commit_ts=23), by("ts"), 10, "UTC") == {3}
    assert partitions_of(row((column("k", "int", key=True), 1), commit_ts=None), by("ts"), 10, "UTC") is None


COLUMNS = TableSchema(
    TableName("test", "t"),
    (Column("A", ColumnType("int")), Column("b", ColumnType("int")), Column("c", ColumnType("int"))),
)


def test_by_columns_either_architecture_is_accepted() -> None:
    cells = ((column("A", "int", key=True), 1), (column("b", "int"), None))
    found = partitions_of(row(*cells), by("columns", columns=("a", "b")), 1000, "UTC", COLUMNS)
    classic, new = expected(("A", b"1"), ("b", b"null"), count=1000), expected(("a", b"1"), count=1000)
    assert found == classic | new


def test_columns_that_are_not_the_table_s_first_tell_no_partition() -> None:
    cells = ((column("A", "int", key=True), 1), (column("b", "int"), 2))
    assert partitions_of(row(*cells), by("columns", columns=("b",)), 9, "UTC", COLUMNS) is None
    assert partitions_of(row(*cells), by("columns", columns=("A",)), 9, "UTC") is None, "the order is not known"


def test_a_column_selector_or_a_named_index_tell_no_partition() -> None:
    one = row((column("id", "int", key=True), 1))
    selector = ColumnSelector(TableFilter(("test.*",)), ColumnFilter(("*", "!x")))
    assert partitions_of(one, Dispatch((DispatchRule(partition="index-value"),), (selector,)), 3, "UTC") is None
    assert partitions_of(one, by("index-value", index="u"), 3, "UTC") is None
