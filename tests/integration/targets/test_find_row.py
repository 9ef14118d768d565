"""What a mirror has of one row: its version, that of its delete, or neither."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.target_rigs import LakeRig, MirrorRig
from ticdc_replay.changelog.cells.written import written_cell
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.tables import TableSchema
from ticdc_replay.targets.base import FoundRow

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})


def find(mirror: MirrorRig, schema: TableSchema, texts: Mapping[str, str]) -> FoundRow:
    key = {name: written_cell(text, schema.column(name).type, "UTC") for name, text in texts.items()}  # type: ignore[union-attr]
    return mirror.target(None).find_row("pipeline", schema.name, key)


def test_a_row_a_delete_and_neither(mirror: Mirror, artifacts: Path) -> None:
    assert find(mirror, ORDERS, {"id": "1"}) == FoundRow(where='"shop"."orders"')
    mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="x"), delete(20, id=2)]))
    assert find(mirror, ORDERS, {"id": "1"}) == FoundRow(where='"shop"."orders"', version=10)
    assert find(mirror, ORDERS, {"id": "2"}) == FoundRow(where='"shop"."orders"', version=20, is_deleted=True)
    assert find(mirror, ORDERS, {"id": "3"}) == FoundRow(where='"shop"."orders"')
    mirror.raise_floor("shop.orders", 50)
    assert find(mirror, ORDERS, {"id": "2"}) == FoundRow(where='"shop"."orders"', floor_ts=50)


def test_a_row_that_is_ordered_by_its_place(mirror: Mirror, artifacts: Path) -> None:
    rows = [put(4711, id=1, v="x")._replace(partition=2)]
    mirror.load(Changelog(artifacts, 0, 100, order="place").rows(ORDERS, rows))
    found = find(mirror, ORDERS, {"id": "1"})
    assert (found.version, found.order) == ((2 << 48) + 4712, "place")


def test_a_table_with_another_key_is_not_looked_at(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="x")]))
    other = table("shop.orders", {"id": INT, "v": TEXT}, key=("id", "v"))
    assert find(mirror, other, {"id": "1", "v": "x"}).not_looked == 'rows of "shop"."orders" are identified by id'


def test_a_table_in_a_reserved_schema_is_not_looked_at(mirror: Mirror) -> None:
    schema = table("pg_catalog.pg_class", {"id": INT})
    assert "reserved in PostgreSQL" in find(mirror, schema, {"id": "1"}).not_looked


MOMENT = datetime(2026, 3, 1, 12, 0, 0, 120_000)
KEYS: list[tuple[ColumnType, Any, str]] = [
    (ColumnType("tinyint", unsigned=True, declared=True), 200, "200"),
    (ColumnType("bigint", unsigned=True, declared=True), 2**64 - 1, str(2**64 - 1)),
    (ColumnType("decimal", length=20, scale=4, declared=True), Decimal("1.5000"), "1.5"),
    (ColumnType("float", declared=True), 0.1, "0.1"),
    (ColumnType("double", declared=True), 0.1, "0.1"),
    (ColumnType("varchar", length=20, declared=True), "it's", "it's"),
    (ColumnType("varbinary", length=20, declared=True), b"\0\xff'", "0x00ff27"),
    (ColumnType("date", declared=True), date(2026, 3, 1), "2026-03-01"),
    (ColumnType("datetime", scale=3, declared=True), MOMENT, "2026-03-01 12:00:00.12"),
    (ColumnType("timestamp", scale=3, declared=True), MOMENT.replace(tzinfo=UTC), "2026-03-01T12:00:00.12Z"),
    (ColumnType("time", scale=0, declared=True), -3_600_000_000, "-01:00:00"),
    (ColumnType("year", declared=True), 2026, "2026"),
    (ColumnType("bit", length=64, declared=True), 2**63, str(2**63)),
    (ColumnType("enum", elements=("a", "b"), declared=True), "b", "b"),
]


def test_a_key_of_many_types(any_mirror: MirrorRig, artifacts: Path) -> None:
    """In a lake the query is run as a person would run it."""
    columns = {f"k{at}": column_type for at, (column_type, _, _) in enumerate(KEYS)}
    schema = table("shop.orders", {**columns, "v": TEXT}, key=tuple(columns))
    cells: dict[str, Any] = {f"k{at}": value for at, (_, value, _) in enumerate(KEYS)}
    others = Row("insert", 20, {**cells, "k5": "other", "v": "y"})
    any_mirror.load(Changelog(artifacts, 0, 100).rows(schema, [Row("insert", 10, {**cells, "v": "x"}), others]))
    found = find(any_mirror, schema, {f"k{at}": text for at, (_, _, text) in enumerate(KEYS)})
    assert found.where == '"shop"."orders"'
    if isinstance(any_mirror, LakeRig):
        prefix, _, query = found.not_looked.partition("run: ")
        assert prefix == "its tables can be looked at with Spark only; "
        assert [tuple(row) for row in any_mirror.spark.sql(query).collect()] == [(10,)]
    else:
        assert (found.version, found.not_looked) == (10, "")


def test_a_key_that_the_target_can_not_hold_is_no_row(mirror: Mirror, artifacts: Path) -> None:
    texts = table("shop.texts", {"id": TEXT})
    days = table("shop.days", {"id": ColumnType("date", declared=True)})
    numbers = table("shop.numbers", {"id": ColumnType("smallint", declared=True)})
    changelog = Changelog(artifacts, 0, 100).rows(texts, [put(10, id="a")]).rows(numbers, [put(10, id=7)])
    mirror.load(changelog.rows(days, [put(10, id=date(2026, 3, 1))]))
    assert find(mirror, texts, {"id": "a"}).version == 10
    assert find(mirror, texts, {"id": "a\0"}).version is None
    assert find(mirror, days, {"id": "0000-00-00"}).version is None
    wider = table("shop.numbers", {"id": INT})
    assert find(mirror, wider, {"id": "7"}).version == 10
    assert find(mirror, wider, {"id": "70000"}).version is None
